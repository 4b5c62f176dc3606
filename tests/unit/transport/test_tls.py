"""Who gets through TLS, with real sockets: members, joiners while they may, and nobody else."""

from __future__ import annotations

import asyncio
import datetime
import socket
import ssl
import time

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from engine.errors import (
    NotKnownThereError,
    NotTrustedError,
    PeerUnreachableError,
    RemoteProtocolError,
    StorageError,
    TransportError,
)
from engine.transport.certificates import (
    CURVE,
    SIGNATURE,
    Certificate,
    make_certificate,
    node_id_of_key,
    parse_certificate,
)
from engine.transport.identity import Identity
from engine.transport.peer_trust import PeerTrust, Shown
from engine.transport.tls import PAIR_PROTOCOL, POOL_PROTOCOL, tls_failure
from tests.unit.transport.identities import WITHIN_S, bare_client, new_identity, open_door, visit


@pytest.fixture(scope="module")
def people(tmp_path_factory):
    folder = tmp_path_factory.mktemp("people")
    return {name: new_identity(folder, name) for name in ("host", "anna", "ben", "eve")}


@pytest.fixture
def trust(people):
    return PeerTrust(people["host"], [people["anna"].certificate, people["ben"].certificate])


def of(people, name, *others):
    """How another PC sees the pool."""
    return PeerTrust(people[name], [people[other].certificate for other in ("host", *others)])


def visited(trust, *contexts):
    """Visit a door with each context in turn; return the answers, and the door."""

    async def run():
        async with open_door(trust) as door:
            answers = [await visit(door.port, context, b"hello") for context in contexts]
            return answers, door

    return asyncio.run(run())


def issued(subject_key, issuer_key, **dates):
    """A certificate that has the right form but other dates or another signer."""
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Daisy")])
    begin = dates.get("begin", datetime.datetime(2000, 1, 1, tzinfo=datetime.UTC))
    end = dates.get("end", datetime.datetime(2099, 1, 1, tzinfo=datetime.UTC))
    builder = x509.CertificateBuilder(name, name, subject_key.public_key(), 1, begin, end)
    der = builder.sign(issuer_key, SIGNATURE.algorithm).public_bytes(serialization.Encoding.DER)
    return Certificate(der, node_id_of_key(subject_key.public_key()), subject_key.public_key())


def identity_of(folder, key, certificate):
    path = folder / f"{certificate.node_id}.pem"
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path.write_bytes(private + ssl.DER_cert_to_PEM_cert(certificate.der).encode())
    return Identity(certificate, path, key, None)


# ---- members ------------------------------------------------------------------------------------


def test_members_see_who_the_other_one_is(trust, people):
    answers, door = visited(trust, of(people, "anna").client_context(people["host"].node_id))
    assert answers == [b"welcome"]
    assert door.members == [people["anna"].node_id]


def test_a_member_may_be_met_at_an_address_whose_node_is_not_known(trust, people):
    answers, _ = visited(trust, of(people, "anna", "ben").client_context(None))
    assert answers == [b"welcome"]


def test_nobody_connects_to_a_pc_that_is_no_member(people):
    with pytest.raises(NotTrustedError, match=people["eve"].node_id):
        of(people, "anna").client_context(people["eve"].node_id)


def test_a_pool_of_64_tells_every_member(people, tmp_path):
    crowd = [new_identity(tmp_path, f"n{index}") for index in range(64)]
    trust = PeerTrust(people["host"], [one.certificate for one in crowd])
    tried = [crowd[0], crowd[31], crowd[63]]
    contexts = [PeerTrust(one, [people["host"].certificate]).client_context(None) for one in tried]
    answers, door = visited(trust, *contexts)
    assert answers == [b"welcome"] * 3
    assert door.members == [one.node_id for one in tried]


def test_the_own_certificate_among_the_members_is_no_peer(people):
    trust = PeerTrust(people["host"], [person.certificate for person in people.values()])
    assert people["host"].node_id not in trust.members
    assert len(trust.members) == 3


# ---- strangers ----------------------------------------------------------------------------------


def test_s01_a_stranger_with_a_certificate_is_cut_in_tls_and_no_byte_gets_further(trust, people):
    answers, door = visited(trust, bare_client(identity=people["eve"], alpn=POOL_PROTOCOL))
    assert isinstance(answers[0], NotTrustedError)
    assert (door.began, door.read) == (0, [])


def test_s01_a_certificate_that_a_member_signed_for_a_stranger_is_refused(trust, people, tmp_path):
    key = ec.generate_private_key(CURVE)
    stranger = identity_of(tmp_path, key, issued(key, people["anna"].key))
    answers, door = visited(trust, bare_client(identity=stranger, alpn=POOL_PROTOCOL))
    assert isinstance(answers[0], NotTrustedError)
    assert door.began == 0


