"""How long frames take round the chain, and so how many of one sequence may be under way at once.

A frame that waits behind others takes longer than the chain does; the least of the newest times is
therefore what counts, as for the delay of a network's path. Pure.
"""

from __future__ import annotations

from collections import deque
from statistics import median
from typing import NamedTuple

MAX_FRAMES = 8  # of one sequence: beyond it a guess that stands on so many others seldom holds
_KEPT = 32
_MAX_ROWS = 64  # of a frame that tells of decodes: a prefill chunk takes its time in the stages
_MAX_UNANSWERED = 256  # frames; one that failed is never answered


class Lap(NamedTuple):
    """One frame's way round the chain.

    Attributes:
        num_rows: Of the frame.
        circuit_s: From the head to the answer, without what it waited behind others.
        compute_s: How long the stages computed of that.
    """

    num_rows: int
    circuit_s: float
    compute_s: float


class Circuit:
    """Times of the frames of one placement."""

    def __init__(self, num_stages: int) -> None:
        """Begin with nothing measured.

        Args:
            num_stages: Of the chain.
        """
        self._num_stages = num_stages
        self._sent: dict[int, tuple[int, float]] = {}
        self._link_s: deque[float] = deque(maxlen=_KEPT)
        self._compute_s: deque[float] = deque(maxlen=_KEPT)

    def sent(self, batch_id: int, num_rows: int, now_s: float) -> None:
        """Note that a frame leaves the head.

        Args:
            batch_id: Its own.
            num_rows: It has.
            now_s: Of a steady clock.
        """
        if len(self._sent) >= _MAX_UNANSWERED:
            del self._sent[next(iter(self._sent))]
        self._sent[batch_id] = num_rows, now_s

    def answered(self, batch_id: int, now_s: float, compute_s: float) -> Lap | None:
        """Take the answer to a frame.

        Args:
            batch_id: Of the frame.
            now_s: Of the same clock.
            compute_s: How long the stages computed for it; 0 where they did not compute it all.

        Returns:
            Its lap; None for a frame that tells nothing of how long a decode takes.
        """
        num_rows, sent_s = self._sent.pop(batch_id, (0, 0.0))
        if not 0 < num_rows <= _MAX_ROWS or compute_s <= 0.0:
            return None
        compute_s = min(compute_s, now_s - sent_s)  # whatever other PCs say
        self._link_s.append(max(now_s - sent_s - compute_s, 0.0))
        self._compute_s.append(compute_s)
        return Lap(num_rows, compute_s + min(self._link_s), compute_s)

    @property
    def typical_s(self) -> float | None:
        """Seconds of a frame's way round the chain; None before the first."""
        if not self._compute_s:
            return None
        return median(self._compute_s) + min(self._link_s)

    @property
    def num_frames(self) -> int:
        """Frames that keep every stage busy and wait for none: the way round over one stage's."""
        if not self._compute_s:
            return self._num_stages
        stage_s = median(self._compute_s) / self._num_stages
        ways = self._num_stages + min(self._link_s) / stage_s
        return max(1, min(round(ways), MAX_FRAMES))
