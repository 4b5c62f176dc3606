"""In exact mode a stage gives the tokens of the unsplit model, however its batches are made."""

import os
from functools import cache

import pytest

from engine.stages.loading import load_stage
from tests.unit.stages.running import PROMPTS, batch, greedy, plain_greedy, whole

NUM_TOKENS = 64 if os.environ.get("DAISY_LONG") == "1" else 32  # a block, past the window of 24


@cache
def expected(name):
    return [plain_greedy(name, prompt, NUM_TOKENS) for prompt in PROMPTS]


@cache
def stage(name, kind):
    window = 24 if name == "mistral-window" else None
    return load_stage(whole(name, kind, sliding_window=window))


def test_the_fixtures_answers_differ():
    """Else equality would say nothing."""
    answers = {tuple(answer) for answer in expected("llama")}
    assert len(answers) == len(PROMPTS)
    assert all(len(set(answer)) > 8 for answer in answers)


@pytest.mark.parametrize("kind", ["paged", "stateful"])
@pytest.mark.parametrize("name", ["llama", "gpt2", "mistral-window", "bloom"])
def test_four_batched_sequences_give_the_unsplit_models_tokens(name, kind):
    """Prompts of 5, 33, 40 and 64 tokens: blocks that are partly and just full."""
    assert greedy(stage(name, kind), PROMPTS, NUM_TOKENS) == expected(name)


@pytest.mark.parametrize("kind", ["paged", "stateful"])
def test_one_sequence_gives_the_unsplit_models_tokens(kind):
    assert greedy(stage("llama", kind), PROMPTS[:1], NUM_TOKENS) == expected("llama")[:1]


@pytest.mark.parametrize("kind", ["paged", "stateful"])
@pytest.mark.parametrize("drafted", range(1, 8))
def test_a_rewind_at_every_step_changes_nothing(kind, drafted):
    """``drafted`` wrong tokens in every step, dropped by the next one's smaller past_len."""
    answers = greedy(stage("llama", kind), PROMPTS[:2], NUM_TOKENS, drafted)
    assert answers == expected("llama")[:2]


@pytest.mark.parametrize("name", ["mistral-window", "bloom", "mpt"])
def test_models_that_count_positions_from_the_cache_are_rewound_too(name):
    """A sliding window of 24, and ALiBi: masked slots would count as distance."""
    window = stage(name, "stateful")
    assert window.cuts_states
    assert greedy(window, PROMPTS[:2], NUM_TOKENS, 3) == expected(name)[:2]


def test_a_cache_full_of_masked_slots_is_cut_back():
    """Seven of eight tokens fed are wrong: masking alone would need far more than 96 slots."""
    loaded = load_stage(whole("llama", "stateful", max_tokens=64, max_sequences=1))
    assert greedy(loaded, PROMPTS[1:2], 20, 7) == [expected("llama")[1][:20]]
    assert loaded.kv_usage().used_blocks == 0


@pytest.mark.parametrize("kind", ["paged", "stateful"])
def test_a_prompt_in_chunks_gives_the_same_answer(kind):
    """As prefill chunks of 10, 1 and 29 tokens, the first two without logits."""
    loaded, prompt = stage("llama", kind), PROMPTS[1]
    assert loaded.run(batch((0, 0, prompt[:10], 0))).shape == (0, 512)
    assert loaded.run(batch((0, 10, prompt[10:11], 0))).shape == (0, 512)
    rows = loaded.run(batch((0, 11, prompt[11:], 2)))
    assert rows.shape == (2, 512)
    assert int(rows[1].argmax()) == expected("llama")[1][0]
    loaded.release(0)


@pytest.mark.parametrize("kind", ["paged", "stateful"])
def test_a_rewind_to_the_beginning_starts_the_sequence_anew(kind):
    loaded = stage("llama", kind)
    loaded.run(batch((0, 0, PROMPTS[3], 0)))
    rows = loaded.run(batch((0, 0, PROMPTS[0], 1)))
    assert int(rows[0].argmax()) == expected("llama")[0][0]
    assert loaded.kv_usage().used_blocks == 1
    loaded.release(0)


@pytest.mark.parametrize("kind", ["paged", "stateful"])
def test_a_released_sequence_leaves_nothing_behind(kind):
    """The next one under the same id begins at position 0."""
    loaded = stage("llama", kind)
    for _ in range(2):
        assert greedy(loaded, PROMPTS[2:3], 8) == [expected("llama")[2][:8]]
        assert loaded.kv_usage().num_sequences == 0