def test_s01_another_certificate_of_a_members_key_is_not_the_one_in_the_roster(trust, people):
    key = people["anna"].key
    own = people["anna"].certificate.der
    for der in (
        issued(key, key).der,
        own[:-1],
        own + b"x",
        own * 2,
        own[:-1] + bytes([own[-1] ^ 1]),
        None,
    ):
        with pytest.raises(NotTrustedError):
            trust.member_at(Shown(POOL_PROTOCOL, der))
    assert trust.member_at(Shown(POOL_PROTOCOL, own)) == people["anna"].node_id


@pytest.mark.parametrize("alpn", [POOL_PROTOCOL, PAIR_PROTOCOL, "h2", None])
def test_s02_without_a_certificate_nobody_gets_through_while_nobody_waits(trust, alpn):
    answers, door = visited(trust, bare_client(alpn=alpn))
    assert isinstance(answers[0], NotTrustedError)
    assert door.began == 0


WAYS_IN_AN_OPEN_WINDOW = {
    # (with whose certificate, for what): what the door answers
    ("nobody", PAIR_PROTOCOL): "pairing",
    ("nobody", POOL_PROTOCOL): "refused",
    ("nobody", "h2"): "refused",
    ("nobody", None): "refused",
    ("anna", POOL_PROTOCOL): "welcome",
    ("anna", PAIR_PROTOCOL): "refused",
    ("anna", None): "refused",
    ("eve", POOL_PROTOCOL): "no handshake",
    ("eve", PAIR_PROTOCOL): "no handshake",
}


@pytest.mark.parametrize(("way", "outcome"), WAYS_IN_AN_OPEN_WINDOW.items())
def test_s02_who_may_do_what_while_a_pc_may_join(trust, people, way, outcome):
    who, alpn = way
    trust.let_joiners_in(True)
    answers, door = visited(trust, bare_client(identity=people.get(who), alpn=alpn))
    seen = (door.joiners, len(door.members), len(door.refused), door.began)
    assert (
        seen
        == {
            "pairing": (1, 0, 0, 1),
            "welcome": (0, 1, 0, 1),
            "refused": (0, 0, 1, 1),
            "no handshake": (0, 0, 0, 0),
        }[outcome]
    )
    if outcome in {"pairing", "welcome"}:
        assert answers == [outcome.encode()]
    else:
        assert door.read == []


def test_s02_the_port_closes_to_joiners_again(trust):
    trust.let_joiners_in(True)
    trust.let_joiners_in(False)
    answers, door = visited(trust, trust.joining_context())
    assert isinstance(answers[0], NotTrustedError)
    assert door.began == 0
    assert not trust.is_joiner(Shown(PAIR_PROTOCOL, None))  # nor whoever is through already


def test_a_client_shows_itself_only_to_the_pc_it_means(people):
    """Who answers at a member's address with another key learns nothing, not even our id."""
    seen = []

    async def run():
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.verify_mode = ssl.CERT_OPTIONAL
        context.load_verify_locations(cadata=people["anna"].certificate.der)
        people["eve"].show_in(context)
        server = await asyncio.start_server(
            lambda _, writer: seen.append(writer.get_extra_info("peercert")),
            "127.0.0.1",
            0,
            ssl=context,
        )
        port = server.sockets[0].getsockname()[1]
        answer = await visit(port, of(people, "anna").client_context(people["host"].node_id))
        server.close()
        return answer

    assert isinstance(asyncio.run(run()), NotTrustedError)
    assert seen == []


# ---- removed ------------------------------------------------------------------------------------


def test_s25_a_removed_member_is_cut_at_once_and_refused_from_then_on(trust, people):
    anna = of(people, "anna").client_context(people["host"].node_id)
    ben = of(people, "ben").client_context(people["host"].node_id)

    async def run():
        async with open_door(trust) as door, asyncio.timeout(WITHIN_S):
            links = [
                await asyncio.open_connection("127.0.0.1", door.port, ssl=context)
                for context in (anna, anna, ben)
            ]
            for reader, _ in links:
                assert await reader.readexactly(7) == b"welcome"
            began_s = time.monotonic()
            trust.replace([people["ben"].certificate])
            for reader, _ in links[:2]:
                with pytest.raises((ConnectionError, ssl.SSLError, asyncio.IncompleteReadError)):
                    await reader.readexactly(1)
            took_s = time.monotonic() - began_s
            again = await visit(door.port, anna)
            links[2][1].write(b"still here")
            assert await links[2][0].readexactly(10) == b"still here"
            for _, writer in links:
                writer.close()
            return took_s, again, door

    took_s, again, door = asyncio.run(run())
    assert took_s < 1.0
    assert isinstance(again, NotTrustedError)
    assert door.began == 3


