"""Invite links: what is written is read, and what is damaged is refused in one sentence."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import UsageError
from engine.transport.invite_link import (
    MAX_ADDRESSES,
    MAX_LINK_LENGTH,
    InviteLink,
    parse_invite_link,
)

LINK = InviteLink(
    pool_id="aaaabbbbccccddddeeee",
    addresses=("192.168.1.20:7420", "[fe80::1]:7420", "kitchen.local:65535"),
    certificate_sha256=bytes(range(32)),
    link_id="l1nkl1nk",
    secret=bytes(range(16)),
    until_s=1_900_000_000,
)
TEXT = str(LINK)

links = st.builds(
    InviteLink,
    pool_id=st.from_regex(r"[0-9a-z]{8,32}", fullmatch=True),
    addresses=st.lists(
        st.builds(
            "{}:{}".format,
            st.ip_addresses(v=4).map(str) | st.ip_addresses(v=6).map("[{}]".format),
            st.integers(1, 65535),
        ),
        min_size=1,
        max_size=MAX_ADDRESSES,
    ).map(tuple),
    certificate_sha256=st.binary(min_size=32, max_size=32),
    link_id=st.from_regex(r"[0-9a-z]{8,32}", fullmatch=True),
    secret=st.binary(min_size=16, max_size=16),
    until_s=st.integers(1, 10**11 - 1),
)


@given(links)
def test_what_is_written_is_read(link):
    assert len(str(link)) <= MAX_LINK_LENGTH
    assert parse_invite_link(str(link)) == link


def test_blanks_around_a_link_do_not_count():
    assert parse_invite_link(f"  {TEXT}\n") == LINK


def test_the_secret_is_in_the_line_and_in_no_log():
    assert "aaaqeayeaudaocajbifqydiob4" in TEXT
    assert "secret" not in repr(LINK)


def test_the_line_can_be_given_to_a_shell_and_a_url_bar():
    assert TEXT.isascii()
    assert not set(TEXT) & set(" \"'\\`$%+#")


DAMAGED = {
    "empty": "",
    "another scheme": TEXT.replace("daisy:", "http:"),
    "another action": TEXT.replace("join?", "leave?"),
    "cut short": TEXT[:-30],
    "half a secret": TEXT.replace("secret=aaaq", "secret="),
    "two secrets": TEXT + "&secret=aaaqeayeaudaocajbifqydiob4",
    "no pool": TEXT.replace("pool=aaaabbbbccccddddeeee&", ""),
    "no address": TEXT.replace("at=", "xx="),
    "a part of another version": TEXT + "&more=1",
    "a port that is none": TEXT.replace("20:7420", "20:74200"),
    "no port": TEXT.replace("1.20:7420", "1.20"),
    "an address that is none": TEXT.replace("[fe80::1]", "[fe80::1::2]"),
    "an address with a zone": TEXT.replace("[fe80::1]", "[fe80::1%25eth0]"),
    "a path as an address": TEXT.replace("kitchen.local", "../../etc"),
    "user and password": TEXT.replace("192.168", "me@192.168"),
    "a letter base32 has not": TEXT.replace("secret=aaaq", "secret=aaa1"),
    "capitals": TEXT.replace("secret=aaaq", "secret=AAAQ"),
    "bits too many": TEXT.replace("ydiob4", "ydiob5"),
    "no time": TEXT.replace("until=19", "until=x"),
    "a time before 1970": TEXT.replace("until=", "until=-"),
    "blank inside": TEXT.replace("&at", " &at", 1),
    "percent": TEXT.replace("kitchen", "%6bitchen"),
    "nul": TEXT.replace("kitchen", "kit\0chen"),
    "no value": TEXT + "&until",
    "too long": TEXT.replace("kitchen", "k" * 1000),
    "too many addresses": TEXT.replace("&cert", "&at=1.1.1.1:1" * 8 + "&cert"),
    "too many parts": TEXT + "&at=1.1.1.1:1" * 30,
}


@pytest.mark.parametrize("text", DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_link_is_refused_and_says_what_to_do(text):
    with pytest.raises(UsageError) as refused:
        parse_invite_link(text)
    assert "whole line" in refused.value.advice


@given(st.integers(0, len(TEXT) - 1), st.characters(codec="ascii"))
def test_a_link_with_another_letter_is_refused_or_is_another_link(at, letter):
    text = TEXT[:at] + letter + TEXT[at + 1 :]
    try:
        read = parse_invite_link(text)
    except UsageError:
        return
    assert str(read) == text.strip()


@given(st.text(max_size=200))
def test_any_text_is_refused_with_our_error(text):
    with pytest.raises(UsageError):
        parse_invite_link(text)
    with pytest.raises(UsageError):
        parse_invite_link("daisy://join?" + text)
