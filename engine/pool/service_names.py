"""Which services of our type were heard of, what is wrong with them, and when to ask again.

Pure, and bounded: whoever floods the network with names can push out names that lead nowhere, and
never a node that was told.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MAX_NAMES = 64  # a pool has a few
MAX_ASKING = 8
ASK_AFTER_S = (0.0, 5.0, 15.0, 45.0)  # each since the one before


@dataclass
class _State:
    times_asked: int = 0
    ask_at_s: float = 0.0
    is_asking: bool = False
    reason: str | None = None


class ServiceNames:
    """The names, each once, in the order they were heard in."""

    def __init__(self) -> None:
        self._states: dict[str, _State] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(tuple(self._states))

    def __len__(self) -> int:
        return len(self._states)

    @property
    def ignored(self) -> dict[str, str]:
        """Return why each service that is none of ours is ignored, by its name in ASCII."""
        return {
            ascii(name): state.reason
            for name, state in self._states.items()
            if state.reason is not None
        }

    def add(self, name: str, is_told: Callable[[str], bool]) -> None:
        """Take up a name; in place of one that leads nowhere if there are too many.

        Args:
            name: The full name of a service.
            is_told: Whether a name leads to a node that was told.
        """
        if name in self._states:
            return
        if len(self._states) >= MAX_NAMES:
            spare = next((other for other in self._states if not is_told(other)), None)
            if spare is None:
                return
            del self._states[spare]
        self._states[name] = _State()

    def remove(self, name: str) -> None:
        """Forget a name, known or not."""
        self._states.pop(name, None)

    def ignore(self, name: str, reason: str) -> bool:
        """Keep why a service is none of ours; return whether that is new."""
        state = self._states[name]
        is_new = state.reason != reason
        state.reason = reason
        return is_new

    def accept(self, name: str) -> None:
        """Keep that a service is one of ours."""
        self._states[name].reason = None

    def ask_anew(self) -> None:
        """Let everything be asked again at once: the network is another one."""
        for state in self._states.values():
            state.times_asked, state.ask_at_s = 0, 0.0

    def start_asking(self, name: str, now_s: float) -> bool:
        """Return whether to ask for a name's missing records now; then ``end_asking`` follows.

        Args:
            name: One of the names.
            now_s: Monotonic seconds.
        """
        state = self._states[name]
        num_asking = sum(other.is_asking for other in self._states.values())
        is_too_often = state.times_asked >= len(ASK_AFTER_S) or now_s < state.ask_at_s
        if state.is_asking or is_too_often or num_asking >= MAX_ASKING:
            return False
        state.is_asking = True
        state.times_asked += 1
        if state.times_asked < len(ASK_AFTER_S):
            state.ask_at_s = now_s + ASK_AFTER_S[state.times_asked]
        return True

    def end_asking(self, name: str) -> None:
        """Keep that a question has ended, answered or not; the name may be gone."""
        if name in self._states:
            self._states[name].is_asking = False
