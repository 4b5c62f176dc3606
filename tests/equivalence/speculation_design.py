"""Which ways to speculate are tried on real stages: every pair of factor values meets."""

from __future__ import annotations

import random
from itertools import combinations, product
from typing import NamedTuple

CHOSEN = "chosen"  # by the engine, as it goes


class Way(NamedTuple):
    """One way to write answers with guesses.

    Attributes:
        drafter: Who guesses; for an oracle, how often it is right.
        kind: Of every stage.
        num_drafts: For each frame.
        num_stages: Of the chain.
        company: Whether others are answered beside: nobody, others that are guessed too, or others
            that are not.
        trouble: What happens while frames are under way.
    """

    drafter: str
    kind: str
    num_drafts: int | str
    num_stages: int
    company: str
    trouble: str

    def __str__(self) -> str:
        """As a test is named."""
        return " ".join(map(str, self))


FACTORS = Way(
    ("suffix", "model", "in turn", "oracle 0", "oracle 0.5", "oracle 0.8", "oracle 1"),
    ("paged", "stateful"),
    (1, 3, 5, 7, 10, 15, CHOSEN),
    (1, 2, 3, 4),
    ("alone", "guessed", "not guessed"),
    ("none", "cancels", "failed frames", "lost stages"),
)
_TRIED = 30  # candidates for each way: the one that meets most new pairs is taken


def pairs_of(way: Way) -> set[tuple[tuple[int, object], tuple[int, object]]]:
    """Return the pairs of factor values that meet in a way."""
    return set(combinations(enumerate(way), 2))


def every_pair() -> set[tuple[tuple[int, object], tuple[int, object]]]:
    """Return all that must meet."""
    numbered = [[(number, value) for value in values] for number, values in enumerate(FACTORS)]
    return {pair for a, b in combinations(numbered, 2) for pair in product(a, b)}


def covering_design() -> list[Way]:
    """Return few ways in which every pair of factor values meets, the same ones each time."""
    rng = random.Random(26)  # noqa: S311 - it draws candidates
    missing, ways = every_pair(), []
    while missing:
        begins_with = rng.choice(sorted(missing, key=repr))
        candidates = [_candidate(rng, dict(begins_with)) for _ in range(_TRIED)]
        best = max(candidates, key=lambda way: len(pairs_of(way) & missing))
        missing -= pairs_of(best)
        ways.append(best)
    return sorted(ways, key=lambda way: (way.kind, way.num_stages, way.drafter, str(way)))


def _candidate(rng: random.Random, fixed: dict[int, object]) -> Way:
    return Way(*(fixed.get(n, rng.choice(values)) for n, values in enumerate(FACTORS)))


def share_of(way: Way, ways: list[Way], num_prompts: int) -> range:
    """Return the prompts a way is tried on.

    All ways with one drafter on one kind of stage have all of them together.
    """
    alike = [w for w in ways if (w.drafter, w.kind) == (way.drafter, way.kind)]
    return range(alike.index(way), num_prompts, len(alike))
