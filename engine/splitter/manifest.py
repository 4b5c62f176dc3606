"""The manifest: what shards there are of a model, and how to know that they are whole.

Plain data with its own checks; knows no file system. The SHA-256 of its bytes names the set of
shards everywhere: on the wire, in a store, in a placement.
"""

from __future__ import annotations

import hashlib
import re

import msgspec

from engine.domain import LayerRange, ModelDescription
from engine.errors import ShardCorruptError

MANIFEST_NAME = "manifest.json"
MANIFEST_FORMAT = 1
MAX_PATH_LENGTH = 200  # of a file of a manifest; Windows takes 260 with the folder
MAX_MANIFEST_BYTES = 16 * 1024 * 1024  # a 200-layer model's is about 100 KB
# A file of a manifest lies at most two folders below it, under plain names: never a way out.
_PART = r"[a-z0-9_-]+(?:\.[a-z0-9_-]+)*"
_FILE_NAME = re.compile(rf"{_PART}(?:/{_PART}){{0,2}}")


class FileEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One file: where it lies below the manifest, its size and its SHA-256 in hex."""

    path: str
    num_bytes: int
    sha256: str


class ShardEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One shard."""

    layers: LayerRange
    xml: FileEntry
    weights: FileEntry
    injected_reorders: int  # caches that got a beam_idx Gather the source lacked
    can_be_paged: bool
    paged_refusal: str | None  # why not
    sliding_window: int | None  # tokens; the smallest of the shard's layers


class GoldenBoundary(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The hidden states before one layer."""

    layer: int
    file: FileEntry


class GoldenVectors(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What an exact run of the whole model gives at every boundary.

    Raw little-endian float32: the hidden states ``[len(token_ids), hidden_size]`` wherever two
    shards meet, and the last row's logits ``[1, vocab_size]``.
    """

    token_ids: tuple[int, ...]
    boundaries: tuple[GoldenBoundary, ...]
    logits: FileEntry

    def before(self, layer: int) -> FileEntry | None:
        """Return the hidden states before a layer; None where no shards meet."""
        return next((b.file for b in self.boundaries if b.layer == layer), None)


class Manifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A model, divided."""

    format: int
    made_by: str
    model: ModelDescription
    shards: tuple[ShardEntry, ...]
    text_files: tuple[FileEntry, ...]  # tokenizer, template, settings
    golden: GoldenVectors | None

    @property
    def files(self) -> tuple[FileEntry, ...]:
        """Every file there must be beside the manifest."""
        shards = [entry for shard in self.shards for entry in (shard.xml, shard.weights)]
        golden = (
            []
            if self.golden is None
            else [*(b.file for b in self.golden.boundaries), self.golden.logits]
        )
        return (*shards, *self.text_files, *golden)

    def encoded(self) -> bytes:
        """Return the manifest as JSON, always the same bytes for the same content."""
        return msgspec.json.format(msgspec.json.encode(self, order="deterministic"), indent=1)


def sha256_of(data: bytes) -> str:
    """Return the hex SHA-256 that names a manifest."""
    return hashlib.sha256(data).hexdigest()


def is_plain_path(path: str) -> bool:
    """Whether a manifest may name a file so."""
    return len(path) <= MAX_PATH_LENGTH and _FILE_NAME.fullmatch(path) is not None


def decode_manifest(data: bytes) -> Manifest:
    """Read a manifest that may come from anywhere.

    Args:
        data: JSON.

    Raises:
        ShardCorruptError: It is no manifest, of another format, names a file it may not, or
            contradicts itself.
    """
    if len(data) > MAX_MANIFEST_BYTES:
        raise ShardCorruptError(f"The manifest is {len(data)} bytes long, more than any can be.")
    try:
        manifest = msgspec.json.decode(data, type=Manifest)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise ShardCorruptError(f"The manifest can't be read: {exc}") from exc
    if manifest.format != MANIFEST_FORMAT:
        raise ShardCorruptError(
            f"The shards have format {manifest.format}; this version reads {MANIFEST_FORMAT}."
        )
    for entry in manifest.files:
        check_entry(entry, "The manifest")
    _check_ranges(manifest)
    _check_form(manifest)
    check_description(manifest.model, "The manifest")
    _check_golden(manifest)
    return manifest


def _check_ranges(manifest: Manifest) -> None:
    expected = 0
    for shard in manifest.shards:
        if shard.layers.start != expected or shard.layers.stop <= shard.layers.start:
            raise ShardCorruptError(
                f"The manifest's shards do not follow each other at layer {expected}."
            )
        expected = shard.layers.stop
    if expected != manifest.model.num_layers or not manifest.shards:
        raise ShardCorruptError(
            f"The manifest's shards hold {expected} of {manifest.model.num_layers} layers."
        )


def _check_form(manifest: Manifest) -> None:
    """Return if every shard is an IR: what OpenVINO reads it as goes by the name.

    Raises:
        ShardCorruptError: One is something else, such as a compiled blob.
    """
    for shard in manifest.shards:
        stem, _, ending = shard.xml.path.rpartition(".")
        if ending != "xml" or shard.weights.path != f"{stem}.bin":
            raise ShardCorruptError(
                f"The manifest's shard of layers {shard.layers} is no IR: {shard.xml.path}, "
                f"{shard.weights.path}."
            )


def check_entry(entry: FileEntry, where: str) -> None:
    """Return if a file may be named so and is as long as a file can be.

    Args:
        entry: From anywhere.
        where: It stands, as the subject of a sentence.

    Raises:
        ShardCorruptError: It may not, or isn't.
    """
    if not is_plain_path(entry.path) or not re.fullmatch("[0-9a-f]{64}", entry.sha256):
        raise ShardCorruptError(f"{where} names a file it may not: {entry.path!r}.")
    if entry.num_bytes < 0:
        raise ShardCorruptError(f"{where} gives {entry.path} a size below 0.")


def check_description(model: ModelDescription, where: str) -> None:
    """Return if a model's description does not contradict itself.

    Args:
        model: From anywhere.
        where: It stands, as the subject of a sentence.

    Raises:
        ShardCorruptError: It does, or gives a number that no model has.
    """
    if model.num_layers < 1:
        raise ShardCorruptError(f"{where} gives the model {model.num_layers} layers.")
    for name in ("num_kv_heads", "head_size", "value_head_size", "layer_bytes"):
        values = getattr(model, name)
        if len(values) != model.num_layers:
            raise ShardCorruptError(
                f"{where} gives {name} of {len(values)} layers, and the model has "
                f"{model.num_layers}."
            )
    least = {
        "hidden_size": (model.hidden_size, 1),
        "vocab_size": (model.vocab_size, 1),
        "context_length": (1 if model.context_length is None else model.context_length, 1),
        "num_kv_heads": (min(model.num_kv_heads), 1),
        "head_size": (min(model.head_size), 1),
        "value_head_size": (min(model.value_head_size), 1),
        "layer_bytes": (min(model.layer_bytes), 0),
        "embedding_bytes": (model.embedding_bytes, 0),
        "head_bytes": (model.head_bytes, 0),
        "eos_token_ids": (min(model.eos_token_ids, default=0), 0),
    }
    for name, (value, bound) in least.items():
        if value < bound:
            raise ShardCorruptError(f"{where} gives a {name} of {value}, which no model has.")


def _check_golden(manifest: Manifest) -> None:
    golden = manifest.golden
    if golden is None:
        return
    ids = golden.token_ids
    if not ids or min(ids) < 0 or max(ids) >= manifest.model.vocab_size:
        raise ShardCorruptError("The manifest's golden tokens are not of the model's vocabulary.")
