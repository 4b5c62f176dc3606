"""Who takes over a lost PC's layers, so that nothing has to be cut and nobody else changes."""

import pytest

from engine.domain import LayerRange
from engine.pool.chain_choice import Wishes
from engine.pool.placement import with_same_cuts
from engine.pool.plan import Exclusion
from tests.unit.pool.models import GIB, SHORT, model, node

MODEL = model()
CUTS = (("a", LayerRange(0, 1)), ("b", LayerRange(1, 3)), ("c", LayerRange(3, 4)))
GONE = Exclusion("It can't be reached.", "Check that it is on.")


def taken(nodes, wishes=None, cuts=CUTS):
    plan = with_same_cuts(cuts, MODEL, SHORT, nodes, wishes)
    return None if plan is None else [(s.node_id, s.layers) for s in plan.stages]


def roomy(name, gib=8, **changes):
    return node(name, gib * GIB, **changes)


def test_the_lost_pcs_layers_go_to_one_that_stands_by_and_all_others_stay():
    nodes = [roomy("a"), roomy("c"), roomy("d")]
    assert taken(nodes) == [("a", CUTS[0][1]), ("d", CUTS[1][1]), ("c", CUTS[2][1])]


def test_who_can_not_be_reached_counts_as_lost():
    nodes = [roomy("a", exclusions=(GONE,)), roomy("b"), roomy("c"), roomy("d")]
    assert taken(nodes) == [("d", CUTS[0][1]), ("b", CUTS[1][1]), ("c", CUTS[2][1])]


def test_two_lost_pcs_need_two_and_the_larger_part_goes_to_the_roomier():
    nodes = [roomy("a"), roomy("d", 4), roomy("e", 8)]
    assert taken(nodes) == [("a", CUTS[0][1]), ("e", CUTS[1][1]), ("d", CUTS[2][1])]


def test_one_on_mains_comes_before_a_roomier_one_on_its_battery():
    nodes = [roomy("a"), roomy("c"), roomy("d", 9, on_battery=True), roomy("e")]
    assert taken(nodes)[1][0] == "e"


@pytest.mark.parametrize(
    "nodes",
    [
        [roomy("a"), roomy("c")],
        [roomy("a"), roomy("c"), node("d", 1)],
        [roomy("a"), roomy("c"), roomy("d", exclusions=(GONE,))],
        [roomy("a"), roomy("c"), roomy("d", devices=())],
    ],
    ids=["nobody else", "too small", "not there either", "no device"],
)
def test_where_nobody_can_take_over_the_layers_are_divided_anew(nodes):
    assert taken(nodes) is None


def test_one_whose_memory_went_is_lost_too():
    nodes = [node("a", 1), roomy("b"), roomy("c"), roomy("d")]
    assert taken(nodes)[0] == ("d", CUTS[0][1])


def test_privacy_binds_layers_to_one_pc():
    nodes = [roomy("a"), roomy("c"), roomy("d")]
    assert taken(nodes, Wishes(asker="a", is_private=True)) is None


def test_the_order_in_which_pcs_are_given_does_not_matter():
    nodes = [roomy("a"), roomy("c"), roomy("d"), roomy("e")]
    assert taken(nodes) == taken(nodes[::-1])
