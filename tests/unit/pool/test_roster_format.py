"""What PCs of this version wrote is read by later ones: certificates, rosters, pairings, links.

Where one of these fails, the format has changed: give it another number, or change it back.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from engine.pool.recognition import recognition_token
from engine.pool.roster import decode_roster
from engine.transport.certificates import CURVE, make_certificate, parse_certificate
from engine.transport.code_exchange import CodeExchange
from engine.transport.identity import Identity
from engine.transport.invite_link import parse_invite_link
from engine.transport.pairing_door import password_of_code, password_of_link
from engine.transport.pairing_keys import keys_of, transcript_of
from engine.transport.pairing_messages import (
    HostAnswers,
    JoinerGreets,
    decode_pairing,
    encode_pairing,
)

FILE = Path(__file__).parents[2] / "vectors" / "trust" / "format_1.json"
WRITTEN = json.loads(FILE.read_text(encoding="utf-8"))
PAIRING = {key: value for key, value in WRITTEN["pairing"].items() if key != "code"}
BYTES = {key: bytes.fromhex(value) for key, value in PAIRING.items()}


def key_of(name):
    return ec.derive_private_key(WRITTEN[name]["private_number"], CURVE)


def certificate_of(name):
    return parse_certificate(bytes.fromhex(WRITTEN[name]["certificate"]))


def drawn(seed):
    """The random bytes with which the vectors were made."""
    numbers = iter(range(1000))

    def draw(num_bytes):
        pieces = b""
        while len(pieces) < num_bytes:
            pieces += hashlib.sha256(seed + next(numbers).to_bytes(4, "big")).digest()
        return pieces[:num_bytes]

    return draw


@pytest.mark.parametrize("name", ["anna", "ben"])
def test_a_certificate_is_the_same_but_for_its_signature(name):
    written, made = certificate_of(name), parse_certificate(make_certificate(key_of(name)))
    assert written.node_id == made.node_id == WRITTEN[name]["node_id"]
    assert written.der[4:270] == made.der[4:270]


def test_a_roster_is_read():
    written = WRITTEN["roster"]
    roster = decode_roster(bytes.fromhex(written["signed"]))
    assert (roster.content.version, roster.content.pool_id) == (
        written["version"],
        written["pool_id"],
    )
    assert {m.node_id: m.entry.name for m in roster.members} == written["names"]
    assert sorted(roster.removed) == written["removed"]
    ben = Identity(certificate_of("ben"), Path("nowhere"), key_of("ben"), None)
    assert roster.secret_for(ben).hex() == written["secret"]


def test_a_code_becomes_the_same_key():
    password = password_of_code(WRITTEN["pairing"]["code"])
    ids = (certificate_of("ben").sha256, certificate_of("anna").sha256)
    joiner = CodeExchange("joiner", password, *ids, drawn(b"j"))
    host = CodeExchange("host", password, *ids, drawn(b"h"))
    assert joiner.share == BYTES["joiner_share"]
    assert host.share == BYTES["host_share"]
    assert joiner.key(host.share) == host.key(joiner.share) == BYTES["key"]
    assert password_of_link(bytes(range(16))) == BYTES["link_password"]


def test_the_messages_of_a_pairing_are_written_the_same():
    greets = JoinerGreets(
        version=1,
        invitation=None,
        share=BYTES["joiner_share"],
        certificate=certificate_of("ben").der,
    )
    answers = HostAnswers(pool_id=WRITTEN["roster"]["pool_id"], share=BYTES["host_share"])
    assert encode_pairing(greets) == BYTES["greets"]
    assert encode_pairing(answers) == BYTES["answers"]
    assert decode_pairing(BYTES["greets"], JoinerGreets, 1024) == greets
    assert decode_pairing(BYTES["answers"], HostAnswers, 1024) == answers


def test_the_keys_of_a_pairing_are_the_same():
    transcript = transcript_of(
        certificate_of("ben"), certificate_of("anna"), BYTES["greets"], BYTES["answers"]
    )
    keys = keys_of(BYTES["key"], transcript)
    assert transcript == BYTES["transcript"]
    assert keys.joiner.confirmation(b"a", b"b") == BYTES["joiner_confirms_over_ab"]
    assert keys.host.confirmation(b"c") == BYTES["host_confirms_over_c"]
    assert keys.joiner.opened(BYTES["joiner_seals_hello"]) == b"hello"
    assert keys.host.seal(b"hello") == BYTES["host_seals_hello"]


def test_a_link_is_read():
    link = parse_invite_link(WRITTEN["invite_link"])
    assert link.certificate_sha256 == certificate_of("anna").sha256
    assert str(link) == WRITTEN["invite_link"]


def test_a_token_is_the_same():
    written = WRITTEN["recognition"]
    secret = bytes.fromhex(written["secret"])
    token = recognition_token(secret, written["node_id"], written["run_id"], written["port"])
    assert token == written["token"]
