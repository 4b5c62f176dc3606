"""How often guesses hold, by their depth: what a few trials and what came before suggest."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


class Acceptance:
    """Decayed counts of trials and successes for each depth of a draft.

    The guess at depth d is tried only if all before it held, so each rate is that of the guess
    given those before it.
    """

    def __init__(self, max_depth: int, decay: float) -> None:
        """Begin without a trial.

        Args:
            max_depth: Longest draft.
            decay: What a trial still counts after the next one; below 1. ``1 / (1 - decay)``
                trials are remembered.
        """
        self._decay = decay
        self._trials = [0.0] * max_depth
        self._successes = [0.0] * max_depth

    def observe(self, num_drafted: int, num_accepted: int) -> None:
        """Count one draft.

        Args:
            num_drafted: Its length.
            num_accepted: How many of its tokens held; the next one, if any, did not.
        """
        for depth in range(min(num_drafted, num_accepted + 1, len(self._trials))):
            self._trials[depth] = self._decay * self._trials[depth] + 1.0
            held = float(depth < num_accepted)
            self._successes[depth] = self._decay * self._successes[depth] + held

    def rates(self, priors: Sequence[float], weight: float) -> list[float]:
        """Return the rate at each depth.

        Args:
            priors: Rate at each depth where nothing was tried. A depth that was tried little
                follows what was seen at the depth before it.
            weight: Trials a prior counts for.
        """
        rates: list[float] = []
        before, prior_before = 1.0, 1.0
        for trials, successes, prior in zip(self._trials, self._successes, priors, strict=True):
            expected = min(1.0, before * prior / prior_before)
            before = (successes + weight * expected) / (trials + weight)
            prior_before = prior
            rates.append(before)
        return rates
