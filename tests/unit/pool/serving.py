"""Files of a store, served over real connections on loopback."""

import asyncio
from contextlib import asynccontextmanager

from engine.errors import first_of
from engine.messages.codec import decode
from engine.pool.chunk_service import ChunkService
from engine.pool.chunk_wire import PeerChunkSource
from engine.pool.store_threads import StoreThreads
from tests.paired import endpoint_of, id_of


def serving(service):
    """Return what a node does with a connection for files: one question after the other."""

    async def attend(connection):
        while True:
            await service.serve(decode(await connection.receive()), connection)

    return attend


def serving_in_tasks(service):
    """Return what a node does with a connection that carries other things, too."""

    async def attend(connection):
        try:
            async with asyncio.TaskGroup() as tasks:
                while True:
                    message = decode(await connection.receive())
                    tasks.create_task(service.serve(message, connection))
        except BaseExceptionGroup as group:
            raise first_of(group) from group

    return attend


@asynccontextmanager
async def listening(attend, name="server"):
    """Yield the address at which a node does what it is told with every connection."""
    async with asyncio.TaskGroup() as group:
        listener = await endpoint_of(name, group, "client").listen("127.0.0.1", 0, attend)
        yield f"wss://127.0.0.1:{listener.port}"
        await listener.close()


@asynccontextmanager
async def asking(address, name="server"):
    """Yield a source that asks whoever listens there."""
    async with (
        asyncio.TaskGroup() as group,
        PeerChunkSource(
            endpoint_of("client", group, name, "server"), id_of(name), address
        ) as source,
    ):
        yield source


@asynccontextmanager
async def a_source(store, how=serving):
    """Yield a source that asks a node with this store."""
    async with (
        StoreThreads() as threads,
        listening(how(ChunkService(store, threads))) as address,
        asking(address) as source,
    ):
        yield source
