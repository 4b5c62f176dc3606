"""A pool as the relay sees it: a record, and heads that come and go, near and far."""

from __future__ import annotations

import asyncio
import itertools
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import msgspec
import pytest

from engine.domain import LayerRange, ModelDescription, NodeId
from engine.errors import DaisyError, PeerUnreachableError
from engine.messages.chain import StageFailed
from engine.messages.codec import decode, encode_control
from engine.messages.control import Accepted, Cancel, ErrorReport, Finished, Generate, TextDelta
from engine.messages.deployment import Deployment, StageShare, Wish
from engine.messages.pool import Term
from engine.pipeline.head import Head
from engine.pipeline.patience import Waits
from engine.pipeline.relay import Relay
from tests.unit.pipeline.scripted import (
    END,
    LLAMA,
    PARIS,
    Asker,
    ScriptedChain,
    placement,
    running_head,
)

if TYPE_CHECKING:
    from engine.pipeline.chat_text import ChatText

PATIENT = Waits(load_s=10.0, mend_s=10.0, failed_s=10.0, reason_s=0.02, again_s=(0.0, 0.01))
TERM = Term(1, NodeId("node-0"), 1)
SCRIPT = (*LLAMA, END)
ANSWER = (*PARIS, END)
NEAR_AND_FAR = pytest.mark.parametrize("is_near", [True, False], ids=["own head", "far head"])
LOST = "Stage 1: The connection was closed."
LOST_TOLD = "A PC that held part of the model can't be reached."  # by a record without names


def wish(model: str = "llama", sha256: str = "a" * 64) -> Wish:
    return Wish(
        wish_id=f"wish for {model}",
        asked_on=NodeId("node-0"),
        model_sha256=sha256,
        model=ModelDescription(
            name=model,
            architecture="llama",
            num_layers=2,
            hidden_size=8,
            num_kv_heads=(1, 1),
            head_size=(8, 8),
            value_head_size=(8, 8),
            vocab_size=49152,
            context_length=512,
            weight_precision="f32",
            layer_bytes=(1, 1),
            embedding_bytes=1,
            head_bytes=1,
            eos_token_ids=(2,),
        ),
        context_tokens=512,
        max_sequences=4,
    )


def record(phase: str = "ready", epoch: int = 1, version: int = 1, **fields) -> Deployment:
    """Return a record; its head is on a node named after the epoch."""
    given = {
        "wish": wish(),
        "stages": (StageShare(NodeId(f"node-{epoch}"), LayerRange(0, 2)),) if epoch else (),
    }
    return Deployment(term=TERM, version=version, phase=phase, epoch=epoch, **(given | fields))


def stage_failed(epoch: int, what: str = LOST) -> StageFailed:
    return StageFailed(
        epoch=epoch, stage_index=1, code="peer_unreachable", what=what, advice="Look at it."
    )


class FarLink:
    """A connection to a head on another PC, as far as a relay uses one.

    Attributes:
        is_open: The relay has neither closed nor aborted it.
        is_deaf: What is sent arrives nowhere, and nothing comes back.
        lose: Message types that are lost, with the connection, on their way back.
    """

    def __init__(self, head: Head | None, group: asyncio.TaskGroup) -> None:
        self._head = head
        self._group = group
        self._frames: asyncio.Queue[bytes | DaisyError] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None
        self.sent: list[object] = []
        self.is_open = True
        self.is_deaf = False
        self.lose: tuple[type, ...] = ()

    async def send(self, frame: bytes) -> None:
        await asyncio.sleep(0)
        message = decode(frame)
        self.sent.append(message)
        if self.is_deaf:
            return
        match message:
            case Generate():
                self._task = self._group.create_task(self._answer(message))
            case Cancel():
                self._head.cancel(message.request_id)

    async def _answer(self, request: Generate) -> None:
        async def send(message: object) -> None:
            await asyncio.sleep(0)
            if isinstance(message, self.lose):
                self.reset()
            elif not self.is_deaf:
                self._frames.put_nowait(encode_control(message))

        try:
            await self._head.answer(request, send, request.request_id)
        except DaisyError as error:
            report = ErrorReport(
                code=error.code,
                what=error.what,
                advice=error.advice,
                request_id=request.request_id,
            )
            await send(report)

    async def receive(self) -> bytes:
        frame = await self._frames.get()
        if isinstance(frame, DaisyError):
            self._frames.put_nowait(frame)
            raise frame
        return frame

    def reset(self) -> None:
        self.is_deaf = True
        self._frames.put_nowait(PeerUnreachableError("The connection was reset."))

    def abort(self) -> None:
        self.is_open = False
        if self._task is not None:
            self._task.cancel()

    async def close(self, reason: str) -> None:
        assert reason
        await asyncio.sleep(0)
        self.abort()