def test_s25_who_is_removed_in_the_middle_of_its_handshake_is_refused_after_it(trust, people):
    """The handshake began with the context of before; the roster of after decides."""
    server = trust.server_context.current
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    here = trust.server_context.wrap_bio(incoming, outgoing, server_side=True)
    there = of(people, "anna").client_context(None).wrap_bio(outgoing, incoming)
    with pytest.raises(ssl.SSLWantReadError):
        there.do_handshake()
    with pytest.raises(ssl.SSLWantReadError):
        here.do_handshake()
    trust.replace([people["ben"].certificate])
    there.do_handshake()
    here.do_handshake()
    assert trust.server_context.current is not server
    shown = Shown(here.selected_alpn_protocol(), here.getpeercert(binary_form=True))
    with pytest.raises(NotTrustedError):
        trust.member_at(shown)
    with pytest.raises(NotTrustedError), trust.standing_on(people["anna"].node_id, lambda: None):
        pass


def test_s25_a_session_of_before_the_removal_is_not_resumed(trust, people):
    context = of(people, "anna").client_context(people["host"].node_id)

    def connect(port, session=None):
        plain = socket.create_connection(("127.0.0.1", port), WITHIN_S)
        with context.wrap_socket(plain, session=session) as tls:
            answer = tls.recv(7)
            return answer, tls.session, tls.session_reused

    async def run():
        async with open_door(trust) as door:
            answer, session, _ = await asyncio.to_thread(connect, door.port)
            assert answer == b"welcome"
            assert not session.has_ticket
            _, _, is_reused = await asyncio.to_thread(connect, door.port, session)
            assert not is_reused
            trust.replace([people["ben"].certificate])
            try:
                answer, _, is_reused = await asyncio.to_thread(connect, door.port, session)
            except OSError:
                answer, is_reused = b"", False
            return answer, is_reused, door

    answer, is_reused, door = asyncio.run(run())
    assert (answer, is_reused) == (b"", False)
    assert door.began == 2


def test_s25_a_member_that_is_back_gets_in_again(trust, people):
    trust.replace([])
    trust.replace([people["anna"].certificate])
    answers, _ = visited(trust, of(people, "anna").client_context(None))
    assert answers == [b"welcome"]


def test_s25_where_the_own_key_is_gone_the_removed_one_is_cut_and_refused_all_the_same(
    people, tmp_path
):
    host = new_identity(tmp_path, "host")
    trust = PeerTrust(host, [people["anna"].certificate])
    cuts = []
    with trust.standing_on(people["anna"].node_id, lambda: cuts.append("anna")):
        host.path.unlink()
        with pytest.raises(StorageError):
            trust.replace([])
        assert cuts == ["anna"]
    with pytest.raises(NotTrustedError):
        trust.member_at(Shown(POOL_PROTOCOL, people["anna"].certificate.der))


def test_a_connection_that_ended_by_itself_is_not_cut(trust, people):
    cuts = []
    anna = people["anna"].node_id
    with trust.standing_on(anna, lambda: cuts.append(1)):
        with trust.standing_on(anna, lambda: cuts.append(2)):
            pass
        trust.replace([])
    assert cuts == [1]


# ---- clocks, versions, other programs --------------------------------------------------------


DATES = {
    "long over": {
        "begin": datetime.datetime(1990, 1, 1, tzinfo=datetime.UTC),
        "end": datetime.datetime(1995, 1, 1, tzinfo=datetime.UTC),
    },
    "not begun": {
        "begin": datetime.datetime(2200, 1, 1, tzinfo=datetime.UTC),
        "end": datetime.datetime(2300, 1, 1, tzinfo=datetime.UTC),
    },
}


@pytest.mark.parametrize("dates", DATES.values(), ids=DATES)
def test_no_clock_decides_who_gets_in(people, tmp_path, dates):
    """A certificate that is out of date by centuries is what a wrong clock makes of a good one."""
    keys = [ec.generate_private_key(CURVE) for _ in range(2)]
    here, there = (identity_of(tmp_path, key, issued(key, key, **dates)) for key in keys)
    trust = PeerTrust(here, [there.certificate])
    client = PeerTrust(there, [here.certificate]).client_context(here.node_id)
    answers, _ = visited(trust, client)
    assert answers == [b"welcome"]


