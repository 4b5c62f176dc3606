"""What a node says of itself by mDNS, as the bytes of a TXT record, and names people gave PCs.

Anyone on the network can read and forge an announcement, so it names no user, and no PC but one
that shows a code for others to join by; and
whatever can't be read is ignored with a reason. Names that are shown come later, from a peer that
has proved who it is; ``clean_shown_name`` makes them safe to show.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.errors import LocalProtocolError
from engine.pool.recognition import TOKEN_LENGTH

if TYPE_CHECKING:
    from collections.abc import Iterator

    from engine.domain import NodeId

SERVICE_TYPE = "_daisy._tcp.local."
MAX_TXT_BYTES = 400
MAX_ENTRY_BYTES = 255  # its length is one byte
MAX_NAME_BYTES = 63
SHORT_ID_LENGTH = 6

JOINABLE = "join"  # the flag of a PC that shows a code

_MAX_FLAGS = 16
_ID = re.compile(r"[0-9a-z](?:[0-9a-z-]{0,30}[0-9a-z])?")
_TOKEN = re.compile(rf"[a-z2-7]{{{TOKEN_LENGTH}}}")
_FLAG = re.compile(r"[a-z]{1,15}")
_DIGITS = re.compile(rb"[1-9][0-9]{0,4}")
_JOINERS = "\u200c\u200d"  # of emoji and of several scripts; they draw nothing


@dataclass(frozen=True)
class Announcement:
    """What a node says of itself.

    Attributes:
        run_id: 1 to 32 of ``0-9 a-z -``, random, new at every start.
        token: Tells members of its pool who it is, and nobody else: 13 letters of base32.
        port: TCP, 1 to 65535.
        protocol_version: 1 to 65535.
        shard_format: 1 to 65535.
        flags: At most 16 words of 1 to 15 letters ``a-z``; unknown ones mean nothing.
        name: Of the PC, only while it shows a code; at most 63 bytes of UTF-8, to be cleaned.
    """

    run_id: str
    token: str
    port: int
    protocol_version: int
    shard_format: int
    flags: frozenset[str] = frozenset()
    name: str = ""


@dataclass(frozen=True)
class Unreadable:
    """A TXT record that is none of ours.

    Attributes:
        reason: One sentence.
    """

    reason: str


def encode_announcement(announcement: Announcement) -> bytes:
    """Return the bytes of the TXT record: entries ``key=value``, each after its length.

    Raises:
        LocalProtocolError: A field is outside its bounds.
    """
    flags = ",".join(sorted(announcement.flags))
    entries = (
        f"v={announcement.protocol_version}",
        f"f={announcement.shard_format}",
        f"run={announcement.run_id}",
        f"t={announcement.token}",
        f"p={announcement.port}",
        *((f"fl={flags}",) if flags else ()),
        *((f"n={announcement.name}",) if announcement.name else ()),
    )
    encoded = [entry.encode() for entry in entries]
    if max(map(len, encoded)) <= MAX_ENTRY_BYTES:
        text = b"".join(bytes([len(entry)]) + entry for entry in encoded)
        if decode_announcement(text) == announcement:
            return text
    raise LocalProtocolError(f"{announcement} is outside the bounds of an announcement.")


def decode_announcement(text: bytes) -> Announcement | Unreadable:
    """Read a TXT record; whatever is in it, nothing is raised.

    Unknown keys are ignored, and of a key that comes twice the first counts (RFC 6763, 6.4).

    Args:
        text: The record's data as it came.
    """
    if len(text) > MAX_TXT_BYTES:
        return Unreadable(f"Its text has {len(text)} bytes; {MAX_TXT_BYTES} is the most.")
    entries: dict[bytes, bytes] = {}
    for entry in _entries(text):
        if entry is None:
            return Unreadable("Its text is cut short.")
        key, has_value, value = entry.partition(b"=")
        if has_value:
            entries.setdefault(key.lower(), value)
    numbers = {key: _number(entries.get(key)) for key in (b"v", b"f", b"p")}
    ids = {b"run": _id(entries.get(b"run")), b"t": _token(entries.get(b"t"))}
    for key, read in (*numbers.items(), *ids.items()):
        if read is None:
            what = "not readable" if key in entries else "missing"
            return Unreadable(f"Its {key.decode()} is {what}.")
    flags = _flags(entries.get(b"fl", b""))
    if flags is None:
        return Unreadable("Its fl is not readable.")
    name = _name(entries.get(b"n", b""))
    if name is None:
        return Unreadable("Its n is not readable.")
    return Announcement(
        run_id=ids[b"run"] or "",
        token=ids[b"t"] or "",
        port=numbers[b"p"] or 0,
        protocol_version=numbers[b"v"] or 0,
        shard_format=numbers[b"f"] or 0,
        flags=flags,
        name=name,
    )


def instance_name(run_id: str) -> str:
    """Return the full name of a node's service; made of nothing but what it drew at its start."""
    return f"{run_id}.{SERVICE_TYPE}"


