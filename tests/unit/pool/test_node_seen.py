"""What a node reports, as the placement takes it."""

import pytest

from engine.domain import NodeId
from engine.messages.pool import NodeReport
from engine.pool.node_seen import RESERVE_BYTES, facts_of, reserve_of

GIB = 1 << 30


def report(**changes):
    fields = {
        "node_id": NodeId("aaaaaa1"),
        "name": "Desk",
        "memory_total_bytes": 16 * GIB,
        "memory_free_bytes": 10 * GIB,
        "memory_cap_bytes": None,
        "memory_lent_bytes": 2 * GIB,
        "devices": ("CPU",),
        "uptime_s": 1.0,
        "layers": None,
        "model": None,
    }
    return NodeReport(**(fields | changes))


@pytest.mark.parametrize(
    ("total", "reserve"),
    [(4 * GIB, 4 * GIB // 20), (10 * GIB, RESERVE_BYTES), (64 * GIB, RESERVE_BYTES)],
)
def test_a_twentieth_or_half_a_gib_stays_with_the_owner_whichever_is_less(total, reserve):
    assert reserve_of(total) == reserve


def test_what_is_lent_comes_back_to_a_new_placement_and_the_reserve_does_not():
    facts = facts_of(report(layer_ms=1.5, on_battery=True))
    assert facts.usable_bytes == 12 * GIB - RESERVE_BYTES
    assert (facts.layer_ms, facts.on_battery, facts.name) == (1.5, True, "Desk")


def test_an_owners_limit_counts_where_it_is_less():
    assert facts_of(report(memory_cap_bytes=3 * GIB)).usable_bytes == 3 * GIB


def test_links_are_taken_as_far_as_they_were_measured():
    assert facts_of(report()).link_ms == {}
    assert facts_of(report(), {"bbbbbb1": 0.5}).link_ms == {"bbbbbb1": 0.5}


def test_a_name_is_shown_without_what_a_terminal_would_obey():
    assert "\x1b" not in facts_of(report(name="\x1b[2JDesk")).name


def test_a_pc_that_is_not_lent_is_left_out_with_what_would_help():
    (why,) = facts_of(report(is_lending=False)).exclusions
    assert "does not lend" in why.reason
    assert "Lend it" in why.remedy
    assert facts_of(report()).exclusions == ()
