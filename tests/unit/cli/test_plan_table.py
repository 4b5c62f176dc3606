"""A plan explains itself: who runs what, who does not and why."""

from msgspec.structs import replace

from engine.cli.plan_table import plan_lines, stage_lines
from tests.unit.cli.records import PLAN, record, wish


def test_every_pc_has_a_line_with_its_share_or_what_would_help():
    assert plan_lines(PLAN) == [
        "PC       role      layers  may give    needs  why",
        "Kitchen  stage       0..1   6.0 GiB  4.0 GiB  It has room for these layers.",
        "Study    stage       2..3  12.0 GiB  4.0 GiB  It has room for these layers.",
        "Laptop   left out       -   512 MiB        -  It may give 0.5 GiB. "
        "Raise its memory limit by 1.0 GiB.",
    ]


def test_names_from_other_pcs_do_nothing_to_the_terminal():
    evil = (replace(PLAN[0], name="\x1b[2J厨房", reason="\x1b]0;x\x07"), *PLAN[1:])
    lines = plan_lines(evil)
    assert "\x1b" not in "".join(lines)
    assert "\x07" not in "".join(lines)
    assert len(lines) == 4


def test_a_pc_without_a_name_has_its_id():
    assert plan_lines((replace(PLAN[0], name=""),))[1].startswith("aaaaaa ")


def test_where_nobody_has_layers_nobody_stands_by():
    """All would be needed: 'standby' would contradict that there is no place."""
    waiting = (replace(PLAN[0], role="standby", layers=None, needed_bytes=0), PLAN[2])
    assert [line.split("  ")[1].strip() for line in plan_lines(waiting)[1:]] == [
        "ready",
        "left out",
    ]
    behind = (PLAN[0], replace(PLAN[1], role="standby", layers=None, needed_bytes=0))
    assert "standby" in plan_lines(behind)[2]


def test_no_plan_is_no_table():
    assert plan_lines(()) == []


def test_who_runs_what_in_the_order_of_the_chain():
    assert stage_lines(record("ready")) == [
        "  Kitchen  layers 0..1  takes the questions",
        "  Study    layers 2..3",
    ]


def test_links_that_change_answers_are_labelled():
    narrow = record("ready", wish=replace(wish(), link_precision="int8"))
    assert stage_lines(narrow)[-1] == "  int8 between PCs: answers differ slightly"
