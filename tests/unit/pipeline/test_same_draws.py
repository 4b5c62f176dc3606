"""Prefilling prompt and answer draws what decoding drew: a real stage, sampling and penalties."""

import pytest

from engine.domain import SequenceId
from engine.messages.chain import CloseSequence, OpenSequence
from engine.messages.codec import decode
from engine.sampling.parameters import SamplingParameters
from engine.stages.loading import load_stage
from engine.stages.service import StageService
from tests.unit.stages.running import PROMPTS, batch, whole

NUM_TOKENS = 16
PROMPT = PROMPTS[1]
SETTINGS = {
    "greedy": SamplingParameters(),
    "sampled": SamplingParameters(temperature=1.3, top_p=0.95, seed=2**63 + 5),
    "penalised": SamplingParameters(
        temperature=0.8,
        repetition_penalty=1.3,
        presence_penalty=0.7,
        frequency_penalty=0.4,
        seed=11,
    ),
}


@pytest.fixture(scope="module", params=["paged", "stateful"])
def stage(request):
    return load_stage(whole("llama", request.param, max_tokens=256, max_sequences=2))


def drawn(service, sequence, sampling, committed=(), chunk=256):
    """Answer the prompt to 16 tokens, where some of them are committed already."""
    number = SequenceId(sequence)
    service.answer(
        OpenSequence(epoch=1, sequence_id=number, num_prompt_tokens=len(PROMPT), sampling=sampling)
    )
    ids, past_len, answer = [*PROMPT, *committed], 0, list(committed)
    while len(answer) < NUM_TOKENS:
        step = ids[past_len : past_len + chunk]
        is_last = past_len + len(step) == len(ids)
        rows = decode(service.answer(batch((sequence, past_len, step, int(is_last))))).rows
        past_len += len(step)
        if is_last:
            (token_id,) = rows[0].token_ids
            answer.append(token_id)
            ids.append(token_id)
    service.answer(CloseSequence(epoch=1, sequence_id=number))
    return answer


@pytest.mark.parametrize("name", SETTINGS)
def test_an_answer_goes_on_with_the_same_tokens(stage, name):
    service, sampling = StageService(stage), SETTINGS[name]
    undisturbed = drawn(service, 1, sampling)
    assert len(set(undisturbed)) > 3, "one that repeats itself would show nothing"
    for count in range(NUM_TOKENS):
        # Another stage has none of the first one's history; the longest prompts come in chunks.
        other = StageService(stage)
        chunk = 256 if count % 2 else 19
        assert drawn(other, 2, sampling, undisturbed[:count], chunk) == undisturbed, count


def test_another_seed_draws_something_else(stage):
    service, sampling = StageService(stage), SETTINGS["sampled"]
    other = SamplingParameters(temperature=1.3, top_p=0.95, seed=6)
    assert drawn(service, 1, sampling) != drawn(service, 2, other)
