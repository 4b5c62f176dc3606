"""What goes to other PCs holds no token, and what comes round is whole again."""

from __future__ import annotations

import numpy as np
import pytest

from engine.domain import MicroBatch, SequenceId, SequenceStep
from engine.errors import RemoteProtocolError
from engine.messages.chain import CloseSequence
from engine.messages.codec import decode, encode_control, encode_micro_batch, peek_batch
from engine.pipeline.withheld_tokens import WithheldTokens

EPOCH = 7
IDS = [48151, 6234, 2**31 - 1]


def frame(batch_id=1, ids=IDS, epoch=EPOCH, compute_us=42):
    hidden = np.arange(len(ids) * 8, dtype=np.float16).reshape(len(ids), 8)
    steps = (SequenceStep(SequenceId(3), 5, len(ids), 1),)
    return encode_micro_batch(
        MicroBatch(batch_id, epoch, steps, np.array(ids, np.int32), hidden), compute_us
    )


def test_no_token_leaves_and_nothing_else_changes():
    away = WithheldTokens(EPOCH).withhold(frame())
    for token_id in IDS:
        assert np.int32(token_id).tobytes() not in away
    before, after = decode(frame()), decode(away)
    assert not after.token_ids.any()
    np.testing.assert_array_equal(after.hidden_states, before.hidden_states)
    assert (after.steps, peek_batch(away)) == (before.steps, peek_batch(frame()))


def test_int8_comes_round_with_the_scale_of_each_row():
    steps = (SequenceStep(SequenceId(3), 5, 2, 1),)
    rows = np.arange(16, dtype=np.int8).reshape(2, 8)
    scales = np.array([0.5, 2.0], np.float32)
    batch = MicroBatch(1, EPOCH, steps, np.array([7, 8], np.int32), rows, scales)
    withheld = WithheldTokens(EPOCH)
    away = withheld.withhold(encode_micro_batch(batch))
    np.testing.assert_array_equal(decode(away).row_scales, scales)
    assert withheld.restore(away) == encode_micro_batch(batch)


def test_a_batch_that_comes_round_is_the_one_that_left():
    withheld = WithheldTokens(EPOCH)
    frames = [frame(n, [n, n + 1]) for n in range(1, 4)]
    away = [withheld.withhold(one) for one in frames]
    assert [withheld.restore(one) for one in away] == frames


def test_what_failed_on_the_way_is_forgotten_with_the_next_that_comes_round():
    withheld = WithheldTokens(EPOCH)
    lost, later = (withheld.withhold(frame(n)) for n in (1, 2))
    assert withheld.restore(later) == frame(2)
    with pytest.raises(RemoteProtocolError, match="Batch 1"):
        withheld.restore(lost)


@pytest.mark.parametrize("made_up", [frame(9), frame(1, [1, 2])], ids=["no such", "other rows"])
def test_a_batch_that_did_not_leave_so_is_refused_and_costs_no_other(made_up):
    withheld = WithheldTokens(EPOCH)
    away = withheld.withhold(frame())
    with pytest.raises(RemoteProtocolError, match="did not leave so"):
        withheld.restore(made_up)
    assert withheld.restore(away) == frame()


def test_a_batch_comes_round_once():
    withheld = WithheldTokens(EPOCH)
    away = withheld.withhold(frame())
    withheld.restore(away)
    with pytest.raises(RemoteProtocolError):
        withheld.restore(away)


@pytest.mark.parametrize(
    "other",
    [encode_control(CloseSequence(epoch=EPOCH, sequence_id=SequenceId(3))), frame(epoch=EPOCH - 1)],
    ids=["no batch", "of another placement"],
)
def test_what_is_no_batch_of_this_placement_stays_as_it_is(other):
    withheld = WithheldTokens(EPOCH)
    assert withheld.withhold(other) == other
    assert withheld.restore(other) == other


def test_a_step_that_a_stage_left_out_on_the_way_costs_no_other_its_tokens():
    hidden = np.ones((3, 8), np.float16)
    steps = (SequenceStep(SequenceId(3), 5, 2, 1), SequenceStep(SequenceId(4), 9, 1, 1))
    ids = np.array([7, 8, 9], np.int32)
    withheld = WithheldTokens(EPOCH)
    away = decode(withheld.withhold(encode_micro_batch(MicroBatch(1, EPOCH, steps, ids, hidden))))
    left = MicroBatch(1, EPOCH, steps[1:], away.token_ids[2:], hidden[2:])
    assert decode(withheld.restore(encode_micro_batch(left))).token_ids.tolist() == [9]
