"""A table's plot as SVG text; pure."""

from __future__ import annotations

import math
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tables import Table

WIDTH, HEIGHT = 640, 360
_LEFT, _RIGHT, _TOP, _BOTTOM = 60, 170, 40, 50
_COLOURS = ("#0068b5", "#e96115", "#2e8540", "#8f3f97", "#525252", "#b24501", "#1e6f78")
_MAX_TICKS = 6


def ticks(highest: float) -> list[float]:
    """Return round places on an axis, from 0 to the first one that is not below the highest value.

    Args:
        highest: Above 0.
    """
    rough = highest / (_MAX_TICKS - 1)
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(unit * factor for factor in (1, 2, 5, 10) if unit * factor >= rough * 0.999)
    return [round(step * number, 10) for number in range(math.ceil(highest / step - 1e-9) + 1)]


def svg(table: Table) -> str:
    """Draw a table's lines over each other.

    Args:
        table: With a plot; one without gives an empty drawing.
    """
    plot = table.plot
    points = [] if plot is None else [p for line in plot.lines.values() for p in line]
    if plot is None or not points:
        return _document([])
    x_ticks = ticks(max(x for x, _ in points) or 1.0)
    y_ticks = ticks(max(y for _, y in points) or 1.0)

    def place(x: float, y: float) -> tuple[float, float]:
        across = (WIDTH - _LEFT - _RIGHT) * x / x_ticks[-1]
        up = (HEIGHT - _TOP - _BOTTOM) * y / y_ticks[-1]
        return round(_LEFT + across, 1), round(HEIGHT - _BOTTOM - up, 1)

    parts = [_text(_LEFT, 22, table.title, size=13)]
    parts += _axes(x_ticks, y_ticks, place)
    parts.append(_text((WIDTH - _RIGHT + _LEFT) / 2, HEIGHT - 12, plot.x_label, anchor="middle"))
    parts.append(_text(_LEFT, _TOP - 6, plot.y_label))
    for number, (name, line) in enumerate(plot.lines.items()):
        parts += _line(name, [place(x, y) for x, y in line], number)
    return _document(parts)


def _axes(x_ticks: Sequence[float], y_ticks: Sequence[float], place) -> list[str]:  # type: ignore[no-untyped-def] # noqa: ANN001
    parts = []
    for y in y_ticks:
        left, height = place(0, y)
        right, _ = place(x_ticks[-1], y)
        parts.append(f'<path d="M{left} {height}H{right}" stroke="#ddd"/>')
        parts.append(_text(left - 6, height + 4, f"{y:g}", anchor="end"))
    for x in x_ticks:
        across, bottom = place(x, 0)
        parts.append(_text(across, bottom + 18, f"{x:g}", anchor="middle"))
    return parts


def _line(name: str, points: Sequence[tuple[float, float]], number: int) -> list[str]:
    colour = _COLOURS[number % len(_COLOURS)]
    path = " ".join(f"{x},{y}" for x, y in points)
    dots = [f'<circle cx="{x}" cy="{y}" r="3" fill="{colour}"/>' for x, y in points]
    legend = _TOP + 18 * number
    return [
        f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>',
        *dots,
        f'<circle cx="{WIDTH - _RIGHT + 18}" cy="{legend}" r="4" fill="{colour}"/>',
        _text(WIDTH - _RIGHT + 28, legend + 4, name),
    ]


def _text(x: float, y: float, text: str, *, anchor: str = "start", size: int = 11) -> str:
    return (
        f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" font-size="{size}">{escape(text)}</text>'
    )


def _document(parts: Sequence[str]) -> str:
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" '
        f'viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" fill="#222">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>',
        *parts,
        "</svg>\n",
    ])
