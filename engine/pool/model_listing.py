"""The list of a whole model's files, and what is known of it; pure.

The SHA-256 of the list's bytes names the model everywhere: in a wish, in an order to keep or to
cut it, in a store. Its files are named by their own.
"""

from __future__ import annotations

import msgspec

from engine.domain import ModelDescription
from engine.errors import ShardCorruptError
from engine.models.files import IR_BIN, IR_XML
from engine.models.names import safe_folder_name
from engine.pool.chunks import CHUNK_BYTES, MAX_CHUNKS
from engine.splitter.manifest import FileEntry, check_description, check_entry, sha256_of

LISTING_FORMAT = 1
MAX_LISTING_BYTES = 1024 * 1024  # a 200-layer model's is about 10 KB
MAX_FILES = 256  # beside the IR: settings, tokenizer, and templates by name
_WHERE = "The list of a model's files"
_ADVICE = "Load the model again on the PC that has it."


class ModelListing(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A model, whole.

    Attributes:
        format: Of this list.
        model: What it is; its name, architecture, context and ends are those of its shards.
        files: The IR's XML, its weights, and what a head needs besides, by their places in the
            model's folder.
        paged_refusal: Why its layers can't be paged; None if they can.
    """

    format: int
    model: ModelDescription
    files: tuple[FileEntry, ...]
    paged_refusal: str | None

    @property
    def can_be_paged(self) -> bool:
        """Whether every layer can."""
        return self.paged_refusal is None

    @property
    def num_bytes(self) -> int:
        """Of all files."""
        return sum(entry.num_bytes for entry in self.files)

    @property
    def text_files(self) -> tuple[FileEntry, ...]:
        """All but the IR."""
        return self.files[2:]

    def encoded(self) -> bytes:
        """Return the list as JSON, always the same bytes for the same content."""
        return msgspec.json.encode(self, order="deterministic")

    @property
    def sha256(self) -> str:
        """Its name, in hex."""
        return sha256_of(self.encoded())


def decode_listing(data: bytes) -> ModelListing:
    """Read a list that may come from anywhere.

    Args:
        data: JSON.

    Raises:
        ShardCorruptError: It is no such list, of another format, names a file it may not, or
            contradicts itself.
    """
    try:
        listing = _decoded(data)
        check_listing(listing)
    except ShardCorruptError as exc:
        raise ShardCorruptError(exc.what, _ADVICE) from exc
    return listing


def _decoded(data: bytes) -> ModelListing:
    if len(data) > MAX_LISTING_BYTES:
        raise ShardCorruptError(f"{_WHERE} is {len(data)} bytes long, more than any can be.")
    try:
        listing = msgspec.json.decode(data, type=ModelListing)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise ShardCorruptError(f"{_WHERE} can't be read: {exc}") from exc
    if listing.format != LISTING_FORMAT:
        raise ShardCorruptError(
            f"{_WHERE} has format {listing.format}; this version reads {LISTING_FORMAT}."
        )
    return listing


def check_listing(listing: ModelListing) -> None:
    """Return if a list names files that every PC can hold, and a model that can be.

    Args:
        listing: Made here, or from anywhere.

    Raises:
        ShardCorruptError: It does not.
    """
    paths = [entry.path for entry in listing.files]
    if paths[:2] != [IR_XML, IR_BIN]:
        raise ShardCorruptError(f"{_WHERE} does not begin with {IR_XML} and {IR_BIN}.")
    if len(paths) > MAX_FILES:
        raise ShardCorruptError(f"{_WHERE} names {len(paths)} files, more than {MAX_FILES}.")
    for entry in listing.files:
        check_entry(entry, _WHERE)
        if any(safe_folder_name(part) != part for part in entry.path.split("/")):
            raise ShardCorruptError(f"{_WHERE} names a file that no PC could hold: {entry.path!r}.")
        if entry.num_bytes > MAX_CHUNKS * CHUNK_BYTES:
            raise ShardCorruptError(f"{_WHERE} gives {entry.path} {entry.num_bytes} bytes.")
    parts = [path.split("/") for path in paths]
    folders = {"/".join(names[:depth]) for names in parts for depth in range(1, len(names))}
    twice = sorted(path for path in paths if paths.count(path) > 1 or path in folders)
    if twice:
        raise ShardCorruptError(f"{_WHERE} names two files {twice[0]!r}.")
    check_description(listing.model, _WHERE)
