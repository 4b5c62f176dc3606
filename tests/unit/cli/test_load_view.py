"""Five phases, and a line for each PC with its amount, rate and time left."""

import pytest

from engine.cli.load_view import LoadView
from tests.unit.cli.records import KITCHEN, LAPTOP, NAMES, STUDY, progress, record, report

MB = 1_000_000


def heading(view, now_s=0.0):
    return view.lines(now_s)[0]


def seen(*reports, names=NAMES, is_recorded=True):
    view = LoadView(names, 0.0)
    for number, each in enumerate(reports):
        view.see(each, float(number), is_recorded=is_recorded)
    return view


def test_at_first_the_model_is_read_or_converted():
    view = seen(
        report(None, progress(KITCHEN, "convert", 0, 0, epoch=0)),
        report(None, progress(KITCHEN, "convert", 50 * MB, 100 * MB, epoch=0, detail="Qwen\x1b3")),
        is_recorded=False,
    )
    assert view.lines(1.0) == [
        "[>] convert  [ ] split  [ ] push  [ ] compile  [ ] warm-up   1.0 s",
        "  Kitchen  convert  [##########..........]  50%  50.0 MB of 100.0 MB  50.0 MB/s  1 s left"
        "  Qwen 3",
    ]


@pytest.mark.parametrize(
    ("phase", "marks"),
    [
        ("planning", "x    "),
        ("splitting", "x>   "),
        ("loading", "xx>  "),
        ("warming", "xxxx>"),
        ("ready", "xxxxx"),
    ],
)
def test_the_phase_is_the_records(phase, marks):
    line = heading(seen(report(record(phase))))
    assert [line[line.index(f"] {p}") - 1] for p in ("convert", "split", "push")] == list(marks[:3])
    assert [line[line.index(f"] {p}") - 1] for p in ("compile", "warm-up")] == list(marks[3:])


def test_compiling_begins_when_nobody_pushes_any_more():
    def at(*steps):
        return heading(seen(report(record("loading"), *steps)))

    assert "[>] push" in at(progress(KITCHEN, "compile", 0), progress(STUDY, "push", 5))
    assert "[>] push" in at(progress(KITCHEN, "compile", 0))
    both = at(progress(KITCHEN, "compile", 0), progress(STUDY, "compile", 1))
    assert "[x] push  [>] compile" in both


def test_a_pc_is_shown_at_its_latest_step():
    view = seen(
        report(record("loading"), progress(STUDY, "push", 60 * MB, 130 * MB, rate_per_s=22.1e6)),
        report(
            record("loading"),
            progress(STUDY, "compile", 1, 3, "layers"),
            progress(KITCHEN, "push", 10 * MB, 20 * MB, rate_per_s=5e6),
        ),
    )
    assert view.node_lines(1.0) == [
        "Study    compile  [######..............]  33%  1 of 3 layers",
        "Kitchen  push     [##########..........]  50%  10.0 MB of 20.0 MB  5.0 MB/s  2 s left",
    ]


def test_a_step_that_is_done_has_no_rate_and_nothing_left():
    view = seen(report(record("loading"), progress(STUDY, "push", 100, 100, rate_per_s=50.0)))
    assert view.node_lines(0.0) == ["Study  push     [####################] 100%  0.0 MB of 0.0 MB"]


def test_more_than_all_is_shown_as_all():
    view = seen(report(record("loading"), progress(STUDY, "compile", 9, 3, "layers")))
    assert "100%" in view.node_lines(0.0)[0]


def test_another_placement_forgets_the_steps_of_the_one_before():
    view = seen(
        report(record("loading"), progress(LAPTOP, "push", 5)),
        report(record("loading", epoch=8), progress(STUDY, "push", 7, epoch=8)),
        report(record("loading", epoch=8), progress(LAPTOP, "push", 9, epoch=7)),
    )
    assert [line.split()[0] for line in view.node_lines(2.0)] == ["Study"]


def test_taking_the_files_in_is_shown_and_who_keeps_another_copy_later_is_not():
    taking = report(None, progress(KITCHEN, "keep", 5, 10, epoch=0))
    view = seen(taking, is_recorded=False)
    assert view.node_lines(0.0)[0].startswith("Kitchen  store    [##########..........]  50%")
    assert heading(view).startswith("[>] convert")
    assert seen(report(record("ready"), progress(LAPTOP, "keep", 5))).node_lines(0.0) == []


def test_a_step_of_which_nobody_knows_how_far_it_is_shows_its_time():
    view = seen(report(record("loading"), progress(STUDY, "compile", 0, 1, "steps")))
    assert view.node_lines(4.0) == ["Study  compile  for 4.0 s"]
    view.see(
        report(record("loading"), progress(STUDY, "compile", 1, 1, "steps")), 5.0, is_recorded=True
    )
    assert view.node_lines(6.0) == ["Study  compile  done"]


def test_nothing_is_left_to_show_once_it_is_ready():
    """The last word of a PC may have got lost on the way."""
    view = seen(
        report(record("loading"), progress(STUDY, "compile", 0, 1, "steps")),
        report(record("ready"), progress(STUDY, "compile", 0, 1, "steps")),
    )
    assert view.lines(9.0) == ["[x] convert  [x] split  [x] push  [x] compile  [x] warm-up   9.0 s"]


def test_a_pc_nobody_named_has_its_id():
    view = seen(report(None, progress(LAPTOP, "convert", 1, epoch=0)), names={}, is_recorded=False)
    assert view.node_lines(0.0)[0].startswith("cccccc  convert")


def test_each_phase_has_the_time_it_took():
    view = LoadView(NAMES, 10.0)
    for now_s, phase in (
        (12.0, "splitting"),
        (15.0, "loading"),
        (16.0, "warming"),
        (18.0, "ready"),
    ):
        view.see(report(record(phase)), now_s, is_recorded=True)
    assert view.phase_seconds(30.0) == {"convert": 2.0, "split": 3.0, "push": 1.0, "warm-up": 2.0}


def test_what_another_pc_prepares_for_another_loading_is_not_shown():
    """Two loads at once: each shows its own."""
    view = LoadView(NAMES, 0.0, KITCHEN)
    both = (progress(KITCHEN, "convert", 5, epoch=0), progress(STUDY, "convert", 7, epoch=0))
    of_the_other = progress(STUDY, "push", 5, epoch=3)
    view.see(report(None, *both, of_the_other), 1.0, is_recorded=False)
    assert [line.split()[0] for line in view.node_lines(1.0)] == ["Kitchen"]
    view.see(report(record("loading"), *both, progress(STUDY, "push", 5)), 2.0, is_recorded=True)
    assert [line.split()[:2] for line in view.node_lines(2.0)] == [
        ["Kitchen", "convert"],
        ["Study", "push"],
    ]


def test_the_time_left_is_not_guessed_from_the_first_chunk():
    view = LoadView(NAMES, 0.0)

    def line(done):
        step = progress(STUDY, "push", done * MB, 100 * MB, rate_per_s=1e6)
        view.see(report(record("loading"), step), 1.0, is_recorded=True)
        return view.node_lines(1.0)[0]

    assert line(4).endswith("1.0 MB/s")
    assert line(5).endswith("1.0 MB/s  1 min 35 s left")
