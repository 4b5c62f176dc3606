import math
from itertools import combinations

import pytest

from app.pool.geometry import (
    Point,
    arc_between,
    label_place,
    lay_out,
    light_place,
    on_ring,
    petal_at,
)

LINE = 17.0
SIZES = [(300, 300), (640, 420), (900, 600), (1600, 700), (500, 900), (3840, 2160)]
COUNTS = range(1, 17)


def circles(layout):
    return [(petal.center, petal.radius) for petal in layout.petals]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("count", COUNTS)
def test_petals_stand_inside_and_touch_neither_each_other_nor_the_heart(size, count):
    layout = lay_out(*size, count, 0, LINE)

    for center, radius in circles(layout):
        assert radius > 0
        assert center.x - radius >= -0.01
        assert center.y - radius >= -0.01
        assert center.x + radius <= size[0] + 0.01
        assert center.y + radius <= size[1] + 0.01
        to_heart = math.hypot(center.x - layout.heart.x, center.y - layout.heart.y)
        assert to_heart > radius + layout.heart_radius
    buds = [(bud.center, bud.radius) for bud in layout.buds]
    for (one, r1), (other, r2) in combinations([*circles(layout), *buds], 2):
        assert math.hypot(one.x - other.x, one.y - other.y) > r1 + r2


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("count", "outside"), [(1, 1), (3, 2), (4, 5), (16, 40)])
def test_those_outside_stand_clear_of_the_ring_and_of_each_other(size, count, outside):
    layout = lay_out(*size, count, outside, LINE)

    assert len(layout.outside) + layout.hidden_outside == outside
    assert layout.outside
    for box in layout.outside:
        assert box.x >= -0.01
        assert box.right <= size[0] + 0.01
        assert box.bottom <= size[1] + 0.01
        for center, radius in circles(layout):
            nearest_x = min(max(center.x, box.x), box.right)
            nearest_y = min(max(center.y, box.y), box.bottom)
            assert math.hypot(center.x - nearest_x, center.y - nearest_y) >= radius - 0.01
    for one, other in combinations(layout.outside, 2):
        assert not one.overlaps(other)


@pytest.mark.parametrize("count", COUNTS)
def test_text_stays_in_its_petal(count):
    layout = lay_out(900, 600, count, 0, LINE)

    for petal in layout.petals:
        for x in (petal.text.x, petal.text.right):
            for y in (petal.text.y, petal.text.bottom):
                distance = math.hypot(x - petal.center.x, y - petal.center.y)
                assert distance <= petal.radius + 0.01


def test_the_first_petal_is_at_the_top_and_the_others_follow_clockwise():
    layout = lay_out(600, 600, 6, 0, LINE)

    assert layout.petals[0].center.x == pytest.approx(layout.heart.x)
    assert layout.petals[0].center.y < layout.heart.y
    assert layout.petals[1].center.x > layout.heart.x
    assert layout.petals[5].center.x < layout.heart.x


@pytest.mark.parametrize(("count", "buds"), [(0, 6), (1, 5), (2, 4), (3, 3), (4, 0), (5, 0)])
def test_small_pools_show_room_for_more_between_their_petals(count, buds):
    assert len(lay_out(600, 600, count, 0, LINE).buds) == buds


def test_buds_stand_clear_of_the_lights_way():
    layout = lay_out(900, 600, 2, 0, LINE)

    for bud in layout.buds:
        out = math.hypot(bud.center.x - layout.heart.x, bud.center.y - layout.heart.y)
        assert out + bud.radius < layout.ring_radius


def test_more_room_shows_more():
    details = [lay_out(side, side, 3, 0, LINE).detail for side in (180, 300, 560, 2160)]

    assert details == ["mark", "brief", "full", "full"]
    assert lay_out(560, 560, 16, 0, LINE).detail == "mark"


def test_larger_text_needs_more_room():
    assert lay_out(560, 560, 3, 0, LINE).detail == "full"
    assert lay_out(560, 560, 3, 0, 1.6 * LINE).detail == "brief"


def test_on_a_huge_screen_petals_do_not_outgrow_their_text():
    layout = lay_out(3840, 2160, 3, 0, LINE)

    assert layout.petals[0].radius == pytest.approx(8.2 * LINE)


@pytest.mark.parametrize("count", [2, 3, 5, 8, 16])
def test_what_is_seen_of_a_link_begins_and_ends_at_the_petals_edges(count):
    layout = lay_out(900, 700, count, 0, LINE)
    for sender in range(count):
        receiver = (sender + 1) % count
        arc = arc_between(layout, sender, receiver)
        start, stop = on_ring(layout, arc.start), on_ring(layout, arc.start + arc.sweep)

        a, b = layout.petals[sender], layout.petals[receiver]
        assert math.hypot(start.x - a.center.x, start.y - a.center.y) == pytest.approx(a.radius)
        assert math.hypot(stop.x - b.center.x, stop.y - b.center.y) == pytest.approx(b.radius)


@pytest.mark.parametrize("count", [2, 3, 5, 8])
def test_labels_stand_outside_of_all_petals(count):
    layout = lay_out(900, 700, count, 0, LINE)

    place = label_place(layout, arc_between(layout, 0, 1), 60)

    for petal in layout.petals:
        assert math.hypot(place.x - petal.center.x, place.y - petal.center.y) > petal.radius


def test_the_petal_under_the_pointer_is_found_and_nothing_beside_it():
    layout = lay_out(600, 600, 4, 0, LINE)
    assert [petal_at(layout, petal.center) for petal in layout.petals] == [0, 1, 2, 3]
    assert petal_at(layout, layout.heart) is None
    assert petal_at(layout, Point(0, 0)) is None


def test_a_picture_of_no_size_has_a_layout_all_the_same():
    layout = lay_out(0, 0, 3, 2, LINE)

    assert layout.detail == "mark"
    assert arc_between(layout, 0, 1).sweep >= 0


@pytest.mark.parametrize("count", [2, 3, 8])
def test_the_light_leaves_one_petal_crosses_the_gap_and_enters_the_next(count):
    layout = lay_out(900, 700, count, 0, LINE)
    seen = [light_place(layout, 0, 1, step / 200) for step in range(201)]

    assert seen[0] == 0
    assert seen[-1] == 1
    between = [place for place in seen if isinstance(place, Point)]
    assert between
    for place in between:
        out = math.hypot(place.x - layout.heart.x, place.y - layout.heart.y)
        assert out == pytest.approx(layout.ring_radius)
        for petal in layout.petals:
            away = math.hypot(place.x - petal.center.x, place.y - petal.center.y)
            assert away >= petal.radius - 0.5