class ScriptedPool:
    """The record, and a head for each epoch.

    Attributes:
        is_near: Heads run on the asker's own node; else they are reached by links.
        heads: By epoch.
        chains: By epoch.
        links: In order of connecting.
        unreachable: Epochs whose heads can't be connected to.
    """

    def __init__(self, text: ChatText, group: asyncio.TaskGroup, *, is_near: bool) -> None:
        self._text = text
        self._group = group
        self._loops: list[asyncio.Task[None]] = []
        self._record: Deployment | None = None
        self._changed = asyncio.Event()
        self.is_near = is_near
        self.heads: dict[int, Head] = {}
        self.chains: dict[int, ScriptedChain] = {}
        self.links: list[FarLink] = []
        self.on_link = lambda _: None
        self.unreachable: set[int] = set()
        self.relay = Relay(self, PATIENT)

    # ---- what the relay asks ------------------------------------------------------------------

    def deployment(self) -> Deployment | None:
        return self._record

    async def changed_from(self, order) -> None:
        while (self._record and self._record.order) == order:
            self._changed.clear()
            await self._changed.wait()

    def own_head(self) -> Head | None:
        return self.heads[max(self.heads)] if self.is_near and self.heads else None

    async def connect_head(self, node_id: NodeId) -> FarLink:
        await asyncio.sleep(0)
        epoch = int(node_id.removeprefix("node-"))
        if epoch in self.unreachable or epoch not in self.heads:
            raise PeerUnreachableError(f"{node_id}: Nothing listens there.")
        link = FarLink(self.heads[epoch], self._group)
        self.on_link(link)
        self.links.append(link)
        return link

    def wait_only(self, **waits) -> None:
        """Give up sooner, in those tests that are about giving up."""
        self.relay = Relay(self, PATIENT._replace(**waits))

    # ---- what happens -------------------------------------------------------------------------

    def tell(self, phase: str = "ready", epoch: int = 1, **fields) -> None:
        """Change the record."""
        version = 1 if self._record is None else self._record.version + 1
        self.set_record(record(phase, epoch, version, **fields))

    def set_record(self, new: Deployment | None) -> None:
        self._record = new
        self._changed.set()

    def place(self, epoch: int, script: tuple[int, ...], **placed) -> ScriptedChain:
        """Start a head and its chain."""
        chain = ScriptedChain([script])
        head = Head(self._text, placement(epoch=epoch, **placed), chain.submit)
        chain.head = head
        self.heads[epoch], self.chains[epoch] = head, chain
        self._loops.append(self._group.create_task(head.run_loop()))
        return chain

    def break_at(self, epoch: int, num_tokens: int, asker, then=lambda: None) -> None:
        """Break an epoch's chain when the asker has so many tokens, and do what follows."""
        chain = self.chains[epoch]

        def on_batch(batch) -> None:
            position = batch.steps[0].past_len + batch.steps[0].num_tokens
            prompt = chain.openings[batch.steps[0].sequence_id].num_prompt_tokens
            if batch.num_logits and position - prompt >= num_tokens:
                self._group.create_task(fail())
            else:
                chain.answer(batch)

        async def fail() -> None:
            await asker.wait_for_ids(num_tokens)
            self.heads[epoch].on_failure(stage_failed(epoch))
            then()

        chain.on_batch = on_batch

    def end(self) -> None:
        """End every head, and see that none keeps a request."""
        for loop in self._loops:
            loop.cancel()
        assert {head.num_active for head in self.heads.values()} <= {0}
        assert self.relay.num_active == 0
        assert not any(link.is_open for link in self.links)


@asynccontextmanager
async def scripted_pool(text: ChatText, *, is_near: bool = True):
    """Run a pool; at its end, see that no head and no relay keeps anything.

    Yields:
        The pool.
    """
    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        pool = ScriptedPool(text, group, is_near=is_near)
        yield pool
        for _ in range(30):
            await asyncio.sleep(0)
        pool.end()


def settled(message: object) -> object:
    """Return an end without what depends on the clock."""
    return msgspec.structs.replace(message, ttft_s=0.0, decode_s=0.0, chain_compute_ms=0.0)


def undisturbed(chat_text, request, script=SCRIPT):
    asker = Asker()

    async def scenario():
        async with running_head(chat_text, ScriptedChain([script])) as head:
            await head.answer(request, asker.send)

    asyncio.run(scenario())
    return asker


def in_pool(chat_text, scenario, *, is_near=True):
    """Run a scenario of a pool and an asker; return the asker."""
    asker = Asker()

    async def limited():
        async with scripted_pool(chat_text, is_near=is_near) as pool:
            await scenario(pool, asker)

    asyncio.run(limited())
    return asker


async def failure_of(work):
    with pytest.raises(DaisyError) as caught:
        await work
    return caught.value


def kinds(asker):
    """Return what was told, without repetitions."""
    return [kind.__name__ for kind, _ in itertools.groupby(asker.told, type)]


def check_whole(asker, whole):
    """See that an asker was told one unbroken answer, the same as an undisturbed one."""
    assert asker.text == whole.text
    assert asker.ids == whole.ids
    pieces = asker.of(TextDelta)
    assert [piece.number for piece in pieces] == list(range(len(pieces)))
    assert asker.accepted.prompt_tokens == whole.accepted.prompt_tokens
    assert settled(asker.finished) == settled(whole.finished)
    assert isinstance(asker.told[0], Accepted)
    assert isinstance(asker.told[-1], Finished)
