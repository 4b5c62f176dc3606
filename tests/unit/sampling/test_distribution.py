"""The distribution a request asked for, against the published definitions written out."""

import numpy as np
import pytest

from engine.errors import InferenceError
from engine.sampling.distribution import best_token, distribution, penalised
from engine.sampling.parameters import SamplingParameters

NO_HISTORY = np.zeros(0, dtype=np.int32)


def random_logits(size, seed=1, spread=3.0):
    generator = np.random.Generator(np.random.Philox(key=seed))
    return (generator.standard_normal(size) * spread).astype(np.float32)


def softmax(scores):
    weights = np.exp(scores - scores.max())
    return weights / weights.sum()


def reference(logits, parameters, history=(), num_prompt_tokens=0):
    """Compute the distribution over the whole vocabulary, one published definition after another.

    Penalties: Keskar et al. 2019 and the OpenAI API reference. Temperature, top-k (Fan et al.
    2018), top-p (Holtzman et al. 2020) and min-p (Nguyen et al. 2024) as transformers orders and
    renormalises them.
    """
    scores = logits.astype(np.float64)
    for token in set(history):
        scores[token] *= (
            1 / parameters.repetition_penalty
            if scores[token] > 0
            else (parameters.repetition_penalty)
        )
    for token in set(history[num_prompt_tokens:]):
        count = list(history[num_prompt_tokens:]).count(token)
        scores[token] -= count * parameters.frequency_penalty + parameters.presence_penalty
    scores /= parameters.temperature
    ranked = sorted(range(len(scores)), key=lambda token: (-scores[token], token))
    if parameters.top_k:
        scores[ranked[parameters.top_k :]] = -np.inf
    probabilities = softmax(scores)
    reached, kept = 0.0, []
    for token in ranked:
        kept.append(token)
        reached += probabilities[token]
        if reached >= parameters.top_p:
            break
    if parameters.top_p < 1:
        dropped = np.setdiff1d(np.arange(len(scores)), kept)
        scores[dropped] = -np.inf
    probabilities = softmax(scores)
    scores[probabilities < parameters.min_p * probabilities.max()] = -np.inf
    return softmax(scores)


def dense(logits, parameters, history=NO_HISTORY, num_prompt_tokens=0):
    token_ids, probabilities = distribution(logits, parameters, history, num_prompt_tokens)
    assert token_ids.dtype == np.int64
    assert probabilities.dtype == np.float64
    assert (np.diff(token_ids) > 0).all()
    assert (probabilities > 0).all()
    whole = np.zeros(logits.size)
    whole[token_ids] = probabilities
    return whole


@pytest.mark.parametrize("size", [1, 2, 50, 10_000])
@pytest.mark.parametrize(
    "settings",
    [
        {"temperature": 1.0},
        {"temperature": 0.7},
        {"temperature": 3.0},
        {"temperature": 0.8, "top_k": 2},
        {"temperature": 0.8, "top_k": 40},
        {"temperature": 1.0, "top_k": 9_000},
        {"temperature": 1.0, "top_k": 20_000},
        {"temperature": 0.8, "top_p": 0.9},
        {"temperature": 5.0, "top_p": 0.5},
        {"temperature": 5.0, "top_p": 0.999},
        {"temperature": 1.0, "min_p": 0.1},
        {"temperature": 1.2, "top_k": 60, "top_p": 0.8, "min_p": 0.05},
        {"temperature": 2.0, "top_k": 8_000, "top_p": 0.95, "min_p": 0.001},
    ],
    ids=str,
)
def test_distribution_is_that_of_the_definitions(size, settings):
    """Small and large vocabularies, each setting alone and together."""
    logits = random_logits(size)
    parameters = SamplingParameters(**settings).checked()
    assert dense(logits, parameters) == pytest.approx(reference(logits, parameters), abs=1e-12)


@pytest.mark.parametrize(
    "settings",
    [
        {"repetition_penalty": 1.3},
        {"repetition_penalty": 0.5},
        {"presence_penalty": 0.7},
        {"frequency_penalty": 0.4},
        {"frequency_penalty": -0.4, "presence_penalty": 1.0, "repetition_penalty": 1.1},
    ],
    ids=str,
)
def test_penalties_are_those_of_the_definitions(settings):
    """Repetition sees prompt and answer; presence and frequency see the answer only."""
    logits = random_logits(30)
    history = np.array([1, 1, 2, 3, 3, 3, 4, 29], dtype=np.int32)
    parameters = SamplingParameters(temperature=1.0, **settings).checked()
    expected = reference(logits, parameters, tuple(history), 3)
    assert dense(logits, parameters, history, 3) == pytest.approx(expected, rel=1e-5, abs=1e-9)


