"""A packet leaves when its time has come: delays overlap, rates do not, and order is kept."""

from __future__ import annotations

import struct
from random import Random

import pytest
from deadline_queue import NS_PER_MS, DeadlineQueue, LinkSettings
from delay_relay import ports_of


def _queue(**settings: float) -> DeadlineQueue:
    random = Random(3)  # noqa: S311 - jitter is no secret
    return DeadlineQueue(LinkSettings(**settings), random)  # type: ignore[arg-type]


def _departures(queue: DeadlineQueue) -> list[tuple[bytes, float]]:
    """When each packet leaves, in milliseconds."""
    left = []
    while (due := queue.next_due_ns) is not None:
        assert queue.pop_due(due - 1) == []
        left += [(packet, due / NS_PER_MS) for packet in queue.pop_due(due)]
    return left


def test_a_delay_holds_up_nobody_behind() -> None:
    queue = _queue(one_way_ms=25.0)
    queue.push(b"a", 0)
    queue.push(b"b", NS_PER_MS)
    assert _departures(queue) == [(b"a", 25.0), (b"b", 26.0)]
    assert len(queue) == 0


def test_without_a_delay_a_packet_leaves_at_once() -> None:
    queue = _queue()
    queue.push(b"a", 5 * NS_PER_MS)
    assert queue.pop_due(5 * NS_PER_MS) == [b"a"]


def test_a_rate_spaces_packets_out_before_the_delay() -> None:
    queue = _queue(one_way_ms=10.0, mbit_per_s=8.0)  # a kilobyte a millisecond
    for number in range(3):
        queue.push(bytes([number]) * 1000, 0)
    assert [at for _, at in _departures(queue)] == [11.0, 12.0, 13.0]


def test_a_wire_that_was_idle_owes_nothing() -> None:
    queue = _queue(mbit_per_s=8.0)
    queue.push(bytes(1000), 0)
    queue.push(bytes(1000), 50 * NS_PER_MS)
    assert [at for _, at in _departures(queue)] == [1.0, 51.0]


def test_jitter_is_bounded_and_keeps_the_order() -> None:
    queue = _queue(one_way_ms=10.0, jitter_ms=5.0)
    for number in range(50):
        queue.push(bytes([number]), number * NS_PER_MS // 10)
    left = _departures(queue)
    assert [packet[0] for packet, _ in left] == list(range(50))
    assert all(10.0 + n / 10 <= at <= 15.0 + n / 10 for n, (_, at) in enumerate(left))
    assert len({at - n / 10 for n, (_, at) in enumerate(left)}) > 10


def test_what_no_router_would_hold_is_dropped_and_counted() -> None:
    queue = _queue(mbit_per_s=8.0, max_queued_bytes=1500)
    queue.push(bytes(1000), 0)
    queue.push(bytes(1000), 0)
    assert (len(queue), queue.num_dropped) == (1, 1)
    queue.pop_due(NS_PER_MS)
    queue.push(bytes(1000), NS_PER_MS)
    assert (len(queue), queue.num_dropped) == (1, 1)


def _packet(protocol: int, header_words: int = 5) -> bytes:
    header = bytearray(4 * header_words)
    header[0], header[9] = 0x40 | header_words, protocol
    return bytes(header) + struct.pack("!HH", 7000, 40000) + bytes(16)


@pytest.mark.parametrize("header_words", [5, 8], ids=["plain", "with options"])
def test_the_ports_of_a_tcp_packet(header_words: int) -> None:
    assert ports_of(_packet(6, header_words)) == (7000, 40000)


@pytest.mark.parametrize(
    "packet", [_packet(17), b"\x60" + bytes(60), b""], ids=["udp", "ipv6", "empty"]
)
def test_no_other_packet_has_any(packet: bytes) -> None:
    assert ports_of(packet) is None
