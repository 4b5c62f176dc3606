"""A head that guesses: the same answer, in fewer frames where guesses hold, and late for none."""

import asyncio

import pytest

from engine.domain import SampledRow, SampledTokens
from engine.messages.codec import encode_sampled_tokens
from engine.pipeline.draft_desk import Guessing
from reproduction.fixed_draft_length import FixedDraftLength
from tests.unit.pipeline.scripted import (
    COMPUTE_US,
    END,
    PARIS,
    PARIS_TEXT,
    Asker,
    ScriptedChain,
    placement,
    question,
    running_head,
)

pytestmark = pytest.mark.embedded

LINE = (*PARIS, END)
NUM_PROMPT_TOKENS = 37


class Lengths(FixedDraftLength):
    """Three drafts; keeps the times it is told."""

    def __init__(self):
        super().__init__(3, 99)
        self.circuits, self.drafts, self.tokens = [], [], []

    def took_circuit(self, num_rows, circuit_s, compute_s):
        self.circuits.append((num_rows, compute_s))
        assert circuit_s >= compute_s

    def took_draft(self, num_tokens, seconds):
        self.drafts.append(num_tokens)
        assert seconds >= 0

    def took_tokens(self, sequence_id, num_tokens, seconds):
        assert sequence_id == 1
        self.tokens.append(num_tokens)
        assert seconds >= 0


class Drafter:
    """Knows the line, or says something else."""

    def __init__(self, *, is_right=True, waits_for=None):
        self.is_right = is_right
        self.waits_for = waits_for
        self.num_asked = 0
        self.closed = []

    async def draft(self, requests):
        self.num_asked += 1
        if self.waits_for is not None:
            await self.waits_for.wait()
        drafts = []
        for request in requests:
            said = len(request.token_ids) - NUM_PROMPT_TOKENS
            ids = LINE[said : said + request.max_drafts]
            drafts.append(ids if self.is_right else tuple(i + 1 for i in ids))
        return drafts

    async def close(self, sequence_id):
        self.closed.append(sequence_id)


class CheckingChain(ScriptedChain):
    """Draws the line behind drafts as the last stage does, and drops what is stale."""

    def __init__(self, scripts):
        super().__init__(scripts)
        self.front = {}

    def answer(self, batch):
        rows, first = [], 0
        for step in batch.steps:
            fed = batch.token_ids[first : first + step.num_tokens].tolist()
            first += step.num_tokens
            position = step.past_len + step.num_tokens - step.num_logits + 1
            front = self.front.get(step.sequence_id)
            is_fresh = front is None or step.past_len < front[0]
            drawn = []
            if is_fresh or front == (step.past_len, fed[0]):
                drawn = self.drawn(step, fed[len(fed) - step.num_logits + 1 :], position)
                self.front[step.sequence_id] = (position + len(drawn) - 1, drawn[-1])
            rows.append(SampledRow(step.sequence_id, position, tuple(drawn)))
        tokens = SampledTokens(batch.batch_id, batch.epoch, tuple(rows))
        self.head.on_sampled(tokens, encode_sampled_tokens(tokens, COMPUTE_US))

    def drawn(self, step, drafts, position):
        script = self._lines[step.sequence_id]
        said = position - NUM_PROMPT_TOKENS
        truth = [script[(said + number) % len(script)] for number in range(step.num_logits)]
        num_held = next((n for n, draft in enumerate(drafts) if draft != truth[n]), len(drafts))
        return truth[: num_held + 1]


def ask(chat_text, drafter, *, num_stages=1, **changes):
    """Return what the asker was told, the chain, and the times."""
    asker, chain, lengths = Asker(), CheckingChain([LINE]), Lengths()

    async def scenario():
        guessing = Guessing(drafter, lengths)
        placed = placement(num_stages=num_stages)
        async with running_head(chat_text, chain, placed, guessing=guessing) as head:
            await head.answer(question(**changes), asker.send)

    asyncio.run(scenario())
    assert asker.text == PARIS_TEXT
    assert asker.ids == LINE
    assert all(num_rows <= 1 + 3 for num_rows, _ in lengths.circuits)  # the prompt tells nothing
    return asker, chain, lengths


@pytest.mark.parametrize("num_stages", [1, 2])
def test_guesses_that_hold_save_frames(chat_text, num_stages):
    """Eight tokens: the prompt's frame, and four at a time; the drafter is told of the end."""
    drafter = Drafter()
    asker, chain, lengths = ask(chat_text, drafter, num_stages=num_stages)
    assert len(chain.batches) <= 4
    assert asker.finished.drafted_tokens >= asker.finished.accepted_tokens >= 5
    assert set(lengths.drafts) <= {1, 2, 3, 4}
    assert lengths.circuits
    assert drafter.closed == [1]


@pytest.mark.parametrize("is_right", [True, False])
def test_tokens_are_timed_as_they_come(chat_text, is_right):
    """All but the first, which took what the prompt took; drafts may go past the end."""
    _, _, lengths = ask(chat_text, Drafter(is_right=is_right))
    assert len(LINE) - 1 <= sum(lengths.tokens) <= len(LINE) - 1 + 3
    assert (max(lengths.tokens) > 1) == is_right


@pytest.mark.parametrize("num_stages", [1, 2])
def test_guesses_that_do_not_hold_change_nothing(chat_text, num_stages):
    """Each token is drawn as ever."""
    asker, _, _ = ask(chat_text, Drafter(is_right=False), num_stages=num_stages)
    assert asker.finished.accepted_tokens == 0
    assert asker.finished.drafted_tokens > 0


def test_a_request_that_wants_no_guesses_has_none(chat_text):
    """A frame for each token."""
    drafter = Drafter()
    asker, chain, _ = ask(chat_text, drafter, speculate=False)
    assert (drafter.num_asked, asker.finished.drafted_tokens) == (0, 0)
    assert len(chain.batches) == len(LINE)


def test_a_drafter_that_never_answers_holds_up_nobody(chat_text):
    """The answer goes on without."""
    asker, chain, _ = ask(chat_text, Drafter(waits_for=asyncio.Event()))
    assert asker.finished.drafted_tokens == 0
    assert len(chain.batches) == len(LINE)


def test_a_head_without_a_drafter_guesses_nothing(chat_text):
    """And says so."""
    asker, chain = Asker(), CheckingChain([LINE])

    async def scenario():
        async with running_head(chat_text, chain) as head:
            await head.answer(question(), asker.send)

    asyncio.run(scenario())
    assert asker.text == PARIS_TEXT
    assert asker.finished.drafted_tokens == 0
