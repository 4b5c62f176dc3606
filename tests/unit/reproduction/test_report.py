"""A table is the same on the screen, in the raw data and in the report, and can be plotted."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import pytest
import report
from protocol import write_results
from svg_plot import svg, ticks
from tables import Plot, Table, markdown

if TYPE_CHECKING:
    from pathlib import Path

TABLE = Table(
    title="Users <at once>",
    columns=("users", "tokens/s"),
    rows=(("1", "40.0"), ("16", "212.5")),
    plot=Plot("users", "tokens/s", {"paged": [(1, 40.0), (16, 212.5)], "U3 & co": [(1, 41.0)]}),
    notes=("Nobody else was there.",),
)


def test_a_table_as_markdown() -> None:
    assert markdown(TABLE).splitlines() == [
        "**Users <at once>**",
        "",
        "| users | tokens/s |",
        "|-------|----------|",
        "| 1     | 40.0     |",
        "| 16    | 212.5    |",
        "",
        "Nobody else was there.",
    ]


def test_a_plot_is_well_formed_and_has_every_point() -> None:
    drawing = ET.fromstring(svg(TABLE))  # noqa: S314 - our own text
    circles = [e for e in drawing.iter() if e.tag.endswith("circle")]
    texts = [e.text for e in drawing.iter() if e.tag.endswith("text")]
    assert len(circles) == 3 + 2  # the points, and one in the legend for each line
    assert {"Users <at once>", "U3 & co", "paged", "users"} <= set(texts)
    assert ET.fromstring(svg(Table("none", (), ()))) is not None  # noqa: S314 - our own text


@pytest.mark.parametrize(
    ("highest", "expected"),
    [
        (16.0, [0, 5, 10, 15, 20]),
        (1.0, [0, 0.2, 0.4, 0.6, 0.8, 1.0]),
        (0.03, [0, 0.01, 0.02, 0.03]),
    ],
)
def test_ticks_are_round_and_reach_the_highest_value(highest: float, expected: list[float]) -> None:
    assert ticks(highest) == pytest.approx(expected)


def test_a_report_is_made_of_the_raw_data(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = write_results(tmp_path, "users", {"load": 0.1, "tables": [TABLE]})
    assert report.main([str(results)]) == 0
    shown = capsys.readouterr().out
    assert markdown(TABLE) in shown
    (plot,) = tmp_path.glob("*.svg")
    assert f"]({plot.name})" in shown
    assert plot.read_text("utf-8") == svg(TABLE)


def test_raw_data_without_tables_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "old.json"
    file.write_text(json.dumps({"machine": {}}), "utf-8")
    assert report.main([str(file)]) == 1
    assert "old.json holds no tables" in capsys.readouterr().err
