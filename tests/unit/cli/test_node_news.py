"""The node's window says what happens, each thing once, in plain sentences."""

import pytest

from engine.cli.node_news import NodeNews
from engine.domain import LayerRange
from engine.pool.sentences import sentence
from tests.unit.cli.records import (
    KITCHEN,
    LAPTOP,
    NO_ROOM,
    STUDY,
    node_report,
    node_status,
    nothing_to_run,
    pool_status,
    record,
)


def told(*statuses):
    """Return what is said of each look."""
    news = NodeNews()
    return [[each.sentence for each in news.see(status)] for status in statuses]


def alone(**fields):
    return pool_status(node_status(KITCHEN), **{"coordinator": None, **fields})


def with_study(**fields):
    return pool_status(node_status(KITCHEN), node_status(STUDY, **fields), coordinator=None)


def test_a_start_alone_says_nothing_and_nothing_new_says_nothing():
    assert told(alone(), alone(), with_study(), with_study()) == [
        [],
        [],
        ["Found Study (bbbbbb)."],
        [],
    ]


def test_a_pc_is_found_once_its_name_is_known():
    assert told(with_study(report=None), with_study()) == [[], ["Found Study (bbbbbb)."]]


@pytest.mark.parametrize(
    ("state", "sentence"),
    [
        ("gone", ["Study (bbbbbb) was ended."]),
        ("offline", ["Study (bbbbbb) can't be reached any more."]),
        ("silent", []),
    ],
)
def test_a_pc_that_leaves_is_said_to_have_ended_only_if_it_said_so(state, sentence):
    assert told(with_study(), with_study(state=state))[1] == sentence


def test_a_pc_that_was_removed_says_so_once():
    removed = alone(notes=(sentence("unknown_there"),))
    assert told(alone(), removed, removed, alone(), removed)[1:] == [
        [sentence("unknown_there")],
        [],
        [],
        [sentence("unknown_there")],
    ]


def test_a_pc_that_comes_back_is_found_again():
    assert told(with_study(), alone(), with_study())[1:] == [
        ["Study (bbbbbb) can't be reached any more."],
        ["Found Study (bbbbbb)."],
    ]


def test_who_coordinates_is_said_whenever_it_changes():
    assert told(alone(coordinator=KITCHEN), pool_status(), pool_status(coordinator=None)) == [
        ["This PC is the coordinator now."],
        [
            "Found Study (bbbbbb).",
            "Found Laptop (cccccc).",
            "Study (bbbbbb) is the coordinator now.",
        ],
        ["There is no coordinator at present."],
    ]


def test_a_model_is_told_as_it_loads_runs_fails_and_ends():
    phases = [record(p) for p in ("planning", "splitting", "loading", "warming", "ready")]
    phases += [record("failed", trouble=NO_ROOM), nothing_to_run()]
    assert told(*(alone(deployment=each) for each in phases)) == [
        ["The pool loads Small."],
        [],
        [],
        [],
        ["Small is ready."],
        [f"Small could not be loaded: {NO_ROOM.what}"],
        ["The pool runs no model now."],
    ]


def test_this_pcs_own_layers_are_told():
    def holding(start, stop):
        own = node_report(KITCHEN, layers=LayerRange(start, stop), model="Small")
        return pool_status(node_status(KITCHEN, own=own), coordinator=None)

    assert told(holding(0, 17), holding(0, 17), holding(0, 30), alone()) == [
        ["This PC runs layers 0..16 of Small now."],
        [],
        ["This PC runs layers 0..29 of Small now."],
        ["This PC runs no layers now."],
    ]


def test_programs_are_told_ids_and_states():
    news = NodeNews().see(pool_status(deployment=record("ready")))
    assert [(each.event, dict(each.fields)) for each in news] == [
        ("found", {"node_id": STUDY}),
        ("found", {"node_id": LAPTOP}),
        ("coordinator", {"node_id": STUDY}),
        ("model", {"model": "Small", "state": "ready"}),
    ]


def test_no_name_moves_the_cursor():
    evil = node_report(STUDY, name="\x1b[2J\x9bX")
    own = node_report(KITCHEN, layers=LayerRange(0, 1), model="\x1b[2J")
    status = pool_status(node_status(KITCHEN, own=own), node_status(STUDY, own=evil))
    assert all(c.isprintable() for each in NodeNews().see(status) for c in each.sentence)