def host_name(run_id: str) -> str:
    """Return the host name its addresses stand under; not the PC's own."""
    return f"daisy-{run_id}.local."


def run_id_of(name: str) -> str | None:
    """Return the run id in the full name of a service; None if it is no instance name of ours.

    Args:
        name: As it came, in any case.
    """
    label = name.lower().removesuffix(f".{SERVICE_TYPE}")
    is_ours = len(label) < len(name) and _ID.fullmatch(label)
    return label if is_ours else None


def short_id(node_id: NodeId) -> str:
    """Return what tells two PCs of one name apart on a screen."""
    return node_id[:SHORT_ID_LENGTH]


def clean_shown_name(name: str, node_id: NodeId) -> str:
    """Return a PC's name as it may be shown: one line, no marks, at most 63 bytes of UTF-8.

    Markup stays as it is: it is text, and whoever shows it must show text.

    Args:
        name: As a person or a peer wrote it.
        node_id: Of the PC; names it where nothing is left.
    """
    # A name of ours has 63 bytes at most; what comes after that in a long one is not looked at.
    spaced = "".join(" " if c.isspace() else c for c in name[: 16 * MAX_NAME_BYTES])
    cleaned = " ".join("".join(c for c in spaced if _is_shown(c)).split())
    cut = _cut(cleaned, MAX_NAME_BYTES)
    if not cut.translate(dict.fromkeys(map(ord, _JOINERS))).strip():
        return f"PC {short_id(node_id)}"
    return cut


def _entries(text: bytes) -> Iterator[bytes | None]:
    """Yield each entry, then None if the last one is longer than what is left."""
    at = 0
    while at < len(text):
        stop = at + 1 + text[at]
        yield text[at + 1 : stop] if stop <= len(text) else None
        at = stop


def _number(value: bytes | None) -> int | None:
    if value is None or not _DIGITS.fullmatch(value):
        return None
    number = int(value)
    return number if number <= 65535 else None


def _id(value: bytes | None) -> str | None:
    text = _ascii(value)
    return text if text is not None and _ID.fullmatch(text) else None


def _token(value: bytes | None) -> str | None:
    text = _ascii(value)
    return text if text is not None and _TOKEN.fullmatch(text) else None


def _flags(value: bytes) -> frozenset[str] | None:
    if not value:
        return frozenset()
    words = (_ascii(value) or "").split(",", _MAX_FLAGS)
    if len(words) > _MAX_FLAGS or not all(_FLAG.fullmatch(word) for word in words):
        return None
    return frozenset(words)


def _name(value: bytes) -> str | None:
    try:
        return value.decode() if len(value) <= MAX_NAME_BYTES else None
    except UnicodeDecodeError:
        return None


def _ascii(value: bytes | None) -> str | None:
    return value.decode("ascii") if value is not None and value.isascii() else None


def _is_shown(char: str) -> bool:
    """Return whether a character may stand in a name: no control, direction mark or half one."""
    return char in _JOINERS or unicodedata.category(char) not in {"Cc", "Cf", "Cs", "Zl", "Zp"}


def _cut(text: str, max_bytes: int) -> str:
    """Return as much of a text as fits, never ending inside what is drawn as one character."""
    stop = len(text.encode()[:max_bytes].decode(errors="ignore"))
    if stop == len(text):
        return text
    whole = stop
    while whole and (_is_drawn_with_previous(text[whole]) or text[whole - 1] == "\u200d"):
        whole -= 1
    return text[: whole or stop].strip(" " + _JOINERS)


def _is_drawn_with_previous(char: str) -> bool:
    is_skin_tone = "\U0001f3fb" <= char <= "\U0001f3ff"
    return is_skin_tone or char in _JOINERS or unicodedata.category(char).startswith("M")
