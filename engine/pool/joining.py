"""Joining a pool: paired with one of its PCs, and written down as a member."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from engine.errors import (
    NotTrustedError,
    PeerTimeoutError,
    PeerUnreachableError,
    RemoteProtocolError,
)
from engine.pool.roster import decode_roster
from engine.pool.roster_merge import known_from
from engine.transport.endpoint import SCHEME
from engine.transport.pairing_link import join

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engine.pool.node_folder import NodeFolder
    from engine.pool.roster_merge import KnownRoster
    from engine.transport.identity import Identity
    from engine.transport.invited import Invited
    from engine.transport.pairing import Welcome


async def join_by(
    folder: NodeFolder, invited: Invited, addresses: Sequence[str]
) -> tuple[KnownRoster, str]:
    """Join the pool of the first of some addresses that answers.

    Args:
        folder: Of this PC; says afterwards that it is a member.
        invited: By a code or a link.
        addresses: ``host:port``, one or more.

    Returns:
        The pool, and what the PC that let this one in is called.

    Raises:
        PeerUnreachableError: Nobody answers at any of them.
        RemoteProtocolError: What was given is no roster with this PC and that one in it.
        PairingError: The code is wrong, or that PC waits for nobody.
        StorageError: It can't be written.

    Cancellation: this PC may be a member there and not know it; joining again is no harm.
    """
    own = folder.roster.member(folder.node_id)
    name = "" if own is None else own.name
    welcome, address = await _paired(folder.identity, invited, addresses, name)
    known = await asyncio.to_thread(_checked, welcome, folder.identity)
    host = known.member(welcome.host.node_id)
    if host is None:
        raise RemoteProtocolError(f"{address}: The PC that let this one in is not in its own pool.")
    await asyncio.shield(asyncio.to_thread(folder.join_pool, known, host.node_id, address))
    return known, host.name


async def _paired(
    identity: Identity, invited: Invited, addresses: Sequence[str], name: str
) -> tuple[Welcome, str]:
    *others, last = addresses
    for address in others:
        try:
            return await join(f"{SCHEME}://{address}", identity, invited, name), address
        except (PeerUnreachableError, PeerTimeoutError):
            continue
    return await join(f"{SCHEME}://{last}", identity, invited, name), last


def _checked(welcome: Welcome, identity: Identity) -> KnownRoster:
    roster = decode_roster(welcome.roster)
    if roster.content.pool_id != welcome.pool_id:
        raise RemoteProtocolError("The other PC gave the roster of another pool.")
    try:
        roster.secret_for(identity)
    except NotTrustedError as exc:
        raise RemoteProtocolError("The other PC gave a roster without this PC.") from exc
    return known_from(roster)
