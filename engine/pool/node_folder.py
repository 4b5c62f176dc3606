"""What a node keeps on disk: who it is, the term and record accepted last, and known addresses.

One process has a folder at a time. A file in it that can't be read is set aside, made anew, and
said: a node must start after a power cut without a person's help.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import sys
import time
from typing import TYPE_CHECKING, TypeVar

import msgspec

from engine.domain import NodeId
from engine.errors import StorageError, UsageError
from engine.messages.deployment import Deployment
from engine.messages.pool import Term
from engine.pool.announcement import is_node_id
from engine.pool.disk import write_whole
from engine.pool.known_peers import KnownPeer, readable

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import BinaryIO

    from engine.pool.known_peers import KnownPeers

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

T = TypeVar("T")

_MAX_FILE_BYTES = 1 << 20
_MAX_PORT = 65_535
_LOOKS, _LOOK_S = 3, 0.02  # a look at the lock takes microseconds
_ID_BYTES = 10  # 20 hex letters: no two alike among all PCs there are


class Reach(msgspec.Struct, frozen=True):
    """Where commands of this PC reach the node that runs."""

    control_port: int  # on loopback
    token: str  # that opens it; the file is this person's alone
    pid: int
    node_id: NodeId  # who must answer there: another may have the port by now


class NodeFolder:
    """A node's folder, held until ``close``.

    Attributes:
        path: The folder.
        node_id: The same for as long as the folder lives.
        term: The term accepted last; None for never.
        record: What the pool is to run, as this node knew it last; None for never anything.
        known: Where other nodes were reached, the newest first.
        last_port: Where it listened last; others will look for it there. None for never.
        notes: What was set aside, one sentence each.
    """

    def __init__(self, path: Path) -> None:
        """Take the folder, making it if there is none.

        Args:
            path: Of a node; other things of Daisy's may lie beside it.

        Raises:
            UsageError: Another node has it.
            StorageError: It can't be written.
        """
        self.path = path
        self.notes: list[str] = []
        try:
            path.mkdir(parents=True, exist_ok=True)
            self._lock = (path / "lock").open("a+b")
        except OSError as exc:
            raise StorageError(f"{path} can't be written: {exc.strerror}.") from exc
        try:
            _lock_soon(self._lock)
        except OSError as exc:
            self._lock.close()
            raise UsageError(
                f"{path} is in use by another node{self._by_whom()}.",
                "Give each node of this PC its own folder with --data.",
            ) from exc
        (path / "reach.json").unlink(missing_ok=True)  # of a node that was killed
        self.node_id = self._identity()
        self.record = self._read("record.json", Deployment)
        self.term = self._newest_term()
        self.last_port = self._read("port.json", int, lambda port: 1 <= port <= _MAX_PORT)
        self.known: KnownPeers = readable(self._read("known.json", list[KnownPeer]) or [])

    def _by_whom(self) -> str:
        reach = read_reach(self.path)
        return "" if reach is None else f" (process {reach.pid})"

    def _identity(self) -> NodeId:
        known = self._read("id.json", str, is_node_id)
        if known is not None:
            return NodeId(known)
        return self._new_identity()

    def _newest_term(self) -> Term | None:
        """Return the term accepted last; a record was accepted with its own, whatever is lost."""
        terms = [self._read("term.json", Term), None if self.record is None else self.record.term]
        return max((term for term in terms if term is not None), default=None)

    def _new_identity(self) -> NodeId:
        fresh = NodeId(secrets.token_hex(_ID_BYTES))
        self._write("id.json", fresh)
        return fresh

    def renew_identity(self) -> None:
        """Become another node: a second PC has a copy of this folder.

        Raises:
            StorageError: It can't be written.

        Thread: any but the loop's; waits for the disk.
        """
        self.node_id = self._new_identity()

    def keep_known(self, known: KnownPeers) -> None:
        """Write where other nodes were reached.

        Args:
            known: The newest first.

        Raises:
            StorageError: It can't be written.

        Thread: any but the loop's; waits for the disk.
        """
        self._write("known.json", known)
        self.known = known

    def keep_term(self, term: Term) -> None:
        """Write a term so that it outlives a power cut.

        Args:
            term: Accepted or claimed.

        Raises:
            StorageError: It can't be written.

        Thread: any but the loop's; waits for the disk.
        """
        self._write("term.json", term)
        self.term = term

    def keep_record(self, record: Deployment) -> None:
        """Write what the pool is to run, so that it does so again though every PC restarts.

        Args:
            record: The newest.

        Raises:
            StorageError: It can't be written, or is longer than any that is read again.

        Thread: any but the loop's; waits for the disk.
        """
        self._write("record.json", record)
        self.record = record

    def keep_reach(self, control_port: int, token: str) -> None:
        """Say where this PC's commands reach the node, in a file only this person can read.

        Args:
            control_port: On loopback.
            token: That opens it.

        Raises:
            StorageError: It can't be written.
        """
        reach = Reach(control_port, token, os.getpid(), self.node_id)
        self._write("reach.json", reach, is_private=True)

    def keep_port(self, port: int) -> None:
        """Write where this node listens, so that it does so again after a restart.

        Args:
            port: 1 to 65535.

        Raises:
            StorageError: It can't be written.

        Thread: any but the loop's; waits for the disk.
        """
        self._write("port.json", port)
        self.last_port = port

    def close(self) -> None:
        """Let go of the folder; a second time does nothing."""
        if not self._lock.closed:
            (self.path / "reach.json").unlink(missing_ok=True)
            self._lock.close()

    def _read(
        self, name: str, kind: type[T], is_valid: Callable[[T], bool] = lambda _: True
    ) -> T | None:
        file = self.path / name
        try:
            with file.open("rb") as stream:
                raw = stream.read(_MAX_FILE_BYTES)
        except FileNotFoundError:
            return None
        except OSError as exc:
            if not file.is_dir():
                raise StorageError(f"{file} can't be read: {exc.strerror}.") from exc
            raw = b""
        with contextlib.suppress(msgspec.MsgspecError, UnicodeDecodeError):
            content = msgspec.json.decode(raw, type=kind)
            if is_valid(content):
                return content
        self._set_aside(file)
        return None

    def _set_aside(self, file: Path) -> None:
        """Move what can't be read out of the way, and say so.

        Raises:
            StorageError: It can't be moved.
        """
        aside = file.with_name(f"{file.name}.damaged-{secrets.token_hex(3)}")
        try:
            file.replace(aside)
        except OSError as exc:
            raise StorageError(f"{file} can't be set aside: {exc.strerror}.") from exc
        self.notes.append(f"{file.name} was damaged; it was set aside as {aside.name}.")

    def _write(self, name: str, content: object, *, is_private: bool = False) -> None:
        data = msgspec.json.encode(content)
        if len(data) >= _MAX_FILE_BYTES:
            raise StorageError(
                f"{name} would be {len(data)} bytes long, and {_MAX_FILE_BYTES - 1} is the most.",
                "Nothing is lost now; a restart goes on from what was written before.",
            )
        try:
            write_whole(self.path / name, data, is_private=is_private)
        except OSError as exc:
            raise StorageError(f"{self.path / name} can't be written: {exc.strerror}.") from exc


def read_reach(path: Path) -> Reach | None:
    """Return where the node of a folder is reached; None if none runs there.

    Args:
        path: Of a node.
    """
    try:
        return msgspec.json.decode((path / "reach.json").read_bytes(), type=Reach)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None


def is_held(path: Path) -> bool:
    """Return whether a node runs with a folder; one that was killed holds nothing.

    Args:
        path: Of a node.
    """
    try:
        with (path / "lock").open("r+b") as file:
            _lock(file)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return False


def _lock_soon(file: BinaryIO) -> None:
    """Lock a file, though a command may be looking just now whether it is locked.

    Raises:
        OSError: It stays locked.
    """
    for _ in range(_LOOKS):
        try:
            return _lock(file)
        except OSError:
            time.sleep(_LOOK_S)
    return _lock(file)


def _lock(file: BinaryIO) -> None:
    if sys.platform == "win32":
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
    else:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