@pytest.mark.parametrize("highest", [ssl.TLSVersion.TLSv1_2])
def test_s26_an_older_version_of_tls_is_refused_by_a_port(trust, people, highest):
    old = bare_client(identity=people["anna"], alpn=POOL_PROTOCOL, highest=highest)
    answers, door = visited(trust, old)
    assert isinstance(answers[0], TransportError)
    assert door.began == 0


def test_s26_an_older_version_of_tls_is_refused_by_a_client(people):
    async def run():
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        people["host"].show_in(context)
        server = await asyncio.start_server(lambda _, __: None, "127.0.0.1", 0, ssl=context)
        port = server.sockets[0].getsockname()[1]
        answer = await visit(port, of(people, "anna").client_context(people["host"].node_id))
        server.close()
        return answer

    assert isinstance(asyncio.run(run()), TransportError)


@pytest.mark.parametrize(
    "said", [b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\0" * 100, b"DZ\1\0\2\0\0\0", b"\x16\x03\x01"]
)
def test_s09_what_is_not_encrypted_gets_no_answer_but_an_alert(trust, said):
    async def run():
        async with open_door(trust) as door:
            reader, writer = await asyncio.open_connection("127.0.0.1", door.port)
            writer.write(said)
            writer.write_eof()
            answer = await asyncio.wait_for(reader.read(), WITHIN_S)
            writer.close()
            return answer, door

    answer, door = asyncio.run(run())
    assert not answer or answer[0] == 21  # an alert of TLS
    assert len(answer) <= 7
    assert door.began == 0


def test_s09_on_the_wire_there_are_only_records_of_tls_and_no_word_or_certificate(trust, people):
    wire = bytearray()
    secret = b"what is the capital of France"

    async def carry(reader, writer):
        while data := await reader.read(4096):
            wire.extend(data)
            writer.write(data)
        writer.close()

    async def run():
        async with open_door(trust) as door:

            async def relay(reader, writer):
                inner = await asyncio.open_connection("127.0.0.1", door.port)
                await asyncio.gather(carry(reader, inner[1]), carry(inner[0], writer))

            server = await asyncio.start_server(relay, "127.0.0.1", 0)
            port = server.sockets[0].getsockname()[1]
            context = of(people, "anna").client_context(people["host"].node_id)
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
            writer.write(secret)
            assert await reader.readexactly(7 + len(secret)) == b"welcome" + secret
            writer.close()
            await asyncio.sleep(0.1)
            server.close()
            return door

    assert asyncio.run(run()).read == [secret]
    for clear in (secret, b"welcome", b"France", b"Daisy"):
        assert clear not in wire
    for name in ("host", "anna"):
        assert people[name].certificate.der[100:200] not in wire
        assert people[name].node_id.encode() not in wire


@pytest.mark.parametrize(
    ("error", "is_secured", "kind"),
    [
        (ConnectionResetError(), False, PeerUnreachableError),
        (ssl.SSLEOFError(8, "eof"), False, PeerUnreachableError),
        (None, False, PeerUnreachableError),
        (None, True, NotKnownThereError),
        (ConnectionResetError(), True, NotKnownThereError),
        (ssl.SSLError(1, "something"), True, RemoteProtocolError),
        (ssl.SSLCertVerificationError(1, "no"), False, NotTrustedError),
    ],
)
def test_each_failure_of_tls_is_said_in_our_words(error, is_secured, kind):
    said = tls_failure(error, is_secured=is_secured)
    assert type(said) is kind
    assert said.what.endswith(".")


def test_the_alert_of_another_library_says_that_this_pc_is_not_known(trust, people):
    """asyncio sends no alert where a handshake fails; a plain socket does."""

    def serve(listening):
        with listening.accept()[0] as plain, pytest.raises(ssl.SSLError):
            trust.server_context.wrap_socket(plain, server_side=True)

    def read(port):
        plain = socket.create_connection(("127.0.0.1", port), WITHIN_S)
        with bare_client(identity=people["eve"]).wrap_socket(plain) as tls:
            with pytest.raises(ssl.SSLError) as refused:
                tls.recv(1)
            return refused.value

    async def run():
        with socket.create_server(("127.0.0.1", 0)) as listening:
            port = listening.getsockname()[1]
            _, error = await asyncio.gather(
                asyncio.to_thread(serve, listening), asyncio.to_thread(read, port)
            )
            return error

    said = tls_failure(asyncio.run(run()), is_secured=True)
    assert isinstance(said, NotKnownThereError)
    assert "does not know this one" in said.what


def test_a_certificate_of_ours_is_a_trust_anchor_of_its_own():
    der = make_certificate(ec.generate_private_key(CURVE))
    assert parse_certificate(der).der == der
