"""In exact mode a paged stage's rows do not depend on what is computed beside them."""

import numpy as np
import pytest

from engine.domain import MicroBatch, SequenceId
from engine.stages.kernel_class import widened
from engine.stages.loading import load_stage
from tests.unit.stages.running import PROMPTS, batch, whole


def test_single_rows_are_repeated_and_the_others_stay():
    """Ids, hidden states, steps, and where the rows are."""
    before = batch((1, 5, [7], 1), (2, 0, [3, 4, 5], 1), (3, 9, [8], 0))
    hidden = np.arange(10, dtype=np.float32).reshape(5, 2)
    wide, rows = widened(
        MicroBatch(before.batch_id, before.epoch, before.steps, before.token_ids, hidden)
    )
    assert wide.token_ids.tolist() == [7, 7, 3, 4, 5, 8, 8]
    assert wide.hidden_states[:, 0].tolist() == [0, 0, 2, 4, 6, 8, 8]
    assert [(s.past_len, s.num_tokens) for s in wide.steps] == [(5, 2), (0, 3), (9, 2)]
    assert rows.tolist() == [0, 2, 3, 4, 5]
    assert (wide.token_ids[rows] == before.token_ids).all()
    assert widened(before).batch.hidden_states is None


def test_a_batch_without_single_rows_is_left_alone():
    """Prompts, and tokens with drafts."""
    before = batch((1, 5, [7, 8], 2), (2, 0, [3, 4, 5], 1))
    wide, rows = widened(before)
    assert wide is before
    assert rows.tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("name", ["llama", "qwen2", "mixtral"])
def test_a_token_has_the_same_logits_alone_with_drafts_and_with_neighbours(name):
    """To the last bit, and after rewinds."""
    stage = load_stage(whole(name, "paged", max_tokens=512, max_sequences=3))
    stage.run(batch((1, 0, PROMPTS[0], 1)))
    stage.run(batch((2, 0, [9] * 40, 1)))
    past, ids = len(PROMPTS[0]), [5, 6, 7, 8, 9, 10, 11, 12]
    alone = []
    for number, token_id in enumerate(ids):
        alone.append(stage.run(batch((1, past + number, [token_id], 1)))[0].copy())
    for width in (1, 2, 3, 4, 5, 8):
        rows = stage.run(batch((1, past, ids[:width], width)))
        for number in range(width):
            assert np.array_equal(rows[number], alone[number]), (width, number)
    beside = stage.run(batch((2, 40, [3], 1), (1, past, ids[:1], 1)))
    assert np.array_equal(beside[1], alone[0])
    beside = stage.run(batch((1, past, ids[:4], 4), (2, 40, [3, 4], 2)))
    assert np.array_equal(beside[3], alone[3])
    assert stage.kv_usage().num_sequences == 2


def test_the_row_that_was_put_in_takes_no_room():
    """At the edge of a block the next one is free again afterwards."""
    stage = load_stage(whole("llama", "paged", max_tokens=64, max_sequences=1))
    stage.run(batch((1, 0, [3] * 31, 1)))
    stage.run(batch((1, 31, [4], 1)))
    assert stage.kv_usage().used_blocks == 1
    for past in range(32, 96):  # the last one has no room for another
        stage.run(batch((1, past, [4], 1)))
    assert stage.kv_usage().free_blocks == 0
    stage.release(SequenceId(1))
