"""What is tried next, and when it is given up; the time is made up."""

import msgspec
import pytest

from engine.errors import (
    ChatTemplateError,
    ContextTooLongError,
    DaisyError,
    GoldenStepError,
    InferenceError,
    InsufficientMemoryError,
    KVCacheFullError,
    LocalProtocolError,
    ModelError,
    PeerTimeoutError,
    PeerUnreachableError,
    PipelineBrokenError,
    PlacementError,
    RemoteProtocolError,
    RequestCancelledError,
    StageProcessDiedError,
    StorageError,
    UsageError,
    VersionMismatchError,
)
from engine.messages.deployment import Trouble
from engine.pipeline.patience import MAX_INTERRUPTIONS, Patience, Waits, may_mend
from tests.unit.pipeline.scripted_pool import record, wish

WAITS = Waits(load_s=600.0, mend_s=120.0, failed_s=10.0, again_s=(0.0, 0.5, 1.0, 2.0, 4.0))
LOST = PeerUnreachableError("Stage 1: It is gone.")


def after_a_loss(now_s=100.0, epoch=1):
    """Return the patience of a request that was accepted and interrupted, and the record."""
    patience, ready = Patience(WAITS, 0.0), record("ready", epoch)
    assert patience.choose(ready, 1.0, has_begun=False) is ready
    patience.bind(ready)
    patience.progressed()
    patience.failed(LOST, epoch, now_s, was_accepted=True)
    return patience, ready


