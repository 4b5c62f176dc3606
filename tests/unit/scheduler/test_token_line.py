"""Committed tokens stay; guesses stand until the token of their place is drawn."""

import numpy as np
import pytest

from engine.scheduler.token_line import TokenLine, num_matching


def guessed(*guesses, committed=(1, 2)):
    line = TokenLine(committed)
    line.ask(len(guesses) + 1)
    line.offer(len(committed), guesses, 1000)
    return line


def whole(line):
    return line.ids(0, line.length).tolist()


def test_a_line_begins_committed():
    """As int32, copied."""
    line = TokenLine([5, 6, 7])
    assert (line.num_committed, line.num_guessed, line.length) == (3, 0, 3)
    ids = line.ids(1, 9)
    assert (ids.tolist(), ids.dtype) == ([6, 7], np.int32)
    ids[0] = 9
    assert whole(line) == [5, 6, 7]


@pytest.mark.parametrize(
    ("drawn", "num_held", "after", "num_guessed"),
    [
        ((3,), 1, [1, 2, 3, 4, 5], 2),
        ((3, 4, 5), 3, [1, 2, 3, 4, 5], 0),
        ((3, 4, 5, 6), 3, [1, 2, 3, 4, 5, 6], 0),
        ((9,), 0, [1, 2, 9], 0),
        ((3, 9), 1, [1, 2, 3, 9], 0),
    ],
    ids=str,
)
def test_guesses_that_are_drawn_become_committed_and_the_rest_falls_with_the_first_miss(
    drawn, num_held, after, num_guessed
):
    """Guessed are 3, 4, 5 behind 1, 2."""
    line = guessed(3, 4, 5)
    assert line.commit(drawn) == num_held
    assert (whole(line), line.num_guessed) == (after, num_guessed)


def test_a_long_answer_outgrows_its_first_array():
    """Tokens before stay what they are."""
    line = TokenLine([1])
    for number in range(2, 1200):
        line.commit((number,))
    assert whole(line) == list(range(1, 1200))


def test_nobody_is_asked_twice_for_the_same_line():
    """Neither while he thinks nor once he knows no more; until the line has changed."""
    line = TokenLine([1, 2])
    assert line.may_grow
    assert line.ask(3).tolist() == [1, 2]
    assert not line.may_grow
    line.offer(2, (3,), 1000)  # fewer than asked for
    assert not line.may_grow
    line.commit((3,))  # as guessed: nobody knows more than before
    assert not line.may_grow
    line.commit((4,))
    assert line.may_grow


def test_a_full_answer_may_be_followed_by_more():
    """Whoever gave all that was wanted is asked again."""
    line = TokenLine([1, 2])
    line.ask(2)
    line.offer(2, (3, 4), 1000)
    assert line.may_grow
    assert line.ask(2).tolist() == [1, 2, 3, 4]


def test_a_late_answer_counts_as_far_as_the_line_went_on_as_it_says():
    """Two tokens were committed meanwhile."""
    line = TokenLine([1, 2])
    line.ask(4)
    line.commit((3, 4))
    line.offer(2, (3, 4, 5, 6), 1000)
    assert (whole(line), line.num_guessed) == ([1, 2, 3, 4, 5, 6], 2)
    other = TokenLine([1, 2])
    other.ask(4)
    other.commit((3, 9))
    other.offer(2, (3, 4, 5, 6), 1000)
    assert (whole(other), other.num_guessed) == ([1, 2, 3, 9], 0)
    assert other.may_grow
    short = TokenLine([1, 2])
    short.ask(4)
    short.commit((3, 4))
    short.offer(2, (3,), 1000)
    assert (whole(short), short.num_guessed) == ([1, 2, 3, 4], 0)


def test_an_answer_to_a_line_that_has_fallen_is_not_heard():
    """A guess it stood on was wrong; nor one nobody asked for."""
    line = guessed(3, 4)
    line.commit((3, 4))
    line.ask(2)
    line.offer(4, (5, 6), 1000)
    line.ask(1)
    line.commit((9,))
    line.offer(6, (7,), 1000)
    assert whole(line) == [1, 2, 3, 4, 9]
    line.offer(5, (7,), 1000)
    assert line.num_guessed == 0
    line.ask(1)
    line.drop_guesses()
    assert line.may_grow


def test_guesses_end_where_the_line_must():
    """No more than fit."""
    line = TokenLine([1, 2])
    line.ask(4)
    line.offer(2, (3, 4, 5, 6), 4)
    assert whole(line) == [1, 2, 3, 4]
    line.ask(1)
    line.offer(4, (5,), 3)
    assert whole(line) == [1, 2, 3, 4]


def test_matching_counts_from_the_beginning():
    """And stops at the first that differs."""
    assert num_matching((1, 2, 3), [1, 2, 4]) == 2
    assert num_matching((1, 2), [1, 2, 4]) == 2
    assert num_matching((), [1]) == 0
