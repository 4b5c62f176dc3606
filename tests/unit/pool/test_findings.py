"""What is found in a pool, by its code: the wrong things first, and nothing fine beside them."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from engine.messages.deployment import Trouble
from engine.messages.doctor_control import (
    AdapterTried,
    DevicesTried,
    DeviceTried,
    FirewallSeen,
    NetworkTried,
)
from engine.pool.findings import Tried, findings_of, hearing_of, name_of, one_way_links
from engine.pool.sentences import sentence
from tests.unit.cli.records import KITCHEN, LAPTOP, STUDY, node_report, node_status, pool_status

TROUBLE = Trouble("compile", "NPU can't run it.", "Update its driver.")
ALONE = {"nodes": (node_status(KITCHEN),)}


def both(**of_study):
    kitchen = node_status(KITCHEN, hears=(STUDY,))
    return (kitchen, replace(node_status(STUDY, hears=(KITCHEN,)), **of_study))


def codes(status, tried=None):
    return [found.code for found in findings_of(status, tried)]


def network(*adapters, **firewall):
    seen = FirewallSeen(**{"kind": "ufw", "is_on": True, **firewall})
    return Tried(network=NetworkTried(adapters=adapters, firewall=seen, port=7420))


def adapter(heard_ms=1.0, problem=""):
    return AdapterTried(name="eth0", address="10.0.0.2", heard_ms=heard_ms, problem=problem)


def test_a_pool_whose_pcs_hear_each_other_is_well():
    (found,) = findings_of(pool_status(nodes=both()))

    assert (found.severity, found.code, found.fields) == ("good", "all_well", {"n": "2"})


def test_without_a_node_that_is_what_is_wrong_and_devices_are_told_all_the_same():
    tried = Tried(
        devices=DevicesTried(devices=(DeviceTried(name="NPU", full_name="", trouble=TROUBLE),))
    )

    assert codes(None) == ["no_node"]
    assert codes(None, tried) == ["no_node", "device_failed"]


@pytest.mark.parametrize(
    ("hears", "pair"), [((), ("Kitchen", "Study")), ((KITCHEN,), ("Study", "Kitchen"))]
)
def test_a_one_way_link_names_who_does_not_hear(hears, pair):
    nodes = (
        node_status(KITCHEN, hears=() if hears else (STUDY,)),
        node_status(STUDY, hears=hears),
    )
    status = pool_status(nodes=nodes, notes=(sentence("one_way", deaf="b", hearer="a"),))
    (found,) = findings_of(status)

    assert found.code == "one_way"
    assert found.fields == {"hearer": pair[0], "deaf": pair[1]}
    assert [(name_of(a), name_of(b)) for a, b in one_way_links(status)] == [pair]


def test_the_firewall_of_this_pc_is_named_only_where_this_pc_does_not_hear():
    nodes = (node_status(KITCHEN, hears=()), node_status(STUDY, hears=(KITCHEN,)))
    here = findings_of(pool_status(nodes=nodes), network(adapter()))[0]
    there = findings_of(pool_status(nodes=both(hears=())), network(adapter()))[0]

    assert (here.code, here.firewall) == ("one_way", "ufw")
    assert (there.code, there.firewall) == ("one_way", None)
    off = findings_of(pool_status(nodes=nodes), network(adapter(), is_on=False))[0]
    assert off.firewall is None


def test_pcs_that_do_not_hear_each_other_are_named_and_the_matrix_shows_it():
    nodes = (node_status(KITCHEN, hears=()), node_status(STUDY, hears=()))
    status = pool_status(nodes=nodes)

    assert codes(status) == ["no_link"]
    assert hearing_of(status).cells == ((None, False), (False, None))


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"state": "silent"}, "silent"),
        ({"state": "offline"}, "offline"),
        ({"notes": ("its protocol version is 2, this PC's is 1",)}, "node_note"),
        ({"report": node_report(STUDY, on_battery=True)}, "on_battery"),
        ({"report": node_report(STUDY, link_kind="wireless")}, "wireless"),
        ({"report": node_report(STUDY, devices=())}, "no_device"),
    ],
)
def test_what_is_odd_about_a_pc_is_found(changed, code):
    assert code in codes(pool_status(nodes=both(**changed)))


def test_why_a_pc_that_is_away_is_away_is_no_fault():
    nodes = both(state="offline", notes=(sentence("note_ended"),), report=None)

    assert "node_note" not in codes(pool_status(nodes=nodes))
    assert name_of(nodes[1]).startswith("PC ")


def test_a_note_of_the_node_is_shown_unless_it_is_told_by_name_already():
    notes = (sentence("double"), "Something new.", sentence("no_link", one="a", other="b"))
    found = findings_of(pool_status(nodes=both(), notes=notes))

    assert [one.note for one in found] == [notes[0], notes[1]]


def test_alone_it_depends_on_whether_this_pc_hears_itself():
    status = pool_status(**ALONE)

    assert codes(status) == ["alone", "this_pc_well"]
    assert codes(status, network(adapter())) == ["alone_but_heard", "this_pc_well"]
    assert codes(status, network(adapter(heard_ms=None))) == ["not_heard", "alone"]


def test_without_network_and_coordinator_both_are_said():
    nodes = (replace(node_status(KITCHEN), addresses=()),)
    found = codes(pool_status(nodes=nodes, coordinator=None))

    assert {"no_adapter", "alone", "no_coordinator"} <= set(found)


def test_of_a_pool_seen_by_nobody_nothing_is_said_of_adapters():
    nodes = (replace(node_status(KITCHEN), is_asked=False, addresses=()),)

    assert "no_adapter" not in codes(pool_status(nodes=nodes))


def test_an_adapter_that_hears_nothing_names_the_firewall_and_one_that_failed_its_reason():
    tried = network(adapter(heard_ms=None), adapter(problem="No such device"), is_public=True)
    found = findings_of(pool_status(nodes=both()), tried)

    assert [one.code for one in found] == ["not_heard", "adapter_failed", "public_network"]
    assert found[0].firewall == "ufw"
    assert found[1].note == "No such device"
    unseen = findings_of(pool_status(nodes=both()), network(adapter(heard_ms=None), is_on=False))
    assert unseen[0].firewall == "unknown"


def test_what_failed_and_what_could_not_be_tried_is_told_with_its_trouble():
    well = DeviceTried(name="CPU", full_name="A CPU", load_s=0.5, token_ms=1.0)
    bad = DeviceTried(name="NPU", full_name="An NPU", trouble=TROUBLE)
    tried = Tried(devices=DevicesTried(devices=(well, bad)), troubles=(TROUBLE,))
    found = findings_of(pool_status(nodes=both()), tried)

    assert [one.code for one in found] == ["not_tried", "device_failed"]
    assert found[1].fields == {"device": "NPU"}
    assert found[1].trouble == TROUBLE


def test_the_others_in_the_matrix_are_those_that_are_there():
    status = pool_status(nodes=(*both(), node_status(LAPTOP, state="offline")))

    assert hearing_of(status).names == ("Kitchen", "Study")
