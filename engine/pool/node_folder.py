"""What one node keeps on disk: who it is, whom it trusts, its term and record, and known addresses.

One process has a folder at a time. A file in it that can't be read is set aside, made anew, and
said: a node must start after a power cut without a person's help.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from typing import TYPE_CHECKING, TypeVar

import msgspec

from engine.domain import NodeId
from engine.errors import NotTrustedError, RemoteProtocolError, StorageError, UsageError
from engine.messages.deployment import Deployment
from engine.messages.pool import Term
from engine.pool.announcement import clean_shown_name
from engine.pool.disk import write_whole
from engine.pool.file_lock import lock, lock_soon
from engine.pool.known_peers import KnownPeer, readable
from engine.pool.roster_changes import found_pool, rename_member
from engine.pool.roster_merge import decode_known, encode_known
from engine.pool.sentences import sentence
from engine.transport.identity import open_identity, renew_identity
from engine.transport.machine import machine_mark

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from engine.pool.known_peers import KnownPeers
    from engine.pool.roster_merge import KnownRoster

T = TypeVar("T")

_MAX_FILE_BYTES = 1 << 20
_MAX_PORT = 65_535
_POOL_ID_BYTES = 10  # 20 hex letters: no two alike among all pools there are
_ROSTER = "roster.bin"
_SECRETS = "secrets.json"
MAX_EARLIER_SECRETS = 8  # as many removals may a PC sleep through and be found by itself


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
        identity: This PC's key and certificate, the same for as long as the folder lives.
        earlier_secrets: Of the pool, the newest first, without the one that counts: a PC that was
            off while it changed announces itself by one of them.
        roster: The pool this PC is in: of itself alone, until it is paired.
        term: The term accepted last; None for never.
        record: What the pool is to run, as this node knew it last; None for never anything.
        known: Where other nodes were reached, the newest first.
        last_port: Where it listened last; others will look for it there. None for never.
        notes: What was set aside, one sentence each.
    """

    def __init__(self, path: Path, name: str = "") -> None:
        """Take the folder, making it if there is none.

        Args:
            path: Of a node; other things of Daisy's may lie beside it.
            name: Of the PC, for a pool that has to be founded.

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
            lock_soon(self._lock)
        except OSError as exc:
            self._lock.close()
            raise UsageError(
                f"{path} is in use by another node{self._by_whom()}.",
                "Give each node of this PC its own folder with --data.",
            ) from exc
        (path / "reach.json").unlink(missing_ok=True)  # of a node that was killed
        self._name = name
        self.identity = open_identity(path, machine_mark())
        self.notes += self.identity.notes
        self.earlier_secrets = self._read_secrets()
        self.roster = self._read_roster()
        self.record = self._read("record.json", Deployment)
        self.term = self._newest_term()
        self.last_port = self._read("port.json", int, lambda port: 1 <= port <= _MAX_PORT)
        self.known: KnownPeers = readable(self._read("known.json", list[KnownPeer]) or [])

    def _by_whom(self) -> str:
        reach = read_reach(self.path)
        return "" if reach is None else f" (process {reach.pid})"

    @property
    def node_id(self) -> NodeId:
        """Of the identity."""
        return self.identity.node_id

    def _newest_term(self) -> Term | None:
        """Return the term accepted last; a record was accepted with its own, whatever is lost."""
        terms = [self._read("term.json", Term), None if self.record is None else self.record.term]
        return max((term for term in terms if term is not None), default=None)

    def _read_roster(self) -> KnownRoster:
        """Return the pool this PC is in; one of its own where there is none it is a member of.

        Raises:
            StorageError: It can't be read or written.
        """
        file = self.path / _ROSTER
        try:
            raw = file.read_bytes()
        except FileNotFoundError:
            return self._found_pool()
        except OSError as exc:
            raise StorageError(f"{file} can't be read: {exc.strerror}.") from exc
        try:
            known = decode_known(raw)
            known.roster.secret_for(self.identity)
        except RemoteProtocolError:
            self._set_aside(file)
            return self._found_pool()
        except NotTrustedError:
            # Of the identity that was set aside, which has been said.
            self._set_aside(file, "file_of_another")
            return self._found_pool()
        return known

    def _found_pool(self) -> KnownRoster:
        pool_id = secrets.token_hex(_POOL_ID_BYTES)
        known = found_pool(self.identity, self._name, pool_id, secrets.token_bytes)
        self.keep_roster(known)
        return known

    def take_name(self, name: str) -> None:
        """Call this PC otherwise; the others are told when they are met.

        Args:
            name: As its owner chose it; cleaned before it is written down.

        Raises:
            StorageError: It can't be written.

        Thread: any but the loop's; waits for the disk.
        """
        own = self.roster.member(self.node_id)
        if own is None or own.name == clean_shown_name(name, self.node_id):
            return
        if not own.is_owner:
            self.notes.append(sentence("not_renamed", name=own.name))
            return
        draw = secrets.token_bytes
        self.keep_roster(rename_member(self.roster, self.identity, self.node_id, name, draw))

    def keep_roster(self, known: KnownRoster) -> None:
        """Write who is in the pool so that it outlives a power cut.

        Args:
            known: All of it.

        Raises:
            StorageError: It can't be written.

        Thread: any but the loop's; waits for the disk.
        """
        try:
            write_whole(self.path / _ROSTER, encode_known(known), is_private=True)
        except OSError as exc:
            raise StorageError(f"{self.path / _ROSTER} can't be written: {exc.strerror}.") from exc
        self.roster = known

    def _read_secrets(self) -> tuple[bytes, ...]:
        return tuple((self._read(_SECRETS, list[bytes]) or [])[:MAX_EARLIER_SECRETS])

    def keep_earlier_secret(self, secret: bytes) -> None:
        """Write a secret that is replaced.

        Args:
            secret: Of the pool until now.

        Raises:
            StorageError: It can't be written.

        Thread: any but the loop's; waits for the disk.
        """
        kept = (secret, *self.earlier_secrets)[:MAX_EARLIER_SECRETS]
        self._write(_SECRETS, kept, is_private=True)
        self.earlier_secrets = kept

    def join_pool(self, known: KnownRoster, host: NodeId, address: str) -> None:
        """Become a member of another pool, and forget the term of the one before.

        Args:
            known: That pool, with this PC in it.
            host: Who let this PC in.
            address: Where that was reached: ``host:port``.

        Raises:
            StorageError: It can't be written.

        Thread: any but the loop's; waits for the disk.
        """
        self._forget_pool()
        self.keep_known((KnownPeer(host, address),))
        self.keep_roster(known)

    def leave_pool(self) -> None:
        """Become another PC, in a pool of its own: with a new key, for the old one stays known.

        Raises:
            StorageError: It can't be written.

        Thread: any but the loop's; waits for the disk.
        """
        self._forget_pool()
        self.identity = renew_identity(self.path, machine_mark())
        self.roster = self._found_pool()

    def _forget_pool(self) -> None:
        for name in ("term.json", "record.json", _SECRETS):
            (self.path / name).unlink(missing_ok=True)
        self.term, self.record, self.earlier_secrets = None, None, ()

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

    def _set_aside(self, file: Path, why: str = "file_damaged") -> None:
        """Move what can't be used out of the way, and say so.

        Raises:
            StorageError: It can't be moved.
        """
        aside = file.with_name(f"{file.name}.damaged-{secrets.token_hex(3)}")
        try:
            file.replace(aside)
        except OSError as exc:
            raise StorageError(f"{file} can't be set aside: {exc.strerror}.") from exc
        self.notes.append(sentence(why, file=file.name, aside=aside.name))

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
            lock(file)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return False
