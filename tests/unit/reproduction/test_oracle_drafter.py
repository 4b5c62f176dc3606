"""The oracle is right as often as was wished, and at the same places each time."""

import numpy as np
import pytest
from oracle_drafter import OracleDrafter, Recording

from engine.domain import SequenceId
from engine.scheduler.drafting import DraftRequest

GENERATOR = np.random.default_rng(1)
RECORDINGS = [
    Recording([5, 6, 7], GENERATOR.integers(0, 100, 20_000).tolist()),
    Recording([5, 6], GENERATOR.integers(0, 100, 500).tolist()),
]


def guesses(drafter, recording, start, count, sequence=1):
    ids = [*recording.prompt_ids, *recording.answer_ids[:start]]
    request = DraftRequest(SequenceId(sequence), np.array(ids, np.int32), count)
    with pytest.raises(StopIteration) as done:
        drafter.draft([request]).send(None)
    return list(done.value.value[0])


@pytest.mark.parametrize("rate", [0.0, 0.5, 0.7, 0.9, 1.0])
def test_as_many_hold_as_was_wished(rate):
    """Each by itself: what follows a right one is right as often as what follows a wrong one."""
    drafter = OracleDrafter(RECORDINGS, rate, 100)
    answer = RECORDINGS[0].answer_ids
    holds = np.array(guesses(drafter, RECORDINGS[0], 0, 20_000)) == np.array(answer)
    assert holds.mean() == pytest.approx(rate, abs=0.02)
    if 0 < rate < 1:
        assert holds[1:][holds[:-1]].mean() == pytest.approx(rate, abs=0.03)
        assert holds[1:][~holds[:-1]].mean() == pytest.approx(rate, abs=0.03)


def test_the_same_places_are_wrong_however_it_is_asked():
    """Another seed or another answer is wrong elsewhere."""
    whole = guesses(OracleDrafter(RECORDINGS, 0.5, 100), RECORDINGS[0], 0, 400)
    drafter = OracleDrafter(RECORDINGS, 0.5, 100)
    parts = [i for start in range(0, 400, 8) for i in guesses(drafter, RECORDINGS[0], start, 8)]
    assert parts == whole
    assert drafter.num_drafted == 400
    assert guesses(OracleDrafter(RECORDINGS, 0.5, 100, seed=1), RECORDINGS[0], 0, 400) != whole


def test_the_longer_prompt_is_meant_where_both_fit():
    """A prompt may be the beginning of another."""
    drafter = OracleDrafter(RECORDINGS, 1.0, 100)
    assert guesses(drafter, RECORDINGS[0], 0, 9, 1) == list(RECORDINGS[0].answer_ids[:9])
    assert guesses(drafter, RECORDINGS[1], 0, 9, 2) == list(RECORDINGS[1].answer_ids[:9])


def test_nothing_is_known_of_other_prompts_or_past_the_end():
    """And an ended sequence's number may be given to another."""
    drafter = OracleDrafter(RECORDINGS, 1.0, 100)
    assert guesses(drafter, Recording([9], [1, 2]), 0, 5) == []
    with pytest.raises(StopIteration):
        drafter.close(SequenceId(1)).send(None)
    assert len(guesses(drafter, RECORDINGS[1], 498, 5)) == 2
