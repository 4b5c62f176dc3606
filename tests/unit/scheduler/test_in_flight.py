"""The record of what is under way."""

from engine.domain import SequenceId, SequenceStep
from engine.scheduler.in_flight import InFlight

A, B = SequenceId(1), SequenceId(2)


def step(sequence_id, past_len=0, num_tokens=1):
    return SequenceStep(sequence_id, past_len, num_tokens, 1)


def test_steps_are_found_by_batch_and_by_sequence():
    """A sequence's steps come in the order in which they were sent."""
    in_flight = InFlight()
    in_flight.record(4, (step(A), step(B)))
    in_flight.record(5, (step(A, past_len=1),))
    assert len(in_flight) == 2
    assert in_flight.steps(4) == {A: step(A), B: step(B)}
    assert in_flight.steps(6) is None
    assert in_flight.steps_of(A) == (step(A), step(A, past_len=1))


def test_a_sequence_struck_out_leaves_its_batches_under_way():
    """They still occupy the chain."""
    in_flight = InFlight()
    in_flight.record(4, (step(A), step(B)))
    in_flight.record(5, (step(A, past_len=1),))
    in_flight.strike_out(A)
    assert len(in_flight) == 2
    assert in_flight.steps(4) == {B: step(B)}
    assert in_flight.steps(5) == {}
    assert in_flight.steps_of(A) == ()


def test_batches_are_forgotten_one_by_one_or_all():
    """An answer, and a new placement."""
    in_flight = InFlight()
    for batch_id in range(3):
        in_flight.record(batch_id, (step(A),))
    in_flight.forget(1)
    assert in_flight.steps(1) is None
    assert len(in_flight) == 2
    in_flight.clear()
    assert len(in_flight) == 0
