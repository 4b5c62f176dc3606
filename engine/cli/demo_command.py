"""``daisy demo``: three nodes become a pool, load a model, and survive losing one in mid-answer."""

from __future__ import annotations

import asyncio
import contextlib
import re
import shutil
import tempfile
import time
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from engine.cli.amounts import memory
from engine.cli.answering import tell_answer
from engine.cli.arguments import data_dir
from engine.cli.commands import chat_message, new_request_id
from engine.cli.demo_figures import Figures, figure_lines
from engine.cli.demo_memory import memory_cap
from engine.cli.demo_nodes import DemoNode, DemoNodes, agree, layers_cover, see_each_other
from engine.cli.demo_reference import unsplit_answer
from engine.cli.load_command import follow_load
from engine.cli.load_view import LoadView
from engine.cli.own_node import open_own_node
from engine.cli.preparation import open_source
from engine.cli.wish_watch import LoadWatch
from engine.errors import PeerTimeoutError, RequestError, StageError
from engine.messages.pool_control import LoadModel
from engine.messages.request_body import RequestBody, as_generate
from engine.models.names import safe_folder_name
from engine.models.shown_path import shown_path
from engine.pool.stage_memory import Workload
from engine.pool.system_interfaces import system_interfaces
from engine.preparation import describe_order
from engine.splitter.process import describe_in_process

if TYPE_CHECKING:
    import argparse

    from engine.cli.answering import Answer
    from engine.cli.output import Output
    from engine.domain import ModelDescription
    from engine.messages.control import Generate
    from engine.messages.pool_control import DeploymentReport
    from engine.models.files import ModelFiles

NAMES = ("Kitchen", "Study", "Laptop")
CONTEXT_TOKENS = 1024
SEE_WITHIN_S = 15.0
AGREE_WITHIN_S = 20.0
SETTLE_WITHIN_S = 15.0


async def demo_command(given: argparse.Namespace, output: Output) -> None:
    """Start three nodes, load a model none of them could hold, ask twice, and kill one meanwhile.

    Both answers' tokens are compared with the unsplit model's.

    Args:
        given: Parsed options.
        output: Told everything.

    Raises:
        DaisyError: Anything went wrong, or the tokens differ.

    Cancellation: every node is ended.
    """
    files = await open_source(given.model, data_dir(given), output)
    output.say("Reading the model ...")
    order = await asyncio.to_thread(describe_order, files)
    model = (await describe_in_process(order, lambda _step: None)).model
    workload = Workload(context_tokens=CONTEXT_TOKENS, kv_precision="f32")
    cap = memory_cap(model, workload)
    async with contextlib.AsyncExitStack() as stack:
        folder = await asyncio.to_thread(_make_folder, data_dir(given))
        stack.push_async_callback(asyncio.to_thread, partial(shutil.rmtree, folder, True))
        nodes = DemoNodes(folder, cap)
        stack.push_async_callback(nodes.end_all)
        source = await asyncio.to_thread(_named_folder, files, folder)
        demo = _Demo(given, files, model, source, nodes, output)
        await demo.run(cap)


def _make_folder(data: Path) -> Path:
    data.mkdir(parents=True, exist_ok=True)
    return Path(tempfile.mkdtemp(prefix="demo-", dir=data))


def _named_folder(files: ModelFiles, folder: Path) -> Path:
    """Return a folder with the model's files that is called as the model is.

    One that was converted lies in a folder whose name says nothing to a person.
    """
    is_plain = re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", files.name)
    named = folder / (files.name if is_plain else safe_folder_name(files.name))
    pairs = ((files.xml.name, files.xml), (files.bin.name, files.bin), *files.text_files)
    for name, path in pairs:
        (named / name).parent.mkdir(parents=True, exist_ok=True)
        try:
            (named / name).hardlink_to(path.resolve())
        except OSError:  # another volume, or one that knows no links
            shutil.copyfile(path, named / name)
    return named