@pytest.mark.parametrize(
    ("error", "mends"),
    [
        (PeerUnreachableError("x"), True),
        (PeerTimeoutError("x"), True),
        (PipelineBrokenError("x"), True),
        (StageProcessDiedError("x"), True),
        (InferenceError("x"), True),
        (KVCacheFullError(2, 1), True),
        (PlacementError("this PC is no head"), True),
        (VersionMismatchError("x"), False),
        (RemoteProtocolError("x"), False),
        (LocalProtocolError("x"), False),
        (GoldenStepError("x"), False),
        (InsufficientMemoryError(2, 1), False),
        (UsageError("x"), False),
        (ContextTooLongError(9, 8), False),
        (ChatTemplateError("x"), False),
        (ModelError("x"), False),
        (StorageError("x"), False),
        (RequestCancelledError("x"), False),
        (DaisyError("x"), False),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_another_placement_may_mend(error, mends):
    assert may_mend(error) is mends
    patience = Patience(WAITS, 0.0)
    if mends:
        patience.failed(error, 1, 1.0, was_accepted=True)
    else:
        with pytest.raises(type(error)):
            patience.failed(error, 1, 1.0, was_accepted=True)


def test_another_placement_is_tried_at_once():
    patience, _ = after_a_loss()
    anew = record("ready", 2, version=9)
    assert patience.choose(anew, 100.0, has_begun=True) is anew


def test_the_same_placement_is_tried_again_after_longer_and_longer():
    patience, ready = after_a_loss(100.0)
    now_s, pauses = 100.0, []
    for _ in range(7):
        until_s = patience.choose(ready, now_s, has_begun=True)
        until_s = now_s if until_s is ready else until_s
        pauses.append(until_s - now_s)
        assert patience.choose(ready, until_s, has_begun=True) is ready
        now_s = until_s + 0.25
        patience.failed(LOST, 1, now_s, was_accepted=False)
    assert pauses == [0.0, 0.5, 1.0, 2.0, 4.0, 4.0, 4.0]


def test_a_head_that_is_never_reached_is_asked_as_long_as_there_is_hope():
    patience, ready = after_a_loss(100.0)
    for now_s in range(100, 220):
        if patience.choose(ready, now_s, has_begun=True) is ready:
            error = PeerTimeoutError("It does not answer.")
            patience.failed(error, 1, now_s, was_accepted=False)
    with pytest.raises(PeerUnreachableError) as caught:
        patience.choose(ready, 220, has_begun=True)
    assert caught.value is LOST, "the first reason, not what came of asking again"


def test_interruptions_are_bounded_however_they_come():
    """Each on another placement, each accepted on the same one, or each never accepted anew."""
    for epochs, was_accepted in (
        (range(50), True),
        ([1] * 50, True),
        (range(50), False),
    ):
        patience = Patience(WAITS, 0.0)
        for epoch in epochs[:MAX_INTERRUPTIONS]:
            patience.failed(LOST, epoch, 1.0, was_accepted=was_accepted)
            patience.progressed()
        with pytest.raises(PeerUnreachableError):
            patience.failed(LOST, epochs[8], 1.0, was_accepted=was_accepted)


def test_the_wait_for_another_placement_begins_anew_with_each_change():
    patience, _ = after_a_loss(100.0)
    planning = record("planning", 0, version=2)
    assert patience.choose(planning, 101.0, has_begun=True) == 221.0
    assert patience.choose(planning, 220.0, has_begun=True) == 221.0
    loading = record("loading", 2, version=3)
    assert patience.choose(loading, 220.5, has_begun=True) == 340.5
    with pytest.raises(PeerUnreachableError) as caught:
        patience.choose(loading, 340.5, has_begun=True)
    assert caught.value is LOST


def test_a_pause_that_ended_does_not_shorten_the_next_one():
    patience, _ = after_a_loss(100.0)
    anew = record("ready", 2, version=2)
    assert patience.choose(anew, 110.0, has_begun=True) is anew
    patience.progressed()
    patience.failed(LOST, 2, 1000.0, was_accepted=True)
    assert patience.choose(anew, 1000.0, has_begun=True) is anew
    patience.failed(LOST, 2, 1000.0, was_accepted=False)
    assert patience.choose(anew, 1000.0, has_begun=True) == 1000.5


def test_a_model_that_loads_is_waited_for_longer():
    patience = Patience(WAITS, 5.0)
    splitting = record("splitting", 0)
    assert patience.choose(splitting, 5.0, has_begun=False) == 605.0
    loading = record("loading", 1, version=2)
    assert patience.choose(loading, 500.0, has_begun=False) == 1100.0
    with pytest.raises(PlacementError, match="for 600 s the pool has been loading it"):
        patience.choose(loading, 1100.0, has_begun=False)


@pytest.mark.parametrize("has_trouble", [True, False])
def test_a_pool_that_failed_is_given_a_moment_by_who_has_begun(has_trouble):
    trouble = Trouble("storage", "The disk is full.", "Free some space.") if has_trouble else None
    patience, _ = after_a_loss(100.0)
    failed = record("failed", 0, version=2, trouble=trouble)
    assert patience.choose(failed, 101.0, has_begun=True) == 111.0
    again = record("failed", 0, version=3, trouble=trouble)
    assert patience.choose(again, 109.0, has_begun=True) == 111.0, "it is the same failure"
    with pytest.raises(StorageError if has_trouble else PeerUnreachableError):
        patience.choose(again, 111.0, has_begun=True)
    planning = record("planning", 0, version=4)
    assert patience.choose(planning, 112.0, has_begun=True) == 232.0
    assert patience.choose(record("failed", 0, version=5), 120.0, has_begun=True) == 130.0


@pytest.mark.parametrize("has_trouble", [True, False])
def test_who_has_not_begun_is_told_at_once_why_the_pool_failed(has_trouble):
    trouble = Trouble("storage", "The disk is full.", "Free some space.") if has_trouble else None
    failed = record("failed", 0, trouble=trouble)
    with pytest.raises(StorageError if has_trouble else PlacementError) as caught:
        Patience(WAITS, 0.0).choose(failed, 1.0, has_begun=False)
    assert caught.value.what == (
        "The disk is full." if has_trouble else "The pool can't run llama."
    )


def test_without_a_record_only_who_has_begun_waits():
    with pytest.raises(PlacementError, match="No model is loaded"):
        Patience(WAITS, 0.0).choose(None, 0.0, has_begun=False)
    patience = Patience(WAITS, 0.0)
    assert patience.choose(None, 0.0, has_begun=True) == 10.0
    with pytest.raises(PlacementError, match="No model is loaded"):
        patience.choose(None, 10.0, has_begun=True)


def test_a_ready_record_without_stages_is_not_ready():
    nowhere = record("ready", 0)
    assert nowhere.head is None
    assert Patience(WAITS, 0.0).choose(nowhere, 0.0, has_begun=False) == 600.0


def test_only_who_was_accepted_is_bound_to_a_model():
    gemma = record("ready", 2, version=2, wish=wish("gemma", "b" * 64))
    free = Patience(WAITS, 0.0)
    assert free.choose(record("loading"), 0.0, has_begun=False) == 600.0
    assert free.choose(gemma, 1.0, has_begun=False) is gemma
    bound, _ = after_a_loss()
    with pytest.raises(PipelineBrokenError, match="another model: gemma"):
        bound.choose(gemma, 101.0, has_begun=True)


def test_a_wish_for_the_same_files_is_the_same_model():
    patience, _ = after_a_loss()
    other = msgspec.structs.replace(wish("another name"), wish_id="another", max_sequences=1)
    anew = record("ready", 2, version=2, wish=other)
    assert patience.choose(anew, 101.0, has_begun=True) is anew
