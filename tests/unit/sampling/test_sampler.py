"""The draw: seeded, repeatable, and distributed as asked."""

import json
from pathlib import Path

import numpy as np
import pytest

from engine.errors import InferenceError
from engine.sampling.distribution import distribution
from engine.sampling.parameters import MAX_SEED, SamplingParameters
from engine.sampling.sampler import sample, uniform_draw

NO_HISTORY = np.zeros(0, dtype=np.int32)
K18 = json.loads(
    (Path(__file__).parents[2] / "vectors" / "cases" / "K18.json").read_text(encoding="utf-8")
)
GREEDY_ROWS = [
    {name: value for name, value in row.items() if name not in {"right", "seed"}}
    for row in K18["rows"]
    if row["right"].startswith("greedy")
]


def random_logits(size, seed=1):
    generator = np.random.Generator(np.random.Philox(key=seed))
    return (generator.standard_normal(size) * 2).astype(np.float32)


def philox4x64(key, counter):
    """Compute the first word of Philox4x64-10 by the paper (Salmon et al. 2011, section 3)."""
    mask = 2**64 - 1
    # numpy counts up before the first block
    counter += 1
    words = [(counter >> 64 * i) & mask for i in range(4)]
    keys = [key & mask, key >> 64]
    for _ in range(10):
        high0, low0 = divmod(0xD2E7470EE14C6C93 * words[0], 2**64)
        high1, low1 = divmod(0xCA5A826395121157 * words[2], 2**64)
        words = [high1 ^ words[1] ^ keys[0], low1, high0 ^ words[3] ^ keys[1], low0]
        keys = [(keys[0] + 0x9E3779B97F4A7C15) & mask, (keys[1] + 0xBB67AE8584CAA73B) & mask]
    return words[0]


@pytest.mark.parametrize("seed", [0, 1, 42, MAX_SEED])
@pytest.mark.parametrize("position", [0, 1, 131_072])
def test_the_random_number_is_that_of_the_published_generator(seed, position):
    """Any implementation of Philox4x64-10 continues the same text."""
    assert uniform_draw(seed, position) == (philox4x64(seed, position) >> 11) / 2**53


def test_the_random_numbers_are_uniform_over_positions_and_over_seeds():
    """Mean 1/2 and every tenth hit as often, within five standard deviations."""
    for draws in (
        [uniform_draw(7, position) for position in range(10_000)],
        [uniform_draw(seed, 7) for seed in range(10_000)],
    ):
        counts = np.bincount((np.array(draws) * 10).astype(int), minlength=10)
        assert abs(counts - 1000).max() < 5 * 30
        assert abs(np.mean(draws) - 0.5) < 5 * 0.0029


@pytest.mark.parametrize(
    "settings",
    [
        {"temperature": 1.0},
        {"temperature": 0.5},
        {"temperature": 2.0},
        {"temperature": 1.0, "top_k": 4},
        {"temperature": 1.0, "top_p": 0.8},
        {"temperature": 1.0, "min_p": 0.2},
        {"temperature": 1.0, "repetition_penalty": 1.5},
        {"temperature": 1.0, "presence_penalty": 1.0},
        {"temperature": 1.0, "frequency_penalty": 0.5},
        {"temperature": 1.3, "top_k": 9, "top_p": 0.9, "min_p": 0.05, "presence_penalty": 0.3},
    ],
    ids=str,
)
def test_drawn_tokens_are_distributed_as_asked(settings):
    """Chi-square over 4,000 seeds; six standard deviations above its mean is never seen."""
    logits = random_logits(12)
    history = np.array([0, 1, 1, 2, 2, 2], dtype=np.int32)
    num_draws = 4000
    counts = np.zeros(12)
    for seed in range(num_draws):
        counts[sample(logits, SamplingParameters(**settings, seed=seed), history, 2, 6)] += 1
    token_ids, probabilities = distribution(logits, SamplingParameters(**settings), history, 2)
    expected = np.zeros(12)
    expected[token_ids] = probabilities * num_draws
    assert counts[expected == 0].sum() == 0
    possible = expected > 0
    chi_square = ((counts - expected)[possible] ** 2 / expected[possible]).sum()
    degrees = possible.sum() - 1
    assert chi_square < degrees + 6 * np.sqrt(2 * degrees)
    assert abs(counts - expected).sum() / (2 * num_draws) < 0.05  # total variation


@pytest.mark.parametrize("settings", GREEDY_ROWS, ids=json.dumps)
@pytest.mark.parametrize("seed", [0, 1, 3, 7, MAX_SEED])
def test_rows_of_the_table_that_mean_greedy_are_greedy_for_every_seed(settings, seed):
    """And the next ordinary request still draws an ordinary token."""
    logits = random_logits(49_152)
    parameters = SamplingParameters(**settings, seed=seed).checked()
    assert sample(logits, parameters, NO_HISTORY, 0, 5) == int(np.argmax(logits))
    ordinary = SamplingParameters(temperature=0.8, top_p=0.9, seed=seed)
    assert 0 <= sample(logits, ordinary, NO_HISTORY, 0, 5) < 49_152


def test_a_draw_depends_on_seed_and_position_only():
    """Other requests between two equal ones change nothing; another seed or position does."""
    logits = random_logits(1000)
    seeded = SamplingParameters(temperature=2.0, seed=42)
    first = [sample(logits, seeded, NO_HISTORY, 0, position) for position in range(16)]
    again = []
    for position in range(16):
        for neighbour in range(3):
            other = SamplingParameters(temperature=1.0, top_k=5, seed=neighbour)
            sample(random_logits(1000, seed=9), other, NO_HISTORY, 0, position)
        again.append(sample(logits, seeded, NO_HISTORY, 0, position))
    assert again == first
    assert len(set(first)) > 8
    reseeded = SamplingParameters(temperature=2.0, seed=43)
    assert [sample(logits, reseeded, NO_HISTORY, 0, position) for position in range(16)] != first


def test_greedy_takes_the_first_best_token():
    """With and without penalties."""
    logits = np.array([1, 3, 3, 2.9], dtype=np.float32)
    assert sample(logits, SamplingParameters(), NO_HISTORY, 0, 0) == 1
    history = np.array([1, 2], dtype=np.int32)
    assert sample(logits, SamplingParameters(presence_penalty=1.0), history, 0, 2) == 3


def test_a_bad_row_is_an_error():
    """A NaN is never turned into a token."""
    logits = np.array([1, np.nan], dtype=np.float32)
    for parameters in (SamplingParameters(), SamplingParameters(temperature=1.0)):
        with pytest.raises(InferenceError):
            sample(logits, parameters, NO_HISTORY, 0, 0)
