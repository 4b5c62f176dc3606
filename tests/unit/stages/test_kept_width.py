"""Frames are filled up where another number of rows costs more than rows for nothing."""

import random

import pytest

from engine.stages.kept_width import MAX_WIDTH, KeptWidth

CHANGE_S, SLOPE_S = 0.005, 0.002


class Device:
    """Takes so long for a number of rows, and longer for one that it did not compute just now."""

    def __init__(self, change_s=CHANGE_S, slope_s=SLOPE_S):
        self.change_s, self.slope_s = change_s, slope_s
        self.last = 0
        self.spent_s = 0.0

    def run(self, num_rows):
        seconds = 0.02 + self.slope_s * num_rows + self.change_s * (num_rows != self.last)
        self.last = num_rows
        self.spent_s += seconds
        return seconds


def run(frames, width=None, **costs):
    """Return how long frames took, and the rows that were computed for each."""
    device, width, computed = Device(**costs), width or KeptWidth(2), []
    for wanted in frames:
        computed.append(num_rows := width.choose(wanted))
        assert num_rows >= max(wanted, 2)
        width.took(num_rows, device.run(num_rows))
    return device.spent_s, computed


def learnt():
    """One that has seen widths twice in a row, and changes."""
    width = KeptWidth(2)
    run([w for w in (2, 4, 8, 2, 4, 8, 2, 4) for _ in range(3)], width)
    return width


def test_a_matrix_is_never_multiplied_by_one_row():
    assert KeptWidth(2).choose(1) == 2


def test_where_one_row_may_be_computed_alone_it_is():
    assert KeptWidth(1).choose(1) == 1


def test_where_every_frame_is_alike_nothing_is_filled_up():
    assert run([3] * 100)[1] == [3] * 100
    assert run([1] * 100)[1] == [2] * 100


@pytest.mark.parametrize("frames", [[4, 1], [4, 3], [2, 4, 3]])
def test_frames_that_alternate_are_computed_alike(frames):
    """No number of rows comes twice in a row here, before it is tried."""
    computed = run(frames * 40)[1]
    assert computed[-40:] == [4] * 40


@pytest.mark.parametrize("frames", [[8, 1], [16, 2, 2]])
def test_where_rows_cost_more_than_a_change_they_are_left_out(frames):
    assert run(frames * 40)[1][-6:] == [max(w, 2) for w in frames * 6][-6:]


def test_where_frames_stay_small_the_rows_go_down_with_them():
    computed = run([4, 1] * 40 + [1] * 40)[1]
    assert computed[-8:] == [2] * 8


def test_where_changes_cost_nothing_nothing_is_filled_up_for_long():
    computed = run([4, 1] * 60, change_s=0.0)[1]
    assert computed[-40:] == [4, 2] * 20


def test_what_was_learned_while_the_pc_was_busy_is_forgotten():
    """Rows that were dear then are tried again."""
    rng, width, device = random.Random(3), KeptWidth(2), Device(slope_s=0.01)  # noqa: S311
    frames = [rng.choice((2, 3, 4, 6, 8)) for _ in range(4000)]
    computed = []
    for number, wanted in enumerate(frames):
        computed.append(num_rows := width.choose(wanted))
        busy = rng.uniform(2.0, 4.0) if number < 200 else 1.0
        width.took(num_rows, busy * device.run(num_rows))
    wasted = sum(computed[-1000:]) - sum(frames[-1000:])
    assert wasted < 100


@pytest.mark.parametrize("num_rows", [MAX_WIDTH + 1, 40, 256])
def test_a_wide_frame_is_computed_as_it_is_and_nothing_is_filled_up_to_it(num_rows):
    width = learnt()
    assert run([num_rows, 3], width)[1] == [num_rows, 3]


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("slope_s", [0.0005, 0.002, 0.006])
def test_frames_of_any_kind_take_no_longer_than_as_they_are(seed, slope_s):
    """A hundredth at most, for trying; where frames repeat and rows are cheap, less."""
    rng = random.Random(seed)  # noqa: S311 - it draws frames
    sticks, frames = rng.random(), [1]
    while len(frames) < 1000:
        frames.append(frames[-1] if rng.random() < sticks else rng.choice((1, 2, 3, 4, 6, 8)))
    kept_s, _ = run(frames, slope_s=slope_s)
    device = Device(slope_s=slope_s)
    as_they_are_s = sum(device.run(max(wanted, 2)) for wanted in frames)
    assert kept_s < 1.01 * as_they_are_s