@dataclass(slots=True)
class _Demo:
    given: argparse.Namespace
    files: ModelFiles
    model: ModelDescription
    source: Path
    nodes: DemoNodes
    output: Output
    figures: Figures = field(default_factory=Figures)

    async def run(self, cap: int) -> None:
        """Do it all.

        Args:
            cap: Bytes each node may give.
        """
        say = self.output.say
        say(
            f"\nStarting {len(NAMES)} nodes; each may give {memory(cap)}, too little for the model."
        )
        running = await self._find_each_other()
        asked = running[0]
        say(f"\nLoading {self.model.name} from {asked.name}:")
        report = await self._load(asked)
        self.figures.layers_before = await self._layers(running)
        say(f"\nQuestion, asked on {asked.name}: {self.given.question}\n")
        first = await self._ask(asked)
        lost = _other_in_chain(report, running)
        say(f"\nThe same again; {lost.name} will be killed in the middle of the answer.\n")
        second = await self._ask(asked, lost)
        rest = [node for node in running if node is not lost]
        self.figures.layers_after = await self._layers(rest)
        self.figures.take_answers(first, second)
        self.output.event("figures", **self.figures.as_event())
        await self._compare([first.token_ids, second.token_ids])
        for line in figure_lines(self.figures):
            say(line)

    # ---- the pool ------------------------------------------------------------------------------

    async def _find_each_other(self) -> list[DemoNode]:
        """Start the nodes, by mDNS if that works here, or else by naming the first one's address.

        Raises:
            PeerTimeoutError: They do not see each other, or can't agree.
        """
        loopback = await asyncio.to_thread(_loopback)
        alone = ["--interface", loopback] if loopback is not None else []
        running = [await self.nodes.start(name, alone) for name in NAMES]
        await self._pair(running)
        seen_s = await see_each_other(running, SEE_WITHIN_S) if alone else None
        if seen_s is None:
            self.output.say("mDNS does not work within this PC: the nodes are told addresses.")
            self.figures.by_mdns = False
            first, *others = running
            for node in others:
                await self.nodes.end(node)
            told = [*alone, "--peer", f"127.0.0.1:{first.port}"]
            running = [first, *[await self.nodes.start(node.name, told) for node in others]]
            seen_s = await see_each_other(running, SEE_WITHIN_S)
        elected_s = None if seen_s is None else await agree(running, AGREE_WITHIN_S)
        if seen_s is None or elected_s is None:
            raise PeerTimeoutError("The demo's nodes did not become a pool.", "Try it again.")
        self.figures.discovery_s, self.figures.election_s = seen_s, seen_s + elected_s
        chosen = (await running[0].status()).coordinator
        name = next(node.name for node in running if node.node_id == chosen)
        self.output.event("pool", nodes=[node.name for node in running], coordinator=name)
        self.output.say(f"They see each other, and agreed on {name} as coordinator.")
        return running

    async def _pair(self, running: list[DemoNode]) -> None:
        """Let all join the first one's pool."""
        began_s = time.monotonic()
        first, *others = running
        for node in others:
            await self.nodes.pair(first, node)
        seconds = time.monotonic() - began_s
        self.output.event("paired", seconds=seconds)
        self.output.say(f"Paired by invite links, in {seconds:.1f} s.")

    async def _load(self, asked: DemoNode) -> DeploymentReport:
        request = LoadModel(
            source=shown_path(self.source),
            context_tokens=CONTEXT_TOKENS,
            max_sequences=1,
            mode="exact",  # the comparison is about tokens, and only exact mode promises them
        )
        began_s = time.monotonic()
        async with open_own_node(asked.data) as connection:
            view = LoadView({}, began_s)
            report = await follow_load(connection, request, LoadWatch(), view, self.output)
        self.figures.load_s = time.monotonic() - began_s
        self.figures.phases_s = view.phase_seconds(time.monotonic())
        return report

    async def _layers(self, nodes: list[DemoNode]) -> dict[str, str]:
        held = await layers_cover(nodes, self.model.num_layers, SETTLE_WITHIN_S)
        if held is None:
            raise PeerTimeoutError("The nodes do not say who has which layers.", "Try it again.")
        return held

    # ---- answers -------------------------------------------------------------------------------

    async def _ask(self, asked: DemoNode, to_kill: DemoNode | None = None) -> Answer:
        kill_after = max(2, self.given.max_tokens // 4)
        is_killed = to_kill is None

        def on_text(answer: Answer) -> None:
            nonlocal is_killed
            if to_kill is not None and not is_killed and len(answer.token_ids) >= kill_after:
                is_killed = True
                to_kill.process.kill()
                self.output.event("killed", node=to_kill.name, tokens=len(answer.token_ids))

        async with open_own_node(asked.data) as connection:
            answer = await tell_answer(connection, self._request(), self.output, on_text=on_text)
        if not is_killed:
            raise RequestError(
                "The answer was over before a node could be killed.", "Ask for a longer one."
            )
        return answer

    def _request(self) -> Generate:
        messages = [chat_message("user", self.given.question)]
        body = RequestBody(messages=messages, max_tokens=self.given.max_tokens)
        return as_generate(body, new_request_id())

    async def _compare(self, answers: list[list[int]]) -> None:
        """Hold the answers against the unsplit model's.

        Raises:
            StageError: A token differs.
        """
        self.output.say("\nRunning the unsplit model for comparison ...")
        longest = max(map(len, answers))
        unsplit = await unsplit_answer(self.files, self.model.vocab_size, self._request(), longest)
        for number, tokens in enumerate(answers, 1):
            same = [a == b for a, b in zip(tokens, unsplit, strict=False)]
            self.output.event("compared", answer=number, tokens=len(tokens), equal=sum(same))
            if not all(same):
                raise StageError(
                    f"Answer {number} differs from the unsplit model's at token "
                    f"{same.index(False)}.",
                    "Report it with the text above.",
                )
        counts = " and ".join(str(len(tokens)) for tokens in answers)
        self.output.say(
            f"The {counts} greedy tokens of the two answers are the unsplit model's, every one."
        )


def _loopback() -> str | None:
    """Return the name of the adapter that leads nowhere else; None if there is none."""
    adapters = system_interfaces()
    return next((a.name for a in adapters if a.is_loopback and a.is_up and a.addresses), None)


def _other_in_chain(report: DeploymentReport, nodes: list[DemoNode]) -> DemoNode:
    """Return a node of the chain that isn't the one that is asked, the first.

    Raises:
        StageError: There is none.
    """
    stages = () if report.deployment is None else report.deployment.stages
    chain = {stage.node_id for stage in stages}
    found = next((node for node in reversed(nodes[1:]) if node.node_id in chain), None)
    if found is None:
        raise StageError(
            "No other node of the demo has a stage: another pool runs within this PC.",
            "End its nodes, and try again.",
        )
    return found
