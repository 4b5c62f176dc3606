"""What a node tells of its PC."""

from __future__ import annotations

from types import SimpleNamespace

import psutil
import pytest

from engine.domain import LayerRange, NodeId
from engine.pool.adapters import Adapter, RankedAdapters
from engine.pool.node_facts import NodeFacts


def facts(**said: object) -> NodeFacts:
    return NodeFacts(NodeId("a"), "Kitchen PC", None, **said)


def test_what_others_know_better_is_told_as_it_was_set() -> None:
    own = facts(port=7420)
    own.kept_models, own.epoch, own.layer_ms = ("ab" * 32,), 7, 1.5
    own.layers, own.model, own.memory_lent_bytes = LayerRange(0, 4), "tiny", 99
    own.active_requests = 2
    told = own.report()
    assert (told.port, told.kept_models, told.epoch) == (7420, ("ab" * 32,), 7)
    assert (told.layer_ms, told.layers, told.model) == (1.5, LayerRange(0, 4), "tiny")
    assert (told.memory_lent_bytes, told.active_requests) == (99, 2)
    assert 0 < told.memory_free_bytes <= told.memory_total_bytes


@pytest.mark.parametrize(
    ("links", "told", "is_wired"),
    [
        (("wired", "wireless"), "wired", True),
        (("wireless",), "wireless", False),
        (("unknown",), None, False),
        (("loopback",), None, False),
        ((), None, False),
    ],
)
def test_the_best_adapter_says_how_the_pc_is_connected(links, told, is_wired) -> None:
    own = facts()
    adapters = tuple(Adapter(f"net{i}", ("10.0.0.2",), link) for i, link in enumerate(links))
    own.use_adapters(RankedAdapters(used=adapters))
    assert own.report().link_kind == told
    assert own.preference().wired is is_wired


@pytest.mark.parametrize(
    ("battery", "is_on_battery"),
    [(None, False), (SimpleNamespace(power_plugged=True), False),
     (SimpleNamespace(power_plugged=False), True)],
)  # fmt: skip
def test_a_pc_on_its_battery_says_so(monkeypatch, battery, is_on_battery) -> None:
    monkeypatch.setattr(psutil, "sensors_battery", lambda: battery, raising=False)
    assert facts().report().on_battery is is_on_battery
    assert facts().preference().on_mains is not is_on_battery


def test_where_the_system_has_no_word_for_batteries_the_pc_is_on_mains(monkeypatch) -> None:
    monkeypatch.delattr(psutil, "sensors_battery", raising=False)
    assert not facts().report().on_battery
