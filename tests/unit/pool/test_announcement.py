"""The TXT record, and the names people give their PCs."""

from __future__ import annotations

import json
import unicodedata
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from zeroconf import ServiceInfo

from engine.domain import NodeId
from engine.errors import LocalProtocolError
from engine.pool.announcement import (
    MAX_TXT_BYTES,
    SERVICE_TYPE,
    Announcement,
    Unreadable,
    clean_shown_name,
    decode_announcement,
    encode_announcement,
    host_name,
    instance_name,
    run_id_of,
)

NODE = NodeId("3fa9c1d2e4b5")
SAID = Announcement("a1b2c3d4", "abcdefghijk27", 7420, 1, 1, frozenset({"joinable"}))
K39 = json.loads((Path(__file__).parents[2] / "vectors/cases/K39.json").read_text(encoding="utf-8"))
SHOWN = {
    "Kitchen PC": "Kitchen PC",
    "会议室-电脑": "会议室-电脑",
    "Büro PC 2.0 (Nord)": "Büro PC 2.0 (Nord)",
    "a.b.c": "a.b.c",
    "x" * 64: "x" * 63,
    "界" * 22: "界" * 21,
    "🙂" * 16: "🙂" * 15,
    "DESKTOP-1\r\n": "DESKTOP-1",
    "": "PC 3fa9c1",
    "   ": "PC 3fa9c1",
    "<b>bold</b> & [x](http://e.example)": "<b>bold</b> & [x](http://e.example)",
    "\u202egpj.exe": "gpj.exe",
}

ids = st.from_regex(r"[0-9a-z]([0-9a-z-]{0,30}[0-9a-z])?", fullmatch=True)
numbers = st.integers(1, 65535)
announcements = st.builds(
    Announcement,
    run_id=ids,
    token=st.from_regex(r"[a-z2-7]{13}", fullmatch=True),
    port=numbers,
    protocol_version=numbers,
    shard_format=numbers,
    name=st.text(max_size=15),
    flags=st.frozensets(st.from_regex(r"[a-z]{1,15}", fullmatch=True), max_size=8),
)


def entries(*words: bytes) -> bytes:
    return b"".join(bytes([len(word)]) + word for word in words)


def reason(text: bytes) -> str:
    said = decode_announcement(text)
    assert isinstance(said, Unreadable)
    return said.reason


GOOD = (b"v=1", b"f=1", b"run=a1b2c3d4", b"t=abcdefghijk27", b"p=7420", b"fl=joinable")


@given(announcements)
def test_what_is_said_is_what_is_read(announcement):
    text = encode_announcement(announcement)
    assert len(text) <= MAX_TXT_BYTES
    assert decode_announcement(text) == announcement


def test_the_record_is_entries_after_their_lengths():
    assert encode_announcement(SAID) == entries(*GOOD)


def test_unknown_keys_are_ignored_and_of_two_the_first_counts():
    assert decode_announcement(entries(*GOOD, b"new=thing", b"flag", b"=x", b"", b"p=1")) == SAID
    assert decode_announcement(entries(b"P=7420", *GOOD)) == SAID


@pytest.mark.parametrize(
    ("text", "word"),
    [
        (b"", "v is missing"),
        (b"\0", "v is missing"),
        (entries(*GOOD[1:]), "v is missing"),
        (entries(*GOOD) + b"\x05ab", "cut short"),
        (entries(*GOOD, *[b"x=" + b"y" * 98] * 4), "bytes"),
        (entries(b"v=0", *GOOD), "v is not readable"),
        (entries(b"v=01", *GOOD), "v is not readable"),
        (entries(b"p=65536", *GOOD), "p is not readable"),
        (entries(b"p=-1", *GOOD), "p is not readable"),
        (entries(b"p=" + b"9" * 200, *GOOD), "p is not readable"),
        (entries("p=７".encode(), *GOOD), "p is not readable"),
        (entries(b"run=Kitchen PC", *GOOD), "run is not readable"),
        (entries(b"run=\xff\xfe", *GOOD), "run is not readable"),
        (entries(b"run=" + b"a" * 33, *GOOD), "run is not readable"),
        (entries(b"run=a\n", *GOOD), "run is not readable"),
        (entries(b"t=abcdefghijk2", *GOOD), "t is not readable"),
        (entries(b"t=abcdefghijk01", *GOOD), "t is not readable"),
        (entries(b"n=" + b"a" * 64, *GOOD), "n is not readable"),
        (entries(b"n=\xff", *GOOD), "n is not readable"),
        (entries(b"run=", *GOOD), "run is not readable"),
        (entries(b"fl=A", *GOOD), "fl is not readable"),
        (entries(b"fl=,", *GOOD), "fl is not readable"),
        (entries(b"fl=" + b",".join([b"a"] * 17), *GOOD), "fl is not readable"),
    ],
)
def test_a_record_that_is_none_of_ours_is_ignored_with_a_reason(text, word):
    assert word in reason(text)


