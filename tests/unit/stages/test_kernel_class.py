"""A paged stage's rows do not depend on what is computed beside them."""

import numpy as np
import pytest

from engine.domain import MicroBatch, SequenceId
from engine.stages.kernel_class import Subsequences, apart, filled, num_fillers, widened
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


def tables_of(given, block_tokens=4):
    """Of each step its blocks, numbered in order."""
    numbers = iter(range(100))
    lengths = [-(-(s.past_len + s.num_tokens) // block_tokens) for s in given.steps]
    return [np.array([next(numbers) for _ in range(length)], np.int32) for length in lengths]


def test_a_token_with_drafts_is_computed_as_so_many_sequences_on_the_same_blocks():
    """Each reads up to its own position. A prompt's rows stay together."""
    before = batch((1, 6, [7, 8, 9], 3), (2, 0, [3, 4, 5], 1), (3, 9, [8], 1))
    tables = tables_of(before)
    after = apart(Subsequences(before, tables), block_tokens=4)
    steps = [(s.sequence_id, s.past_len, s.num_tokens) for s in after.batch.steps]
    assert steps == [(1, 6, 1), (1, 7, 1), (1, 8, 1), (2, 0, 3), (3, 9, 1)]
    assert [t.tolist() for t in after.tables] == [[0, 1], [0, 1], [0, 1, 2], [3], [4, 5, 6]]
    assert after.batch.token_ids is before.token_ids
    assert (after.batch.batch_id, after.batch.epoch) == (before.batch_id, before.epoch)


def test_single_rows_are_apart_already():
    given = Subsequences(before := batch((1, 6, [7], 1), (2, 0, [3, 4], 0)), tables_of(before))
    assert apart(given, block_tokens=4) is given


def test_rows_are_filled_up_in_a_block_that_is_nobodys():
    """Behind the others, with what is there already."""
    given = Subsequences(before := batch((1, 6, [7, 8], 2)), tables_of(before))
    after = filled(given, 5, block=99)
    assert after.batch.token_ids.tolist() == [7, 8, 8, 8, 8]
    assert [(s.past_len, s.num_tokens, s.num_logits) for s in after.batch.steps] == [
        (6, 2, 2),
        (0, 3, 0),
    ]
    assert [t.tolist() for t in after.tables] == [[0, 1], [99]]
    assert filled(given, 2, block=99) is given
    assert filled(given, 1, block=99) is given


@pytest.mark.parametrize("mode", ["exact", "fast"])
@pytest.mark.parametrize("name", ["llama", "qwen2", "mixtral"])
def test_a_token_has_the_same_logits_alone_with_drafts_and_with_neighbours(name, mode):
    """To the last bit, after rewinds, at the edge of a block, and beside a prompt."""
    stage = load_stage(
        whole(name, "paged", max_tokens=512, max_sequences=4, mode=mode, rows_alike=True)
    )
    stage.run(batch((1, 0, PROMPTS[0], 1)))
    stage.run(batch((2, 0, [9] * 40, 1)))
    past, ids = len(PROMPTS[0]), [*range(5, 45)]
    alone = []
    for number, token_id in enumerate(ids):
        alone.append(stage.run(batch((1, past + number, [token_id], 1)))[0].copy())
    for start in (20, 0):
        for width in (1, 2, 3, 4, 5, 8, 16):
            rows = stage.run(batch((1, past + start, ids[start : start + width], width)))
            for number in range(width):
                assert np.array_equal(rows[number], alone[start + number]), (width, number)
    beside = stage.run(batch((2, 40, [3], 1), (1, past, ids[:1], 1)))
    assert np.array_equal(beside[1], alone[0])
    beside = stage.run(batch((1, past, ids[:4], 4), (2, 40, [3, 4], 2)))
    assert np.array_equal(beside[3], alone[3])
    beside = stage.run(batch((3, 0, [7] * 33, 1), (1, past + 4, ids[4:6], 2)))
    assert np.array_equal(beside[1:], alone[4:6])
    assert stage.kv_usage().num_sequences == 3


@pytest.mark.parametrize(("num_threads", "least"), [(1, 0), (2, 0), (3, 2), (8, 2), (64, 2)])
def test_with_many_threads_every_pass_has_a_sequence_of_several_rows(num_threads, least):
    """Seen with eight: without one, a lone token is attended to by a kernel of its own."""
    assert num_fillers(num_threads) == least


def test_rows_that_many_threads_need_are_in_every_pass_and_change_none(monkeypatch):
    """Tokens alone, drafts, beside others, and prompts of a row."""
    stage = load_stage(whole("llama", "paged", max_tokens=256, mode="fast", rows_alike=True))
    stage.run(batch((1, 0, PROMPTS[1], 1)))
    past, ids = len(PROMPTS[1]), [5, 6, 7, 8]
    expected = stage.run(batch((1, past, ids, 4))).copy()
    monkeypatch.setattr(stage, "_num_fillers", num_fillers(8))
    passes, write = [], stage._inputs.write

    def written(laid, tables, rows):
        passes.append([step.num_tokens for step in laid.steps])
        write(laid, tables, rows)

    monkeypatch.setattr(stage._inputs, "write", written)
    for number, token_id in enumerate(ids):
        rows = stage.run(batch((1, past + number, [token_id], 1), (2, number, [3], 0)))
        assert np.array_equal(rows[0], expected[number])
    assert np.array_equal(stage.run(batch((1, past, ids, 4))), expected)
    assert np.array_equal(stage.run(batch((1, past, ids[:1], 1)))[0], expected[0])
    stage.run(batch((3, 0, [9], 1)))
    assert all(max(rows) >= 2 for rows in passes)


def test_what_a_batch_is_filled_up_with_changes_no_row(monkeypatch):
    """Whatever number of rows is chosen."""
    stage = load_stage(
        whole("llama", "paged", max_tokens=64, max_sequences=1, mode="fast", rows_alike=True)
    )
    stage.run(batch((1, 0, PROMPTS[0], 1)))
    past = len(PROMPTS[0])
    alone = [stage.run(batch((1, past + n, [5 + n], 1)))[0].copy() for n in range(2)]
    for width in (2, 3, 8, 16):
        monkeypatch.setattr(stage._width, "choose", lambda _, width=width: width)
        assert np.array_equal(stage.run(batch((1, past, [5, 6], 2))), alone)


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
