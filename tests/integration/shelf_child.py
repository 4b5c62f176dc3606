"""Cut a kept model in a process that is going to be killed.

    python -m tests.integration.shelf_child ROOT MODEL_SHA256 CUTS

Says "cutting" once the first shard is being written.
"""

import asyncio
import sys
from itertools import pairwise
from pathlib import Path

from engine.domain import LayerRange
from tests.unit.pool.shelves import with_shelf

NUM_LAYERS = 30


async def cut(shelf, model_sha256, cuts):
    ends = (0, *map(int, cuts.split(",")), NUM_LAYERS)
    layers = tuple(LayerRange(start, stop) for start, stop in pairwise(ends))
    work = shelf.store.paths.root.parent / "work"

    async def say_when_it_writes():
        while not list(work.glob("scratch-*/.daisy-split-*/*/*")):  # noqa: ASYNC110 - a worker writes
            await asyncio.sleep(0.01)
        sys.stdout.write("cutting\n")
        sys.stdout.flush()

    await asyncio.gather(shelf.split(model_sha256, layers, lambda *_: None), say_when_it_writes())


if __name__ == "__main__":
    root, model, where = sys.argv[1:]
    with_shelf(Path(root), lambda shelf: cut(shelf, model, where))
