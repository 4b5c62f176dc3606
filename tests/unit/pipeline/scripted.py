"""A head with a real tokenizer, and a chain that answers with the ids it was given to say."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from engine.domain import (
    LayerRange,
    MicroBatch,
    NodeId,
    SampledRow,
    SampledTokens,
    SequenceId,
)
from engine.messages.chain import CloseSequence, OpenSequence, Placement, StagePlace
from engine.messages.codec import decode, encode_sampled_tokens
from engine.messages.control import Accepted, Finished, Generate, TextDelta
from engine.pipeline.head import Head
from tests.unit.pipeline.frames import EPOCH

if TYPE_CHECKING:
    from engine.pipeline.chat_text import ChatText

QUESTION = "What is the capital of France?"
PARIS = (504, 3575, 282, 4649, 314, 7042, 30)  # "The capital of France is Paris."
PARIS_TEXT = "The capital of France is Paris."
END = 2
# Two letters of two bytes, two of three and one of four in twelve tokens; then a stop string that
# lies across three tokens, the first of which holds more than its beginning.
LLAMA_TEXT = "Grüße 東京 🦙! Stop here: ###END### more"
LLAMA = (
    *(27302, 7170, 34878, 85, 17097, 247, 126, 16736, 122, 15107, 116, 243, 17),
    *(17178, 1535, 42, 20749, 16317, 3757, 540),
)
ENDINGS = {
    "by its end": {},
    "by its limit": {"max_tokens": 20},
    "by a stop string across three tokens": {"stop": ("##END###",)},
    "with stop strings that only begin": {
        "stop": ("here: ###END!", "moreover", "🦙?", "###END####")
    },
    "in half a character": {"max_tokens": 6},
    "never by its end": {"ignore_eos": True, "max_tokens": 25},
}
COMPUTE_US = 1500


def placement(
    num_stages: int = 1,
    context_tokens: int = 512,
    max_sequences: int = 4,
    epoch: int = EPOCH,
) -> Placement:
    return Placement(
        epoch=epoch,
        manifest_sha256="0" * 64,
        context_tokens=context_tokens,
        max_sequences=max_sequences,
        stages=tuple(
            StagePlace(
                node_id=NodeId(f"node-{i}"),
                address=f"wss://127.0.0.1:{9000 + i}",
                stage_index=i,
                layers=LayerRange(i, i + 1),
            )
            for i in range(num_stages)
        ),
    )


def question(request_id: str = "r1", **changes: object) -> Generate:
    fields: dict[str, object] = {"messages": ({"role": "user", "content": QUESTION},)}
    return Generate(request_id=request_id, **(fields | changes))


class ScriptedChain:
    """All stages in one: takes the head's frames, and says its lines through ``on_sampled``.

    Attributes:
        scripts: What each sequence says, in order of opening; the last one for all others.
        events: What came, in order: ``("open", 1)``, ``("step", 1)``, ``("close", 1)``.
        paused: While set, nothing is answered; ``go_on`` answers what came meanwhile.
        on_batch: What is done with a micro-batch.
    """

    def __init__(self, scripts: list[tuple[int, ...]]) -> None:
        self.head: Head | None = None
        self.scripts = scripts
        self.events: list[tuple[str, int]] = []
        self.batches: list[MicroBatch] = []
        self.openings: dict[int, OpenSequence] = {}
        self.paused = False
        self.came = asyncio.Event()  # a micro-batch did
        self.on_batch = self.answer
        self.error: Exception | None = None
        self._lines: dict[int, tuple[int, ...]] = {}
        self._kept: list[MicroBatch] = []

    def go_on(self) -> None:
        """Answer what was kept while paused, and what comes from now on."""
        self.paused = False
        kept, self._kept = self._kept, []
        for batch in kept:
            asyncio.get_running_loop().call_soon(self.on_batch, batch)

    async def wait_for(self, num_batches: int) -> None:
        """Wait until so many micro-batches have come."""
        while len(self.batches) < num_batches:
            self.came.clear()
            await self.came.wait()

    async def submit(self, frame: bytes) -> None:
        await asyncio.sleep(0)
        if self.error is not None:
            raise self.error
        message = decode(frame)
        match message:
            case OpenSequence():
                self.events.append(("open", message.sequence_id))
                number = min(len(self._lines), len(self.scripts) - 1)
                self._lines.setdefault(message.sequence_id, self.scripts[number])
                self.openings[message.sequence_id] = message
            case CloseSequence():
                self.events.append(("close", message.sequence_id))
            case MicroBatch():
                self.events += [("step", step.sequence_id) for step in message.steps]
                self.batches.append(message)
                self.came.set()
                if self.paused:
                    self._kept.append(message)
                else:
                    asyncio.get_running_loop().call_soon(self.on_batch, message)

    def answer(self, batch: MicroBatch) -> None:
        """Give what the last stage would draw for a micro-batch."""
        rows = []
        for step in batch.steps:
            position = step.past_len + step.num_tokens
            if step.num_logits:
                said = position - self.openings[step.sequence_id].num_prompt_tokens
                lines = self._lines[step.sequence_id]
                rows.append(
                    SampledRow(SequenceId(step.sequence_id), position, (lines[said % len(lines)],))
                )
        tokens = SampledTokens(batch.batch_id, batch.epoch, tuple(rows))
        self.head.on_sampled(tokens, encode_sampled_tokens(tokens, COMPUTE_US))


class Asker:
    """Whoever asked: what was told, and how slow it is."""

    def __init__(self) -> None:
        self.told: list[object] = []
        self.may_go = asyncio.Event()
        self.may_go.set()
        self.changed = asyncio.Event()
        self.is_being_told = asyncio.Event()
        self.error: Exception | None = None

    async def send(self, message: object) -> None:
        self.is_being_told.set()
        await self.may_go.wait()
        if self.error is not None:
            raise self.error
        self.told.append(message)
        self.changed.set()

    async def wait_for(self, kind: type, count: int = 1) -> None:
        while len(self.of(kind)) < count:
            self.changed.clear()
            await self.changed.wait()

    async def wait_for_ids(self, count: int) -> None:
        while len(self.ids) < count:
            self.changed.clear()
            await self.changed.wait()

    def of(self, kind: type) -> list:
        return [m for m in self.told if isinstance(m, kind)]

    @property
    def text(self) -> str:
        return "".join(m.text for m in self.of(TextDelta))

    @property
    def ids(self) -> tuple[int, ...]:
        return tuple(i for m in self.of(TextDelta) for i in m.token_ids)

    @property
    def accepted(self) -> Accepted:
        (message,) = self.of(Accepted)
        return message

    @property
    def finished(self) -> Finished:
        (message,) = self.of(Finished)
        return message


@asynccontextmanager
async def running_head(
    text: ChatText,
    chain: ScriptedChain,
    placed: Placement | None = None,
    on_broken=None,
    guessing=None,
):
    """Run a head over a scripted chain; at the end, see that the stages hold what it keeps.

    Yields:
        The head.
    """
    head = Head(text, placed or placement(), chain.submit, on_broken, guessing)
    chain.head = head
    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        loop = group.create_task(head.run_loop())
        try:
            yield head
            for _ in range(30):
                await asyncio.sleep(0)
        finally:
            loop.cancel()
    opened = {i for kind, i in chain.events if kind == "open"}
    closed = {i for kind, i in chain.events if kind == "close"}
    assert chain.error is not None or opened - closed == set(head.load().kept_ids)