def test_penalties_apply_before_a_greedy_choice():
    """The best token changes when the best so far was already said."""
    logits = np.array([2.0, 1.9, 0.0], dtype=np.float32)
    history = np.array([0], dtype=np.int32)
    parameters = SamplingParameters(presence_penalty=0.5)
    token_ids, probabilities = distribution(logits, parameters, history, 0)
    assert token_ids.tolist() == [1]
    assert probabilities.tolist() == [1.0]


def test_penalties_leave_the_logits_they_were_given_alone():
    """They are the stage's own output buffer."""
    logits = random_logits(10)
    before = logits.copy()
    penalised(logits, SamplingParameters(presence_penalty=1.0), np.array([1], dtype=np.int32), 0)
    assert logits.tolist() == before.tolist()


def test_without_penalties_nothing_is_copied():
    """The history is not even read."""
    logits = random_logits(10)
    assert penalised(logits, SamplingParameters(temperature=1.0), NO_HISTORY, 0) is logits


def test_history_beyond_the_vocabulary_counts_for_nothing():
    """A tokenizer may know more tokens than the model has rows."""
    logits = random_logits(10)
    parameters = SamplingParameters(
        repetition_penalty=2.0, presence_penalty=1.0, frequency_penalty=1.0
    )
    strange = penalised(logits, parameters, np.array([3, 10, 99, 4], dtype=np.int32), 1)
    plain = penalised(logits, parameters, np.array([3, 4], dtype=np.int32), 1)
    assert strange.tolist() == plain.tolist()


def test_penalties_keep_banned_tokens_banned_and_finite_ones_finite():
    """No penalty brings a banned token back, overflows, or makes a NaN."""
    huge = float(np.finfo(np.float32).max)
    logits = np.array([-np.inf, huge, -huge, 1.0], dtype=np.float32)
    history = np.array([0, 1, 2], dtype=np.int32)
    parameters = SamplingParameters(repetition_penalty=0.01, frequency_penalty=-100.0)
    scores = penalised(logits, parameters, history, 0)
    assert scores[0] == -np.inf
    assert scores[1] == huge
    assert np.isfinite(scores[1:]).all()


def test_equal_logits_at_the_edge_of_top_k_go_to_the_lower_ids():
    """Exactly k are kept, always the same ones."""
    logits = np.array([1.0, 5.0, 3.0, 3.0, 3.0], dtype=np.float32)
    token_ids, _ = distribution(logits, SamplingParameters(temperature=1.0, top_k=3), NO_HISTORY, 0)
    assert token_ids.tolist() == [1, 2, 3]


def test_equal_logits_at_the_edge_of_top_p_go_to_the_lower_ids():
    """Of four tokens with a quarter each, two reach a half."""
    logits = np.zeros(4, dtype=np.float32)
    parameters = SamplingParameters(temperature=1.0, top_p=0.5)
    token_ids, probabilities = distribution(logits, parameters, NO_HISTORY, 0)
    assert token_ids.tolist() == [0, 1]
    assert probabilities.tolist() == [0.5, 0.5]


def test_min_p_keeps_a_token_exactly_at_its_threshold():
    """Only what is less likely is dropped."""
    logits = np.array([0.0, -1.0, -1.5], dtype=np.float32)
    parameters = SamplingParameters(temperature=1.0, min_p=float(np.exp(-1.0)))
    token_ids, _ = distribution(logits, parameters, NO_HISTORY, 0)
    assert token_ids.tolist() == [0, 1]


def test_top_p_counts_what_top_k_left():
    """Probabilities are normalised over the k first, as transformers does."""
    logits = np.log(np.array([0.4, 0.3, 0.2, 0.1], dtype=np.float32))
    parameters = SamplingParameters(temperature=1.0, top_k=2, top_p=0.56)
    token_ids, _ = distribution(logits, parameters, NO_HISTORY, 0)
    assert token_ids.tolist() == [0]  # 0.4 / 0.7 = 0.571


