"""A node that does as a script says: a process of its own, speaking the control port's frames.

    python -m tests.app.fake_node DATA_DIR SCRIPT.json

It writes ``reach.json`` as a node does, and every request it gets as a line into ``asked.jsonl``.
An answer's token ids are the numbers of its pieces, so that one that goes on can be told to.
"""

import asyncio
import contextlib
import json
import os
import struct
import sys
import threading
import time
from pathlib import Path

import msgspec
from msgspec.structs import replace

import engine
from engine.errors import ContextTooLongError, PlacementError
from engine.messages.codec import decode, encode_control
from engine.messages.control import (
    PROTOCOL_VERSION,
    SHARD_FORMAT,
    Accepted,
    AnswerInterrupted,
    AnswerProgress,
    AnswerResumed,
    AskPoolStatus,
    Cancel,
    ErrorReport,
    Finished,
    Generate,
    Hello,
    PoolStatusReport,
    TextDelta,
)
from engine.messages.deployment import Trouble
from engine.messages.doctor_control import TryDevices, TryNetwork
from engine.messages.own_pc_control import (
    AskLending,
    DropModel,
    LendingReport,
    ListModels,
    ModelLine,
    ModelsListed,
    SetLending,
    TellIdle,
)
from engine.messages.pool_control import DeploymentReport, LoadModel, OpenControl, UnloadModel
from engine.messages.roster_control import (
    AskInvitations,
    InvitationsReport,
    Invite,
    Invited,
    Joined,
    JoinPool,
    LeavePool,
    ListPcs,
    ListPools,
    PcLine,
    PcsListed,
    PoolNearby,
    PoolsListed,
    RemovePc,
    RenamePc,
    WithdrawInvitation,
)
from tests.app.pools import (
    DESK,
    DEVICES_TRIED,
    LAPTOP,
    NETWORK_TRIED,
    deployment,
    node,
    pool,
    wish,
)

TOKEN = "open sesame"  # noqa: S105 - opens nothing but this fake


class Script(msgspec.Struct, kw_only=True):
    """What the node does.

    greets: "hello", "nothing" (it is slow), "refuses", "garbage" or "other" (another node's hello).
    """

    greets: str = "hello"
    is_loaded: bool = True
    forgets: bool = False  # it loads nothing, whatever it is asked
    load_takes_s: float = 0.0
    load_trouble: dict | None = None
    text: str = "Hello from the pool."
    piece: int = 4  # characters of a token
    tokens_per_s: float = 0.0  # 0: as fast as it goes
    accept_after_s: float = 0.0
    context_tokens: int = 8192
    progress: list[dict] = []  # told before the first piece
    stops_before: int | None = None  # a piece it never sends
    interrupted_before: int | None = None
    pause_s: float = 0.2
    error: dict | None = None
    skips: int | None = None  # a piece it leaves out
    model_sha256: str = "e" * 64
    pcs: tuple[PcLine, ...] = ()  # in the pool; none for this one alone
    nearby: tuple[PoolNearby, ...] = ()
    is_alone: bool = False  # in its pool
    models: tuple[ModelLine, ...] = ()  # that it keeps
    own_pc_trouble: dict[str, dict] = {}  # by the name of the message that is refused
    pairing_trouble: dict[str, dict] = {}  # by the name of the message that is refused
    tries: bool = True  # what the doctor asks it to


CODE = "482915"
LINK = "daisy://join?pool=p&at=192.0.2.1:7420&cert=c&link=l&secret=s&until=9"
ALONE = PcLine(node_id=DESK, name="DESK", role="owner", is_own=True, is_online=True)


