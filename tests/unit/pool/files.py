"""Files, folders of shards and sources for stores."""

import asyncio
import random

from engine.domain import LayerRange
from engine.errors import ModelNotFoundError
from engine.pool.chunk_pieces import PIECE_BYTES, piece_of
from engine.pool.chunks import CHUNK_BYTES, chunk_list_of
from engine.splitter.manifest import (
    FileEntry,
    GoldenBoundary,
    GoldenVectors,
    Manifest,
    ShardEntry,
    sha256_of,
)
from tests.unit.pool.models import model


def random_bytes(num_bytes, seed=0):
    """Return bytes that compress to nothing and repeat for the same seed."""
    return random.Random(seed).randbytes(num_bytes)  # noqa: S311 - not for secrets


def pieces(data):
    """Return the chunks of bytes."""
    return [data[i : i + CHUNK_BYTES] for i in range(0, len(data), CHUNK_BYTES)]


def chunked(data):
    """Return the chunk list of bytes."""
    return chunk_list_of(pieces(data))


def make_shard_folder(folder, golden=True):
    """Write what ``daisy split`` writes: two shards of a model of four layers; random files."""

    def write(path, num_bytes):
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        data = random_bytes(num_bytes, path)
        target.write_bytes(data)
        return FileEntry(path, num_bytes, sha256_of(data))

    shards = tuple(
        ShardEntry(
            layers=LayerRange(start, stop),
            xml=write(f"layers-{start:03}-{stop:03}/openvino_model.xml", 1000 + start),
            weights=write(f"layers-{start:03}-{stop:03}/openvino_model.bin", 20_000 + start),
            injected_reorders=0,
            can_be_paged=True,
            paged_refusal=None,
            sliding_window=None,
        )
        for start, stop in ((0, 2), (2, 4))
    )
    vectors = GoldenVectors(
        token_ids=(1, 2),
        boundaries=(GoldenBoundary(2, write("golden/after-002.f32", 512)),),
        logits=write("golden/after-004.f32", 400),
    )
    manifest = Manifest(
        format=1,
        made_by="daisy test",
        model=model(4),
        shards=shards,
        text_files=(write("text/tokenizer.json", 300),),
        golden=vectors if golden else None,
    )
    (folder / "manifest.json").write_bytes(manifest.encoded())
    return manifest


class Peer:
    """A PC that has files in memory, all of their chunks or some.

    It is a real source, only without a network: what it can be told to do wrong is what PCs do.
    """

    def __init__(self, node_id, *files, has=None):
        self.node_id = node_id
        self.files = {chunked(data).sha256: data for data in files}
        self.lists = {}  # other lists than the right ones
        self.has = has  # None: everything
        self.asked = []  # chunks, from their beginning
        self.asked_pieces = []
        self.bad = set()  # chunks with a flipped bit
        self.failing = 0  # requests that fail from now on
        self.delay_s = 0.0
        self.is_silent = False
        self.after = None  # called with each index that was sent

    def _data(self, name):
        if name not in self.files:
            raise ModelNotFoundError(f"{self.node_id} has no file {name}.")
        return self.files[name]

    async def chunk_list(self, name):
        if self.is_silent:
            await asyncio.sleep(3600)
        return self.lists.get(name) or chunked(self._data(name)).encoded()

    async def chunks_there(self, name):
        everything = range(len(pieces(self._data(name))))
        return frozenset(everything if self.has is None else self.has)

    async def piece(self, name, index, piece):
        self.asked_pieces.append((index, piece))
        if piece == 0:
            self.asked.append(index)
        await asyncio.sleep(self.delay_s)
        if self.failing:
            self.failing -= 1
            raise ModelNotFoundError(f"{self.node_id} can't.")
        data = pieces(self._data(name))[index]
        if index in self.bad:
            data = bytes([data[0] ^ 1]) + data[1:]
        if self.after is not None and (piece + 1) * PIECE_BYTES >= len(data):
            self.after(index)
        return bytes(piece_of(data, piece))
