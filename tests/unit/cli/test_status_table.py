"""The pool as a table: aligned, complete, and harmless to the terminal it is shown on."""

from msgspec.structs import replace

from engine.cli.shown_text import width
from engine.cli.status_table import status_lines
from engine.domain import LayerRange, NodeId
from tests.unit.cli.records import (
    GIB,
    KITCHEN,
    LAPTOP,
    NO_ROOM,
    STUDY,
    node_report,
    node_status,
    nothing_to_run,
    pool_status,
    progress,
    record,
    wish,
)


def test_a_pool_is_a_table_of_its_pcs():
    busy = node_report(
        STUDY,
        memory_cap_bytes=6 * GIB,
        memory_lent_bytes=GIB // 2,
        layers=LayerRange(0, 15),
        layer_ms=1.234,
        devices=("CPU", "GPU"),
        link_kind="wired",
    )
    silent = node_status(LAPTOP, state="silent", report=None, round_trip_ms=None)
    lines = status_lines(pool_status(node_status(KITCHEN), node_status(STUDY, own=busy), silent))
    assert lines == [
        "Coordinator: Study (bbbbbb), for 3 min 20 s",
        "Model: none. Load one: daisy load MODEL",
        "",
        "PC                 id      state      free        of    keeps    lends     lent  layers"
        "  ms/layer  device    link     away",
        "Kitchen (this PC)  aaaaaa  online  9.0 GiB  16.0 GiB  2.0 GiB      all        -       -"
        "         -  CPU       -           -",
        "Study              bbbbbb  online  9.0 GiB  16.0 GiB  2.0 GiB  6.0 GiB  512 MiB   0..14"
        "      1.23  CPU, GPU  wired  0.8 ms",
        "?                  cccccc  silent        ?         ?        ?        ?        ?       ?"
        "         ?  ?         ?           -",
        "",
        "keeps: stays free for that PC's own programs.  lends: at most (daisy node --memory), "
        "or paused (daisy lend).  lent: taken now.",
        "away: there and back.  silent: not heard just now.  offline: not heard for long.  "
        "gone: ended.",
    ]


def test_a_pc_that_is_not_lent_is_shown_as_paused():
    paused = node_report(STUDY, memory_cap_bytes=6 * GIB, is_lending=False)
    lines = status_lines(pool_status(node_status(KITCHEN), node_status(STUDY, own=paused)))
    (row,) = [line for line in lines if line.startswith("Study")]
    assert " 2.0 GiB  paused " in row


def model_lines(deployment, *steps):
    lines = status_lines(pool_status(deployment=deployment, progress=steps))
    return lines[1 : lines.index("")]


def test_a_model_that_runs_is_one_line():
    assert model_lines(record("ready")) == [
        "Model: Small is ready (512 tokens, 1 at once, paged, fast)"
    ]


def test_links_that_change_answers_are_labelled():
    narrow = record("ready", wish=replace(wish(), link_precision="int8"))
    assert model_lines(narrow) == [
        "Model: Small is ready (512 tokens, 1 at once, paged, fast, "
        "int8 between PCs: answers differ slightly)"
    ]


def test_a_model_for_which_nothing_is_guessed_says_so():
    loaded = record("ready")
    quiet = replace(loaded, wish=replace(loaded.wish, speculate=False))
    assert model_lines(quiet) == [
        "Model: Small is ready (512 tokens, 1 at once, paged, fast, nothing guessed ahead)"
    ]


def test_a_model_that_loads_shows_how_far_each_pc_is():
    step = progress(STUDY, "push", 65_000_000, 130_000_000, rate_per_s=13e6)
    assert model_lines(record("loading"), step) == [
        "Model: Small is loading (512 tokens, 1 at once, paged, fast)",
        "  Study  push     [##########..........]  50%  65.0 MB of 130.0 MB  13.0 MB/s  5 s left",
    ]


def test_a_model_that_can_not_run_says_why_and_what_would_help():
    assert model_lines(record("failed", trouble=NO_ROOM, epoch=0)) == [
        "Model: Small could not be loaded (512 tokens, 1 at once, paged, fast)",
        "Trouble: The model needs 9 bytes too many. Add a PC.",
    ]
    assert model_lines(nothing_to_run()) == ["Model: none. Load one: daisy load MODEL"]


def test_what_is_wrong_is_said_below():
    deaf = node_status(STUDY, hears_us=False, notes=("its protocol is 2, this PC's is 1",))
    weak = node_status(LAPTOP, own=node_report(LAPTOP, on_battery=True))
    lines = status_lines(pool_status(deaf, weak, notes=("There is no network.",)))
    assert lines[-5:] == [
        "",
        "Study (bbbbbb): its protocol is 2, this PC's is 1",
        "Study (bbbbbb): it does not hear this PC",
        "Laptop (cccccc): it runs on its battery",
        "Note: There is no network.",
    ]


def test_a_pool_without_a_coordinator_says_so():
    assert status_lines(pool_status(coordinator=None))[0] == "Coordinator: none yet"
    unknown = pool_status(coordinator=NodeId("zz" * 10), coordinator_since_s=None)
    assert status_lines(unknown)[0] == "Coordinator: unknown (zzzzzz)"


def test_wide_names_keep_the_columns_aligned():
    wide = node_status(STUDY, own=node_report(STUDY, name="厨房のパソコン"))
    lines = status_lines(pool_status(node_status(KITCHEN), wide, node_status(LAPTOP)))[4:7]
    assert {width(line[: line.index("online")]) for line in lines} == {27}


def test_nothing_a_pc_says_of_itself_moves_the_cursor():
    evil = node_report(STUDY, name="\x1b[2J\x9bX", devices=("\x1bC",), link_kind="\x07")
    status = pool_status(
        replace(node_status(STUDY, own=evil), state="\x1b[1m", notes=("\x1b]0;t\x07",)),
        notes=("\x1bN",),
    )
    shown = "".join(status_lines(status))
    assert all(c.isprintable() for c in shown)
