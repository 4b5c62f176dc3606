"""Long matches first, then the model, while there is one."""

import numpy as np
import pytest

from engine.domain import SequenceId
from engine.scheduler.drafters_in_turn import LONG_MATCH_TOKENS, DraftersInTurn
from engine.scheduler.drafting import DraftRequest
from engine.scheduler.suffix_drafter import SuffixDrafter

A, B = SequenceId(1), SequenceId(2)
LONG = [*range(20, 40), 5, *range(25, 25 + LONG_MATCH_TOKENS)]
SHORT = [*range(20, 40), 5, *range(25, 24 + LONG_MATCH_TOKENS)]


class Counting:
    """Guesses 900, 901, ... and keeps what it was asked."""

    def __init__(self):
        self.asked = []
        self.closed = []

    async def draft(self, requests):
        self.asked.append([request.sequence_id for request in requests])
        return [tuple(range(900, 900 + request.max_drafts)) for request in requests]

    async def close(self, sequence_id):
        self.closed.append(sequence_id)


def finished(coroutine):
    with pytest.raises(StopIteration) as done:
        coroutine.send(None)
    return done.value.value


def guesses(drafter, *texts):
    return finished(
        drafter.draft([
            DraftRequest(SequenceId(number), np.array(text, np.int32), 2)
            for number, text in enumerate(texts, 1)
        ])
    )


def test_without_a_model_short_matches_count():
    """There is nothing better."""
    drafter = DraftersInTurn(SuffixDrafter())
    assert guesses(drafter, SHORT, [1, 2]) == [(30, 31), ()]


def test_with_a_model_only_long_matches_do():
    """The model guesses for the others, and for them only."""
    drafter, model = DraftersInTurn(SuffixDrafter()), Counting()
    drafter.use(model)
    assert guesses(drafter, SHORT, LONG, [1, 2]) == [(900, 901), (31, 32), (900, 901)]
    assert model.asked == [[1, 3]]
    assert guesses(drafter, [], LONG) == [(900, 901), (31, 32)]
    assert guesses(drafter) == []
    assert model.asked == [[1, 3], [1]]


def test_when_the_model_is_gone_short_matches_count_again():
    """As before it came."""
    drafter, model = DraftersInTurn(SuffixDrafter()), Counting()
    drafter.use(model)
    drafter.use(None)
    assert guesses(drafter, SHORT) == [(30, 31)]
    assert not model.asked


def test_both_forget_a_sequence():
    """Whoever guessed for it."""
    drafter, model = DraftersInTurn(SuffixDrafter()), Counting()
    guesses(drafter, range(10, 20))
    finished(drafter.close(A))
    drafter.use(model)
    finished(drafter.close(B))
    assert model.closed == [B]
    drafter.use(None)
    text = [1, *range(11, 15)]
    assert finished(drafter.draft([DraftRequest(B, np.array(text, np.int32), 1)])) == [(15,)]
