"""Who this PC is: one key, one certificate, in one file that nobody else may read.

The file is PEM with two lines before it that say where it was made, so that a copied data folder
shows: on another PC the copy is set aside, and that PC gets an identity of its own. A file that
is damaged, or whose key and certificate do not belong together, is set aside too, and said.
"""

from __future__ import annotations

import base64
import contextlib
import os
import re
import secrets
import ssl
import stat
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from engine.errors import RemoteProtocolError, StorageError
from engine.transport import key_protection
from engine.transport.certificates import (
    CURVE,
    SIGNATURE,
    Certificate,
    make_certificate,
    parse_certificate,
)

if TYPE_CHECKING:
    from pathlib import Path

    from engine.domain import NodeId

FILE_NAME = "identity.pem"

_MAX_FILE_BYTES = 16 << 10  # a whole one has about 900
_OWN = 0o600
# A link is not followed, and Windows translates no line ends; each system has its flag alone.
_PLAIN = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
_FORM = re.compile(
    rb"Made on: (?P<machine>[0-9a-f]{32}|unknown)\n"
    rb"File: (?P<file>[0-9]{1,20})\n"
    rb"(?:Passphrase: (?P<protected>[A-Za-z0-9+/=]{1,8192})\n)?"
    rb"(?P<key>-----BEGIN (?:ENCRYPTED )?PRIVATE KEY-----\n[A-Za-z0-9+/=\n]+"
    rb"-----END (?:ENCRYPTED )?PRIVATE KEY-----\n)"
    rb"(?P<certificate>-----BEGIN CERTIFICATE-----\n[A-Za-z0-9+/=\n]+"
    rb"-----END CERTIFICATE-----\n)"
)


@dataclass(frozen=True, slots=True)
class Identity:
    """This PC's key and certificate.

    Attributes:
        certificate: What others know this PC by.
        path: The file both lie in.
        key: P-256; never leaves the node's process.
        passphrase: Of the key in the file; None where the file's mode protects it.
        notes: What was odd with the file, one sentence each.
    """

    certificate: Certificate
    path: Path
    key: ec.EllipticCurvePrivateKey = field(repr=False)
    passphrase: bytes | None = field(repr=False)
    notes: tuple[str, ...] = ()

    @property
    def node_id(self) -> NodeId:
        """The same for as long as the key lives."""
        return self.certificate.node_id

    def sign(self, data: bytes) -> bytes:
        """Return a signature that the certificate's key verifies: ECDSA, SHA-256, DER."""
        return self.key.sign(data, SIGNATURE)

    def show_in(self, context: ssl.SSLContext) -> None:
        """Make connections of a TLS context show this identity.

        Args:
            context: It reads key and certificate from the file, because it can't from memory.

        Raises:
            StorageError: The file is gone or can't be read.
        """
        passphrase = self.passphrase
        try:
            # Without a passphrase of ours OpenSSL would ask for one at the terminal.
            context.load_cert_chain(self.path, password=lambda: passphrase or b"")
        except OSError as exc:  # ssl.SSLError is one
            raise StorageError(f"{self.path} can't be read as this PC's identity.") from exc


def open_identity(folder: Path, machine: str | None) -> Identity:
    """Return the identity of a folder; it is made if there is none, or none that may be used.

    Args:
        folder: Of a node, held by it alone.
        machine: Mark of this PC; None where it has none, and then no copy is noticed.

    Raises:
        StorageError: The folder can't be read or written.

    Thread: any but the loop's; waits for the disk.
    """
    path = folder / FILE_NAME
    try:
        return _read(path, machine)
    except FileNotFoundError:
        return _make(path, machine, ())
    except _UnusableError as unusable:
        aside = _set_aside(path)
        note = f"{FILE_NAME} {unusable}; it was set aside as {aside.name}. Pair this PC again."
        return _make(path, machine, (note,))
    except OSError as exc:
        raise StorageError(f"{path} can't be read: {exc.strerror}.") from exc


def renew_identity(folder: Path, machine: str | None) -> Identity:
    """Make a new identity in place of the one there is: a PC that was removed begins anew.

    Args:
        folder: Of a node, held by it alone.
        machine: Mark of this PC; None where it has none.

    Raises:
        StorageError: The folder can't be written.

    Thread: any but the loop's; waits for the disk.
    """
    path = folder / FILE_NAME
    try:
        path.unlink(missing_ok=True)
    except OSError as exc:
        raise StorageError(f"{path} can't be removed: {exc.strerror}.") from exc
    return _make(path, machine, ())


class _UnusableError(Exception):
    """There is a file, and it is no identity of this PC; says why."""


