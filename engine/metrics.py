"""The measures of serving, each as its formula; the clock is the caller's.

Every function takes moments in seconds of one monotonic clock. Where a measure is not defined
(no token, one token, no time) the answer is None, never 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class Percentiles:
    """The middle and the tail of a set of measurements, in their own unit."""

    p50: float
    p95: float
    p99: float


def ttft_s(accepted_s: float, token_times_s: Sequence[float]) -> float | None:
    """Return the time to first token: request accepted to first token delivered, in seconds.

    Args:
        accepted_s: When the request was accepted.
        token_times_s: When each output token was delivered, ascending.
    """
    return token_times_s[0] - accepted_s if token_times_s else None


def tpot_ms(token_times_s: Sequence[float]) -> float | None:
    """Return the time per output token of one request in milliseconds.

    ``1000 * (last - first) / (num_output_tokens - 1)``: prefill is not in it.

    Args:
        token_times_s: When each output token was delivered, ascending.
    """
    if len(token_times_s) < 2:
        return None
    return 1000.0 * (token_times_s[-1] - token_times_s[0]) / (len(token_times_s) - 1)


def itl_ms(token_times_s: Sequence[float]) -> tuple[float, ...]:
    """Return the inter-token latencies in milliseconds: the gap before each token but the first.

    Args:
        token_times_s: When each output token was delivered, ascending.
    """
    return tuple(1000.0 * (later - earlier) for earlier, later in pairwise(token_times_s))


def percentile(values: Sequence[float], percent: float) -> float | None:
    """Return a percentile by linear interpolation between the two nearest ranks.

    Definition 7 of Hyndman and Fan (1996), which numpy and spreadsheets use.

    Args:
        values: Measurements in any order.
        percent: From 0 to 100.
    """
    if not values:
        return None
    ranked = sorted(values)
    rank = (len(ranked) - 1) * percent / 100.0
    below = int(rank)
    above = min(below + 1, len(ranked) - 1)
    return ranked[below] + (rank - below) * (ranked[above] - ranked[below])


def percentiles(values: Sequence[float]) -> Percentiles | None:
    """Return p50, p95 and p99; a mean alone hides the pauses people notice.

    Args:
        values: Measurements in any order.
    """
    p50, p95, p99 = (percentile(values, percent) for percent in (50.0, 95.0, 99.0))
    if p50 is None or p95 is None or p99 is None:
        return None
    return Percentiles(p50, p95, p99)


def throughput_tokens_per_s(num_output_tokens: int, wall_s: float) -> float | None:
    """Return output tokens per second of wall time, all requests together.

    Args:
        num_output_tokens: Delivered in the window.
        wall_s: The window's length in seconds.
    """
    return num_output_tokens / wall_s if wall_s > 0 else None


def stage_occupancy(busy_s: float, wall_s: float) -> float | None:
    """Return the part of the wall time a stage computes; 1 minus it is the bubble.

    Args:
        busy_s: Time spent in the stage's passes, in seconds.
        wall_s: The window's length in seconds.
    """
    return busy_s / wall_s if wall_s > 0 else None


def acceptance_rate(num_accepted: int, num_proposed: int) -> float | None:
    """Return accepted over proposed draft tokens, from 0 to 1.

    Args:
        num_accepted: Draft tokens the target model agreed with.
        num_proposed: Draft tokens it was shown.
    """
    return num_accepted / num_proposed if num_proposed > 0 else None
