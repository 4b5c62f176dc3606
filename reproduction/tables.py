"""Tables of results: as Markdown, and what of them is plotted; pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class Plot:
    """What is drawn of a table: lines over one axis.

    Attributes:
        x_label: Of the horizontal axis.
        y_label: Of the vertical axis.
        lines: Name to points, ascending in x.
    """

    x_label: str
    y_label: str
    lines: dict[str, list[tuple[float, float]]]


@dataclass(frozen=True, slots=True)
class Table:
    """What was found.

    Attributes:
        title: One line.
        columns: Headings.
        rows: As many texts each.
        plot: What is drawn of it; None for nothing.
        notes: Sentences that belong below it.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    plot: Plot | None = None
    notes: tuple[str, ...] = ()


def markdown(table: Table) -> str:
    """Return a table as Markdown.

    Args:
        table: What was found.
    """
    widths = [
        max(len(row[number]) for row in (table.columns, *table.rows))
        for number in range(len(table.columns))
    ]

    def line(cells: tuple[str, ...]) -> str:
        padded = (cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
        return f"| {' | '.join(padded)} |"

    rule = f"|{'|'.join('-' * (width + 2) for width in widths)}|"
    rows = [line(row) for row in table.rows]
    parts = [f"**{table.title}**\n", line(table.columns), rule, *rows]
    return "\n".join([*parts, *(f"\n{note}" for note in table.notes)])


def table_of(kept: dict[str, object]) -> Table:
    """Return a table as it was kept in JSON.

    Args:
        kept: What ``dataclasses.asdict`` made of one.
    """
    plot = kept["plot"]
    return Table(
        title=str(kept["title"]),
        columns=tuple(kept["columns"]),  # type: ignore[arg-type]
        rows=tuple(tuple(row) for row in kept["rows"]),  # type: ignore[attr-defined]
        plot=None if plot is None else Plot(**plot),  # type: ignore[arg-type]
        notes=tuple(kept["notes"]),  # type: ignore[arg-type]
    )


def svg_name(results: Path, number: int) -> str:
    """Return the name of a table's plot.

    Args:
        results: The file with the raw data.
        number: Of the table in it, from 0.
    """
    return f"{results.stem}-{number + 1}.svg"