class Members:
    """Who is in the pool, and who may come: changed by what is asked, and by the test."""

    def __init__(self, script, note) -> None:
        self.script = script
        self.note = note
        self.pcs = list(script.pcs or (ALONE,))
        self.nearby = script.nearby
        self.report = InvitationsReport(code_left_s=None, code_ended=None, num_links=0, let_in=None)

    async def serve(self, message, writer) -> None:
        name = type(message).__name__
        if not isinstance(message, ListPcs | ListPools | AskInvitations):
            self.note({"asked": name, **msgspec.to_builtins(message)})
        trouble = self.script.pairing_trouble.get(name)
        answer = self.answer(message) if trouble is None else ErrorReport(**trouble)
        await send(writer, answer)

    def answer(self, message):
        match message:
            case Invite():
                return self.invite(is_link=message.is_link)
            case WithdrawInvitation(is_link=True):
                self.report = replace(self.report, num_links=0)
            case WithdrawInvitation():
                self.end_code("withdrawn")
            case JoinPool():
                return Joined(pool_id="p", host_name="ATTIC", num_pcs=2)
            case ListPools():
                return PoolsListed(pools=self.nearby)
            case AskInvitations():
                pass
            case _:
                self.change(message)
                return PcsListed(pool_id="p", pcs=tuple(self.pcs))
        return self.report

    def invite(self, *, is_link):
        if is_link:
            self.report = replace(self.report, num_links=self.report.num_links + 1, let_in=None)
        else:
            self.report = replace(self.report, code_left_s=120.0, code_ended=None, let_in=None)
        return Invited(
            code=None if is_link else CODE,
            link=LINK if is_link else None,
            within_s=120.0,
            addresses=("192.0.2.1:7420",),
        )

    def end_code(self, how, let_in=None):
        self.report = replace(self.report, code_left_s=None, code_ended=how, let_in=let_in)

    def use_link(self, let_in):
        self.report = replace(self.report, num_links=self.report.num_links - 1, let_in=let_in)

    def change(self, message):
        match message:
            case RenamePc():
                self.pcs = [
                    replace(pc, name=message.name) if pc.node_id == message.node_id else pc
                    for pc in self.pcs
                ]
            case RemovePc():
                self.pcs = [pc for pc in self.pcs if pc.node_id != message.node_id]
            case LeavePool():
                self.pcs = [ALONE]


OWN_PC = SetLending | TellIdle | AskLending | ListModels | DropModel


class OwnPc:
    """What this PC lends, and which models it keeps."""

    def __init__(self, script, note) -> None:
        self.script = script
        self.note = note
        self.rule = "now"
        self.paused_s = None
        self.is_idle = False
        self.mains_only = False
        self.on_battery = False
        self.models = list(script.models)

    async def serve(self, message, writer) -> None:
        name = type(message).__name__
        if not isinstance(message, AskLending | ListModels):
            self.note({"asked": name, **msgspec.to_builtins(message)})
        trouble = self.script.own_pc_trouble.get(name)
        if trouble is not None:
            await send(writer, ErrorReport(**trouble))
        elif isinstance(message, ListModels | DropModel):
            await send(writer, self.drop(message))
        else:
            await send(writer, self.lend(message))

    def lend(self, message):
        match message:
            case SetLending():
                if message.rule is not None:
                    self.rule, self.paused_s = message.rule, None
                if message.mains_only is not None:
                    self.mains_only = message.mains_only
                if message.pause_s is not None:
                    self.paused_s = message.pause_s or None
            case TellIdle():
                self.is_idle = message.is_idle
        may = self.rule == "now" or (self.rule == "idle" and self.is_idle)
        return LendingReport(
            rule=self.rule,
            mains_only=self.mains_only,
            on_battery=self.on_battery,
            is_lending=self.script.is_alone
            or (may and self.paused_s is None and not (self.mains_only and self.on_battery)),
            paused_for_s=self.paused_s,
            is_alone=self.script.is_alone,
        )

    def drop(self, message):
        freed = 0
        if isinstance(message, DropModel):
            going = [m for m in self.models if m.model_sha256 == message.model_sha256]
            freed = sum(model.num_bytes for model in going)
            self.models = [model for model in self.models if model not in going]
        return ModelsListed(models=tuple(self.models), freed_bytes=freed)


