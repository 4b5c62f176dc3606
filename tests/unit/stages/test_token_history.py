"""The last stage draws from each row given exactly the tokens before it."""

import numpy as np
import pytest

from engine.domain import KeptPrefix, SampledRow, SequenceId
from engine.errors import InferenceError, LocalProtocolError
from engine.messages.chain import OpenSequence
from engine.sampling.parameters import SamplingParameters
from engine.sampling.sampler import sample
from engine.stages.token_history import TokenHistory
from tests.unit.stages.running import batch

VOCABULARY = 32
RNG = np.random.default_rng(3)


def opened(sequence, num_prompt_tokens, prefix=None, **sampling):
    return OpenSequence(
        prefix=prefix,
        epoch=1,
        sequence_id=SequenceId(sequence),
        num_prompt_tokens=num_prompt_tokens,
        sampling=SamplingParameters(**sampling),
    )


def logits(rows):
    return RNG.standard_normal((rows, VOCABULARY)).astype(np.float32)


def test_each_row_is_drawn_with_its_own_history_and_position():
    """Penalties and a seed, after a rewind that replaced two tokens: three rows of one step, whose
    drafts are what was drawn when each was fed alone."""
    sampling = {"temperature": 1.5, "repetition_penalty": 3.0, "presence_penalty": 2.0, "seed": 7}
    history = TokenHistory()
    history.open(opened(5, 3, **sampling))
    history.draw(batch((5, 0, [1, 2, 3, 9, 9], 0)), logits(0))
    rows = logits(3)
    tokens = [1, 2, 3, 4, 5]
    for row in rows:
        before = np.array(tokens, np.int32)
        tokens.append(sample(row, SamplingParameters(**sampling), before, 3, len(tokens)))
    (drawn,) = history.draw(batch((5, 3, tokens[3:7], 3)), rows)
    assert drawn == SampledRow(SequenceId(5), 5, tuple(tokens[5:]))


def test_nothing_is_drawn_behind_the_first_draft_that_does_not_hold():
    """Not even from logits that can't be drawn from."""
    rows = logits(4)
    rows[2:] = np.nan
    best = rows[:2].argmax(axis=1).tolist()
    history = TokenHistory()
    history.open(opened(1, 1))
    wrong = (best[1] + 1) % VOCABULARY
    (drawn,) = history.draw(batch((1, 0, [3, best[0], wrong, 7], 4)), rows)
    assert drawn == SampledRow(SequenceId(1), 1, tuple(best))


def test_history_matters():
    """The same row, other tokens before it: a penalty moves the choice."""
    row = np.zeros((1, VOCABULARY), np.float32)
    row[0, 4], row[0, 5] = 2.0, 1.9
    for before, best in ((4, 5), (5, 4)):
        history = TokenHistory()
        history.open(opened(1, 1, presence_penalty=1.0))
        history.draw(batch((1, 0, [1], 0)), logits(0))
        (drawn,) = history.draw(batch((1, 1, [before], 1)), row)
        assert drawn.token_ids == (best,)
        assert drawn.first_position == 2


def test_sequences_of_a_batch_get_their_own_rows():
    """The one in the middle wants no logits, and gets no row."""
    history = TokenHistory()
    for sequence in (1, 2, 3):
        history.open(opened(sequence, 2))
    rows = logits(3)
    best = rows.argmax(axis=1).tolist()
    drawn = history.draw(batch((1, 0, [1, 2], 1), (2, 0, [3], 0), (3, 0, [4, 5, best[1]], 2)), rows)
    assert drawn == (
        SampledRow(SequenceId(1), 2, (best[0],)),
        SampledRow(SequenceId(3), 2, (best[1], best[2])),
    )


def test_a_long_history_is_kept():
    """Beyond the first capacity; a penalty sees its first token."""
    history = TokenHistory()
    history.open(opened(1, 1, presence_penalty=1.0))
    history.draw(batch((1, 0, [9, 4], 0)), logits(0))
    for start in range(2, 1000, 100):
        history.draw(batch((1, start, [9] * 100, 0)), logits(0))
    row = np.zeros((1, VOCABULARY), np.float32)
    row[0, 4], row[0, 5] = 2.0, 1.9
    (drawn,) = history.draw(batch((1, 1002, [9], 1)), row)
    assert (drawn.token_ids, drawn.first_position) == ((5,), 1003)


def test_a_sequence_that_was_not_opened_or_was_closed_is_refused():
    history = TokenHistory()
    with pytest.raises(LocalProtocolError, match=r"Sequence 1 .* never opened"):
        history.draw(batch((1, 0, [1], 1)), logits(1))
    history.open(opened(1, 1))
    history.close(SequenceId(1))
    with pytest.raises(LocalProtocolError):
        history.draw(batch((1, 0, [1], 1)), logits(1))


def test_a_row_that_bans_everything_is_an_error_of_the_batch():
    history = TokenHistory()
    history.open(opened(1, 1))
    with pytest.raises(InferenceError):
        history.draw(batch((1, 0, [1], 1)), np.full((1, VOCABULARY), -np.inf, np.float32))


def test_a_sequence_begins_with_the_tokens_of_its_prefix():
    """A penalty sees them, and what was behind the prefix is not seen."""
    history = TokenHistory()
    history.open(opened(1, 4))
    history.draw(batch((1, 0, [4, 1, 5, 1], 0)), logits(0))
    prefix = KeptPrefix(SequenceId(1), 2)
    history.open(opened(2, 3, prefix, presence_penalty=1.0, repetition_penalty=1.5))
    history.close(SequenceId(1))
    row = np.zeros((1, VOCABULARY), np.float32)
    row[0, 4], row[0, 5] = 2.0, 1.9
    (drawn,) = history.draw(batch((2, 2, [9], 1)), row)
    assert drawn == SampledRow(SequenceId(2), 3, (5,))


def test_a_prefix_of_nobody_is_no_prefix():
    """The stage refuses the first step then."""
    history = TokenHistory()
    history.open(opened(2, 3, KeptPrefix(SequenceId(1), 2)))
    (drawn,) = history.draw(batch((2, 0, [9], 1)), logits(1))
    assert drawn.first_position == 1
