"""Guesses are what came next before; nothing is guessed where too little agrees."""

import numpy as np
import pytest

from engine.domain import SequenceId
from engine.scheduler.drafting import DraftRequest
from engine.scheduler.suffix_drafter import SuffixDrafter

A, B, C = SequenceId(1), SequenceId(2), SequenceId(3)


def guess(drafter, token_ids, max_drafts=15, sequence_id=A):
    return drafter.guess(DraftRequest(sequence_id, np.array(token_ids, np.int32), max_drafts))


def close(drafter, sequence_id=A):
    with pytest.raises(StopIteration):  # it never waits
        drafter.close(sequence_id).send(None)


def lenient(**settings):
    return SuffixDrafter(**{"min_match_tokens": 3, "drafts_per_match": 10, **settings})


def test_proposes_what_followed():
    """Up to as many as are asked for."""
    text = [*range(10, 30), 5, 12, 13, 14]
    assert guess(lenient(), text, 4) == (15, 16, 17, 18)


def test_says_nothing_below_the_gate():
    """Two tokens that agree are chance."""
    assert guess(lenient(), [*range(10, 30), 5, 13, 14]) == ()
    assert guess(lenient(), [10, 11]) == ()
    assert guess(lenient(), [10, 11, 12]) == ()


def test_a_longer_match_is_trusted_further():
    """By default half as many guesses as tokens agree, and one at least."""
    text = list(range(100, 160))
    assert guess(SuffixDrafter(), [*text, 1, 110, 111, 112]) == (113,)
    assert guess(SuffixDrafter(), [*text, 1, *range(110, 120)]) == (120, 121, 122, 123, 124)


def test_the_longest_match_wins_over_a_newer_one():
    """It says more of what the text is about."""
    text = [1, 2, 3, 4, 50, 9, 2, 3, 4, 60, 8, 1, 2, 3, 4]
    assert guess(lenient(), text, 1) == (50,)


def test_of_equally_long_matches_the_most_frequent_wins():
    """And of equally frequent ones the newest."""
    often = [1, 2, 3, 50, 9, 1, 2, 3, 50, 8, 1, 2, 3, 60, 7, 1, 2, 3]
    assert guess(lenient(), often, 1) == (50,)
    once_each = [4, 1, 2, 3, 50, 5, 1, 2, 3, 60, 6, 1, 2, 3]
    assert guess(lenient(), once_each, 1) == (60,)


def test_a_repetition_goes_on_behind_the_end():
    """A short period is known as far as is asked."""
    assert guess(lenient(), [9, *[1, 2, 3, 4] * 2], 10) == (1, 2, 3, 4, 1, 2, 3, 4, 1, 2)


def test_guesses_in_flight_extend_the_chain():
    """The next guess goes on where the last one ended."""
    drafter = lenient()
    text = [*range(10, 40), 5, 12, 13, 14]
    first = guess(drafter, text, 3)
    assert guess(drafter, [*text, *first], 3) == (18, 19, 20)


def test_wrong_guesses_are_forgotten():
    """What was never written is not found later."""
    drafter = lenient()
    text = [*range(10, 20), 5, 12, 13, 14]
    guess(drafter, [*text, 15, 16, 17], 3)
    committed = [*text, 99, 98, 97]
    assert guess(drafter, committed) == ()
    # 14, 15, 16 now stands in the first part only, and 17 follows there.
    assert guess(drafter, [*committed, 14, 15, 16], 2) == (17, 18)
    assert guess(drafter, [*committed, 13, 14, 99], 2) == (98, 97)


def test_an_earlier_chat_helps_the_next():
    """Its text ends where it ended."""
    drafter = lenient()
    guess(drafter, range(10, 20))
    close(drafter)
    assert guess(drafter, [1, 12, 13, 14], sequence_id=B) == (15, 16, 17, 18, 19)


def test_own_text_comes_before_earlier_chats():
    """Where both agree as far and as often."""
    drafter = lenient()
    guess(drafter, [12, 13, 14, 70, 71])
    close(drafter)
    assert guess(drafter, [12, 13, 14, 80, 81, 0, 12, 13, 14], 1, B) == (80,)


def test_running_sequences_do_not_mix():
    """Each is indexed by itself until it ends."""
    drafter = lenient()
    guess(drafter, range(10, 20))
    assert guess(drafter, [1, 12, 13, 14], sequence_id=B) == ()


def test_memory_is_bounded_and_the_oldest_is_forgotten():
    """A hundred chats fit into a ring of a few."""
    drafter = lenient(archive_tokens=1024)
    for number in range(100):
        guess(drafter, range(1000 * number, 1000 * number + 100), sequence_id=SequenceId(number))
        close(drafter, SequenceId(number))
    assert guess(drafter, [99_010, 99_011, 99_012], 2, SequenceId(200)) == (99_013, 99_014)
    assert guess(drafter, [10, 11, 12], 2, SequenceId(201)) == ()


def test_a_chat_longer_than_the_ring_keeps_its_end():
    """Half of the ring is for others."""
    drafter = lenient(archive_tokens=1024)
    guess(drafter, range(5000))
    close(drafter)
    assert guess(drafter, [1, 4990, 4991, 4992], 2, B) == (4993, 4994)
    assert guess(drafter, [1, 4000, 4001, 4002], 2, C) == ()


def test_closing_a_stranger_does_nothing():
    """As the interface says."""
    close(SuffixDrafter(), B)


def test_answers_requests_in_order():
    """One guess each."""
    drafter = lenient()
    requests = [
        DraftRequest(A, np.array([1, 2, 3, 4, 5, 1, 2, 3], np.int32), 2),
        DraftRequest(B, np.array([7, 8], np.int32), 2),
    ]
    with pytest.raises(StopIteration) as done:
        drafter.draft(requests).send(None)
    assert done.value.value == [(4, 5), ()]
