"""Shelves over real stores, and one store as a source for another."""

import asyncio
from contextlib import asynccontextmanager

from engine.errors import RemoteProtocolError
from engine.messages import limits
from engine.pool.model_shelf import ModelShelf
from engine.pool.pull import Pulls
from engine.pool.store import ShardStore
from engine.pool.store_threads import StoreThreads


class StoreSource:
    """A PC with a store, without a network between; counts what it is asked for."""

    def __init__(self, store, node_id="source"):
        self.node_id = node_id
        self.store = store
        self.asked = []  # (name, index) of each chunk
        self.lists = {}  # names to encoded lists, where another one is to be told
        self.delay_s = 0.0

    async def chunk_list(self, name):
        if name in self.lists:
            return self.lists[name]
        return self.store.chunk_list(name).encoded()

    async def chunks_there(self, name):
        missing = frozenset(self.store.missing_chunks(name))
        return frozenset(range(self.store.chunk_list(name).num_chunks)) - missing

    async def chunk(self, name, index):
        await asyncio.sleep(self.delay_s)
        self.asked.append((name, index))
        return self.store.serve_chunk(name, index)

    async def piece(self, name, index, piece):
        begin = piece * limits.MAX_PIECE_BYTES
        return (await self.chunk(name, index))[begin : begin + limits.MAX_PIECE_BYTES]


class Silent:
    """A PC that may not be asked anything."""

    node_id = "silent"

    async def chunk_list(self, name):
        raise RemoteProtocolError(f"{name} was asked for")


class Told:
    """What a shelf reported."""

    def __init__(self):
        self.all = []

    def __call__(self, step, done, total, unit):
        self.all.append((step, done, total, unit))

    def of(self, step):
        return [(done, total) for told, done, total, _ in self.all if told == step]


@asynccontextmanager
async def opened(root, **store_options):
    """Open a node's store and shelf below a folder.

    Yields:
        The shelf, with its store.
    """
    async with StoreThreads() as threads:
        store = ShardStore(root / "store", **store_options)
        shelf = ModelShelf(root / "work", store, threads, Pulls(store, threads))
        shelf.store = store
        yield shelf


def with_shelf(root, work, **store_options):
    """Run ``await work(shelf)`` on a shelf of its own loop."""

    async def run():
        async with opened(root, **store_options) as shelf:
            return await work(shelf)

    return asyncio.run(run())


def scratch_of(root):
    """Return what lies on a shelf beside its record."""
    return [path.name for path in (root / "work").iterdir() if path.name != "shelf.json"]
