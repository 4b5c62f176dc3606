"""What a shelf remembers, so that no file is hashed and no model is cut twice.

All of it can be found out again: a record that is damaged or lost costs time, and nothing else.
"""

from __future__ import annotations

import hashlib
import threading
from typing import TYPE_CHECKING

import msgspec

import engine
from engine.errors import UsageError
from engine.messages.control import SHARD_FORMAT
from engine.models.files import IR_XML
from engine.models.shown_path import shown_path
from engine.models.storage import storage_errors
from engine.pool.chunks import checked_name
from engine.pool.disk import signature, write_whole

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from collections.abc import Set as AbstractSet
    from pathlib import Path

    from engine.domain import LayerRange
    from engine.pool.store import ShardStore

RECORDS_NAME = "shelf.json"
_FORMAT = 1
_MAX_ENTRIES = 256  # of each kind; the oldest go first
_MODEL_SUFFIXES = frozenset({".xml", ".bin", ".json", ".jinja", ".gguf"})
_MAX_BYTES = 64 * 1024 * 1024

# The files of a model in a store, by name: size and date when their hash was last seen to be right.
Signatures = dict[str, tuple[int, int]]


class _Record(msgspec.Struct, forbid_unknown_fields=True):
    format: int = _FORMAT
    sources: dict[str, str] = {}  # what a source looked like, to the model it is
    models: dict[str, Signatures] = {}
    divisions: dict[str, str] = {}  # a model and its cuts, to the manifest of the shards


class ShelfRecords:
    """The record of one shelf; any thread may use it.

    What changes it writes it down, and blocks on the disk.

    Attributes:
        notes: What was wrong when it was opened, for people.
    """

    def __init__(self, folder: Path) -> None:
        """Read the record, or begin one.

        Args:
            folder: Of the shelf; exists.
        """
        self.notes: list[str] = []
        self._path = folder / RECORDS_NAME
        self._turn = threading.Lock()
        self._record = self._read()

    @property
    def models(self) -> tuple[str, ...]:
        """The models that were taken in, in no order."""
        return tuple(self._record.models)

    @property
    def manifests(self) -> tuple[str, ...]:
        """Of every division that was cut or fetched whole, of whichever model."""
        return tuple(dict.fromkeys(self._record.divisions.values()))

    def model_of(self, source: str) -> str | None:
        """Return the model a source was found to be.

        Args:
            source: As ``source_key`` gives it.
        """
        return self._record.sources.get(source)

    def signatures_of(self, model_sha256: str) -> Mapping[str, tuple[int, int]]:
        """Return the files of a model; none of one that was not taken in.

        Args:
            model_sha256: Its name.
        """
        return self._record.models.get(model_sha256, {})

    def manifest_of(self, division: str) -> str | None:
        """Return the manifest a division was cut to.

        Args:
            division: As ``division_key`` gives it.
        """
        return self._record.divisions.get(division)

    def keep_model(
        self, model_sha256: str, signatures: Signatures, source: str | None = None
    ) -> None:
        """Write down that every file of a model is there.

        Args:
            model_sha256: Its name.
            signatures: Of its files.
            source: What it was made of, as ``source_key`` gives it; None if it came from a PC.
        """
        with self._turn:
            self._record.models[model_sha256] = signatures
            if source is not None:
                self._record.sources[source] = model_sha256
            self._write()

    def keep_division(self, division: str, manifest_sha256: str) -> None:
        """Write down what a division was cut to.

        Args:
            division: As ``division_key`` gives it.
            manifest_sha256: Of the shards.
        """
        with self._turn:
            self._record.divisions[division] = manifest_sha256
            self._write()

    def forget_model(self, model_sha256: str, manifests: AbstractSet[str]) -> None:
        """Write down that a model and its shards are not there any more.

        Args:
            model_sha256: Its name.
            manifests: Of its shards.
        """
        with self._turn:
            record = self._record
            record.models.pop(model_sha256, None)
            record.sources = {k: v for k, v in record.sources.items() if v != model_sha256}
            record.divisions = {k: v for k, v in record.divisions.items() if v not in manifests}
            self._write()

    def forget_all_but(self, models: Sequence[str]) -> None:
        """Write down that the other models are not there any more.

        Args:
            models: Those that are.
        """
        with self._turn:
            record = self._record
            if set(models) != set(record.models):
                record.models = {name: record.models[name] for name in models}
                record.sources = {k: v for k, v in record.sources.items() if v in record.models}
                self._write()

    def _read(self) -> _Record:
        try:
            with self._path.open("rb") as file:
                record = msgspec.json.decode(file.read(_MAX_BYTES), type=_Record)
        except FileNotFoundError:
            return _Record()
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
            record = _Record(format=0)
        if record.format != _FORMAT or not _has_names(record):
            self.notes.append(
                f"{shown_path(self._path)} can't be read. Models are looked at again when they "
                "are loaded."
            )
            return _Record()
        return record

    def _write(self) -> None:
        for entries in (self._record.sources, self._record.divisions):
            for key in list(entries)[:-_MAX_ENTRIES]:
                del entries[key]
        with storage_errors(self._path):
            write_whole(self._path, msgspec.json.encode(self._record))


def _has_names(record: _Record) -> bool:
    """Return whether everything that is to name a file does."""
    names = [*record.models, *record.sources.values(), *record.divisions.values()]
    names += [name for files in record.models.values() for name in files]
    try:
        return all(checked_name(name) for name in names)
    except UsageError:
        return False


def source_key(source: Path) -> str | None:
    """Return what changes whenever the files of a source do; None where that can't be told.

    Args:
        source: A GGUF file, a folder with a model, or its XML.

    Returns:
        A hash of the sizes and dates of the file, or of the folder's files that may belong to a
        model.

    Thread: any but the loop's.
    """
    folder = source.parent if source.name == IR_XML else source
    try:
        paths = [folder]
        if folder.is_dir():
            found = (*folder.iterdir(), *folder.glob("additional_chat_templates/*"))
            paths = sorted(path for path in found if path.suffix.lower() in _MODEL_SUFFIXES)
        facts = [[shown_path(path.absolute()), *signature(path)] for path in paths]
    except (OSError, ValueError):  # said by whoever opens it; ValueError: a NUL in the path
        return None
    return _hash([shown_path(source.absolute()), facts])


def division_key(model_sha256: str, layers: Sequence[LayerRange]) -> str:
    """Name a division of a model by this version.

    Args:
        model_sha256: The model's name.
        layers: Of each shard.
    """
    return _hash([model_sha256, [[part.start, part.stop] for part in layers]])


def signatures_in(store: ShardStore, names: Sequence[str]) -> Signatures:
    """Return the sizes and dates of files of a store.

    Args:
        store: Has them.
        names: SHA-256 of each, in hex.

    Fails with ``ModelNotFoundError`` if one isn't there.

    Thread: any but the loop's.
    """
    return {name: signature(store.object_path(name)) for name in names}


def _hash(facts: object) -> str:
    told = msgspec.json.encode([facts, SHARD_FORMAT, engine.__version__])
    return hashlib.sha256(told).hexdigest()
