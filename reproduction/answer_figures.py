"""Answers that were timed token by token, and what is said of them; pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from engine.metrics import itl_ms, percentile, percentiles, tpot_ms, ttft_s

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


@dataclass(slots=True)
class Answer:
    """One answer as the asker saw it.

    Attributes:
        asked_s: When it was asked.
        token_times_s: When each token came, ascending.
        token_ids: In order.
    """

    asked_s: float
    token_times_s: list[float] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)

    def take(self, now_s: float, token_ids: Sequence[int]) -> None:
        """Note tokens that came together.

        Args:
            now_s: When.
            token_ids: In order.
        """
        self.token_times_s += [now_s] * len(token_ids)
        self.token_ids += token_ids


def window_s(answers: Sequence[Answer]) -> tuple[float, float]:
    """Return the time in which all users were being answered; it is empty where there was none.

    Args:
        answers: One for each user, none of them empty.
    """
    begin = max(answer.token_times_s[0] for answer in answers)
    end = min(answer.token_times_s[-1] for answer in answers)
    return begin, max(begin, end)


def figures_of(answers: Sequence[Answer]) -> dict[str, float]:
    """Return what is said of answers that were given at the same time.

    Throughput is that of the time in which all users were being answered; everything else is of
    whole answers, of all users together.

    Args:
        answers: One for each user, of two tokens or more.
    """
    begin, end = window_s(answers)
    times = [answer.token_times_s for answer in answers]
    num_tokens = sum(begin < t <= end for ts in times for t in ts)
    figures = {"tokens_per_s": num_tokens / (end - begin) if end > begin else 0.0}
    figures |= _spread("tpot_ms", [tpot for ts in times if (tpot := tpot_ms(ts)) is not None])
    figures |= _spread("itl_ms", [gap for ts in times for gap in itl_ms(ts)])
    ttfts = [ttft_s(answer.asked_s, answer.token_times_s) for answer in answers]
    return figures | _spread("ttft_s", [ttft for ttft in ttfts if ttft is not None])


def _spread(name: str, values: Sequence[float]) -> dict[str, float]:
    seen = percentiles(values)
    if seen is None:
        return {}
    return {f"{name}_p50": seen.p50, f"{name}_p95": seen.p95, f"{name}_p99": seen.p99}


def equality_figures(
    answers: Iterable[Sequence[int]], references: Iterable[Sequence[int]]
) -> dict[str, float]:
    """Compare answers with those of the unsplit model.

    Args:
        answers: Token ids of each.
        references: As many, in the same order, as long or longer.

    Returns:
        ``num_answers``, ``num_equal``, and where some differ the percentiles of the place of the
        first difference, from 0, as ``first_difference_p50`` and ``first_difference_min``.
    """
    firsts = [
        first_difference(answer, reference)
        for answer, reference in zip(answers, references, strict=True)
    ]
    places = [float(place) for place in firsts if place is not None]
    figures = {"num_answers": float(len(firsts)), "num_equal": float(firsts.count(None))}
    middle = percentile(places, 50.0)
    if middle is not None:
        figures |= {"first_difference_min": min(places), "first_difference_p50": middle}
    return figures


def first_difference(answer: Sequence[int], reference: Sequence[int]) -> int | None:
    """Return the first place where an answer is not the reference; None where it is to its end.

    Args:
        answer: Token ids.
        reference: As long or longer; an answer that goes on behind it differs there.
    """
    for place, token_id in enumerate(answer):
        if place >= len(reference) or token_id != reference[place]:
            return place
    return None
