"""How long a place in the queue takes, judged by the answers before it. Pure."""

from __future__ import annotations

_WEIGHT = 0.3  # of the newest answer: a few short ones soon outweigh a long one


class QueueTime:
    """What is known of how long answers run."""

    def __init__(self) -> None:
        """Begin with nothing known."""
        self._mean_s: float | None = None

    def ended(self, running_s: float) -> None:
        """Take note of an answer that has ended.

        Args:
            running_s: From its turn to its end, in seconds.
        """
        if self._mean_s is None:
            self._mean_s = running_s
        else:
            self._mean_s += _WEIGHT * (running_s - self._mean_s)

    def wait_s(self, place: int, num_at_once: int) -> float | None:
        """Return the seconds until a place in the queue has its turn; None where nobody knows.

        Answers that run side by side end evenly spread over the time one takes.

        Args:
            place: In the queue, from 1.
            num_at_once: Answers that run side by side, 1 or more.
        """
        return None if self._mean_s is None else self._mean_s * place / num_at_once
