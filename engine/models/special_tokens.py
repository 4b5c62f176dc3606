"""The special tokens a model's settings files name, by their role."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from engine.errors import ModelFileError
from engine.models.files import read_text

if TYPE_CHECKING:
    from pathlib import Path

    from engine.models.files import ModelFiles

ROLES = (
    "bos_token",
    "eos_token",
    "unk_token",
    "sep_token",
    "pad_token",
    "cls_token",
    "mask_token",
)


def special_tokens_of(files: ModelFiles) -> dict[str, str]:
    """Return the special tokens by role, as a chat template sees them.

    Args:
        files: The model's files; tokenizer_config.json counts before special_tokens_map.json.

    Fails with ``ModelFileError`` if one of them is damaged.
    """
    found: dict[str, str] = {}
    for path in (files.special_tokens_map, files.tokenizer_config):
        settings = read_json_object(path) if path is not None else {}
        for role in ROLES:
            token = settings.get(role)
            content = token.get("content") if isinstance(token, dict) else token
            if isinstance(content, str):
                found[role] = content
    return found


def read_json_object(path: Path) -> dict[str, Any]:
    """Read a JSON file that holds an object.

    Args:
        path: The file.

    Returns:
        The object.

    Raises:
        ModelFileError: It can't be read, or is something else.
    """
    try:
        content = json.loads(read_text(path))
    except (ValueError, RecursionError) as exc:
        raise ModelFileError(f"{path.name} is damaged: {exc}.") from exc
    if not isinstance(content, dict):
        raise ModelFileError(f"{path.name} holds {type(content).__name__}, not an object.")
    return content
