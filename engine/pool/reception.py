"""Lets other PCs in: shows codes, makes links, and opens the port to strangers for that time only.

Nothing here outlives the process: a restart ends every code and link.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time
from typing import TYPE_CHECKING

from engine.errors import DaisyError, NotTrustedError
from engine.messages.roster_control import InvitationsReport
from engine.transport.invite_link import MAX_ADDRESSES, InviteLink
from engine.transport.pairing import Host
from engine.transport.pairing_door import (
    LINK_ID_BYTES,
    LINK_SECRET_BYTES,
    LINK_WITHIN_S,
    PairingDoor,
)
from engine.transport.pairing_link import serve_joiner

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from engine.pool.roster import Role
    from engine.pool.roster_keeper import RosterKeeper
    from engine.transport.pairing import Newcomer
    from engine.transport.websocket import Websocket

_logger = logging.getLogger(__name__)


class Reception:
    """Whoever waits to be let in here.

    Attributes:
        on_window: Told in the loop whether a code is shown, whenever that changes: for that time
            this PC says in the network that it waits for one.

    Thread: the node's loop.
    """

    def __init__(self, keeper: RosterKeeper) -> None:
        """Begin closed.

        Args:
            keeper: Writes newcomers into the roster.
        """
        self.on_window: Callable[[bool], None] | None = None
        self._keeper = keeper
        self._door = PairingDoor()
        self._turn = asyncio.Lock()  # of whoever uses the door, also in a thread
        self._is_open = False
        self._shown = False
        self._num_attended = 0
        self._let_in: str | None = None  # what the PC is called that came last
        self._changed = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    async def show_code(self, role: Role) -> str:
        """Show a code for one PC; an earlier one ends.

        Args:
            role: Of the PC that joins by it.

        Returns:
            Six digits, for ``CODE_WITHIN_S``.

        Raises:
            GuessedCodeError: Too many guesses were wrong; says how long to wait.
            NotTrustedError: This PC may let nobody in.
        """
        self._require_owner()
        self._let_in = None
        async with self._turn:
            code = self._door.show_code(secrets.randbelow, self._loop.time(), role)
        self._look()
        return code

    async def make_link(self, addresses: Sequence[str], role: Role) -> InviteLink:
        """Make a link for one PC, which ends after ``LINK_WITHIN_S`` or with this process.

        Args:
            addresses: Where this PC is reached: ``host:port``.
            role: Of the PC that joins by it.

        Raises:
            UsageError: Too many links wait already.
            NotTrustedError: This PC may let nobody in.
        """
        self._require_owner()
        self._let_in = None
        secret, link_id = secrets.token_bytes(LINK_SECRET_BYTES), secrets.token_hex(LINK_ID_BYTES)
        async with self._turn:
            self._door.make_link(link_id, secret, LINK_WITHIN_S, self._loop.time(), role)
        self._look()
        return InviteLink(
            pool_id=self._keeper.pool_id,
            addresses=tuple(addresses[:MAX_ADDRESSES]),
            certificate_sha256=self._keeper.identity.certificate.sha256,
            link_id=link_id,
            secret=secret,
            until_s=int(time.time() + LINK_WITHIN_S),
        )

    async def withdraw(self, *, is_link: bool) -> None:
        """End the code that is shown, or every link that waits to be used.

        Args:
            is_link: Which of both.
        """
        async with self._turn:
            if is_link:
                self._door.withdraw_links()
            else:
                self._door.hide_code()
        self._look()

    def invitations(self) -> InvitationsReport:
        """Return what waits to be used, and what became of the last one."""
        now_s = self._loop.time()
        left_s, ended = self._door.code_left_s(now_s), self._door.code_ended
        if ended == "used" and self._num_attended and self._let_in is None:
            left_s, ended = 0.0, None  # whoever typed it is being written into the roster
        return InvitationsReport(
            code_left_s=left_s,
            code_ended=ended,
            num_links=self._door.num_links(now_s),
            let_in=self._let_in,
        )

    async def attend(self, websocket: Websocket) -> None:
        """Pair with whoever is there; a failure is logged, and nobody's but the joiner's.

        Args:
            websocket: To it.
        """
        keeper = self._keeper
        identity = keeper.identity.certificate
        host = Host(identity, keeper.pool_id, self._door, secrets.token_bytes)
        self._num_attended += 1
        try:
            await serve_joiner(websocket, host, self._turn, self._admit)
        except DaisyError as error:
            _logger.info("pairing: %s", error.what)
        finally:
            self._num_attended -= 1
            self._look()

    async def run(self) -> None:
        """Close the port to strangers when nobody is waited for any more, until cancelled."""
        while True:
            self._look()
            self._changed.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(self._door.closes_at_s()):
                    await self._changed.wait()

    async def _admit(self, newcomer: Newcomer, grants: str) -> bytes:
        # Of the invitation that was used: another one may be shown by now, for another role.
        role: Role = "owner" if grants == "owner" else "member"
        roster = await self._keeper.let_in(newcomer, role)
        self._let_in = self._keeper.name_of(newcomer.certificate.node_id)
        return roster

    def _look(self) -> None:
        """Open or close the port to strangers, as the door is now."""
        now_s = self._loop.time()
        is_open = self._door.is_open(now_s)
        if is_open != self._is_open:
            self._is_open = is_open
            self._keeper.trust.let_joiners_in(is_open)
        shows_code = self._door.shows_code(now_s)
        if self.on_window is not None and shows_code != self._shown:
            self.on_window(shows_code)
        self._shown = shows_code
        self._changed.set()

    def _require_owner(self) -> None:
        """Return if this PC may let others in.

        Raises:
            NotTrustedError: It is no owner.
        """
        known = self._keeper.known
        own = known.member(self._keeper.identity.node_id)
        if own is None or not own.is_owner:
            names = " or ".join(m.name for m in known.members if m.is_owner)
            raise NotTrustedError(
                "This PC may let nobody into the pool: it is no owner of it.",
                f"Do it on a PC that is: {names or 'none is'}.",
            )
