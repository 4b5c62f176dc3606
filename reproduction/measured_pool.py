"""A pool of two nodes on one core each, asked by several users at once, each answer timed.

It is the whole program as users get it: node and stage processes, TLS on the link between them, a
head that tokenizes, schedules and streams text to each user over a connection of its own. Stage and
node share a core, as they would where one core were all a PC had. Whoever asks runs in this
process, on whichever core is free, and only notes what comes and when.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Self, TypeVar

import psutil
from answer_figures import Answer, figures_of
from measured_guesses import program_guesses, write_guesses
from measured_node import GUESSES, stand_in

from engine.cli.local_pool import LocalPool, PoolOptions, open_local_pool
from engine.messages.control import Accepted, Finished, Generate, TextDelta
from engine.pipeline.asking import ask

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator, Sequence
    from types import TracebackType

    from measured_guesses import Guesses

    from engine.domain import ComputeMode, StageKind
    from engine.pipeline.shard_folder import ShardFolder
    from engine.transport.control_port import ControlConnection

CONTEXT_TOKENS = 4096
Prompt = str | tuple[dict[str, object], ...]  # as it is, or messages for the chat template
_SOCKETS_S = 10.0
_DRAFT_MODEL_S = 120.0
_DRAFT_MODEL_POLL_S = 0.5
_PROBE_TOKENS = 16
_PROBE_PASSES = (
    3  # of a draft model that guesses: while it is loaded it says nothing but that it is
)

_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolShape:
    """What is opened.

    Attributes:
        kind: Paged or stateful.
        mode: Fast or exact.
        max_users: At once.
        context_tokens: Of each.
        base_port: Of the first node; 0 lets the system choose.
        reuses_prefixes: Whether a prompt may begin with what is kept of another. Off where the
            same prompt is asked again to be measured again.
        is_guessed: Whether ``guess_by`` says who guesses; nobody does otherwise, but what the
            program guesses with by itself.
        has_draft_model: Whether the draft model that comes with the program is loaded; only in a
            pool that is guessed.
    """

    kind: StageKind = "paged"
    mode: ComputeMode = "fast"
    max_users: int = 1
    context_tokens: int = CONTEXT_TOKENS
    base_port: int = 0
    reuses_prefixes: bool = False
    is_guessed: bool = False
    has_draft_model: bool = False


class BrokenOffError(Exception):
    """An answer did not come to its end."""


class MeasuredPool:
    """A pool that is open, on a loop of its own; a context manager.

    Attributes:
        processes: Name to id of every process that computes.

    Thread: any one.
    """

    def __init__(self, folder: ShardFolder, shape: PoolShape) -> None:
        """Open it; each shard gets the core of its number.

        Args:
            folder: Shards, no more than there are cores.
            shape: How they run.
        """
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        num_stages = len(folder.manifest.shards)
        options = PoolOptions(
            kind=shape.kind,
            mode=shape.mode,
            context_tokens=shape.context_tokens,
            max_sequences=shape.max_users,
            num_threads=1,
            base_port=shape.base_port,
            cpus=[(core,) for core in range(num_stages)],
            draft="auto" if shape.has_draft_model else "none",
            speculate=shape.is_guessed,
        )
        self._open = open_local_pool(folder, options)
        self._place = tempfile.TemporaryDirectory(prefix="daisy-measured-")
        self._guesses = Path(self._place.name) / "guesses.json"
        self.guess_by(program_guesses("model" if shape.has_draft_model else "suffix"))
        with _nodes_that_guess(self._guesses if shape.is_guessed else None):
            self._pool: LocalPool = self.run(self._open.__aenter__())
        self._links: list[ControlConnection] = []
        self._reuses_prefixes = shape.reuses_prefixes
        self._num_rows = 0  # of every pass through the chain: prompts, and all tokens but the last
        self._num_drafted = self._num_accepted = 0
        self.processes: dict[str, int] = {}
        self._stages: list[psutil.Process] = []
        for core, node in enumerate(self._pool.nodes):
            process = psutil.Process(node.process.pid)
            process.cpu_affinity([core])
            stage = min(process.children(), key=lambda child: child.create_time())
            self._stages.append(stage)
            self.processes |= {f"node {core}": process.pid, f"stage {core}": stage.pid}
        self._ports = [int(node.address.rpartition(":")[2]) for node in self._pool.nodes]
        self.run(self._connect(shape.max_users))
        if shape.has_draft_model:
            self._await_draft_model()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def run(self, coroutine: Coroutine[None, None, _Result]) -> _Result:
        """Run something on the pool's loop, and wait for it.

        Args:
            coroutine: It.
        """
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()  # noqa: TID251

    def guess_by(self, guesses: Guesses) -> None:
        """Let the answers that are asked for from now on be guessed so, in a pool that is guessed.

        Args:
            guesses: Who guesses, and how far.
        """
        write_guesses(self._guesses, guesses)

    def answers(
        self, prompts: Sequence[Prompt], num_tokens: int, *, is_guessed: bool = False
    ) -> list[Answer]:
        """Answer as many users as there are prompts, all at once.

        Args:
            prompts: One for each, at most as many as the pool was opened for.
            num_tokens: Of each answer; ends are ignored.
            is_guessed: Whether the head may guess ahead.
        """

        async def all_answers() -> list[Answer]:
            asked = (
                self.answer(user, text, num_tokens, is_guessed=is_guessed)
                for user, text in enumerate(prompts)
            )
            return list(await asyncio.gather(*asked))

        return self.run(all_answers())

    async def answer(
        self,
        user: int,
        prompt: Prompt,
        num_tokens: int,
        so_far: Answer | None = None,
        on_tokens: Callable[[], None] = lambda: None,
        *,
        is_guessed: bool = False,
    ) -> Answer:
        """Answer one user.

        Args:
            user: Number of the connection; one answer at a time on each.
            prompt: A text as it is, without a chat template, or messages with one.
            num_tokens: Of the answer; ends are ignored.
            so_far: Is filled as tokens come, for whoever watches.
            on_tokens: Called when it was.
            is_guessed: Whether the head may guess ahead.

        Raises:
            BrokenOffError: Fewer tokens came.
        """
        request = Generate(
            request_id=f"user-{user}",
            prompt=prompt if isinstance(prompt, str) else None,
            messages=None if isinstance(prompt, str) else prompt,
            max_tokens=num_tokens,
            ignore_eos=True,
            reuse_prefix=self._reuses_prefixes,
            speculate=is_guessed,
        )
        answer = Answer(0.0) if so_far is None else so_far
        answer.asked_s = time.perf_counter()
        async for event in ask(self._links[user], request):
            if isinstance(event, Accepted):
                self._num_rows += event.prompt_tokens + num_tokens - 1
            elif isinstance(event, TextDelta):
                answer.take(time.perf_counter(), event.token_ids)
                on_tokens()
            elif isinstance(event, Finished):
                self._num_drafted += event.drafted_tokens
                self._num_accepted += event.accepted_tokens
                if len(answer.token_ids) != num_tokens:
                    raise BrokenOffError(f"{len(answer.token_ids)} of {num_tokens} tokens came.")
        return answer

    def measure(
        self, prompts: Sequence[Prompt], num_tokens: int, *, is_guessed: bool = False
    ) -> tuple[dict[str, float], list[Answer]]:
        """Answer users at once, and say what it took.

        Args:
            prompts: One for each.
            num_tokens: Of each answer.
            is_guessed: Whether the head may guess ahead.

        Returns:
            Figures, and the answers.
        """
        before = self._traffic()
        began_s = time.perf_counter()
        answers = self.answers(prompts, num_tokens, is_guessed=is_guessed)
        wall_s = time.perf_counter() - began_s
        spent = {name: after - before[name] for name, after in self._traffic().items()}
        figures = figures_of(answers)
        figures["bytes_per_row"] = spent["bytes"] / spent["rows"]
        figures["frames_per_token"] = spent["frames"] / (len(prompts) * num_tokens)
        figures["num_tokens"] = float(len(prompts) * num_tokens)
        figures["drafted"], figures["accepted"] = spent["drafted"], spent["accepted"]
        for number in range(len(self._stages)):
            figures[f"stage_{number}_busy"] = spent[f"cpu_s {number}"] / wall_s
        return figures, answers

    def close(self) -> None:
        """End the nodes."""
        self.run(self._disconnect())
        self.run(self._open.__aexit__(None, None, None))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._place.cleanup()

    def _await_draft_model(self) -> None:
        """Wait until the draft model guesses: it is loaded while answers go on already.

        Raises:
            BrokenOffError: It does not.
        """
        self.guess_by(replace(program_guesses("model"), num_drafts=_PROBE_PASSES))
        until_s = time.monotonic() + _DRAFT_MODEL_S
        node = psutil.Process(self.processes["node 0"])
        while True:
            drafts = [child for child in node.children() if child not in self._stages]
            before = sum(_num_writes(child.pid) for child in drafts)
            self.answers(["The"], _PROBE_TOKENS, is_guessed=True)
            num_passes = sum(_num_writes(child.pid) for child in drafts) - before
            if num_passes >= _PROBE_PASSES:
                break
            if time.monotonic() > until_s:
                raise BrokenOffError("The draft model was not loaded.")
            time.sleep(_DRAFT_MODEL_POLL_S)
        self.processes["draft model"] = drafts[0].pid

    async def _connect(self, num_users: int) -> None:
        self._links = [await self._pool.nodes[0].connect() for _ in range(num_users)]

    async def _disconnect(self) -> None:
        for link in self._links:
            await link.close("Measured.")

    def _traffic(self) -> dict[str, float]:
        """Count what has gone over the links and through the stages so far."""
        counts: dict[str, float] = {"bytes": bytes_sent(self._ports)}
        counts["frames"] = _num_writes(self._stages[0].pid)
        counts["rows"] = self._num_rows
        counts["drafted"], counts["accepted"] = self._num_drafted, self._num_accepted
        for number, stage in enumerate(self._stages):
            times = stage.cpu_times()
            counts[f"cpu_s {number}"] = times.user + times.system
        return counts


@contextmanager
def _nodes_that_guess(guesses: Path | None) -> Iterator[None]:
    """Let nodes that are started meanwhile guess from a file; nothing is different without one."""
    if guesses is None:
        yield
        return
    interpreter = sys.executable
    os.environ[GUESSES] = str(guesses)
    with tempfile.TemporaryDirectory(prefix="daisy-measured-") as place:
        sys.executable = str(stand_in(Path(place)))
        try:
            yield
        finally:
            sys.executable = interpreter
            del os.environ[GUESSES]


def bytes_sent(ports: Sequence[int]) -> int:
    """Return what all connections to these ports have carried, TLS included, in both directions.

    Args:
        ports: That nodes listen on.
    """
    words = ["ss", "-tinOH", "state", "established"]
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, timeout=_SOCKETS_S, check=True)
    return sum(_bytes_of(line) for line in done.stdout.splitlines() if _is_of(line, ports))


def _is_of(line: str, ports: Sequence[int]) -> bool:
    # Both ends of a connection lie on this PC, and each says what it has sent.
    ends = line.split()[2:4]
    return any(end.rpartition(":")[2] == str(port) for end in ends for port in ports)


def _bytes_of(line: str) -> int:
    fields = (word.partition(":") for word in line.split())
    return sum(int(value) for name, _, value in fields if name == "bytes_sent")


def _num_writes(pid: int) -> int:
    """Return how often a process has written: a stage writes once for each frame."""
    lines = Path(f"/proc/{pid}/io").read_text("ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("syscw"))
