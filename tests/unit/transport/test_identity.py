"""A PC's key and certificate: made once, kept for one user, never taken from a copy."""

from __future__ import annotations

import os
import shutil
import ssl
import stat
import subprocess
import sys

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import RemoteProtocolError, StorageError
from engine.pool.announcement import run_id_of
from engine.transport.certificates import (
    CURVE,
    MAX_CERTIFICATE_BYTES,
    NODE_ID_LENGTH,
    SIGNATURE,
    make_certificate,
    node_id_of_key,
    parse_certificate,
    point_of,
    public_key_of,
)
from engine.transport.identity import FILE_NAME, open_identity, renew_identity
from engine.transport.machine import machine_mark

HERE = "0" * 32
ELSEWHERE = "1" * 32
KEY = ec.generate_private_key(CURVE)
DER = make_certificate(KEY)


def files(folder):
    return sorted(path.name for path in folder.iterdir())


# ---- certificates ------------------------------------------------------------------------------


def test_a_certificate_is_read_as_it_was_made():
    certificate = parse_certificate(DER)
    assert certificate.der == DER
    assert certificate.public_key == KEY.public_key()
    assert certificate.node_id == node_id_of_key(KEY.public_key())


def test_an_id_has_the_form_that_announcements_take():
    node_id = parse_certificate(DER).node_id
    assert len(node_id) == NODE_ID_LENGTH
    assert run_id_of(f"{node_id}._daisy._tcp.local.") == node_id


def test_a_certificate_is_what_x509_says_it_is():
    read = x509.load_der_x509_certificate(DER)
    assert (read.not_valid_before_utc.year, read.not_valid_after_utc.year) == (2000, 2099)
    assert read.subject == read.issuer
    assert read.subject.rfc4514_string() == "CN=Daisy"
    assert not read.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    read.verify_directly_issued_by(read)


def test_every_certificate_of_many_keys_fits_and_is_read():
    for _ in range(200):  # the two numbers of a signature have different lengths
        der = make_certificate(ec.generate_private_key(CURVE))
        assert len(der) <= MAX_CERTIFICATE_BYTES
        assert parse_certificate(der).der == der


def foreign(**changes):
    """A certificate as another program would make it."""
    key = changes.pop("key", KEY)
    signer = changes.pop("signer", key)
    name = x509.Name.from_rfc4514_string(changes.pop("name", "CN=Daisy"))
    template = x509.load_der_x509_certificate(DER)
    return (
        x509
        .CertificateBuilder(
            name,
            name,
            key.public_key(),
            changes.pop("serial", template.serial_number),
            template.not_valid_before_utc,
            template.not_valid_after_utc,
        )
        .sign(signer, SIGNATURE.algorithm)
        .public_bytes(serialization.Encoding.DER)
    )


@pytest.mark.parametrize(
    "der",
    [
        b"",
        DER[:-1],
        DER + b"\0",
        DER[:100] + bytes([DER[100] ^ 1]) + DER[101:],
        foreign(),  # lacks the extensions
        foreign(name="CN=Somebody"),
        foreign(key=ec.generate_private_key(ec.SECP384R1())),
        foreign(signer=ec.generate_private_key(CURVE)),
        b"0" * (MAX_CERTIFICATE_BYTES + 1),
        b"\x30\x82" * 100,
    ],
)
def test_what_is_no_certificate_of_ours_is_refused(der):
    with pytest.raises(RemoteProtocolError):
        parse_certificate(der)


def test_a_certificate_signed_by_another_key_is_refused():
    other = parse_certificate(make_certificate(ec.generate_private_key(CURVE)))
    begin = DER.index(point_of(KEY.public_key()))
    swapped = DER[:begin] + point_of(other.public_key) + DER[begin + 65 :]
    with pytest.raises(RemoteProtocolError):
        parse_certificate(swapped)


@given(st.integers(0, len(DER) - 1), st.integers(0, 7))
def test_no_bit_of_a_certificate_can_be_turned(at, bit):
    turned = bytearray(DER)
    turned[at] ^= 1 << bit
    with pytest.raises(RemoteProtocolError):
        parse_certificate(turned)