@given(st.binary(max_size=2000) | st.lists(st.binary(max_size=60)).map(lambda e: entries(*e)))
@example(b"\xff" * 9000)
def test_no_bytes_raise_anything(text):
    said = decode_announcement(text)
    assert isinstance(said, Announcement | Unreadable)
    if isinstance(said, Announcement):
        assert decode_announcement(encode_announcement(said)) == said


@pytest.mark.parametrize(
    "change",
    [
        {"run_id": "Kitchen PC"},
        {"run_id": "a=b"},
        {"run_id": "x" * 300},
        {"token": "abcdefghijk2"},
        {"name": "x" * 64},
        {"run_id": ""},
        {"port": 0},
        {"port": 65536},
        {"flags": frozenset({"not a word"})},
        {"flags": frozenset("abcdefghijklmnopq")},
        {"flags": frozenset(c * 15 for c in "abcdefghijklmnop")},
    ],
)
def test_what_could_not_be_read_is_not_said(change):
    with pytest.raises(LocalProtocolError):
        encode_announcement(replace(SAID, **change))


@given(ids)
def test_names_on_the_network_are_made_of_the_run_alone_and_zeroconf_takes_them(run_id):
    name = instance_name(run_id)
    assert run_id_of(name) == run_id
    assert run_id_of(name.upper()) == run_id
    ServiceInfo(SERVICE_TYPE, name, server=host_name(run_id), port=1)


@pytest.mark.parametrize("label", ["", "Kitchen PC", "a.b", "-a", "a-", "a" * 33, "ä", "a\n"])
def test_a_service_of_another_name_has_no_id(label):
    assert run_id_of(f"{label}.{SERVICE_TYPE}") is None
    assert run_id_of(label or "a") is None


def test_every_name_of_the_case_has_its_expected_form():
    assert set(K39["node_names"]) == set(SHOWN)


@pytest.mark.parametrize("name", K39["node_names"])
def test_a_name_is_cut_and_cleaned_for_showing(name):
    assert clean_shown_name(name, NODE) == SHOWN[name]


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("A\u2066B\u2069C\u200eD\u061c", "ABCD"),
        ("two\nlines\ttabs", "two lines tabs"),
        ("line\u2028separator", "line separator"),
        ("null\0esc\x1b[31m", "nullesc[31m"),
        ("\u200b\u200d\ufeff", "PC 3fa9c1"),
        ("half \ud83d", "half"),
        ("x" * 60 + "e\u0301e\u0301", "x" * 60 + "e\u0301"),
        ("x" * 62 + "e\u0301", "x" * 62),
        ("x" * 53 + "👩\u200d💻", "x" * 53),
        ("x" * 56 + "👍🏽", "x" * 56),
        ("👩\u200d💻", "👩\u200d💻"),
        ("a" + "\u0301" * 100, "a" + "\u0301" * 31),
    ],
)
def test_a_name_never_ends_inside_what_is_drawn_as_one(name, shown):
    assert clean_shown_name(name, NODE) == shown


@given(st.text(max_size=200))
def test_any_name_is_shown_on_one_line_of_63_bytes(name):
    shown = clean_shown_name(name, NODE)
    assert 0 < len(shown.encode()) <= 63
    kinds = {unicodedata.category(c) for c in shown if c not in "\u200c\u200d"}
    assert not kinds & {"Cc", "Cf", "Cs", "Zl", "Zp"}
    assert shown == clean_shown_name(shown, NODE)


def test_an_entry_longer_than_the_rest_of_the_record_is_refused():
    text = encode_announcement(SAID)
    assert isinstance(decode_announcement(text[:-1]), Unreadable)
    assert isinstance(decode_announcement(text + b"\xff"), Unreadable)
