"""A sequence that begins with what another left gets the tokens it would get by itself."""

import pytest

from engine.domain import KeptPrefix, SequenceId
from engine.errors import KVCacheFullError, LocalProtocolError
from engine.stages.loading import load_stage
from tests.unit.stages.running import PROMPTS, batch, plain_greedy, whole

KINDS = ["paged", "stateful"]
LONG = PROMPTS[3]  # 64 tokens
NUM_TOKENS = 6


@pytest.fixture(scope="module", params=KINDS)
def stage(request):
    return load_stage(whole("llama", request.param))


@pytest.fixture(autouse=True)
def released(stage):
    yield
    for number in range(8):
        stage.release(SequenceId(number))
    assert stage.kv_usage().used_blocks == 0


def go_on(stage, number, past_len, prompt, num_tokens=NUM_TOKENS):
    """Answer a prompt whose first tokens are cached."""
    rows, answer = prompt[past_len:], []
    while len(answer) < num_tokens:
        logits = stage.run(batch((number, past_len, rows, 1)))
        past_len, rows = past_len + len(rows), [int(logits[0].argmax())]
        answer += rows
    return answer


def prefix(number, num_tokens):
    return KeptPrefix(SequenceId(number), num_tokens)


@pytest.mark.parametrize("num_tokens", [32, 64])
def test_the_answer_is_the_same(stage, num_tokens):
    """Whether one block of the other is taken or both, and whatever came behind them."""
    go_on(stage, 1, 0, LONG)
    prompt = [*LONG[:num_tokens], 5, 6, 7]
    stage.begin_from(SequenceId(2), prefix(1, num_tokens))
    assert go_on(stage, 2, num_tokens, prompt) == plain_greedy("llama", prompt, NUM_TOKENS)


def test_a_paged_stage_shares_and_the_other_stays_as_it_was(stage):
    """Two begin with it, beside each other; a stateful one has it once."""
    prompts = {number: [*LONG[:32], number, 9] for number in (2, 3)}
    go_on(stage, 1, 0, LONG)
    if stage.description.kind == "stateful":
        stage.begin_from(SequenceId(2), prefix(1, 32))
        stage.begin_from(SequenceId(3), prefix(1, 32))
        with pytest.raises(LocalProtocolError, match="32, and 0 positions"):
            stage.run(batch((3, 32, [1], 1)))
        return
    for number in prompts:
        stage.begin_from(SequenceId(number), prefix(1, 32))
    before = stage.kv_usage()
    assert (before.num_sequences, before.used_blocks) == (3, 3)
    logits = stage.run(batch(*[(n, 32, prompt[32:], 1) for n, prompt in prompts.items()]))
    assert [int(row.argmax()) for row in logits] == [
        plain_greedy("llama", prompt, 1)[0] for prompt in prompts.values()
    ]
    assert stage.kv_usage().used_blocks == 5
    stage.release(SequenceId(2))
    stage.release(SequenceId(3))
    stage.begin_from(SequenceId(4), prefix(1, 64))
    prompt = [*LONG, 3]
    assert go_on(stage, 4, 64, prompt) == plain_greedy("llama", prompt, NUM_TOKENS)


def test_a_prefix_outlives_the_one_it_was_taken_from(stage):
    go_on(stage, 1, 0, LONG)
    stage.begin_from(SequenceId(2), prefix(1, 32))
    stage.release(SequenceId(1))
    go_on(stage, 3, 0, PROMPTS[1])  # takes the blocks that are free now
    prompt = [*LONG[:32], 8]
    assert go_on(stage, 2, 32, prompt) == plain_greedy("llama", prompt, NUM_TOKENS)


@pytest.mark.parametrize(("kept", "num_tokens"), [(5, 32), (1, 96)], ids=["nobody", "too much"])
def test_what_is_not_there_is_refused_at_the_first_step(stage, kept, num_tokens):
    go_on(stage, 1, 0, LONG, num_tokens=1)
    stage.begin_from(SequenceId(2), prefix(kept, num_tokens))
    with pytest.raises(LocalProtocolError, match="0 positions of it are cached"):
        stage.run(batch((2, num_tokens, [1], 1)))
    assert stage.kv_usage().num_sequences == 1


def test_a_shared_block_is_never_written(stage):
    """Not by who shares it; whoever is alone with it may."""
    if stage.description.kind == "stateful":
        return
    go_on(stage, 1, 0, LONG)
    stage.begin_from(SequenceId(2), prefix(1, 64))
    for number, past_len in ((1, 63), (2, 63), (2, 0)):
        with pytest.raises(LocalProtocolError, match="inside what it shares"):
            stage.run(batch((number, past_len, [1], 1)))
    stage.release(SequenceId(1))
    prompt = [*LONG[:40], 4]
    assert go_on(stage, 2, 40, prompt) == plain_greedy("llama", prompt, NUM_TOKENS)


def test_masked_slots_of_others_make_room():
    """A stateful stage whose kept sequences hold more slots than tokens is not full of them."""
    stage = load_stage(whole("llama", "stateful", max_tokens=96, max_sequences=1))
    go_on(stage, 1, 0, LONG, num_tokens=1)
    stage.begin_from(SequenceId(2), prefix(1, 32))
    assert stage.kv_usage().used_blocks == 2
    prompt = PROMPTS[3][::-1]
    assert go_on(stage, 3, 0, [*prompt, 5, 6], num_tokens=3) == plain_greedy(
        "llama", [*prompt, 5, 6], 3
    )
    assert stage.kv_usage().used_blocks == 1 + 3
    shorter = [*LONG[:32]]
    logits = stage.run(batch((2, 31, shorter[31:], 1)))
    assert int(logits[0].argmax()) == plain_greedy("llama", shorter, 1)[0]
    with pytest.raises(KVCacheFullError):
        stage.run(batch((4, 0, [1], 1), (5, 0, [1], 1)))


def test_states_that_are_cut_are_cut_when_they_are_handed_over():
    """Where masked slots would count as positions."""
    stage = load_stage(whole("llama", "stateful"))
    stage.cuts_states = True
    go_on(stage, 1, 0, LONG)
    stage.begin_from(SequenceId(2), prefix(1, 32))
    assert stage.kv_usage().used_blocks == 1
    prompt = [*LONG[:32], 5, 6, 7]
    assert go_on(stage, 2, 32, prompt) == plain_greedy("llama", prompt, NUM_TOKENS)
