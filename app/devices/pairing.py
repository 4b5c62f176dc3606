"""What the page asks of this PC's node about letting PCs in, and what it is told."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from PySide6.QtCore import QObject, Signal

from app.bridge.problem import Problem

UNAVAILABLE = "pairing_unavailable"

Ending = Literal["expired", "guessed", "closed"]


@dataclass(frozen=True, slots=True)
class Invitation:
    """A code that is valid for a while.

    Attributes:
        code: Six digits.
        lasts_s: From now.
    """

    code: str = field(repr=False)
    lasts_s: float


@dataclass(frozen=True, slots=True)
class NearbyPool:
    """A pool this PC could join.

    Attributes:
        name: As its people call it; shown only while it lets PCs in.
        address: ``host:port`` of a PC of it.
        num_pcs: In it.
    """

    name: str
    address: str
    num_pcs: int


class Pairing(QObject):
    """Pairing, as far as the node knows of it.

    The control port has no messages for it in this version. Every request is refused at once, with
    the code ``pairing_unavailable``; whatever speaks to a node that knows more takes its place.

    Attributes:
        invited: Carries the ``Invitation`` that was opened.
        invitation_ended: Carries how: ``expired``, ``guessed`` or ``closed``.
        let_in: Carries the name of the PC that typed the code.
        link_made: Carries an invite link, which is a secret.
        pools_seen: Carries a tuple of ``NearbyPool``.
        joined: Carries the name of the pool this PC is in now.
        refused: Carries the ``Problem``.

    Thread: the main one; nothing here waits.
    """

    invited = Signal(object)
    invitation_ended = Signal(str)
    let_in = Signal(str)
    link_made = Signal(str)
    pools_seen = Signal(object)
    joined = Signal(str)
    refused = Signal(object)

    def invite(self) -> None:
        """Let one PC in by a code, for a while."""
        self._refuse()

    def withdraw(self) -> None:
        """End the invitation that is open."""
        self._refuse()

    def make_link(self) -> None:
        """Make an invite link for a PC without a screen."""
        self._refuse()

    def look_around(self) -> None:
        """Look for pools nearby."""
        self._refuse()

    def join(self, address: str, code: str) -> None:
        """Join a pool.

        Args:
            address: ``host:port`` of a PC of it.
            code: Six digits, as that PC shows them.
        """
        del address, code
        self._refuse()

    def _refuse(self) -> None:
        self.refused.emit(Problem(UNAVAILABLE, "The control port has no pairing messages.", ""))
