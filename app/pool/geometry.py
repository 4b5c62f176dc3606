"""Where everything of the pool picture stands: petals in a ring, heart, links, those outside; pure.

Lengths are in pixels, angles in radians, clockwise from the right, y downward, as Qt paints.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

Detail = Literal["full", "brief", "mark"]  # all figures; name and layers; a letter

LEAST_SHARES = 5  # a petal of a small pool is not larger than if there were so many
_SNUG = 0.87  # of the room a petal has between its neighbours
_TOP = -math.pi / 2
_BUDS = {0: 6, 1: 5, 2: 2, 3: 1}  # in each gap between petals: room for more PCs
_BUD = 0.21  # radius, where the ring's is 1
_BUD_OUT = 1.5  # heart radii from the middle to a bud's
# In line heights of the small text.
_FULL = (8.6, 5.6)  # width and height of the text room a petal with all figures needs
_BRIEF = (4.4, 2.0)
_LARGEST_PETAL = 8.2  # radius
_MARGIN = 0.8
_CELL = (15.0, 4.6)  # of one PC outside
_GAP = 0.7
_WIDE, _WIDE_FOR_TWO = 1.45, 2.4  # from this ratio on those outside stand beside the ring
_OUTSIDE_SHARE = 0.4  # of the room those outside may take


@dataclass(frozen=True, slots=True)
class Point:
    """A place."""

    x: float
    y: float


@dataclass(frozen=True, slots=True)
class Box:
    """An upright rectangle."""

    x: float
    y: float
    width: float
    height: float

    @property
    def center(self) -> Point:
        """Its middle."""
        return Point(self.x + self.width / 2, self.y + self.height / 2)

    @property
    def right(self) -> float:
        """Its right edge."""
        return self.x + self.width

    @property
    def bottom(self) -> float:
        """Its lower edge."""
        return self.y + self.height

    def overlaps(self, other: Box) -> bool:
        """Return whether two share more than an edge."""
        return (
            self.x < other.right
            and other.x < self.right
            and self.y < other.bottom
            and other.y < self.bottom
        )


@dataclass(frozen=True, slots=True)
class Petal:
    """One petal's round part; its neck leads to the heart.

    Attributes:
        angle: Of its middle, seen from the heart.
        text: The largest box of useful shape in the round part.
    """

    center: Point
    radius: float
    angle: float
    text: Box


@dataclass(frozen=True, slots=True)
class RingLayout:
    """All places, for one size of the picture.

    Attributes:
        heart: Its middle.
        heart_radius: Of it.
        ring_radius: On which the petals' middles and the light's way lie.
        petals: In the order of the chain, clockwise from the top.
        buds: Small empty petals where more PCs would stand.
        outside: One box for each PC outside that has room, in their order.
        hidden_outside: How many of them have none; the last box tells so.
        detail: How much text a petal has room for.
    """

    heart: Point
    heart_radius: float
    ring_radius: float
    petals: tuple[Petal, ...]
    buds: tuple[Petal, ...]
    outside: tuple[Box, ...]
    hidden_outside: int
    detail: Detail

    @property
    def petal_half_angle(self) -> float:
        """Half of what one petal covers of the ring."""
        radius = self.petals[0].radius if self.petals else 0.0
        if self.ring_radius <= 0:
            return 0.0
        return 2 * math.asin(min(1.0, radius / (2 * self.ring_radius)))


@dataclass(frozen=True, slots=True)
class Arc:
    """A piece of the ring, clockwise from ``start`` by ``sweep``."""

    start: float
    sweep: float


def lay_out(
    width: float, height: float, num_petals: int, num_outside: int, line: float
) -> RingLayout:
    """Return where everything stands.

    Args:
        width: Of the picture.
        height: Of the picture.
        num_petals: PCs in the ring, 0 or more.
        num_outside: PCs outside it, 0 or more.
        line: Height of a line of the small text; what must be read is as large as it says.
    """
    wide = _WIDE_FOR_TWO if num_petals == 2 else _WIDE
    ring_room, outside, hidden = _rooms(width, height, num_outside, line, wide)
    reach = _SNUG * math.sin(math.pi / max(LEAST_SHARES, num_petals))
    heart_reach = min(0.8 * (1 - reach), 0.42)
    petal_angles, bud_angles = _angles(num_petals)
    bud_out = _BUD_OUT * heart_reach
    circles = [
        *((math.cos(angle), math.sin(angle), reach) for angle in petal_angles),
        *((bud_out * math.cos(a), bud_out * math.sin(a), _BUD) for a in bud_angles),
        (0.0, 0.0, heart_reach),
        # The light's way, where it leaves the petals.
        *((math.cos(angle), math.sin(angle), 0.05) for angle in _way(num_petals)),
    ]
    left, right = min(x - r for x, _, r in circles), max(x + r for x, _, r in circles)
    top, bottom = min(y - r for _, y, r in circles), max(y + r for _, y, r in circles)
    scale = min(
        max(1.0, ring_room.width) / (right - left),
        max(1.0, ring_room.height) / (bottom - top),
        _LARGEST_PETAL * line / reach,
    )
    middle = ring_room.center
    heart = Point(
        middle.x - scale * (left + right) / 2,
        middle.y - scale * (top + bottom) / 2,
    )
    petals = tuple(_petal(heart, scale, reach * scale, angle) for angle in petal_angles)
    buds = tuple(_petal(heart, bud_out * scale, _BUD * scale, angle) for angle in bud_angles)
    return RingLayout(
        heart=heart,
        heart_radius=min(heart_reach * scale, 7.0 * line),
        ring_radius=scale,
        petals=petals,
        buds=buds,
        outside=outside,
        hidden_outside=hidden,
        detail=_detail(petals[0].text, line) if petals else "full",
    )


def arc_between(layout: RingLayout, sender: int, receiver: int) -> Arc:
    """Return what is seen of the ring between two petals, clockwise; the petals cover the rest.

    Args:
        layout: With both.
        sender: Number of the petal where it begins.
        receiver: Number of the one where it ends; with one petal only, once round.
    """
    count = len(layout.petals)
    steps = (receiver - sender) % count or count
    hidden = layout.petal_half_angle
    sweep = 2 * math.pi * steps / count - 2 * hidden
    return Arc(layout.petals[sender].angle + hidden, max(0.0, sweep))


def on_ring(layout: RingLayout, angle: float, outward: float = 0.0) -> Point:
    """Return the place on the ring at an angle.

    Args:
        layout: Whose ring.
        angle: Seen from the heart.
        outward: Beyond the ring, in pixels.
    """
    radius = layout.ring_radius + outward
    return Point(
        layout.heart.x + radius * math.cos(angle), layout.heart.y + radius * math.sin(angle)
    )


def label_place(layout: RingLayout, arc: Arc, width: float) -> Point:
    """Return the middle of a link's label: on the link where it is long, or else outside of it.

    Args:
        layout: Whose ring.
        arc: Of the link.
        width: Of the label.
    """
    radius = layout.petals[0].radius if layout.petals else 0.0
    is_long = arc.sweep * layout.ring_radius > 1.5 * width
    return on_ring(layout, arc.start + arc.sweep / 2, 0.0 if is_long else 0.55 * radius)


def light_place(layout: RingLayout, sender: int, receiver: int, share: float) -> int | Point:
    """Return where the light is: the number of the petal it is in, or its place between two.

    Args:
        layout: With both.
        sender: Number of the petal it comes from.
        receiver: Number of the one it goes to.
        share: Of the way from middle to middle, 0 to 1.
    """
    arc = arc_between(layout, sender, receiver)
    hidden = layout.petal_half_angle
    whole = arc.sweep + 2 * hidden
    along = share * whole
    if along < hidden:
        return sender
    if along > whole - hidden:
        return receiver
    return on_ring(layout, arc.start - hidden + along)


def petal_at(layout: RingLayout, place: Point) -> int | None:
    """Return the number of the petal at a place; None if there is none.

    Args:
        layout: With petals.
        place: Where a person points to.
    """
    for number, petal in enumerate(layout.petals):
        distance = math.hypot(petal.center.x - place.x, petal.center.y - place.y)
        if distance <= petal.radius:
            return number
    return None


def _rooms(
    width: float, height: float, num_outside: int, line: float, wide: float
) -> tuple[Box, tuple[Box, ...], int]:
    """Return the room of the ring, a box for each PC outside, and how many have none."""
    margin = _MARGIN * line
    room = Box(margin, margin, max(1.0, width - 2 * margin), max(1.0, height - 2 * margin))
    if num_outside == 0:
        return room, (), 0
    cell_width = min(_CELL[0] * line, room.width)
    cell_height = _CELL[1] * line
    gap = _GAP * line
    if room.width > wide * room.height:
        rows = max(1, int((room.height + gap) // (cell_height + gap)))
        shown = min(num_outside, rows)
        taken = shown * (cell_height + gap) - gap
        x, y = room.right - cell_width, room.y + (room.height - taken) / 2
        boxes = [
            Box(x, y + number * (cell_height + gap), cell_width, cell_height)
            for number in range(shown)
        ]
        ring = Box(room.x, room.y, max(1.0, room.width - cell_width - gap), room.height)
        return ring, tuple(boxes), num_outside - shown
    columns = max(1, int((room.width + gap) // (cell_width + gap)))
    rows = max(1, int(_OUTSIDE_SHARE * room.height // (cell_height + gap)))
    shown = min(num_outside, columns * rows)
    columns = min(columns, shown)
    rows = -(-shown // columns)
    cell_width = min((room.width + gap) / columns - gap, 1.6 * cell_width)
    taken = columns * (cell_width + gap) - gap
    x = room.x + (room.width - taken) / 2
    y = room.bottom - rows * (cell_height + gap) + gap
    boxes = [
        Box(
            x + (number % columns) * (cell_width + gap),
            y + (number // columns) * (cell_height + gap),
            cell_width,
            cell_height,
        )
        for number in range(shown)
    ]
    ring = Box(room.x, room.y, room.width, max(1.0, y - gap - room.y))
    return ring, tuple(boxes), num_outside - shown


def _angles(num_petals: int) -> tuple[list[float], list[float]]:
    """Return the angles of the petals, and of the buds in the gaps between them."""
    # Two stand side by side: windows are wider than high.
    first = math.pi if num_petals == 2 else _TOP
    count = max(1, num_petals)
    buds = _BUDS.get(num_petals, 0)
    share = 2 * math.pi / count
    petals = [first + share * number for number in range(num_petals)]
    starts = petals or [first]
    gaps = buds + 1 if petals else buds
    begin = 1 if petals else 0
    return petals, [
        start + share * number / gaps for start in starts for number in range(begin, gaps)
    ]


def _way(num_petals: int) -> list[float]:
    """Return angles between the petals that the light passes; none for a PC alone."""
    if num_petals < 2:
        return []
    petals, _ = _angles(num_petals)
    return [angle + math.pi / num_petals for angle in petals]


def _petal(heart: Point, ring_radius: float, radius: float, angle: float) -> Petal:
    center = Point(heart.x + ring_radius * math.cos(angle), heart.y + ring_radius * math.sin(angle))
    # Of the boxes in a circle the one of 8 to 6 suits lines of text; its corners touch the edge.
    half_width, half_height = 0.8 * radius, 0.6 * radius
    text = Box(center.x - half_width, center.y - half_height, 2 * half_width, 2 * half_height)
    return Petal(center, radius, angle, text)


def _detail(text: Box, line: float) -> Detail:
    for detail, (width, height) in (("full", _FULL), ("brief", _BRIEF)):
        if text.width >= width * line and text.height >= height * line:
            return "full" if detail == "full" else "brief"
    return "mark"
