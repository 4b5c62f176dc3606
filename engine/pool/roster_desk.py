"""What a program of this PC asks about who is in the pool, done: invite, join, list, remove."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from engine.errors import (
    InOtherPoolError,
    PeerUnreachableError,
    UsageError,
)
from engine.messages.roster_control import (
    AskInvitations,
    Invite,
    Invited,
    Joined,
    JoinPool,
    LeavePool,
    ListPcs,
    ListPools,
    PcLine,
    PcsListed,
    PoolsListed,
    RemovePc,
    RenamePc,
    RosterTold,
    WithdrawInvitation,
)
from engine.pool.joining import join_by
from engine.transport.invite_link import parse_invite_link
from engine.transport.invited import invited_by_code, invited_by_link
from engine.transport.pairing_door import CODE_WITHIN_S, LINK_WITHIN_S, checked_code

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import Protocol

    from engine.domain import NodeId
    from engine.messages.message import Message
    from engine.messages.roster_control import PoolNearby
    from engine.pool.reception import Reception
    from engine.pool.roster_keeper import RosterKeeper

    class Surroundings(Protocol):
        """What a node knows of the network it is in."""

        def own_addresses(self) -> tuple[str, ...]:
            """Return where this node is reached: ``host:port``, the best first."""
            ...

        def pools_nearby(self) -> tuple[PoolNearby, ...]:
            """Return who waits for a PC to join."""
            ...

        def online(self) -> frozenset[NodeId]:
            """Return the members that are there now, without this node."""
            ...


class RosterDesk:
    """One node's.

    Attributes:
        moved: Set once this PC has joined or left a pool: the node is to start anew.

    Thread: the node's loop.
    """

    def __init__(self, keeper: RosterKeeper, reception: Reception) -> None:
        """Begin; nothing is asked yet.

        Args:
            keeper: Of the roster.
            reception: Lets others in.
        """
        self.moved = asyncio.Event()
        self._keeper = keeper
        self._reception = reception
        self._joining = asyncio.Lock()
        self._around: Surroundings | None = None

    def look_around(self, around: Surroundings) -> None:
        """Ask this about the network from now on; a node that is in no pool has nothing to say.

        Args:
            around: Whoever knows.
        """
        self._around = around

    async def serve(self, message: object, send: Callable[[Message], Awaitable[None]]) -> bool:
        """Do what a program of this PC asks.

        Args:
            message: Decoded.
            send: To it.

        Returns:
            Whether it was about who is in the pool.

        Fails with ``DaisyError``, to be told to the program.
        """
        match message:
            case RosterTold():
                await self._keeper.offer(message.roster)
            case Invite() | WithdrawInvitation() | AskInvitations():
                await send(await self._invitation(message))
            case ListPools():
                await send(PoolsListed(pools=self._nearby()))
            case JoinPool():
                await self._join(message, send)
            case ListPcs():
                await send(self._pcs())
            case RenamePc():
                await self._keeper.rename(message.node_id, message.name)
                await send(self._pcs())
            case RemovePc():
                await self._keeper.remove(message.node_id)
                await send(self._pcs())
            case LeavePool():
                await self._leave(send)
            case _:
                return False
        return True

    async def _invitation(self, asked: Invite | WithdrawInvitation | AskInvitations) -> Message:
        match asked:
            case Invite():
                return await self._invited(asked)
            case WithdrawInvitation():
                await self._reception.withdraw(is_link=asked.is_link)
        return self._reception.invitations()

    async def _invited(self, asked: Invite) -> Invited:
        addresses = () if self._around is None else self._around.own_addresses()
        if not asked.is_link:
            code = await self._reception.show_code(asked.role)
            return Invited(code=code, link=None, within_s=CODE_WITHIN_S, addresses=addresses)
        if not addresses:
            raise PeerUnreachableError("This PC has no address that others could reach.")
        link = await self._reception.make_link(addresses, asked.role)
        return Invited(code=None, link=str(link), within_s=LINK_WITHIN_S, addresses=addresses)

    async def _join(self, asked: JoinPool, send: Callable[[Message], Awaitable[None]]) -> None:
        """Join, tell it, and have the node start anew.

        Raises:
            UsageError: This PC is in a pool with others, or it is not clear which one is meant.
        """
        async with self._joining:
            self._require_alone()
            if asked.link is not None:
                link = parse_invite_link(asked.link)
                invited, addresses = invited_by_link(link), link.addresses
            else:
                invited = invited_by_code(checked_code(asked.code or ""))
                addresses = (asked.address or self._only_one_nearby(),)
            known, host_name = await join_by(self._keeper.folder, invited, addresses)
            joined = Joined(
                pool_id=known.roster.content.pool_id,
                host_name=host_name,
                num_pcs=len(known.members),
            )
            await send(joined)
            self.moved.set()

    def _require_alone(self) -> None:
        """Return if this PC is in a pool of its own.

        Raises:
            UsageError: This PC is about to start anew.
            InOtherPoolError: Others are in it.
        """
        if self.moved.is_set():
            raise UsageError("This PC has just joined or left a pool.", "Wait a second.")
        if not self._keeper.is_alone:
            num_others = len(self._keeper.known.members) - 1
            raise InOtherPoolError(
                f"This PC is in a pool with {num_others} other PCs.",
                "To leave it for another one: daisy leave, then daisy join.",
            )

    def _only_one_nearby(self) -> str:
        """Return the address of the PC that waits for one to join.

        Raises:
            UsageError: None does, or several do.
        """
        nearby = self._nearby()
        if not nearby:
            raise UsageError(
                "No PC nearby waits for one to join.",
                "Run daisy invite there, and daisy join here within two minutes; where PCs do not "
                "find each other, name it: daisy join CODE --at HOST:PORT.",
            )
        if len(nearby) > 1:
            names = ", ".join(f"{pool.name} ({pool.address})" for pool in nearby)
            raise UsageError(
                f"{len(nearby)} PCs nearby wait for one to join: {names}.",
                "Say which one: daisy join CODE --at HOST:PORT.",
            )
        return nearby[0].address

    def _nearby(self) -> tuple[PoolNearby, ...]:
        return () if self._around is None else self._around.pools_nearby()

    def _pcs(self) -> PcsListed:
        online = frozenset() if self._around is None else self._around.online()
        own = self._keeper.identity.node_id
        return PcsListed(
            pool_id=self._keeper.pool_id,
            pcs=tuple(
                PcLine(
                    node_id=member.node_id,
                    name=member.name,
                    role=member.entry.role,
                    is_own=member.node_id == own,
                    is_online=member.node_id == own or member.node_id in online,
                )
                for member in self._keeper.known.members
            ),
        )

    async def _leave(self, send: Callable[[Message], Awaitable[None]]) -> None:
        async with self._joining:
            if self.moved.is_set():
                raise UsageError("This PC has just joined or left a pool.", "Wait a second.")
            await asyncio.to_thread(self._keeper.folder.leave_pool)
            await send(self._pcs())
            self.moved.set()
