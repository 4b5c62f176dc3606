"""A folder of shards, opened and checked, and the order a stage process gets for one of them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.errors import ModelNotFoundError, ShardCorruptError, UnsupportedModelError
from engine.messages.hidden_states import hidden_precision
from engine.messages.stage_control import GoldenStep, LoadShard
from engine.models.shown_path import shown_path
from engine.splitter.manifest import (
    MANIFEST_NAME,
    MAX_MANIFEST_BYTES,
    Manifest,
    decode_manifest,
    sha256_of,
)

if TYPE_CHECKING:
    from pathlib import Path

    from engine.domain import LayerRange
    from engine.messages.chain import Placement, StagePlace

# Relative RMS error of the golden step, measured over the fixtures and the embedded model: exact
# mode stays below 1e-4; fast mode (bf16, int8 activations) below 0.1; a wrong layer gives 0.5 to 2.
MAX_EXACT_ERROR = 1e-3
MAX_FAST_ERROR = 0.3


@dataclass(frozen=True, slots=True)
class ShardFolder:
    """Shards on disk.

    Attributes:
        path: The folder.
        manifest: What is in it.
        manifest_sha256: Its name everywhere.
    """

    path: Path
    manifest: Manifest
    manifest_sha256: str

    @property
    def text_folder(self) -> Path:
        """Where tokenizer, template and settings lie."""
        return self.path / "text"

    def order(self, placement: Placement, place: StagePlace) -> LoadShard:
        """Return what a stage process must load for one line of a placement.

        Args:
            placement: The whole of it.
            place: The line.

        Raises:
            ShardCorruptError: There is no shard with those layers, or its files have other sizes.
            UnsupportedModelError: The shard can't be paged and that was asked for.
            UsageError: Exact mode was asked for with hidden states that are not.
        """
        shard = next((s for s in self.manifest.shards if s.layers == place.layers), None)
        if shard is None:
            raise ShardCorruptError(
                f"{shown_path(self.path)} holds no shard of layers {place.layers}."
            )
        for entry in (shard.xml, shard.weights):
            file = self.path / entry.path
            have = file.stat().st_size if file.is_file() else None
            if have != entry.num_bytes:
                raise ShardCorruptError(
                    f"{shown_path(file)} has {have} bytes and must have {entry.num_bytes}."
                    if have is not None
                    else f"{shown_path(file)} is missing."
                )
        if place.kind == "paged" and not shard.can_be_paged:
            raise UnsupportedModelError(
                f"Layers {place.layers} can't be paged: {shard.paged_refusal}",
                "Use stateful stages for this model.",
            )
        model = self.manifest.model
        return LoadShard(
            xml_path=str(self.path / shard.xml.path),
            layers=place.layers,
            is_first=place.layers.start == 0,
            is_last=place.layers.stop == model.num_layers,
            hidden_size=model.hidden_size,
            vocab_size=model.vocab_size,
            device=place.device,
            kind=place.kind,
            mode=place.mode,
            num_threads=place.num_threads,
            max_tokens=placement.context_tokens * placement.max_sequences,
            max_sequences=placement.max_sequences,
            sliding_window=shard.sliding_window,
            cache_dir=None,
            golden=self._golden(place),
            times_rows=True,
            hidden_precision=hidden_precision(place.mode, place.link_precision),
            rows_alike=placement.speculate,
        )

    def verify(self, layers: LayerRange) -> None:
        """Read a shard's files whole and compare them with the manifest's hashes.

        Args:
            layers: Of the shard.

        Raises:
            ShardCorruptError: A file is not what was written, or can't be read.

        Thread: any but the loop's; about a second for each gigabyte.
        """
        for shard in self.manifest.shards:
            if shard.layers != layers:
                continue
            for entry in (shard.xml, shard.weights):
                if _sha256(self.path / entry.path) != entry.sha256:
                    raise ShardCorruptError(f"{entry.path} is not the file that was written.")

    def _golden(self, place: StagePlace) -> GoldenStep | None:
        golden = self.manifest.golden
        if golden is None:
            return None
        is_last = place.layers.stop == self.manifest.model.num_layers
        before = golden.before(place.layers.start)
        after = golden.logits if is_last else golden.before(place.layers.stop)
        if after is None or (before is None and place.layers.start != 0):
            return None
        return GoldenStep(
            token_ids=golden.token_ids,
            input_path=None if before is None else str(self.path / before.path),
            output_path=str(self.path / after.path),
            max_relative_error=MAX_EXACT_ERROR if place.mode == "exact" else MAX_FAST_ERROR,
        )


def _sha256(file: Path) -> str:
    try:
        with file.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as exc:
        raise ShardCorruptError(f"{file.name} can't be read: {exc.strerror}.") from exc


def open_shard_folder(path: Path) -> ShardFolder:
    """Open a folder of shards; reads the manifest only.

    Args:
        path: The folder ``daisy split`` made.

    Raises:
        ModelNotFoundError: There is no manifest.
        ShardCorruptError: The manifest is none.
    """
    file = path / MANIFEST_NAME
    try:
        with file.open("rb") as stream:
            data = stream.read(MAX_MANIFEST_BYTES + 1)
    except OSError as exc:
        raise ModelNotFoundError(
            f"{shown_path(path)} holds no shards: {MANIFEST_NAME} can't be read ({exc.strerror}).",
            "Make them with daisy split.",
        ) from exc
    return ShardFolder(path, decode_manifest(data), sha256_of(data))
