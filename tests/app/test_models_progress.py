import pytest

from app.models.load_progress import PHASES, LoadProgress
from app.parts.amounts import file_size, time_text
from app.places import WORDING
from app.wording.wording import Wording
from engine.messages.pool_control import DeploymentReport
from tests.app.pools import DESK, EPOCH, LAPTOP, WISH_ID, deployment, progress


def report(phase, *steps):
    record = None if phase is None else deployment(phase)
    return DeploymentReport(deployment=record, progress=steps, wish_id=WISH_ID)


def seen(*reports, now_s=0.0):
    load = LoadProgress(0.0)
    for one in reports:
        load.see(one, now_s, is_recorded=one.deployment is not None)
    return load


@pytest.mark.parametrize(
    ("phase", "steps", "current"),
    [
        (None, (), 0),
        ("planning", (), 1),
        ("splitting", (), 1),
        ("loading", (), 2),
        ("loading", (progress(DESK, "compile", 1), progress(LAPTOP, "push", 1)), 2),
        ("loading", (progress(DESK, "compile", 1), progress(LAPTOP, "compile", 1)), 3),
        ("warming", (), 4),
    ],
)
def test_the_phase_is_the_records_and_copying_ends_with_the_last_pc(phase, steps, current):
    marks = seen(report(phase, *steps)).picture(1.0).phases

    assert marks == tuple(
        "done" if n < current else "now" if n == current else "ahead" for n in range(len(PHASES))
    )


def test_when_it_is_ready_everything_is_done_and_no_bars_are_left():
    picture = seen(report("loading", progress(DESK, "push", 3)), report("ready")).picture(1.0)

    assert set(picture.phases) == {"done"}
    assert picture.pcs == ()


def test_a_failure_leaves_the_phase_where_it_was():
    load = seen(report("loading", progress(DESK, "push", 3)), report("failed"))

    assert load.picture(1.0).phases[2] == "now"


def test_each_pc_has_its_latest_step_with_rate_and_time_left():
    load = LoadProgress(0.0)
    load.see(report("loading", progress(DESK, "push", 100, 1000)), 10.0, is_recorded=True)
    load.see(report("loading", progress(DESK, "push", 300, 1000)), 12.0, is_recorded=True)

    (pc,) = load.picture(12.0).pcs

    assert pc.share == 0.3
    assert pc.rate_per_s == 100.0
    assert pc.left_s == 7.0
    assert load.picture(12.0).left_s == 7.0


def test_the_rate_a_pc_tells_counts_before_what_is_seen():
    step = progress(DESK, "push", 500, 1000, rate_per_s=50.0)

    assert seen(report("loading", step)).picture(0.0).pcs[0].left_s == 10.0


def test_a_step_that_stands_still_becomes_slower():
    load = LoadProgress(0.0)
    load.see(report("loading", progress(DESK, "push", 0, 1000)), 0.0, is_recorded=True)
    load.see(report("loading", progress(DESK, "push", 100, 1000)), 1.0, is_recorded=True)

    assert load.picture(10.0).pcs[0].rate_per_s == 10.0


def test_the_time_left_is_the_slowest_pcs_and_those_done_do_not_count():
    steps = (
        progress(DESK, "push", 100, 100, rate_per_s=1.0),
        progress(LAPTOP, "push", 10, 100, rate_per_s=3.0),
    )

    picture = seen(report("loading", *steps)).picture(0.0)

    assert picture.left_s == 30.0
    assert [pc.is_done for pc in picture.pcs] == [True, False]


def test_what_nobody_can_measure_has_no_bar_and_no_time():
    (pc,) = seen(report("warming", progress(DESK, "warm-up", 0, 1, "steps"))).picture(5.0).pcs

    assert (pc.share, pc.left_s) == (None, None)


def test_another_placement_begins_with_empty_bars():
    load = seen(report("loading", progress(DESK, "push", 50)))
    record = deployment("loading", epoch=EPOCH + 1)
    load.see(DeploymentReport(deployment=record, wish_id=WISH_ID), 1.0, is_recorded=True)

    assert load.picture(1.0).pcs == ()


def test_who_keeps_another_copy_is_not_part_of_loading():
    late = progress(LAPTOP, "keep", 5, epoch=0)

    assert seen(report("loading", late)).picture(0.0).pcs == ()
    assert len(seen(report(None, late)).picture(0.0).pcs) == 1


@pytest.mark.parametrize(
    ("seconds", "english", "chinese"),
    [
        (0.4, "0 s", "0 秒"),
        (59.4, "59 s", "59 秒"),
        (125, "2 min 5 s", "2 分 5 秒"),
        (4800, "1 h 20 min", "1 小时 20 分"),
    ],
)
def test_times_are_told_as_roughly_as_they_are_known(seconds, english, chinese):
    assert time_text(Wording(WORDING, "en"), seconds) == english
    assert time_text(Wording(WORDING, "zh"), seconds) == chinese


@pytest.mark.parametrize(
    ("num_bytes", "text"),
    [(12, "12 B"), (60_000_000, "60.0 MB"), (8_440_000_000, "8.4 GB"), (150_000_000_000, "150 GB")],
)
def test_sizes_are_told_in_the_unit_that_suits(num_bytes, text):
    assert file_size(num_bytes) == text
