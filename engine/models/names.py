"""Turn a model's name into the name of a folder that every file system takes.

Names differ where file systems may not see it - in case, in the composition of accents, in
letters an old locale can't write - so a folder's name is plain ASCII in lower case, with a hash
of the exact name wherever anything had to be changed.
"""

from __future__ import annotations

import hashlib
import re

MAX_NAME_BYTES = 80
_HASH_DIGITS = 12
_PLAIN = re.compile(r"[a-z0-9]([a-z0-9._-]*[a-z0-9])?")
_HASHED = re.compile(rf".*-[0-9a-f]{{{_HASH_DIGITS}}}")
_OTHERS = re.compile(r"[^a-z0-9._-]+")
# Windows takes none of these as a name, whatever follows the first dot.
_RESERVED = frozenset({
    *("con", "prn", "aux", "nul", "conin$", "conout$", "clock$"),
    *(f"{port}{digit}" for port in ("com", "lpt") for digit in range(10)),
})


def safe_folder_name(name: str) -> str:
    """Return a folder's name for a model's name.

    Different names give different folders, also where upper and lower case count as the same.

    Args:
        name: Any text, as shown to people.

    Returns:
        1 to 80 characters out of ``a-z 0-9 . _ -``: never a path, a hidden or a reserved name.
    """
    is_plain = _PLAIN.fullmatch(name) and len(name) <= MAX_NAME_BYTES
    if is_plain and not _is_reserved(name) and not _HASHED.fullmatch(name):
        return name
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:_HASH_DIGITS]
    readable = _OTHERS.sub("_", name.lower())[: MAX_NAME_BYTES - _HASH_DIGITS - 1].strip("._-")
    if not readable or _is_reserved(readable):
        readable = f"model-{readable}".rstrip("-")
    return f"{readable}-{digest}"


def _is_reserved(name: str) -> bool:
    return name.partition(".")[0] in _RESERVED
