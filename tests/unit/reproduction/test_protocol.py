"""Runs are interleaved and paired, disturbed pairs are left out, and raw data is kept."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING

import pytest
from process_usage import Usage
from protocol import (
    Repetition,
    Slot,
    TooDisturbedError,
    interleaved,
    paired_ratio,
    run_arms,
    write_results,
)

if TYPE_CHECKING:
    from pathlib import Path

QUIET = Usage(wall_s=1.0, cpu_s={"head": 1.0}, waited_s={"head": 0.01}, stolen_s=0.0)
CROWDED = Usage(wall_s=1.0, cpu_s={"head": 0.5}, waited_s={"head": 0.5}, stolen_s=0.0)
STOLEN = Usage(wall_s=1.0, cpu_s={"head": 1.0}, waited_s={"head": 0.0}, stolen_s=0.2)


def _repetitions(
    figures: dict[str, list[float]], usages: dict[Slot, Usage] | None = None
) -> list[Repetition]:
    left = {arm: list(values) for arm, values in figures.items()}
    num_blocks = len(next(iter(figures.values()))) // 2
    return [
        Repetition(slot, {"ms": left[slot.arm].pop(0)}, (usages or {}).get(slot, QUIET))
        for slot in interleaved(list(figures), num_blocks)
    ]


def test_a_block_runs_there_and_back() -> None:
    assert [slot.arm for slot in interleaved(["a", "b"], 2)] == list("abbaabba")
    assert [slot.arm for slot in interleaved(["a", "b", "c"], 1)] == list("abccba")


def test_a_machine_that_slows_down_does_not_change_the_ratio() -> None:
    slots = interleaved(["whole", "split"], 6)
    true_ms = {"whole": 10.0, "split": 12.0}
    repetitions = [
        Repetition(slot, {"ms": true_ms[slot.arm] * (1 + 0.01 * i)}, QUIET)
        for i, slot in enumerate(slots)
    ]
    ratio = paired_ratio(repetitions, "ms", "split", "whole")
    assert ratio.median == pytest.approx(1.2, abs=0.001)
    assert ratio.smallest < 1.2 < ratio.largest
    assert ratio.num_pairs == 12


def test_neighbours_are_paired() -> None:
    repetitions = _repetitions({"a": [1.0, 10.0], "b": [2.0, 30.0]})
    ratio = paired_ratio(repetitions, "ms", "b", "a")
    assert (ratio.smallest, ratio.largest) == (2.0, 3.0)


@pytest.mark.parametrize("usage", [CROWDED, STOLEN], ids=["crowded", "stolen"])
@pytest.mark.parametrize("arm", ["a", "b"])
def test_a_disturbed_run_leaves_with_its_pair(arm: str, usage: Usage) -> None:
    figures = {"a": [1.0, 1.0, 1.0, 1.0], "b": [2.0, 2.0, 2.0, 2.0]}
    figures[arm][1] = 99.0
    repetitions = _repetitions(figures, {Slot(arm, 0, is_way_back=True): usage})
    ratio = paired_ratio(repetitions, "ms", "b", "a")
    assert (ratio.smallest, ratio.largest) == (2.0, 2.0)
    assert (ratio.num_pairs, ratio.num_disturbed) == (3, 1)


def test_nothing_but_disturbance_is_no_result() -> None:
    slots = interleaved(["a", "b"], 1)
    repetitions = [Repetition(slot, {"ms": 1.0}, CROWDED) for slot in slots]
    with pytest.raises(TooDisturbedError, match="All 2 pairs"):
        paired_ratio(repetitions, "ms", "b", "a")
    assert paired_ratio(repetitions, "ms", "b", "a", math.inf).num_pairs == 2


def test_warm_ups_run_and_do_not_count() -> None:
    seen = []

    def arm(name: str) -> dict[str, float]:
        seen.append(name)
        return {"runs": float(len(seen))}

    arms = {"a": lambda: arm("a"), "b": lambda: arm("b")}
    repetitions = run_arms(arms, {}, num_blocks=1, num_warmups=2)
    assert "".join(seen) == "ababab"[:4] + "abba"
    assert [r.figures["runs"] for r in repetitions] == [5.0, 6.0, 7.0, 8.0]


def test_results_keep_the_raw_data_and_name_no_host(tmp_path: Path) -> None:
    repetitions = _repetitions({"a": [1.0, 1.5], "b": [2.0, 2.5]})
    path = write_results(tmp_path / "results", "hop", {"repetitions": repetitions})
    kept = json.loads(path.read_text("utf-8"))
    assert [r["figures"]["ms"] for r in kept["repetitions"]] == [1.0, 2.0, 2.5, 1.5]
    assert kept["machine"]["packages"]["openvino"]
    assert kept["machine"].keys().isdisjoint({"host", "hostname", "node"})
