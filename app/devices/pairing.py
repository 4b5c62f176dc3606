"""What the page asks of this PC's node about who is in the pool, and what it is told."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from PySide6.QtCore import QObject, QTimer, Signal

from app.bridge.questions import Questions
from engine.messages.roster_control import (
    AskInvitations,
    InvitationsReport,
    Invite,
    Invited,
    Joined,
    JoinPool,
    LeavePool,
    ListPcs,
    ListPools,
    PcsListed,
    PoolsListed,
    RemovePc,
    RenamePc,
    WithdrawInvitation,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import Any

    from app.bridge.problem import Problem
    from engine.domain import NodeId
    from engine.messages.message import Message

LOOK_EVERY_MS = 1000
JOINED_WITHIN_MS = 60_000  # some addresses of a link are tried in vain

Ending = Literal["used", "guessed", "expired", "withdrawn", "lost"]
Asked = Literal["invite", "link", "join", "pcs", "look"]


@dataclass(frozen=True, slots=True)
class Invitation:
    """A code that is valid for a while.

    Attributes:
        code: Six digits.
        lasts_s: From now.
        address: Where this PC is reached: ``host:port``; empty where it is not known.
    """

    code: str = field(repr=False)
    lasts_s: float
    address: str = ""


class Pairing(QObject):
    """Pairing, over two connections: one to ask and look, one to join, which may take a while.

    Attributes:
        invited: Carries the ``Invitation`` that was opened.
        invitation_ended: Carries how (an ``Ending``), and the name of the PC that typed the code.
        link_made: Carries an invite link, which is a secret.
        links_changed: Carries how many links wait to be used.
        link_used: Carries the name of the PC that came by a link.
        pools_seen: Carries a tuple of ``PoolNearby``.
        pcs_seen: Carries the ``PcsListed``.
        joined: Carries the name of the PC that let this one in.
        left: This PC is in a pool of its own now.
        refused: Carries what was asked (an ``Asked``) and the ``Problem``.

    Thread: the main one; nothing here waits.
    """

    invited = Signal(object)
    invitation_ended = Signal(str, str)
    link_made = Signal(str)
    links_changed = Signal(int)
    link_used = Signal(str)
    pools_seen = Signal(object)
    pcs_seen = Signal(object)
    joined = Signal(str)
    left = Signal()
    refused = Signal(str, object)

    def __init__(self, data_dir: Path, parent: QObject | None = None) -> None:
        """Begin; nothing is asked.

        Args:
            data_dir: Daisy's data folder, which the node has.
            parent: Owns it.
        """
        super().__init__(parent)
        self._desk = Questions(data_dir, self)
        self._joining = Questions(data_dir, self, JOINED_WITHIN_MS)
        self._is_watched = False
        self._shows_code = False
        self._num_links = 0
        self._is_link_used = False
        self._look = QTimer(self, interval=LOOK_EVERY_MS)
        self._look.timeout.connect(self._ask_all)

    # ---- looking ------------------------------------------------------------------------------

    def watch(self) -> None:
        """Look who is in the pool, who is near, and what becomes of invitations, from now on."""
        self._is_watched = True
        self._look.start()
        self._ask_all()

    def unwatch(self) -> None:
        """Look no longer, but for a code that is shown."""
        self._is_watched = False
        if not self._shows_code:
            self._look.stop()

    def _ask_all(self) -> None:
        if self._desk.num_waiting:
            return  # the node is slow, or none runs: nothing is piled up
        if self._is_watched:
            self._desk.ask(ListPcs(), PcsListed, self.pcs_seen.emit, self._refusing("look"))
            self._desk.ask(ListPools(), PoolsListed, self._on_pools, self._refusing("look"))
        self._desk.ask(
            AskInvitations(), InvitationsReport, self._on_invitations, self._refusing("look")
        )

    def _on_pools(self, listed: PoolsListed) -> None:
        self.pools_seen.emit(listed.pools)

    def _on_invitations(self, report: InvitationsReport) -> None:
        if self._shows_code and report.code_left_s is None:
            self._end_code(report.code_ended or "lost", report.let_in or "")
        elif report.num_links < self._num_links:
            self._is_link_used = True
        if self._is_link_used and report.let_in:  # it is written down a moment later
            self._is_link_used = False
            self.link_used.emit(report.let_in)
        if report.num_links != self._num_links:
            self._num_links = report.num_links
            self.links_changed.emit(report.num_links)

    def _end_code(self, how: Ending, name: str) -> None:
        self._shows_code = False
        if not self._is_watched:
            self._look.stop()
        self.invitation_ended.emit(how, name)

    # ---- letting others in --------------------------------------------------------------------

    def invite(self) -> None:
        """Let one PC in by a code, for a while."""
        self._desk.ask(Invite(), Invited, self._on_invited, self._refusing("invite"))

    def withdraw(self) -> None:
        """End the code that is shown."""
        self._desk.ask(
            WithdrawInvitation(), InvitationsReport, self._on_invitations, self._refusing("invite")
        )

    def make_link(self) -> None:
        """Make an invite link, for a PC without a screen."""
        self._desk.ask(Invite(is_link=True), Invited, self._on_link, self._refusing("link"))

    def withdraw_links(self) -> None:
        """End every link that waits to be used."""
        self._desk.ask(
            WithdrawInvitation(is_link=True),
            InvitationsReport,
            self._on_links_withdrawn,
            self._refusing("link"),
        )

    def _on_invited(self, invited: Invited) -> None:
        address = invited.addresses[0] if invited.addresses else ""
        self._shows_code, self._is_link_used = True, False
        self._look.start()
        self.invited.emit(Invitation(invited.code or "", invited.within_s, address))

    def _on_link(self, invited: Invited) -> None:
        self._num_links += 1
        self.links_changed.emit(self._num_links)
        self.link_made.emit(invited.link or "")

    def _on_links_withdrawn(self, report: InvitationsReport) -> None:
        self._num_links = report.num_links
        self.links_changed.emit(report.num_links)

    # ---- going elsewhere ----------------------------------------------------------------------

    def join(self, *, code: str | None = None, link: str | None = None, address: str = "") -> None:
        """Join a pool, by a code or by a link.

        Args:
            code: Six digits, as a PC of the pool shows them.
            link: As a PC of the pool made it.
            address: ``host:port`` of the PC that shows the code; empty for the only one nearby.
        """
        wanted = JoinPool(code=code, link=link, address=address or None)
        self._joining.ask(wanted, Joined, self._on_joined, self._refusing("join"))

    def leave(self) -> None:
        """Leave the pool, and begin one of this PC's own."""
        self._ask_about_pcs(LeavePool(), lambda _: self.left.emit())

    def _on_joined(self, joined: Joined) -> None:
        self.joined.emit(joined.host_name)

    # ---- the PCs of the pool ------------------------------------------------------------------

    def rename(self, node_id: NodeId, name: str) -> None:
        """Call a PC otherwise, everywhere.

        Args:
            node_id: Which.
            name: How.
        """
        self._ask_about_pcs(RenamePc(node_id=node_id, name=name), self.pcs_seen.emit)

    def remove(self, node_id: NodeId) -> None:
        """Remove a PC, everywhere and at once.

        Args:
            node_id: Which.
        """
        self._ask_about_pcs(RemovePc(node_id=node_id), self.pcs_seen.emit)

    def _ask_about_pcs(self, message: Message, done: Callable[[Any], None]) -> None:
        self._desk.ask(message, PcsListed, done, self._refusing("pcs"))

    def _refusing(self, asked: Asked) -> Callable[[Problem], None]:
        return lambda problem: self.refused.emit(asked, problem)
