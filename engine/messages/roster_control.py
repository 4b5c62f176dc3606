"""The control messages about who is in the pool: told among its nodes, and asked for by programs.

All but ``RosterTold`` are for programs of the same PC and person, over the control port. What they
ask for is done by the node, which has the keys.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from engine.domain import NodeId
from engine.messages.message import Message


class RosterTold(Message, frozen=True):
    """A node tells another what it knows of the pool: when a session opens, and after a change.

    Older rosters that say who was removed, where the newest one does not, are told before it.
    """

    roster: bytes  # signed; ``engine.pool.roster`` reads it


class Invite(Message, frozen=True):
    """Ask the node to let in one more PC; answered by ``Invited``."""

    is_link: bool = False  # a link for a PC without a screen, instead of a code to type
    role: Literal["owner", "member"] = "owner"


class Invited(Message, frozen=True):
    """The answer to ``Invite``: exactly one of a code and a link. Both are secrets."""

    code: str | None  # six digits
    link: str | None
    within_s: float  # how long it may be used
    addresses: tuple[str, ...]  # where this PC is reached: ``host:port``


class WithdrawInvitation(Message, frozen=True):
    """Ask the node to end an invitation; answered by ``InvitationsReport``."""

    is_link: bool = False  # every link that waits, instead of the code


class AskInvitations(Message, frozen=True):
    """Ask what waits to be used; answered by ``InvitationsReport``."""


class InvitationsReport(Message, frozen=True):
    """What waits to be used, and what became of the last code."""

    code_left_s: float | None  # None where no code is shown
    code_ended: Literal["used", "guessed", "expired", "withdrawn"] | None
    num_links: int  # that wait
    let_in: str | None  # what the PC is called that came by the last code or link


class ListPools(Message, frozen=True):
    """Ask which PCs nearby wait for one to join; answered by ``PoolsListed``."""


class PoolNearby(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A PC that waits for one to join; nobody vouches for what it says."""

    name: str  # of the PC, cleaned
    address: str  # ``host:port``


class PoolsListed(Message, frozen=True):
    """The answer to ``ListPools``."""

    pools: tuple[PoolNearby, ...]


class JoinPool(Message, frozen=True):
    """Ask the node to join a pool; answered by ``Joined``. Exactly one of both is given."""

    code: str | None = None
    link: str | None = None
    address: str | None = None  # of the PC that shows the code; None for the only one nearby


class Joined(Message, frozen=True):
    """The answer to ``JoinPool``: the node starts anew as a member of that pool."""

    pool_id: str
    host_name: str  # of the PC that let this one in
    num_pcs: int


class ListPcs(Message, frozen=True):
    """Ask who is in the pool; answered by ``PcsListed``."""


class PcLine(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A member."""

    node_id: NodeId
    name: str
    role: Literal["owner", "member"]
    is_own: bool  # the PC that was asked
    is_online: bool


class PcsListed(Message, frozen=True):
    """The answer to ``ListPcs`` and to what changes who is in the pool."""

    pool_id: str
    pcs: tuple[PcLine, ...]


class RenamePc(Message, frozen=True):
    """Ask the node to call a PC otherwise, everywhere; answered by ``PcsListed``."""

    node_id: NodeId
    name: str


class RemovePc(Message, frozen=True):
    """Ask the node to remove a PC, everywhere and at once; answered by ``PcsListed``."""

    node_id: NodeId


class LeavePool(Message, frozen=True):
    """Ask the node to leave its pool and start anew in one of its own; answered by ``PcsListed``.

    The others keep it in their roster until one of them removes it.
    """
