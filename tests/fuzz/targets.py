"""Every parser that reads bytes from outside this PC, and the only errors it may raise."""

from __future__ import annotations

import atexit
import hashlib
import json
import os
import tempfile
from functools import cache
from pathlib import Path

import msgspec

from engine.domain import NodeId
from engine.errors import (
    LocalProtocolError,
    ModelFileError,
    PairingError,
    RemoteProtocolError,
    ShardCorruptError,
    UnsupportedModelError,
    UsageError,
)
from engine.messages.codec import decode, encode_control, peek_batch, peek_type, peek_version
from engine.messages.control import CONTROL_TYPES
from engine.messages.limits import MAX_ROSTER_BYTES
from engine.messages.message import Message
from engine.models.ir_header import check_ir
from engine.pool.announcement import (
    Announcement,
    Unreadable,
    clean_shown_name,
    decode_announcement,
    encode_announcement,
    run_id_of,
)
from engine.pool.chunks import chunk_list_of, decode_chunk_list
from engine.pool.roster import decode_roster, sign_roster
from engine.pool.roster_changes import remove_member
from engine.splitter.manifest import decode_manifest
from engine.transport.certificates import make_certificate, parse_certificate
from engine.transport.invite_link import InviteLink, parse_invite_link
from engine.transport.pairing_door import checked_code
from engine.transport.pairing_messages import (
    HostAnswers,
    HostWelcomes,
    JoinerConfirms,
    JoinerGreets,
    decode_pairing,
    encode_pairing,
    refusal_in,
)
from tests.fuzz.conversations import CONVERSATIONS
from tests.fuzz.model_files import MODEL_FILES
from tests.fuzz.target import Target
from tests.unit.pool.people import crowd, entropy, pool_of
from tests.unit.transport.pairing_runs import Scene

TESTS = Path(__file__).parents[1]
CORPUS = Path(__file__).parent / "corpus"
ANNA, BEN, CARL, DORA = crowd(4)


# ---- frames and control messages -------------------------------------------------------------


@cache
def wire_vectors():
    """The golden bytes of every message."""
    files = sorted((TESTS / "vectors" / "wire").glob("*.txt"))
    texts = [file.read_text(encoding="utf-8").splitlines() for file in files]
    return [bytes.fromhex(" ".join(line.partition("#")[0] for line in text)) for text in texts]


def data_frames():
    return [frame for frame in wire_vectors() if frame[5] != 0]  # their numbers begin at 0x100


def control_frames():
    return [frame for frame in wire_vectors() if frame[5] == 0]


def run_frame(data):
    """Each way to look at a frame by itself; one that is refused must not hide the next."""
    errors = []
    for look in (peek_version, peek_type, peek_batch, decode):
        try:
            look(data)
        except RemoteProtocolError as error:
            errors.append(error)
    if errors:
        raise errors[-1]


def run_control(data):
    message = decode(data)
    if isinstance(message, Message) and type(message) in CONTROL_TYPES.values():
        assert decode(encode_control(message)) == message  # what is read can be sent on


# ---- files ----------------------------------------------------------------------------------


ENTRY = {"path": "s.xml", "num_bytes": 3, "sha256": "a" * 64}


def manifests():
    layers = [{"start": 0, "stop": 1}, {"start": 1, "stop": 2}]
    model = {
        "name": "m", "architecture": "llama", "num_layers": 2, "hidden_size": 8,
        "num_kv_heads": [1, 1], "head_size": [8, 8], "value_head_size": [8, 8], "vocab_size": 9,
        "context_length": None, "weight_precision": "f16", "layer_bytes": [5, 5],
        "embedding_bytes": 1, "head_bytes": 1, "eos_token_ids": [2],
    }  # fmt: skip
    shards = [
        {
            "layers": part, "xml": {**ENTRY, "path": f"{part['start']}/s.xml"},
            "weights": {**ENTRY, "path": f"{part['start']}/s.bin"}, "injected_reorders": 0,
            "can_be_paged": True, "paged_refusal": None, "sliding_window": None,
        }
        for part in layers
    ]  # fmt: skip
    golden = {
        "token_ids": [1, 2], "boundaries": [{"layer": 1, "file": {**ENTRY, "path": "g/1.f32"}}],
        "logits": {**ENTRY, "path": "g/logits.f32"},
    }  # fmt: skip
    whole = {
        "format": 1, "made_by": "x", "model": model, "shards": shards,
        "text_files": [{**ENTRY, "path": "tokenizer.json"}], "golden": golden,
    }  # fmt: skip
    return [json.dumps(whole).encode(), json.dumps({**whole, "golden": None}).encode()]