@pytest.mark.parametrize("point", [b"", b"\x04" + b"\1" * 64, b"\x02" + b"\1" * 32, b"\0" * 65])
def test_what_is_no_point_is_refused(point):
    with pytest.raises(ValueError, match=r"."):
        public_key_of(point)


# ---- the file ----------------------------------------------------------------------------------


def test_an_identity_outlives_a_restart(tmp_path):
    first = open_identity(tmp_path, HERE)
    again = open_identity(tmp_path, HERE)
    assert again.certificate.der == first.certificate.der
    assert again.key.private_numbers() == first.key.private_numbers()
    assert (first.notes, again.notes) == ((), ())
    assert files(tmp_path) == [FILE_NAME]


def test_what_an_identity_signs_its_certificate_verifies(tmp_path):
    identity = open_identity(tmp_path, HERE)
    identity.certificate.public_key.verify(identity.sign(b"said"), b"said", SIGNATURE)


def test_the_key_is_in_no_text_of_it(tmp_path):
    identity = open_identity(tmp_path, HERE)
    assert "EllipticCurvePrivateKey" not in repr(identity)
    assert "passphrase" not in repr(identity)


@pytest.mark.skipif(os.name == "nt", reason="Windows has no file modes")
@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077, 0o777])
def test_s22_only_its_user_may_read_the_key_whatever_the_umask(tmp_path, umask):
    before = os.umask(umask)
    try:
        identity = open_identity(tmp_path, HERE)
    finally:
        os.umask(before)
    assert stat.S_IMODE(identity.path.stat().st_mode) == 0o600


@pytest.mark.skipif(os.name == "nt", reason="Windows has no file modes")
def test_s22_a_key_that_others_could_read_is_closed_and_said(tmp_path):
    first = open_identity(tmp_path, HERE)
    first.path.chmod(0o644)
    again = open_identity(tmp_path, HERE)
    assert again.node_id == first.node_id
    assert stat.S_IMODE(again.path.stat().st_mode) == 0o600
    assert "could be read by others" in again.notes[0]


