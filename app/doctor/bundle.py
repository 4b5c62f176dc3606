"""The diagnostics bundle: what helps to find a fault, and nothing that is somebody's.

Only what is named here gets in. Prompts, answers, keys, tokens, paths and chats are never read.
"""

from __future__ import annotations

import re
import zipfile
from typing import TYPE_CHECKING

import msgspec

from engine.errors import StorageError
from engine.pool.announcement import short_id

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from engine.messages.pool_status import PoolStatus

_LONGEST_TEXT = 400
_TEXTS = frozenset({"name", "notes", "reason", "remedy", "what", "advice", "detail"})
_PATH = re.compile(r"(?:[A-Za-z]:)?(?:[\\/][^\\/\s:\"']+){2,}[\\/]?")


def without_names(status: PoolStatus) -> PoolStatus:
    """Return the pool's state with an id in place of every name that somebody gave a PC.

    Args:
        status: As this PC's node told it.
    """
    names = {n.report.name: n.node_id for n in status.nodes if n.report and n.report.name.strip()}
    plan = () if status.deployment is None else status.deployment.plan
    names |= {line.name: line.node_id for line in plan if line.name.strip()}
    longest_first = sorted(names, key=len, reverse=True)  # one name may be a part of another

    def unnamed(told: object, field: str = "") -> object:
        if isinstance(told, dict):
            return {key: unnamed(value, key) for key, value in told.items()}
        if isinstance(told, list | tuple):
            return [unnamed(value, field) for value in told]
        if isinstance(told, str) and field in _TEXTS:
            for name in longest_first:
                told = told.replace(name, f"PC {short_id(names[name])}")
        return told

    return msgspec.convert(unnamed(msgspec.to_builtins(status)), type(status))


def status_for_bundle(status: PoolStatus) -> dict[str, object]:
    """Return the pool's state, as far as it may leave this PC.

    What the pool works on may be named by a file of somebody's, so names of files, paths in
    sentences, and what is being converted are left out.

    Args:
        status: As this PC's node told it.
    """
    told: dict[str, object] = msgspec.to_builtins(status)
    record = told.get("deployment")
    if isinstance(record, dict):
        _reduce_wish(record)
    steps = told.get("progress")
    if isinstance(steps, list | tuple):
        told["progress"] = [{**step, "detail": ""} for step in steps]
    cleaned = _without_paths(told)
    return cleaned if isinstance(cleaned, dict) else {}


def write_bundle(
    file: Path, report: str, status: PoolStatus | None, versions: Mapping[str, str]
) -> None:
    """Write the bundle.

    Args:
        file: The zip to make.
        report: The page as text.
        status: As this PC's node told it; None where no node answers.
        versions: Of what runs here.

    Raises:
        StorageError: It could not be written.
    """
    parts = {"report.txt": str(_without_paths(report)).encode(), "versions.json": _json(versions)}
    if status is not None:
        parts["pool.json"] = _json(status_for_bundle(status))
    beside = file.with_name(f"{file.name}.part")
    try:
        with zipfile.ZipFile(beside, "w", zipfile.ZIP_DEFLATED) as bundle:
            for name, content in parts.items():
                bundle.writestr(name, content)
        beside.replace(file)
    except OSError as exc:
        beside.unlink(missing_ok=True)
        raise StorageError(f"{file}: {exc.strerror}.") from exc


def _reduce_wish(record: dict[str, object]) -> None:
    wish = record.get("wish")
    if isinstance(wish, dict):
        model = wish.get("model")
        kept = {"num_layers", "hidden_size", "weight_precision", "architecture", "vocab_size"}
        if isinstance(model, dict):
            wish["model"] = {name: value for name, value in model.items() if name in kept}


def _without_paths(told: object) -> object:
    """Return plain data with every path in its texts taken out, and long texts cut."""
    if isinstance(told, dict):
        return {name: _without_paths(value) for name, value in told.items()}
    if isinstance(told, list | tuple):
        return [_without_paths(value) for value in told]
    if isinstance(told, str):
        lines = (_PATH.sub("<path>", line)[:_LONGEST_TEXT] for line in told.split("\n"))
        return "\n".join(lines)
    return told


def _json(told: object) -> bytes:
    return msgspec.json.format(msgspec.json.encode(told), indent=2)