class FakeNode:
    def __init__(self, folder: Path, script: Script) -> None:
        self.folder = folder
        self.script = script
        self.is_loaded = script.is_loaded
        self.listens = threading.Event()
        self.tasks: dict[str, asyncio.Task] = {}
        self.asked = (folder / "asked.jsonl").open("a", encoding="utf-8")
        self.members = Members(script, self.note)
        self.own_pc = OwnPc(script, self.note)

    async def run(self) -> None:
        self.loop, self.stop = asyncio.get_running_loop(), asyncio.Event()
        server = await asyncio.start_server(self.serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        reach = {
            "control_port": port,
            "token": TOKEN,
            "pid": os.getpid(),
            "node_id": DESK,
        }
        (self.folder / "node").mkdir(exist_ok=True)
        beside = self.folder / "node" / "reach.new"
        beside.write_text(json.dumps(reach), encoding="utf-8")
        beside.replace(self.folder / "node" / "reach.json")
        self.listens.set()
        self.on_listening()
        async with server:
            await self.stop.wait()
        self.asked.close()

    def on_listening(self) -> None:
        """Say so, where somebody waits for it."""

    async def serve(self, reader, writer) -> None:
        with contextlib.suppress(asyncio.CancelledError):  # streams report it as an error
            await self.serve_until_it_ends(reader, writer)

    async def serve_until_it_ends(self, reader, writer) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                await self.attend(reader, writer, group)
        except* (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.transport.abort()

    async def attend(self, reader, writer, group) -> None:
        if self.script.greets == "refuses":
            return
        opening = decode(await read_frame(reader))
        assert isinstance(opening, OpenControl)
        assert opening.token == TOKEN
        assert opening.product_version == engine.__version__
        if self.script.greets == "nothing":
            await asyncio.sleep(3600)
        if self.script.greets == "garbage":
            writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n" * 4)
            await asyncio.sleep(3600)
        other = self.script.greets == "other"
        await send(writer, hello("z" * 20 if other else DESK))
        while True:
            await self.answer(decode(await read_frame(reader)), writer, group)

    async def answer(self, message, writer, group) -> None:
        match message:
            case AskPoolStatus():
                await send(writer, PoolStatusReport(status=self.status()))
            case Generate():
                line = {"at": time.time(), **msgspec.to_builtins(message)}
                self.asked.write(json.dumps(line) + "\n")
                self.asked.flush()
                task = group.create_task(self.generate(message, writer))
                self.tasks[message.request_id] = task
            case Cancel():
                await self.cancel(message.request_id, writer)
            case LoadModel():
                await self.load(message, writer)
            case TryNetwork() if self.script.tries:
                await send(writer, NETWORK_TRIED)
            case TryDevices() if self.script.tries:
                await send(writer, DEVICES_TRIED)
            case UnloadModel():
                self.is_loaded = False
                record = replace(self.record(), phase="unloaded", wish=None, stages=())
                await send(writer, DeploymentReport(deployment=record))
            case _ if isinstance(message, OWN_PC):
                await self.own_pc.serve(message, writer)
            case _:
                await self.members.serve(message, writer)

    def note(self, line):
        self.asked.write(json.dumps(line) + "\n")
        self.asked.flush()

    def record(self):
        script = self.script
        asked = wish(context_tokens=script.context_tokens, model_sha256=script.model_sha256)
        return deployment(wish=asked)

    def status(self):
        if not self.is_loaded:
            return pool(node(DESK))
        return pool(node(DESK), node(LAPTOP), deployment=self.record())

    async def load(self, message, writer) -> None:
        line = {"load": message.source}
        self.asked.write(json.dumps(line) + "\n")
        self.asked.flush()
        if self.script.load_trouble is not None:
            trouble = msgspec.convert(self.script.load_trouble, Trouble)
            await send(writer, DeploymentReport(deployment=None, trouble=trouble))
            return
        await send(writer, DeploymentReport(deployment=None))
        await asyncio.sleep(self.script.load_takes_s)
        if self.script.forgets:
            return
        self.is_loaded = True
        record = self.record()
        await send(writer, DeploymentReport(deployment=record, wish_id=record.wish.wish_id))

    async def cancel(self, request_id, writer) -> None:
        task = self.tasks.pop(request_id, None)
        if task is not None and not task.done():
            task.cancel()
            await send(writer, finished(request_id, "cancelled", 0))

    async def generate(self, request, writer) -> None:
        script, name = self.script, request.request_id
        with contextlib.suppress(ConnectionError):
            await asyncio.sleep(script.accept_after_s)
            error = self.refusal(request)
            if error is not None:
                report = ErrorReport(
                    code=error.code, what=error.what, advice=error.advice, request_id=name
                )
                await send(writer, report)
                return
            num = num_tokens(request)
            await send(writer, Accepted(request_id=name, prompt_tokens=num, seed=7))
            for told in script.progress:
                await send(writer, AnswerProgress(request_id=name, **told))
            await self.stream(request, writer)
            self.tasks.pop(name, None)

    def refusal(self, request):
        if not self.is_loaded:
            return PlacementError("No model is loaded.", "Load one with daisy load.")
        if self.script.error is not None:
            return msgspec.convert(self.script.error, Trouble)
        num, most = num_tokens(request), self.script.context_tokens
        return ContextTooLongError(num, most) if num >= most else None

    async def stream(self, request, writer) -> None:
        script, name = self.script, request.request_id
        text = script.text
        pieces = [text[i : i + script.piece] for i in range(0, len(text), script.piece)]
        number, began_s = request.next_number, time.monotonic()
        first = len(request.committed_ids)
        for place in range(first, len(pieces)):
            if place == script.stops_before:
                await asyncio.sleep(3600)
            if place == script.interrupted_before:
                await send(writer, AnswerInterrupted(request_id=name, what="LAPTOP left."))
                await asyncio.sleep(script.pause_s)
                await send(writer, AnswerResumed(request_id=name, pause_s=script.pause_s))
            if script.tokens_per_s:
                due_s = began_s + (place - first) / script.tokens_per_s
                await asyncio.sleep(max(0.0, due_s - time.monotonic()))
            number += place == script.skips
            delta = TextDelta(
                request_id=name, number=number, text=pieces[place], token_ids=(place,)
            )
            await send(writer, delta)
            number += 1
        limit = request.max_tokens is not None and request.max_tokens <= len(pieces)
        await send(writer, finished(name, "length" if limit else "stop", len(pieces)))


def hello(node_id):
    return Hello(
        protocol_version=PROTOCOL_VERSION,
        product_version=engine.__version__,
        shard_format=SHARD_FORMAT,
        node_id=node_id,
    )


def finished(request_id, reason, num):
    return Finished(
        request_id=request_id,
        finish_reason=reason,
        prompt_tokens=12,
        completion_tokens=num,
        ttft_s=0.1,
        decode_s=1.0,
        chain_compute_ms=1.0,
    )


def num_tokens(request):
    """A word is a token, and each message has four beside its words."""
    return sum(4 + len(str(m["content"]).split()) for m in request.messages)


async def read_frame(reader):
    (length,) = struct.unpack("<I", await reader.readexactly(4))
    return await reader.readexactly(length)


async def send(writer, message):
    frame = encode_control(message)
    writer.write(struct.pack("<I", len(frame)) + frame)
    await writer.drain()


class SayingNode(FakeNode):
    def on_listening(self) -> None:
        sys.stdout.write("listening\n")
        sys.stdout.flush()


if __name__ == "__main__":
    script = msgspec.json.decode(Path(sys.argv[2]).read_bytes(), type=Script)
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(SayingNode(Path(sys.argv[1]), script).run())
