"""The simulation agrees with the closed forms where these hold, and with the scheduler's order."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest
from closed_forms import (
    continuous_tpot_ms,
    plain_tokens_per_s,
    prefill_ms,
    synchronous_tokens_per_s,
)
from pipeline_simulator import CHUNK_TOKENS, Pipeline, Speculation, User, simulate

if TYPE_CHECKING:
    from pipeline_simulator import Simulated

WITHIN = 0.05


def _seeded(seed: int) -> Random:
    return Random(seed)  # noqa: S311 - which drafts are right is no secret


ROW_COSTS = {1: 1.0, 2: 1.28, 3: 1.43, 4: 1.61}


def _stages(*each_ms: float) -> tuple:
    def cost_of(one_ms: float):
        def cost(num_sequences: int, num_rows: int) -> float:
            rows = num_sequences * num_rows
            return one_ms * ROW_COSTS.get(rows, 0.5 * rows)

        return cost

    return tuple(map(cost_of, each_ms))


def _run(
    pipeline: Pipeline, num_users: int, tokens: int = 400, speculation: Speculation | None = None
) -> Simulated:
    users = [User(tokens)] * num_users
    if speculation is None:
        return simulate(pipeline, users, _seeded(1))
    return simulate(pipeline, users, _seeded(1), speculation)


@pytest.mark.parametrize("hop_ms", [0.0, 0.5, 25.0])
@pytest.mark.parametrize("num_users", [1, 2])
@pytest.mark.parametrize("stage_ms", [(10.0, 10.0), (12.0, 9.0), (5.0, 5.0, 5.0, 5.0)])
def test_plain_decoding_is_as_the_formula_says(
    stage_ms: tuple[float, ...], num_users: int, hop_ms: float
) -> None:
    seen = _run(Pipeline(_stages(*stage_ms), hop_ms, hop_ms), num_users)
    expected = plain_tokens_per_s(stage_ms, hop_ms, num_users, 1, 1.0)
    assert seen.tokens_per_s == pytest.approx(expected, rel=WITHIN)


@pytest.mark.parametrize(("num_users", "rows"), [(4, 2), (8, 4)])
def test_users_are_divided_among_the_micro_batches(num_users: int, rows: int) -> None:
    seen = _run(Pipeline(_stages(10.0, 10.0), 0.5, 0.5), num_users)
    expected = plain_tokens_per_s((10.0, 10.0), 0.5, 2, rows, ROW_COSTS[rows])
    assert seen.tokens_per_s == pytest.approx(expected, rel=WITHIN)


def test_more_and_smaller_micro_batches_are_faster_over_a_long_link() -> None:
    stages = _stages(10.0, 10.0)
    two = _run(Pipeline(stages, 50.0, 50.0), 8)
    eight = _run(Pipeline(stages, 50.0, 50.0, num_in_flight=8), 8)
    expected = plain_tokens_per_s((10.0, 10.0), 50.0, 8, 1, 1.0)
    assert eight.tokens_per_s == pytest.approx(expected, rel=WITHIN)
    assert eight.tokens_per_s > two.tokens_per_s


def test_guesses_ahead_over_a_long_link_do_not_divide_the_users_further() -> None:
    stages = _stages(10.0, 10.0)
    guessing = Speculation(rows=4, acceptance=0.8, num_frames=4)
    users = [User(400)] * 2
    ahead = Pipeline(stages, 50.0, 50.0, num_in_flight=8, max_groups=2)
    assert ahead.num_groups == 2
    streaming = simulate(ahead, users, _Even(), guessing)
    waiting = simulate(Pipeline(stages, 50.0, 50.0), users, _Even(), Speculation(4, 0.8))
    assert streaming.tokens_per_s > 1.1 * waiting.tokens_per_s


class _Even(Random):  # noqa: S311 - which drafts are right is no secret
    """Numbers in random order, evenly spread: as few of them as a test draws do not mislead."""

    def __init__(self) -> None:
        super().__init__(1)
        self._left: list[float] = []

    def random(self) -> float:
        if not self._left:
            self._left = [(number + 0.5) / 1000 for number in range(1000)]
            self.shuffle(self._left)
        return self._left.pop()

    def getrandbits(self, k: int) -> int:
        return Random.getrandbits(self, k)


@pytest.mark.parametrize("acceptance", [0.0, 0.5, 0.8])
@pytest.mark.parametrize("hop_ms", [0.5, 25.0])
def test_synchronous_speculation_is_as_the_formula_says(hop_ms: float, acceptance: float) -> None:
    pipeline = Pipeline(_stages(10.0, 10.0), hop_ms, hop_ms)
    seen = simulate(pipeline, [User(3000)], _Even(), Speculation(4, acceptance))
    expected = synchronous_tokens_per_s((10.0, 10.0), hop_ms, 3, acceptance, ROW_COSTS[4])
    assert seen.tokens_per_s == pytest.approx(expected, rel=WITHIN)


@pytest.mark.parametrize("acceptance", [0.0, 0.5, 0.9])
@pytest.mark.parametrize("rows", [1, 4])
def test_continuous_speculation_over_a_long_link_is_as_the_formula_says(
    rows: int, acceptance: float
) -> None:
    hop_ms, num_frames = 200.0, 45  # enough of them that the chain never pauses
    pipeline = Pipeline(_stages(10.0, 10.0), hop_ms, hop_ms, num_frames)
    speculation = Speculation(rows, acceptance, num_frames=num_frames)
    seen = simulate(pipeline, [User(3000)], _Even(), speculation)
    expected = continuous_tpot_ms((10.0, 10.0), hop_ms, rows, acceptance, ROW_COSTS[rows])
    assert 1e3 / seen.tokens_per_s == pytest.approx(expected, rel=WITHIN)


def test_without_a_right_draft_continuous_speculation_is_plain_decoding() -> None:
    plain = _run(Pipeline(_stages(10.0, 10.0), 25.0, 25.0), 1)
    guessing = _run(
        Pipeline(_stages(10.0, 10.0), 25.0, 25.0), 1, 400, Speculation(1, 0.0, num_frames=2)
    )
    assert guessing.tokens_per_s == pytest.approx(plain.tokens_per_s, rel=WITHIN)


@pytest.mark.parametrize("num_chunks", [1, 2, 8])
def test_chunks_of_a_prompt_follow_each_other(num_chunks: int) -> None:
    def cost(_: int, num_rows: int) -> float:
        return 100.0 if num_rows == CHUNK_TOKENS else 1.0

    pipeline = Pipeline((cost, cost), 2.0, 2.0)
    seen = simulate(pipeline, [User(2, num_chunks * CHUNK_TOKENS)], _seeded(1))
    expected = prefill_ms(200.0, num_chunks, 2, 2.0)
    assert seen.token_times_ms[0][0] == pytest.approx(expected, rel=WITHIN)


def test_a_stage_is_busy_for_as_long_as_it_computes() -> None:
    seen = _run(Pipeline(_stages(10.0, 5.0)), 2, 200)
    assert seen.busy == (pytest.approx(1.0, abs=0.01), pytest.approx(0.5, abs=0.01))
    assert seen.num_batches == 400


def test_every_user_has_the_answer_whatever_else_goes_on() -> None:
    users = [User(50, 300, start_ms=40.0 * number) for number in range(5)]
    speculation = Speculation(3, 0.6, num_frames=2)
    seen = simulate(Pipeline(_stages(4.0, 3.0), 1.0, 1.0), users, _seeded(2), speculation)
    assert [len(times) for times in seen.token_times_ms] == [50] * 5
    assert all(list(times) == sorted(times) for times in seen.token_times_ms)


def test_the_same_seed_gives_the_same_run() -> None:
    speculation = Speculation(3, 0.6, num_frames=2)
    pipeline = Pipeline(_stages(4.0, 3.0), 1.0, 1.0)
    assert _run(pipeline, 2, 100, speculation) == _run(pipeline, 2, 100, speculation)
