"""Throughput counts only while everybody is answered; equality says where answers part."""

from __future__ import annotations

import pytest
from answer_figures import Answer, equality_figures, figures_of, first_difference


def _answer(asked_s: float, *times_s: float) -> Answer:
    return Answer(asked_s, list(times_s), list(range(len(times_s))))


def test_throughput_is_of_the_time_in_which_all_users_are_answered() -> None:
    early = _answer(0.0, 1.0, 2.0, 3.0, 4.0)
    late = _answer(0.0, 2.0, 3.0, 4.0, 5.0, 6.0)
    # From 2 to 4 s: two tokens of each.
    assert figures_of([early, late])["tokens_per_s"] == pytest.approx(2.0)


def test_answers_that_never_ran_together_have_no_throughput() -> None:
    assert figures_of([_answer(0.0, 1.0, 2.0), _answer(0.0, 3.0, 4.0)])["tokens_per_s"] == 0.0


def test_the_wait_for_the_first_token_and_the_gaps_are_told_apart() -> None:
    figures = figures_of([_answer(0.5, 1.5, 1.6, 1.8)])
    assert figures["ttft_s_p50"] == pytest.approx(1.0)
    assert figures["tpot_ms_p50"] == pytest.approx(150.0)
    assert figures["itl_ms_p50"] == pytest.approx(150.0)
    assert figures["itl_ms_p99"] == pytest.approx(199.0)


def test_tokens_that_come_together_have_the_same_time() -> None:
    answer = Answer(0.0)
    answer.take(1.0, [7, 8])
    answer.take(2.0, [9])
    assert (answer.token_times_s, answer.token_ids) == ([1.0, 1.0, 2.0], [7, 8, 9])


@pytest.mark.parametrize(
    ("answer", "reference", "place"),
    [
        ([1, 2, 3], [1, 2, 3], None),
        ([1, 2], [1, 2, 3], None),
        ([1, 5, 3], [1, 2, 3], 1),
        ([1, 2, 3], [1, 2], 2),
    ],
    ids=["equal", "a beginning", "another token", "goes on"],
)
def test_the_first_difference(answer: list[int], reference: list[int], place: int | None) -> None:
    assert first_difference(answer, reference) == place


def test_answers_are_counted_as_equal_or_by_where_they_part() -> None:
    figures = equality_figures([[1, 2], [1, 3], [4, 4]], [[1, 2], [1, 2], [1, 2]])
    assert figures == {
        "num_answers": 3.0,
        "num_equal": 1.0,
        "first_difference_min": 0.0,
        "first_difference_p50": 0.5,
    }
    assert "first_difference_min" not in equality_figures([[1]], [[1]])