def run_manifest(data):
    manifest = decode_manifest(data)
    for entry in manifest.files:
        assert ".." not in entry.path
        assert not entry.path.startswith("/")
    assert decode_manifest(manifest.encoded()) == manifest


FILES = ([b"abc"], [], [b"x" * 4 * 1024 * 1024, b"rest"])
FILE_SHA256 = hashlib.sha256(b"abc").hexdigest()


def chunk_lists():
    return [chunk_list_of(pieces).encoded() for pieces in FILES]


def run_chunk_list(data):
    chunks = decode_chunk_list(data, FILE_SHA256)
    for index in range(min(3, chunks.num_chunks)):
        assert chunks.chunk_bytes(index) >= 0
        chunks.matches(index, b"abc")


@cache
def ir_files():
    """Two files that are written anew for each input, in memory where the system can."""
    memory = Path("/dev/shm")  # noqa: S108 - a folder of its own in it
    place = tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None)
    atexit.register(place.cleanup)
    folder = Path(place.name)
    weights = folder / "model.bin"
    weights.write_bytes(bytes(4096))
    return folder / "model.xml", weights


def ir_headers():
    small = [
        b'<?xml version="1.0"?><net name="m" version="11"><layers>'
        b'<layer id="0" name="input_ids" type="Parameter" version="opset1">'
        b'<output><port id="0" names="input_ids"/></output></layer>'
        b'<layer id="1" name="w" type="Const" version="opset1">'
        b'<data element_type="f32" offset="0" shape="4" size="16"/></layer>'
        b'<layer id="2" name="r" type="ReadValue"><data variable_id="k"/></layer>'
        b'<layer id="3" name="a" type="Assign"><data variable_id="k"/></layer>'
        b'<layer id="4" name="o" type="Result" output_names="logits,b\\,c"/>'
        b"</layers><edges/></net>",
        b'<!DOCTYPE net [<!ENTITY a "aaaa">]><net>&a;</net>',
        b'<net><layers><layer type="Const"><data offset="9223372036854775807" size="1"/>'
        b"</layer></layers></net>",
        b'<net><layers><layer type="Const"><data offset="-1" size="16"/></layer></layers></net>',
        b"version https://git-lfs.github.com/spec/v1\n",
    ]
    real = sorted((TESTS / "fixtures" / "models").glob("*/openvino_model.xml"))[:2]
    return small + [file.read_bytes()[:6000] for file in real]


def run_ir_header(data):
    xml, weights = ir_files()
    xml.write_bytes(data)
    header = check_ir(xml, weights)
    assert header.needed_bytes <= header.bin_bytes


# ---- announcements --------------------------------------------------------------------------


SAID = Announcement("a1b2c3d4", "abcdefghijklm", 7420, 1, 1, frozenset({"joinable"}))


def announcements():
    text = encode_announcement(SAID)
    return [text, text.replace(b"p=7420", b"P=7420"), b"\x00\xff", b"3fa9c1._daisy._tcp.local."]


def run_announcement(data):
    said = decode_announcement(data)
    assert isinstance(said, Announcement | Unreadable)
    if isinstance(said, Announcement):
        assert decode_announcement(encode_announcement(said)) == said
    text = data.decode("utf-8", "surrogateescape")
    run_id_of(text)
    shown = clean_shown_name(text, NodeId("3fa9c1d2e4b5"))
    assert 0 < len(shown.encode("utf-8", "surrogateescape")) <= 63
    assert "\n" not in shown


# ---- trust ----------------------------------------------------------------------------------


def certificates():
    return [ANNA.certificate.der, make_certificate(BEN.key)]


def run_certificate(data):
    certificate = parse_certificate(data)
    assert certificate.der == data


@cache
def rosters():
    """A few of a small pool, as ``KnownRoster``."""
    founder = crowd(5)[4]
    pool = pool_of(founder, ANNA, BEN)
    return pool, remove_member(pool, founder, BEN.node_id, entropy(4)), pool_of(founder)


def signed_rosters():
    return [known.roster.signed for known in rosters()]


def run_roster(data):
    roster = decode_roster(data)
    assert roster.signed == data
    assert len(data) <= MAX_ROSTER_BYTES


def roster_contents():
    return [msgspec.msgpack.encode(known.roster.content) for known in rosters()]


def run_roster_content(data):
    """What an owner gone bad may sign: the signature is right, whatever the content is."""
    founder = crowd(5)[4]
    signature = founder.sign(b"daisy roster 1\0" + data)
    roster = decode_roster(msgspec.msgpack.encode({"content": data, "signature": signature}))
    assert sign_roster(roster.content, founder).content == roster.content
    assert not roster.removed & {member.node_id for member in roster.members}


