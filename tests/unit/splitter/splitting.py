"""Orders to split a fixture, and what must be true of a folder afterwards."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from engine.splitter.manifest import decode_manifest, sha256_of
from engine.splitter.orders import SplitOrder
from engine.splitter.split import split_model
from tests.unit.splitter.cutting import MODELS, xml_of

if TYPE_CHECKING:
    from pathlib import Path

    from engine.splitter.manifest import Manifest
    from engine.splitter.orders import SplitResult


def order(out: Path, name: str = "llama", **changes: object) -> SplitOrder:
    fields: dict[str, object] = {
        "xml": str(xml_of(name)),
        "out": str(out),
        "name": name,
        "architecture": "llama",
        "context_length": 512,
        "eos_token_ids": (2,),
        "text_files": (("config.json", str(MODELS / name / "config.json")),),
    }
    return SplitOrder(**(fields | changes))


def split(out: Path, name: str = "llama", **changes: object) -> SplitResult:
    return split_model(order(out, name, **changes), lambda _: None, lambda: None)


def opened(out: Path) -> Manifest:
    """Read a folder's manifest and see that the folder holds what it says, and nothing else."""
    data = (out / "manifest.json").read_bytes()
    manifest = decode_manifest(data)
    for entry in manifest.files:
        content = (out / entry.path).read_bytes()
        assert (len(content), hashlib.sha256(content).hexdigest()) == (
            entry.num_bytes,
            entry.sha256,
        )
    there = {path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file()}
    assert there == {"manifest.json", *(entry.path for entry in manifest.files)}
    assert len(sha256_of(data)) == 64
    return manifest
