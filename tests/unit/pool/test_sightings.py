"""What is seen, what is news, what is asked for, and what a person types."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import UsageError
from engine.pool.announcement import Announcement, Unreadable, encode_announcement, instance_name
from engine.pool.clocks import Clocks, has_slept
from engine.pool.peer_address import PeerAddress, parse_peer_address
from engine.pool.service_names import ASK_AFTER_S, MAX_ASKING, MAX_NAMES, ServiceNames
from engine.pool.sightings import MAX_ADDRESSES, Appeared, Vanished, news, read_sighting

SAID = Announcement("run1", "abcdefghijklm", 7420, 1, 1)
TEXT = encode_announcement(SAID)
NAME = instance_name(SAID.run_id)


def read(*addresses: str, name: str = NAME, text: bytes = TEXT, loopback: bool = False):
    return read_sighting(name, text, addresses, is_loopback_used=loopback)


def test_all_addresses_of_a_node_are_one_sighting_in_the_order_of_their_numbers():
    assert read("10.0.0.30", "10.0.0.2", "10.0.0.30") == Appeared(SAID, ("10.0.0.2", "10.0.0.30"))


def test_an_address_that_leads_to_nobody_is_left_out():
    nowhere = ("0.0.0.0", "224.0.0.251", "255.255.255.255", "240.0.0.1", "127.0.0.1")  # noqa: S104
    assert read(*nowhere, "10.0.0.2") == Appeared(SAID, ("10.0.0.2",))
    assert isinstance(read(*nowhere), Unreadable)
    assert read("127.0.0.1", loopback=True) == Appeared(SAID, ("127.0.0.1",))


def test_no_more_addresses_are_kept_than_a_pc_has():
    many = read(*(f"10.0.0.{i}" for i in range(1, 200)))
    assert len(many.addresses) == MAX_ADDRESSES


def test_a_name_that_is_not_made_of_the_id_is_ignored():
    assert read("10.0.0.2", name=instance_name("other")).reason == (
        "Its name is not made of its id."
    )
    assert isinstance(read("10.0.0.2", text=b"nonsense"), Unreadable)


sights = st.dictionaries(
    st.sampled_from("abcd"),
    st.sampled_from(["10.0.0.1", "10.0.0.2"]).map(lambda a: Appeared(SAID, (a,))),
).map(
    lambda seen: {
        run: Appeared(Announcement(run, "abcdefghijklm", 1, 1, 1), sight.addresses)
        for run, sight in seen.items()
    }
)


@given(sights, sights)
def test_the_news_turn_what_was_told_into_what_is_seen_and_nothing_else(told, seen):
    now = dict(told)
    for event in news(told, seen):
        if isinstance(event, Vanished):
            del now[event.run_id]
        else:
            assert now.get(event.run_id) != event
            now[event.run_id] = event
    assert now == seen


def test_a_name_is_asked_for_a_few_times_at_growing_distances():
    names = ServiceNames()
    names.add("a", lambda _: False)
    asked_at_s = []
    for now_s in range(200):
        if names.start_asking("a", float(now_s)):
            asked_at_s.append(now_s)
            assert not names.start_asking("a", float(now_s))
            names.end_asking("a")
    distances = [b - a for a, b in pairwise(asked_at_s)]
    assert distances == list(ASK_AFTER_S[1:])
    names.ask_anew()
    assert names.start_asking("a", 200.0)


def test_few_names_are_asked_for_at_once():
    names = ServiceNames()
    for i in range(20):
        names.add(str(i), lambda _: False)
    assert sum(names.start_asking(name, 0.0) for name in names) == MAX_ASKING


def test_a_flood_of_names_pushes_out_no_node_that_was_told():
    names = ServiceNames()
    names.add("told", lambda _: False)
    for i in range(1000):
        names.add(f"flood{i}", lambda name: name == "told")
        names.ignore(next(reversed(tuple(names))), "It is a flood.")
    assert "told" in set(names)
    assert len(names) == MAX_NAMES
    assert len(names.ignored) < MAX_NAMES
    names.remove("told")
    names.end_asking("told")
    full = ServiceNames()
    for i in range(100):
        full.add(str(i), lambda _: True)
    assert set(full) == {str(i) for i in range(MAX_NAMES)}


def test_the_reason_is_new_once_and_gone_when_it_no_longer_holds():
    names = ServiceNames()
    names.add("näme", lambda _: False)
    assert names.ignore("näme", "Why.")
    assert not names.ignore("näme", "Why.")
    assert names.ignored == {"'n\\xe4me'": "Why."}
    names.accept("näme")
    assert names.ignored == {}


@pytest.mark.parametrize(
    ("monotonic_s", "wall_s", "slept"),
    [
        (1.0, 1.0, False),
        (8.0, 8.0, False),
        (8.1, 8.1, True),
        (1.0, 3600.0, True),  # Linux: the monotonic clock stands still
        (3600.0, 1.0, True),
        (1.0, -3600.0, False),  # set back by hand
    ],
)
def test_sleep_is_a_step_of_either_clock(monotonic_s, wall_s, slept):
    before = Clocks(100.0, 1.8e9)
    now = Clocks(100.0 + monotonic_s, 1.8e9 + wall_s)
    assert has_slept(before, now, 8.0) is slept


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("192.168.1.20:7420", "192.168.1.20", 7420),
        (" kitchen-pc.local:1 ", "kitchen-pc.local", 1),
        ("[fe80::1%eth0]:65535", "fe80::1%eth0", 65535),
        ("[::1]:80", "::1", 80),
        ("a:80", "a", 80),
    ],
)
def test_an_address_is_read_as_a_person_types_it(text, host, port):
    address = parse_peer_address(text)
    assert address == PeerAddress(host, port)
    assert parse_peer_address(str(address)) == address


@pytest.mark.parametrize(
    "text",
    [
        "", "host", "host:", ":80", "host:0", "host:65536", "host:8 0", "host:７", "::1:80",
        "[::1]", "ws://host:80", "user@host:80", "ho st:80", "host/path:80", "-x:80",
        "a" * 254 + ":1",
    ],
)  # fmt: skip
def test_what_is_no_address_is_refused_with_how_to_write_one(text):
    with pytest.raises(UsageError, match="no address") as caught:
        parse_peer_address(text)
    assert "HOST:PORT" in caught.value.advice


def test_a_node_is_reached_at_the_port_it_announces():
    seen = read("10.0.0.2")
    assert (seen.run_id, seen.port) == (SAID.run_id, SAID.port)


def test_a_name_that_is_taken_up_again_keeps_what_is_known_of_it():
    names = ServiceNames()
    for _ in range(2):
        names.add("a", lambda _: False)
        names.ignore("a", "It is nonsense.")
    names.add("a", lambda _: False)
    assert names.ignored == {ascii("a"): "It is nonsense."}
