"""Where a model is cut, what a batch costs, and what the simulator is fed with."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest
from measured_model import best_cut
from measuring import SeenCosts, median_of, ratio_text, shown, simulated_tokens_per_s
from process_usage import Usage
from protocol import Repetition, interleaved
from stage_costs import StageCosts, costs_of

COSTS = StageCosts({1: 10.0, 2: 13.0, 4: 16.0}, {1: 10.0, 2: 12.0, 4: 15.0, 256: 1000.0})


@pytest.mark.parametrize(
    ("last_ms", "cut"),
    [(12.0, 12), (24.0, 18), (120.0, 23)],
    ids=["no head", "a head of 12 layers", "more than all layers"],
)
def test_the_cut_lets_both_stages_take_as_long(last_ms: float, cut: int) -> None:
    assert best_cut(num_layers=24, cut=12, first_ms=12.0, last_ms=last_ms) == cut


def test_costs_between_what_was_measured_are_interpolated() -> None:
    assert COSTS.ms(3) == pytest.approx(14.5)
    assert COSTS.ms(1, 3) == pytest.approx(13.5)
    assert COSTS.ms(8) == pytest.approx(22.0)
    assert COSTS.ms(2, 2) == pytest.approx(16.0)


def test_rows_that_do_not_share_a_pass_cost_one_each() -> None:
    alone = StageCosts(COSTS.by_sequences, COSTS.by_rows, is_batched=False)
    assert alone.ms(4) == pytest.approx(40.0)
    assert alone.ms(3, 2) == pytest.approx(36.0)


def test_costs_are_kept_as_json() -> None:
    assert costs_of(json.loads(json.dumps([asdict(COSTS)]))) == (COSTS,)


def test_the_simulator_is_fed_with_what_one_user_took() -> None:
    seen = SeenCosts(stage_ms=(20.0, 20.0), node_ms=(1.0, 1.0))
    pipeline = seen.pipeline((COSTS, COSTS), hop_ms=0.0)
    assert pipeline.costs[0](1, 1) == pytest.approx(21.0)
    assert pipeline.costs[0](2, 1) == pytest.approx(27.0)
    assert simulated_tokens_per_s(pipeline, 1, 100) == pytest.approx(1e3 / 42.0)
    assert simulated_tokens_per_s(pipeline, 2, 100) == pytest.approx(1e3 / 21.0, rel=0.02)


def test_a_ratio_that_was_always_disturbed_says_so() -> None:
    crowded = Usage(wall_s=1.0, cpu_s={}, waited_s={"head": 0.9}, stolen_s=0.0)
    runs = [Repetition(slot, {"ms": 2.0}, crowded) for slot in interleaved(["a", "b"], 1)]
    assert ratio_text(runs, "ms", "a", "b", 0.05) == "disturbed"
    assert ratio_text(runs, "ms", "a", "b", 2.0) == "1.00 (1.00 to 1.00; 2)"


def test_a_figure_that_was_never_taken_is_shown_as_nothing() -> None:
    assert not shown(median_of([], "a", "ms"))
    assert shown(1.234, 2) == "1.23"
