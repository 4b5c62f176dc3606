"""How long one token takes through one layer of a stage, as placements reckon with. Pure."""

from __future__ import annotations

from collections import deque
from statistics import median

_KEPT = 32
_FEWEST = 4  # the first pass of a stage is a slow one


class LayerTime:
    """Measured on passes of a single token: those of several cost less a token.

    The median of the last few, so that one pass during which the PC was busy counts for nothing.
    """

    def __init__(self, work: float) -> None:
        """Begin with nothing measured.

        Args:
            work: Of the stage for one token, in average layers of its model: the LM head is in it.
        """
        self._work = work
        self._passes_us: deque[int] = deque(maxlen=_KEPT)

    def add(self, num_tokens: int, compute_us: int) -> None:
        """Take the time of a pass.

        Args:
            num_tokens: That it computed.
            compute_us: Microseconds it took in this stage; 0 for one that was not measured.
        """
        if num_tokens == 1 and compute_us > 0:
            self._passes_us.append(compute_us)

    @property
    def ms(self) -> float | None:
        """Milliseconds a token and average layer; None while too few passes were measured."""
        if len(self._passes_us) < _FEWEST:
            return None
        return median(self._passes_us) / self._work / 1000
