from __future__ import annotations

import msgspec
import pytest

from engine.messages.pool import Heartbeat, Preference
from engine.pool.heartbeat import memory_step, rank, uptime_step
from tests.unit.pool.beats import beat, leader

GIB = 1 << 30


def test_the_longest_lived_is_preferred_then_mains_wire_memory_and_the_lowest_id() -> None:
    best_first = [
        (Preference(2), "z"),
        (Preference(1, on_mains=True), "z"),
        (Preference(1, wired=True, memory_step=9), "z"),
        (Preference(1, memory_step=3), "z"),
        (Preference(1, memory_step=2), "a"),
        (Preference(1, memory_step=2), "b"),
    ]
    worst_first = reversed(best_first)
    assert sorted(worst_first, key=lambda one: rank(*one)) == best_first


@pytest.mark.parametrize(
    ("uptime_s", "step"), [(0, 0), (59.9, 0), (60, 1), (3599, 2), (3600, 3), (86400, 4), (1e9, 4)]
)
def test_uptime_is_coarse(uptime_s: float, step: int) -> None:
    assert uptime_step(uptime_s) == step


@pytest.mark.parametrize(
    ("memory", "step"), [(0, 0), (GIB - 1, 0), (GIB, 1), (15 * GIB, 4), (16 * GIB, 5)]
)
def test_memory_is_coarse(memory: int, step: int) -> None:
    assert memory_step(memory) == step


def test_a_heartbeat_says_whether_its_sender_coordinates() -> None:
    assert leader("a", 1).coordinates
    assert not beat("a", coordinator="b").coordinates
    assert not beat("a").coordinates


def test_a_heartbeat_travels_as_msgpack() -> None:
    sent = leader("a", 3, hears=("b", "c"))
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(sent), type=Heartbeat) == sent
