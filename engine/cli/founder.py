"""A pool for the time of one command: founded here, and joined by invite links.

The nodes a command starts on this PC pair with it as any two PCs do. Their keys lie in a folder of
this person's alone, and go with it.
"""

from __future__ import annotations

import asyncio
import tempfile
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import engine
from engine.cli.background import open_group
from engine.errors import NotTrustedError
from engine.messages.control import PROTOCOL_VERSION, SHARD_FORMAT, Hello
from engine.pool.node_folder import NodeFolder
from engine.pool.reception import Reception
from engine.pool.roster_keeper import RosterKeeper
from engine.transport.control_port import LOOPBACK
from engine.transport.endpoint import Endpoint

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from engine.messages.roster_control import RosterTold
    from engine.transport.connection import Connection


@dataclass(frozen=True, slots=True)
class Founder:
    """A pool that nodes may join.

    Attributes:
        place: A folder for theirs; it goes with the pool.
    """

    place: Path
    _keeper: RosterKeeper
    _reception: Reception
    _port: int

    async def invite(self) -> str:
        """Return a link by which one node may join."""
        address = f"{LOOPBACK}:{self._port}"
        return str(await self._reception.make_link([address], "member"))

    def roster(self) -> RosterTold:
        """Return who has joined; to be told to those that joined before the last."""
        *_, newest = self._keeper.told()
        return newest


@asynccontextmanager
async def found_pool_here() -> AsyncIterator[Founder]:
    """Found a pool on this PC's loopback.

    Yields:
        It, for as long as the context is open.

    Raises:
        StorageError: The folder can't be made.
    """
    with tempfile.TemporaryDirectory(prefix="daisy-", ignore_cleanup_errors=True) as place:
        folder = await asyncio.to_thread(NodeFolder, Path(place) / "founder", "founder")
        with closing(folder):
            keeper = RosterKeeper(folder)
            reception = Reception(keeper)
            async with open_group() as group:
                endpoint = Endpoint(_hello(folder), group, keeper.trust)
                listener = await endpoint.listen(LOOPBACK, 0, _refuse, reception.attend)
                group.create_task(reception.run())
                yield Founder(Path(place), keeper, reception, listener.port)


async def _refuse(connection: Connection) -> None:
    """Refuse a member: there is nothing here but to join.

    Raises:
        NotTrustedError: Always.
    """
    raise NotTrustedError(f"{connection.address}: There is nothing here but to join.")


def _hello(folder: NodeFolder) -> Hello:
    return Hello(
        protocol_version=PROTOCOL_VERSION,
        product_version=engine.__version__,
        shard_format=SHARD_FORMAT,
        node_id=folder.node_id,
    )
