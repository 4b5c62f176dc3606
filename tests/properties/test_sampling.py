"""What holds of every distribution, whatever the logits and the settings."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.sampling.distribution import distribution
from engine.sampling.parameters import SamplingParameters
from engine.sampling.sampler import sample

finite_logits = st.floats(width=32, allow_nan=False, allow_infinity=False)
logits_rows = st.lists(
    st.one_of(finite_logits, st.sampled_from([-np.inf, 0.0, 1.0])), min_size=1, max_size=40
).filter(lambda row: max(row) > -np.inf)
parameter_sets = st.builds(
    SamplingParameters,
    temperature=st.floats(0, 100),
    top_k=st.integers(0, 50),
    top_p=st.floats(0, 1),
    min_p=st.floats(0, 1),
    repetition_penalty=st.floats(0.01, 100),
    presence_penalty=st.floats(-100, 100),
    frequency_penalty=st.floats(-100, 100),
    seed=st.integers(0, 2**64 - 1),
)
histories = st.lists(st.integers(0, 60), max_size=20)


@settings(max_examples=400, deadline=None)
@given(row=logits_rows, parameters=parameter_sets, tokens=histories, position=st.integers(0, 2**31))
def test_every_allowed_setting_gives_a_distribution_and_a_token_of_it(
    row, parameters, tokens, position
):
    """Never an empty candidate set, a NaN, a banned token, or another token the second time."""
    logits = np.array(row, dtype=np.float32)
    history = np.array(tokens, dtype=np.int32)
    num_prompt_tokens = len(tokens) // 2
    parameters.checked()
    token_ids, probabilities = distribution(logits, parameters, history, num_prompt_tokens)
    assert len(token_ids) == len(probabilities) >= 1
    assert np.isfinite(probabilities).all()
    assert abs(probabilities.sum() - 1) < 1e-9
    assert (logits[token_ids] > -np.inf).all()
    if parameters.top_k:
        assert len(token_ids) <= parameters.top_k
    drawn = sample(logits, parameters, history, num_prompt_tokens, position)
    assert drawn in token_ids
    assert drawn == sample(logits, parameters, history, num_prompt_tokens, position)


@settings(max_examples=200, deadline=None)
@given(row=logits_rows, top_p=st.floats(0, 1, exclude_max=True), temperature=st.floats(0.01, 10))
def test_top_p_keeps_enough_and_no_token_too_many(row, top_p, temperature):
    """What is kept reaches top_p; without its least likely token it does not."""
    logits = np.array(row, dtype=np.float32)
    history = np.zeros(0, dtype=np.int32)
    whole_ids, whole = distribution(logits, SamplingParameters(temperature=temperature), history, 0)
    kept_ids, _ = distribution(
        logits, SamplingParameters(temperature=temperature, top_p=top_p), history, 0
    )
    kept = whole[np.isin(whole_ids, kept_ids)]
    assert kept.sum() >= top_p - 1e-9
    assert kept.sum() - kept.min() < top_p + 1e-9
    assert logits[kept_ids].min() >= np.delete(logits, kept_ids).max(initial=-np.inf)
