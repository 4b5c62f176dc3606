"""Pull files from one folder into a store, in a process that is going to be killed.

    python -m tests.unit.pool.pulling_child STORE SOURCE LOG SEED NAME...

The source is a link that carries one piece at a time. Each piece that was sent is a line of LOG.
"""

import asyncio
import os
import sys
from pathlib import Path

from engine.pool.chunk_pieces import PIECE_BYTES
from engine.pool.chunks import CHUNK_BYTES, chunk_list_of
from engine.pool.disk import pieces_of
from engine.pool.pull import Pulls
from engine.pool.store import ShardStore
from engine.pool.store_threads import StoreThreads

LINK_S = 0.005  # for one piece: 1.7 Gbit/s


class Link:
    """The only source."""

    node_id = "source"

    def __init__(self, folder, log):
        self._folder = folder
        self._log = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._line = asyncio.Lock()

    async def chunk_list(self, name):
        return (self._folder / f"{name}.chunks").read_bytes()

    async def chunks_there(self, name):
        size = (self._folder / name).stat().st_size
        return frozenset(range(-(-size // CHUNK_BYTES)))

    async def piece(self, name, index, piece):
        async with self._line:
            await asyncio.sleep(LINK_S)
            with (self._folder / name).open("rb") as file:
                file.seek(index * CHUNK_BYTES + piece * PIECE_BYTES)
                data = file.read(PIECE_BYTES)
            os.write(self._log, f"{name} {len(data)}\n".encode())
            return data


async def main(store, source, log, *names):
    link = Link(Path(source), log)
    opened = ShardStore(Path(store))
    async with StoreThreads() as threads:
        pulls = Pulls(opened, threads)
        sys.stdout.write("begun\n")
        sys.stdout.flush()
        reports = await asyncio.gather(*(pulls.pull(name, [link]) for name in names))
    sys.stdout.write(f"fetched {sum(report.fetched_bytes for report in reports)}\n")


def write_source(folder, files):
    """Write files with their chunk lists, as ``main`` reads them; return their names."""
    names = []
    for data in files:
        (folder / "file").write_bytes(data)
        chunks = chunk_list_of(pieces_of(folder / "file"))
        (folder / "file").rename(folder / chunks.sha256)
        (folder / f"{chunks.sha256}.chunks").write_bytes(chunks.encoded())
        names.append(chunks.sha256)
    return names


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
