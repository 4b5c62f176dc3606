import pytest

from app.pool.history import KEPT, History, nice_top
from app.pool.light import GOES_ON_S, STATION_S, TravellingLight


def filled(*values):
    history = History()
    for number, value in enumerate(values):
        history.add(float(number), value)
    return history


def test_old_measurements_make_room():
    history = filled(*range(KEPT + 50))

    assert len(history) == KEPT
    assert history.samples[0].value == 50


def test_what_is_no_number_is_a_gap_and_time_never_goes_back():
    history = filled(1.0, float("nan"), float("inf"), -3.0, None)
    history.add(2.0, 9.0)

    assert [sample.value for sample in history.samples] == [1.0, None, None, None, None]
    assert history.latest == history.largest == 1.0


def test_a_line_is_drawn_in_pieces_one_after_each_gap():
    history = filled(0.0, 5.0, None, 10.0)

    assert history.lines(now_s=4.0, span_s=4.0, top=10.0) == [
        [(0.0, 0.0), (0.25, 0.5)],
        [(0.75, 1.0)],
    ]


def test_what_is_older_than_the_plot_is_left_out():
    assert filled(1.0, 2.0).lines(now_s=100.0, span_s=50.0, top=2.0) == []


@pytest.mark.parametrize(
    ("largest", "top"), [(None, 1), (0, 1), (0.3, 0.5), (11.2, 20), (20, 20), (57, 100)]
)
def test_an_axis_ends_at_a_round_number(largest, top):
    assert nice_top(largest) == top


def test_the_light_goes_round_once_for_a_pass_and_rests_then():
    light = TravellingLight()
    assert light.spot(0.0, 3) is None
    light.token_passed(10.0)

    seen = [light.spot(10.0 + STATION_S * (step + 0.5), 3) for step in range(4)]

    assert [spot.link for spot in seen] == [0, 1, 2, 3]
    assert all(spot.share == pytest.approx(0.5) for spot in seen)
    assert light.spot(10.0 + 4 * STATION_S + GOES_ON_S, 3) is None
    assert not light.is_lit


def test_two_hundred_passes_a_second_make_one_calm_light():
    light = TravellingLight()
    rounds, before = 0, -1
    for number in range(2000):
        now_s = number / 200
        light.token_passed(now_s)
        spot = light.spot(now_s, 3)
        rounds += spot.link < before
        before = spot.link

    assert rounds == pytest.approx(10 / (4 * STATION_S), abs=1)


def test_the_light_of_a_pc_alone_stays_in_the_heart():
    light = TravellingLight()
    light.token_passed(0.0)

    assert light.spot(0.1, 0).link == 0


def test_no_light_without_passes():
    light = TravellingLight()
    light.token_passed(0.0)
    light.stop()

    assert light.spot(0.1, 3) is None