def _read(path: Path, machine: str | None) -> Identity:
    descriptor = os.open(path, os.O_RDONLY | _PLAIN)
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(file.fileno())
        content = file.read(_MAX_FILE_BYTES + 1)
    found = _FORM.fullmatch(content) if len(content) <= _MAX_FILE_BYTES else None
    if found is None:
        raise _UnusableError("is damaged")
    made_on = found["machine"].decode()
    if machine is not None and made_on not in {machine, "unknown"}:
        raise _UnusableError("was copied from another PC")
    passphrase = _passphrase_in(found["protected"])
    key = _key_in(found["key"], passphrase)
    certificate = _certificate_in(found["certificate"])
    if certificate.public_key != key.public_key():
        raise _UnusableError("holds a key and a certificate that do not belong together")
    notes = [] if int(found["file"]) == status.st_ino else [_COPIED_HERE]
    if os.name != "nt" and stat.S_IMODE(status.st_mode) & ~_OWN:
        path.chmod(_OWN)
        notes.append(f"{FILE_NAME} could be read by others on this PC; now it can't.")
    return Identity(certificate, path, key, passphrase, tuple(notes))


_COPIED_HERE = (
    f"{FILE_NAME} is a copy made on this PC. Two nodes must not use it at once: "
    "delete it where it is not needed."
)


def _key_in(pem: bytes, passphrase: bytes | None) -> ec.EllipticCurvePrivateKey:
    try:
        key = serialization.load_pem_private_key(pem, passphrase)
    except (ValueError, TypeError, UnsupportedAlgorithm) as exc:
        raise _UnusableError("holds no key that can be read") from exc
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.curve.name != CURVE.name:
        raise _UnusableError("holds a key of another kind")
    return key


def _certificate_in(pem: bytes) -> Certificate:
    try:
        return parse_certificate(_der_of(pem))
    except (RemoteProtocolError, ValueError) as exc:
        raise _UnusableError("holds no certificate that can be read") from exc


def _der_of(pem: bytes) -> bytes:
    return base64.b64decode(b"".join(pem.splitlines()[1:-1]), validate=True)


def _passphrase_in(protected: bytes | None) -> bytes | None:
    if protected is None:
        return None
    try:
        return key_protection.unprotect(base64.b64decode(protected, validate=True))
    except (StorageError, ValueError) as exc:
        raise _UnusableError("was made by another user or on another PC") from exc


# ---- making one ----------------------------------------------------------------------------------


def _make(path: Path, machine: str | None, notes: tuple[str, ...]) -> Identity:
    key = ec.generate_private_key(CURVE)
    certificate = parse_certificate(make_certificate(key))
    passphrase = secrets.token_hex(32).encode() if key_protection.PROTECTS else None
    try:
        _write_new(path, _header(machine, passphrase), _pem(key, certificate, passphrase))
    except OSError as exc:
        raise StorageError(f"{path} can't be written: {exc.strerror}.") from exc
    return Identity(certificate, path, key, passphrase, notes)


def _header(machine: str | None, passphrase: bytes | None) -> str:
    """Return the lines before the PEM, with a place for the number of the file."""
    lines = f"Made on: {machine or 'unknown'}\nFile: %d\n"
    if passphrase is not None:
        protected = base64.b64encode(key_protection.protect(passphrase)).decode()
        lines += f"Passphrase: {protected}\n"
    return lines


def _pem(
    key: ec.EllipticCurvePrivateKey, certificate: Certificate, passphrase: bytes | None
) -> bytes:
    encryption: serialization.KeySerializationEncryption = serialization.NoEncryption()
    if passphrase is not None:
        encryption = serialization.BestAvailableEncryption(passphrase)
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption
    )
    return private + ssl.DER_cert_to_PEM_cert(certificate.der).encode()


def _write_new(path: Path, header: str, pem: bytes) -> None:
    """Write the file so that it is there whole or not at all, and never readable by others."""
    unfinished = path.with_name(f"{path.name}.unfinished")
    unfinished.unlink(missing_ok=True)  # of a process that was killed
    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | _PLAIN
    with os.fdopen(os.open(unfinished, flags, _OWN), "wb") as file:
        if hasattr(os, "fchmod"):
            os.fchmod(file.fileno(), _OWN)  # whatever the umask took
        number = os.fstat(file.fileno()).st_ino  # stays when the file is renamed, not when copied
        file.write((header % number).encode() + pem)
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(path)
    _flush_folder(path.parent)


def _flush_folder(folder: Path) -> None:
    with contextlib.suppress(OSError):  # Windows opens no folders, and keeps names by itself
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _set_aside(path: Path) -> Path:
    aside = path.with_name(f"{path.name}.set-aside-{secrets.token_hex(3)}")
    try:
        path.replace(aside)
    except OSError as exc:
        raise StorageError(f"{path} can't be set aside: {exc.strerror}.") from exc
    return aside
