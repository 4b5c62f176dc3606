"""Which PCs, in which order, can hold a model between them; pure.

Only the first stage has the embedding and only the last the LM head, so the order counts. For a
set of PCs S let ``F(S)`` be the most layers, from the first on, that all of S but no head can hold
in the best order. More layers behind a set of PCs are never worse for those that follow, so

    F({}) = 0        F(S) = max over n in S of reach(F(S - {n}), n)

is exact, and S holds the model if some n of it can take everything from ``F(S - {n})`` on,
head included.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import combinations
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from engine.pool.stage_memory import StageSizes

MAX_CANDIDATES = 10  # PCs among which every set is looked at


def reach(sizes: StageSizes, start: int, capacity: int) -> int:
    """Return the layer up to which a stage that is not the last can go on.

    Args:
        sizes: Of the model.
        start: The stage's first layer.
        capacity: In the bytes of ``sizes``.

    Returns:
        From ``start``, where not even one layer fits, to one less than the number of layers.
    """
    room = capacity + sizes.ends[start] - (sizes.embedding if start == 0 else 0)
    stop = bisect_right(sizes.ends, room) - 1
    return max(start, min(stop, sizes.num_layers - 1))


def can_end(sizes: StageSizes, start: int, capacity: int) -> bool:
    """Return whether a stage can take every layer from one on, and the LM head.

    Args:
        sizes: Of the model.
        start: The stage's first layer.
        capacity: In the bytes of ``sizes``.
    """
    embedding = sizes.embedding if start == 0 else 0
    return sizes.ends[-1] - sizes.ends[start] + embedding + sizes.head <= capacity


def fits_in_order(sizes: StageSizes, capacities: Sequence[int]) -> bool:
    """Return whether PCs hold the model in the order given, each at least one layer.

    Args:
        sizes: Of the model.
        capacities: Of at least one PC.
    """
    start = 0
    for number, capacity in enumerate(capacities[:-1]):
        # One layer is kept for each PC that follows.
        most = sizes.num_layers - (len(capacities) - 1 - number)
        stop = min(reach(sizes, start, capacity), most)
        if stop <= start:
            return False
        start = stop
    return can_end(sizes, start, capacities[-1])


def order_of_many(sizes: StageSizes, capacities: Sequence[int]) -> tuple[int, ...] | None:
    """Return an order in which more than ``MAX_CANDIDATES`` PCs hold the model, if one is found.

    The roomiest come first, and each of them in turn is tried as the last. That finds one where
    layers are alike; it may miss one where they are not.

    Args:
        sizes: Of the model.
        capacities: Of the PCs, in descending order; as few of the first as suffice are used.

    Returns:
        Their numbers in order; None if none was found.
    """
    for size in range(1, min(len(capacities), sizes.num_layers) + 1):
        for last in reversed(range(size)):
            order = (*(n for n in range(size) if n != last), last)
            if fits_in_order(sizes, [capacities[n] for n in order]):
                return order
    return None


def can_hold(sizes: StageSizes, capacities: Sequence[int]) -> bool:
    """Return whether some of the PCs hold the model between them.

    Args:
        sizes: Of the model.
        capacities: Of the PCs, in any order.
    """
    roomiest = sorted(capacities, reverse=True)
    if ChainSearch(sizes, roomiest[:MAX_CANDIDATES]).holds:
        return True
    return len(roomiest) > MAX_CANDIDATES and order_of_many(sizes, roomiest) is not None


class ChainSearch:
    """Every set of at most ``MAX_CANDIDATES`` PCs, and whether it holds the model."""

    def __init__(self, sizes: StageSizes, capacities: Sequence[int]) -> None:
        """Look at every set.

        Args:
            sizes: Of the model.
            capacities: Of the PCs, by their number.
        """
        self._sizes = sizes
        self._capacities = capacities
        num_sets = 1 << len(capacities)
        self._farthest = [0] * num_sets
        for members in range(1, num_sets):
            self._farthest[members] = max(
                reach(sizes, self._farthest[members ^ (1 << n)], capacities[n])
                for n in _numbers(members)
            )

    @property
    def holds(self) -> bool:
        """Whether all of the PCs together hold the model."""
        return self._last_of(tuple(range(len(self._capacities)))) is not None

    def sets_of(self, size: int) -> Iterator[tuple[int, ...]]:
        """Yield the sets of one size that hold the model, in ascending order.

        Args:
            size: How many PCs, from 1.

        Yields:
            The numbers of the PCs, ascending.
        """
        for numbers in combinations(range(len(self._capacities)), size):
            if self._last_of(numbers) is not None:
                yield numbers

    def order_of(self, numbers: tuple[int, ...]) -> tuple[int, ...]:
        """Return an order in which a set that holds the model does so.

        Args:
            numbers: As ``sets_of`` yields them.
        """
        last = self._last_of(numbers)
        order: list[int] = []
        members = sum(1 << n for n in numbers)
        while last is not None:
            order.append(last)
            members ^= 1 << last
            last = self._best_last(members)
        return tuple(reversed(order))

    def _last_of(self, numbers: tuple[int, ...]) -> int | None:
        members = sum(1 << n for n in numbers)
        for n in numbers:
            if can_end(self._sizes, self._farthest[members ^ (1 << n)], self._capacities[n]):
                return n
        return None

    def _best_last(self, members: int) -> int | None:
        def stop_with(n: int) -> int:
            return reach(self._sizes, self._farthest[members ^ (1 << n)], self._capacities[n])

        return max(_numbers(members), key=stop_with, default=None)


def _numbers(members: int) -> list[int]:
    return [n for n in range(members.bit_length()) if members >> n & 1]
