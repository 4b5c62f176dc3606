"""Who is in the pool, kept in step everywhere: in memory, on disk, in TLS and on the other PCs.

Whatever changes goes the same way: it is learned, written, trusted, and told. A removal cuts the
removed PC's connections before anything is awaited but the disk; should the disk fail, it is cut
all the same.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from typing import TYPE_CHECKING

from engine.errors import DaisyError, NotTrustedError, RemoteProtocolError
from engine.messages.roster_control import RosterTold
from engine.pool.pool_secret import POOL_SECRET_BYTES
from engine.pool.recognition import recognised, recognition_token
from engine.pool.roster import decode_roster
from engine.pool.roster_changes import add_member, remove_member, rename_member, sign_all_known
from engine.pool.roster_merge import learn
from engine.transport.peer_trust import PeerTrust

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from engine.domain import NodeId
    from engine.messages.codec import Received
    from engine.messages.message import Message
    from engine.pool.announcement import Announcement
    from engine.pool.node_folder import NodeFolder
    from engine.pool.roster import Role
    from engine.pool.roster_merge import KnownRoster, Learned
    from engine.transport.certificates import Certificate
    from engine.transport.identity import Identity
    from engine.transport.pairing import Newcomer

_logger = logging.getLogger(__name__)


class RosterKeeper:
    """The one place where a node's roster changes.

    Attributes:
        folder: Keeps it on disk.
        trust: Whom TLS lets in; follows it.
        tell: Sends to every other node; set by whoever has sessions.
        on_change: Called in the loop after every change.

    Thread: the node's loop.
    """

    def __init__(self, folder: NodeFolder) -> None:
        """Begin with what was known at the last start.

        Args:
            folder: The node's, held by it.

        Raises:
            StorageError: The identity can't be read.
        """
        self.folder = folder
        self.trust = PeerTrust(folder.identity, _certificates(folder.roster))
        self.tell: Callable[[Message], Awaitable[None]] | None = None
        self.on_change: Callable[[], None] | None = None
        self._turn = asyncio.Lock()

    @property
    def known(self) -> KnownRoster:
        """What this PC knows of its pool."""
        return self.folder.roster

    @property
    def identity(self) -> Identity:
        """This PC's."""
        return self.folder.identity

    @property
    def pool_id(self) -> str:
        """Of the pool."""
        return self.known.roster.content.pool_id

    @property
    def is_alone(self) -> bool:
        """Whether nobody else is in the pool."""
        return len(self.known.members) <= 1

    def told(self) -> tuple[RosterTold, ...]:
        """Return what another member is told, so that it knows what this PC knows; in order."""
        return tuple(RosterTold(roster=signed) for signed in self.known.all_signed)

    def name_of(self, node_id: NodeId) -> str | None:
        """Return what a member is called; None for anybody else.

        Args:
            node_id: Which.
        """
        member = self.known.member(node_id)
        return None if member is None else member.name

    def token(self, run_id: str, port: int) -> str:
        """Return what this PC announces itself by; nobody's if it is no member any more.

        Args:
            run_id: Drawn at random at its start.
            port: Where it listens.
        """
        secret = self._secret_of(self.known) or secrets.token_bytes(POOL_SECRET_BYTES)
        return recognition_token(secret, self.identity.node_id, run_id, port)

    def recognise(self, said: Announcement) -> NodeId | None:
        """Return which member announces itself, this PC too; None for a stranger.

        Args:
            said: By anybody; it proves nothing.
        """
        own = self._secret_of(self.known)
        known = (*(() if own is None else (own,)), *self.folder.earlier_secrets)
        ids = [member.node_id for member in self.known.members]
        return recognised(said.token, said.run_id, said.port, known, ids)

    async def offer(self, signed: Received) -> None:
        """Take a roster that a member, or a program of this PC, brought.

        Args:
            signed: As it came.

        Raises:
            RemoteProtocolError: It is none.
            NotTrustedError: It is another pool's, or its signer may not sign.
            StorageError: It can't be written.

        Cancellation: safe; it is taken or not.
        """
        async with self._turn:
            learned = learn(self.known, await asyncio.to_thread(decode_roster, signed))
            if learned.is_news:
                await self._take(learned.known)
            if learned.is_incomplete and self._may_sign():
                await self._say_all(learned)

    async def let_in(self, newcomer: Newcomer, role: Role) -> bytes:
        """Make somebody who has proved itself a member.

        Args:
            newcomer: As pairing gives it.
            role: What it may do.

        Returns:
            The roster with it, signed.

        Raises:
            NotTrustedError: This PC is no owner, or the newcomer was removed before.
            UsageError: The pool is full.
            StorageError: It can't be written.
        """

        def added(known: KnownRoster) -> KnownRoster:
            certificate, name = newcomer
            return add_member(known, self.identity, certificate, name, role, secrets.token_bytes)

        await self._change(added)
        return self.known.roster.signed

    async def rename(self, node_id: NodeId, name: str) -> None:
        """Call a PC otherwise.

        Args:
            node_id: Which.
            name: Cleaned before it is written down.

        Raises:
            NotTrustedError: This PC is no owner.
            UsageError: There is no such PC.
            StorageError: It can't be written.
        """
        await self._change(
            lambda known: rename_member(known, self.identity, node_id, name, secrets.token_bytes)
        )

    async def remove(self, node_id: NodeId) -> None:
        """Remove a PC: its connections here end at once, everybody else's as they hear of it.

        Args:
            node_id: Which.

        Raises:
            NotTrustedError: This PC is no owner.
            UsageError: There is no such PC, or it is this one.
            StorageError: It can't be written; it is cut here all the same.
        """
        await self._change(
            lambda known: remove_member(known, self.identity, node_id, secrets.token_bytes)
        )

    async def _change(self, make: Callable[[KnownRoster], KnownRoster]) -> None:
        async with self._turn:
            changed = await asyncio.to_thread(make, self.known)
            if changed is not self.known:
                await self._take(changed)

    async def _say_all(self, learned: Learned) -> None:
        """Sign a roster with all of two that met; each owner that sees both does."""
        try:
            signed = await asyncio.to_thread(
                sign_all_known, learned, self.identity, secrets.token_bytes
            )
        except DaisyError as error:  # more than a roster holds
            _logger.warning("roster: %s", error.what)
            return
        await self._take(signed)

    def _may_sign(self) -> bool:
        own = self.known.member(self.identity.node_id)
        return own is not None and own.is_owner

    async def _take(self, known: KnownRoster) -> None:
        """Write, trust, and tell."""
        before = self._secret_of(self.known)
        try:
            if before is not None and before != self._secret_of(known):
                await asyncio.to_thread(self.folder.keep_earlier_secret, before)
            await asyncio.shield(asyncio.to_thread(self.folder.keep_roster, known))
        finally:
            self.folder.roster = known
            self.trust.replace(_certificates(known))
            if self.on_change is not None:
                self.on_change()
        _logger.info("roster: version %d, %d PCs", known.roster.content.version, len(known.members))
        if self.tell is not None:
            for told in self.told():
                await self.tell(told)

    def _secret_of(self, known: KnownRoster) -> bytes | None:
        """Return the pool's secret; None where this PC is no member, or an owner made a mistake."""
        try:
            return known.roster.secret_for(self.identity)
        except (NotTrustedError, RemoteProtocolError):
            return None


def _certificates(known: KnownRoster) -> list[Certificate]:
    return [member.certificate for member in known.members]