class _Recorded:
    """The messages of one pairing."""

    def __init__(self):
        scene = Scene(ANNA, BEN)
        host, joiner = scene.new_host(), scene.new_joiner(scene.show_code(), name="Küche")
        answer = host.receive(joiner.greeting, scene.now_s)
        confirms = joiner.receive(answer.reply)
        host.receive(confirms, scene.now_s)
        self.messages = [joiner.greeting, answer.reply, confirms, host.welcome(b"roster")]
        self.refused = host.turn_away()


@cache
def recorded():
    return _Recorded()


def pairing_messages():
    return [*recorded().messages, recorded().refused]


def run_pairing(data):
    why = refusal_in(data)
    errors = []
    for kind in (JoinerGreets, HostAnswers, JoinerConfirms, HostWelcomes):
        try:
            assert encode_pairing(decode_pairing(data, kind, 4096)) == data
        except RemoteProtocolError as error:
            errors.append(error)
    assert len(errors) >= 3  # no message is two
    if len(errors) == 4 and why is None:
        raise errors[-1]


def run_pairing_machine(data):
    """Both sides of a pairing, whichever message is due."""
    scene = Scene(ANNA, BEN)
    code = scene.show_code()
    host, joiner = scene.new_host(), scene.new_joiner(code)
    if data[:1] < b"\x80":
        host.receive(data, scene.now_s)
        return
    greeted = scene.new_host()
    answer = greeted.receive(joiner.greeting, scene.now_s).reply
    for side in (
        lambda: scene.new_joiner(code).receive(data),
        lambda: greeted.receive(data, scene.now_s),
        lambda: joiner.receive(answer) and joiner.receive(data),
        lambda: host.receive(data, scene.now_s),
    ):
        try:
            side()
        except (RemoteProtocolError, PairingError):
            continue


LINK = InviteLink(
    pool_id="aaaabbbbccccddddeeee",
    addresses=("192.168.1.20:7420", "[fe80::1]:7420", "kitchen.local:65535"),
    certificate_sha256=bytes(range(32)),
    link_id="l1nkl1nk",
    secret=bytes(range(16)),
    until_s=1_900_000_000,
)


def invite_links():
    return [str(LINK).encode(), str(LINK).replace("&at=[fe80::1]:7420", "").encode(), b" 123-456"]


def run_invite_link(data):
    text = data.decode("utf-8", "surrogateescape")
    try:
        checked_code(text)
    except UsageError:
        link = parse_invite_link(text)
        assert parse_invite_link(str(link)) == link


TARGETS = {
    target.name: target
    for target in (
        Target("frame", run_frame, (RemoteProtocolError,), data_frames),
        Target("control", run_control, (RemoteProtocolError,), control_frames, "control"),
        Target("manifest", run_manifest, (ShardCorruptError,), manifests, "json"),
        Target("chunk_list", run_chunk_list, (RemoteProtocolError,), chunk_lists, "msgpack"),
        Target(
            "ir_header", run_ir_header, (ModelFileError, UnsupportedModelError), ir_headers, "text",
            8192,
        ),
        Target("announcement", run_announcement, (), announcements, "text", 600),
        Target("certificate", run_certificate, (RemoteProtocolError,), certificates),
        Target("roster", run_roster, (RemoteProtocolError,), signed_rosters, "msgpack"),
        Target(
            "roster_content", run_roster_content, (RemoteProtocolError,), roster_contents, "msgpack"
        ),
        Target("pairing", run_pairing, (RemoteProtocolError,), pairing_messages, "msgpack"),
        Target(
            "pairing_machine", run_pairing_machine, (RemoteProtocolError, PairingError),
            pairing_messages, "msgpack",
        ),
        Target("invite_link", run_invite_link, (UsageError,), invite_links, "text", 2048),
        *CONVERSATIONS,
        *MODEL_FILES,
    )
}  # fmt: skip


def execute(target: Target, data: bytes) -> bool:
    """Run one input; return whether it was accepted. Anything undeclared comes out as it is."""
    try:
        target.run(data)
    except LocalProtocolError:
        raise
    except target.declared:
        return False
    return True


def kept(target: Target) -> list[bytes]:
    """Return the corpus: inputs that reached a line which none before them had."""
    file = CORPUS / f"{target.name}.txt"
    if not file.is_file():
        return []
    return [bytes.fromhex(line) for line in file.read_text(encoding="ascii").splitlines()]
