"""Tokens behind drafts are drawn as without them."""

import numpy as np
import pytest

from engine.errors import InferenceError, LocalProtocolError
from engine.sampling.parameters import SamplingParameters
from engine.sampling.sampler import sample
from engine.sampling.verification import draw_while_drafts_hold

RNG = np.random.default_rng(8)
GREEDY = SamplingParameters()
SAMPLED = SamplingParameters(temperature=1.2, seed=4)
PENALISED = SamplingParameters(
    temperature=1.2, repetition_penalty=1.3, frequency_penalty=2.0, presence_penalty=1.0, seed=4
)


def alone(logits, parameters, prompt):
    """Draw from each row with what was drawn before it, one token at a time."""
    ids = list(prompt)
    for row in logits:
        ids.append(sample(row, parameters, np.array(ids, np.int32), len(prompt), len(ids)))
    return ids[len(prompt) :]


@pytest.mark.parametrize(
    "parameters", [GREEDY, SAMPLED, PENALISED], ids=["greedy", "sampled", "penalised"]
)
@pytest.mark.parametrize("num_right", range(5))
def test_as_many_are_drawn_as_drafts_hold_and_one_more(parameters, num_right):
    """Of four drafts the first ones are right."""
    logits = RNG.standard_normal((5, 20)).astype(np.float32)
    truth = alone(logits, parameters, (3, 1))
    drafts = [t if i < num_right else (t + 1) % 20 for i, t in enumerate(truth[:4])]
    fed = np.array([3, 1, *drafts], np.int32)
    drawn = draw_while_drafts_hold(logits, parameters, fed, 2, 2)
    assert drawn == tuple(truth[: num_right + 1])


def test_logits_that_cannot_be_drawn_from_matter_only_where_a_token_is_drawn():
    """Behind a wrong draft they may be anything."""
    logits = np.zeros((2, 4), np.float32)
    logits[0, 2] = 1.0
    logits[1] = np.nan
    assert draw_while_drafts_hold(logits, GREEDY, np.array([0, 1], np.int32), 1, 1) == (2,)
    with pytest.raises(InferenceError):
        draw_while_drafts_hold(logits, GREEDY, np.array([0, 2], np.int32), 1, 1)


def test_no_row_gives_no_token():
    """A prompt's chunk."""
    none = np.zeros((0, 4), np.float32)
    assert draw_while_drafts_hold(none, GREEDY, np.array([1], np.int32), 1, 2) == ()


def test_rows_with_penalties_need_the_tokens_before_them():
    """Too short a history is our own fault, told as such."""
    logits = RNG.standard_normal((4, 50)).astype(np.float32)
    fed = np.arange(7, dtype=np.int32)
    with pytest.raises(LocalProtocolError, match="position 8"):
        draw_while_drafts_hold(logits, PENALISED, fed, 2, 5)
    assert draw_while_drafts_hold(logits[:3], PENALISED, fed, 2, 5)
    without = np.zeros(0, np.int32)
    assert draw_while_drafts_hold(logits[:1], GREEDY, without, 2, 5) == (int(logits[0].argmax()),)