@pytest.mark.parametrize("size", [10, 50_000])
@pytest.mark.parametrize(
    "settings", [{"top_k": 7}, {"top_p": 0.3}, {"top_k": 5_000, "top_p": 0.9}], ids=str
)
def test_a_vocabulary_of_equal_logits_is_cut_to_its_first_tokens(size, settings):
    """No pivot separates them, and the cut is still the same every time."""
    logits = np.ones(size, dtype=np.float32)
    parameters = SamplingParameters(temperature=1.0, **settings)
    token_ids, probabilities = distribution(logits, parameters, NO_HISTORY, 0)
    assert token_ids.tolist() == list(range(len(token_ids)))
    num_left = min(settings.get("top_k", size), size)
    expected = int(np.ceil(round(num_left * settings.get("top_p", 1.0), 6)))
    assert len(token_ids) == expected
    assert probabilities == pytest.approx(1 / expected)


@pytest.mark.parametrize("banned", [-np.inf, -3e38])
def test_a_large_vocabulary_with_banned_tokens_is_cut_right(banned):
    """Padding rows far below the rest do not draw the pivot away."""
    logits = random_logits(40_000)
    logits[30_000:] = banned
    parameters = SamplingParameters(temperature=1.0, top_k=40)
    token_ids, _ = distribution(logits, parameters, NO_HISTORY, 0)
    assert token_ids.tolist() == sorted(np.argsort(-logits, kind="stable")[:40].tolist())


def test_fewer_possible_tokens_than_top_k_is_no_fault():
    """Banned tokens never get in to fill the number up."""
    logits = np.full(20, -np.inf, dtype=np.float32)
    logits[[3, 5]] = 1.0
    token_ids, _ = distribution(logits, SamplingParameters(temperature=1.0, top_k=9), NO_HISTORY, 0)
    assert token_ids.tolist() == [3, 5]


@pytest.mark.parametrize(
    "settings",
    [
        {"temperature": 0.0},
        {"temperature": 1e-6},
        {"temperature": 1e-38},
        {"temperature": 1e-45},
        {"temperature": 1.0, "top_k": 1},
        {"temperature": 1.0, "top_p": 0.0},
        {"temperature": 1.0, "top_p": 1e-9},
        {"temperature": 1.0, "min_p": 1.0},
        {"temperature": 100.0, "top_p": 0.0},
    ],
    ids=str,
)
def test_settings_that_mean_greedy_leave_the_first_best_token(settings):
    """Also where the best token has a twin."""
    logits = random_logits(1000)
    logits[[300, 700]] = logits.max() + 1
    token_ids, probabilities = distribution(logits, SamplingParameters(**settings), NO_HISTORY, 0)
    assert token_ids.tolist() == [300]
    assert probabilities.tolist() == [1.0]


@pytest.mark.parametrize("temperature", [1.001e-5, 1e-3, 100.0])
def test_no_temperature_overflows(temperature):
    """The widest logits float32 can hold give a distribution at the narrowest temperature."""
    huge = np.finfo(np.float32).max
    logits = np.array([-huge, huge, 0.0, -np.inf], dtype=np.float32)
    parameters = SamplingParameters(temperature=temperature)
    token_ids, probabilities = distribution(logits, parameters, NO_HISTORY, 0)
    assert token_ids.tolist() == [1]
    assert probabilities.tolist() == [1.0]


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("settings", [{}, {"temperature": 1.0}, {"repetition_penalty": 0.5}])
def test_a_nan_or_an_infinity_is_an_error_and_not_a_token(value, settings):
    """Wherever it stands, and even if a penalty would hide it."""
    logits = random_logits(100)
    logits[57] = value
    history = np.array([57], dtype=np.int32)
    with pytest.raises(InferenceError, match="100"):
        distribution(logits, SamplingParameters(**settings), history, 0)


def test_all_tokens_banned_is_an_error():
    """There is nothing to choose from."""
    with pytest.raises(InferenceError, match="-inf"):
        best_token(np.full(5, -np.inf, dtype=np.float32))


def test_best_token_is_the_first_of_equals():
    """As argmax in every reference."""
    assert best_token(np.array([0, 2, 2], dtype=np.float32)) == 1