@pytest.mark.skipif(sys.platform != "linux", reason="traces system calls")
def test_s22_the_file_is_never_there_with_another_mode(tmp_path):
    """The first open of the file that will be the identity already has its mode."""
    code = (
        "import os, sys; seen = []\n"
        "def hook(event, args):\n"
        "    if event == 'open' and str(args[0]).endswith('.unfinished'): seen.append(args[2])\n"
        "sys.addaudithook(hook); real = os.open\n"
        "modes = []\n"
        "def spy(path, flags, mode=0o777):\n"
        "    modes.append((flags & os.O_EXCL != 0, mode)); return real(path, flags, mode)\n"
        "os.open = spy\n"
        "from pathlib import Path\n"
        "from engine.transport.identity import open_identity\n"
        f"open_identity(Path({str(tmp_path)!r}), None)\n"
        "print(len(seen), [m for m in modes if m[0]])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split(maxsplit=1) == ["1", f"[(True, {0o600})]\n"]


def replaced(content, old, new):
    assert old in content
    return content.replace(old, new, 1)


DAMAGE = {
    "empty": lambda content: b"",
    "cut short": lambda content: content[:-40],
    "zeros": lambda content: bytes(len(content)),
    "too long": lambda content: content + b"\n" * 20_000,
    "bad base64": lambda content: replaced(content, b"MI", b"M="),
    "certificate's bit": lambda content: content[:-60] + b"AAAA" + content[-56:],
    "no certificate": lambda content: content[: content.index(b"-----BEGIN CERT")],
    "text before": lambda content: b"hello\n" + content,
}


@pytest.mark.parametrize("harm", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_file_is_set_aside_and_named_and_a_new_one_made(tmp_path, harm):
    first = open_identity(tmp_path, HERE)
    harmed = harm(first.path.read_bytes())
    first.path.write_bytes(harmed)
    again = open_identity(tmp_path, HERE)
    assert again.node_id != first.node_id
    (note,) = again.notes
    (aside,) = [name for name in files(tmp_path) if name != FILE_NAME]
    assert aside in note
    assert (tmp_path / aside).read_bytes() == harmed
    assert open_identity(tmp_path, HERE).node_id == again.node_id


def test_a_key_of_another_certificate_is_set_aside(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    a, b = (open_identity(tmp_path / name, HERE) for name in "ab")
    begin = b"-----BEGIN CERTIFICATE"
    own, other = (identity.path.read_bytes().partition(begin) for identity in (a, b))
    a.path.write_bytes(own[0] + begin + other[2])
    again = open_identity(tmp_path / "a", HERE)
    assert again.node_id not in {a.node_id, b.node_id}
    assert "do not belong together" in again.notes[0]


def test_a_key_of_another_kind_is_set_aside(tmp_path):
    first = open_identity(tmp_path, HERE)
    other = ec.generate_private_key(ec.SECP384R1()).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    content = first.path.read_bytes()
    begin, end = content.index(b"-----BEGIN PRIVATE"), content.index(b"-----BEGIN CERT")
    first.path.write_bytes(content[:begin] + other + content[end:])
    assert "another kind" in open_identity(tmp_path, HERE).notes[0]


def test_a_folder_copied_to_another_pc_gets_an_identity_of_its_own(tmp_path):
    (tmp_path / "a").mkdir()
    first = open_identity(tmp_path / "a", HERE)
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    copy = open_identity(tmp_path / "b", ELSEWHERE)
    assert copy.node_id != first.node_id
    assert "copied from another PC" in copy.notes[0]


def test_a_folder_copied_on_the_same_pc_is_named(tmp_path):
    (tmp_path / "a").mkdir()
    first = open_identity(tmp_path / "a", HERE)
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    copy = open_identity(tmp_path / "b", HERE)
    assert copy.node_id == first.node_id
    assert "is a copy made on this PC" in copy.notes[0]


def test_a_folder_that_was_moved_is_no_copy(tmp_path):
    (tmp_path / "a").mkdir()
    first = open_identity(tmp_path / "a", HERE)
    (tmp_path / "a").rename(tmp_path / "b")
    moved = open_identity(tmp_path / "b", HERE)
    assert (moved.node_id, moved.notes) == (first.node_id, ())


def test_a_pc_without_a_mark_keeps_its_identity(tmp_path):
    first = open_identity(tmp_path, None)
    assert open_identity(tmp_path, HERE).node_id == first.node_id
    assert open_identity(tmp_path, None).node_id == first.node_id


def test_a_write_that_was_killed_leaves_nothing_in_the_way(tmp_path):
    (tmp_path / f"{FILE_NAME}.unfinished").write_bytes(b"half")
    assert open_identity(tmp_path, HERE).notes == ()
    assert files(tmp_path) == [FILE_NAME]


@pytest.mark.skipif(os.name == "nt", reason="links need a privilege there")
def test_a_link_is_not_followed(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    target = open_identity(tmp_path / "a", HERE).path
    (tmp_path / "b" / FILE_NAME).symlink_to(target)
    with pytest.raises(StorageError, match=FILE_NAME):
        open_identity(tmp_path / "b", HERE)


def test_a_folder_that_is_none_is_said(tmp_path):
    with pytest.raises(StorageError, match=FILE_NAME):
        open_identity(tmp_path / "nowhere", HERE)


def test_a_renewed_identity_is_another_one(tmp_path):
    first = open_identity(tmp_path, HERE)
    renewed = renew_identity(tmp_path, HERE)
    assert renewed.node_id != first.node_id
    assert open_identity(tmp_path, HERE).node_id == renewed.node_id
    assert files(tmp_path) == [FILE_NAME]


def test_an_identity_shows_in_a_tls_context_and_says_when_its_file_is_gone(tmp_path):
    identity = open_identity(tmp_path, HERE)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    identity.show_in(context)
    identity.path.unlink()
    with pytest.raises(StorageError, match=FILE_NAME):
        identity.show_in(context)


def test_the_mark_of_this_pc_stays_and_is_not_the_systems_own_id():
    mark = machine_mark()
    assert mark == machine_mark()
    if mark is not None:
        assert len(mark) == 32
