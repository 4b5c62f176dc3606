"""How many frames fill the chain and wait for nothing."""

import pytest

from engine.scheduler.circuit import MAX_FRAMES, Circuit


def measured(num_stages, compute_s, link_s, num=3):
    circuit = Circuit(num_stages)
    for number in range(num):
        circuit.sent(number, 2, 10.0 * number)
        circuit.answered(number, 10.0 * number + compute_s + link_s, compute_s)
    return circuit


def test_before_the_first_frame_every_stage_gets_one():
    """And nobody knows how long the way is."""
    assert Circuit(3).num_frames == 3
    assert Circuit(3).typical_s is None


@pytest.mark.parametrize(
    ("num_stages", "link_s", "num_frames"),
    [(1, 0.0, 1), (2, 0.001, 2), (2, 0.05, 4), (2, 0.1, 6), (2, 9.0, MAX_FRAMES), (4, 0.02, 6)],
)
def test_frames_fill_the_way_round_the_chain(num_stages, link_s, num_frames):
    """50 ms of computing, shared out among the stages."""
    circuit = measured(num_stages, 0.05, link_s)
    assert circuit.num_frames == num_frames
    assert circuit.typical_s == pytest.approx(0.05 + link_s)


def test_waiting_behind_others_counts_for_nothing():
    """The least of the newest times is the link's."""
    circuit = measured(2, 0.05, 0.01)
    circuit.sent(7, 4, 100.0)
    lap = circuit.answered(7, 100.5, 0.08)
    assert (lap.num_rows, lap.compute_s) == (4, 0.08)
    assert lap.circuit_s == pytest.approx(0.09)


def test_chunks_of_a_prompt_strangers_and_what_was_dropped_tell_nothing():
    """Of how long a decode takes."""
    circuit = Circuit(2)
    circuit.sent(1, 256, 0.0)
    assert circuit.answered(1, 1.0, 0.5) is None
    circuit.sent(2, 1, 0.0)
    assert circuit.answered(2, 1.0, 0.0) is None
    assert circuit.answered(3, 1.0, 0.5) is None
    assert circuit.typical_s is None


def test_frames_that_are_never_answered_are_forgotten():
    """The oldest first."""
    circuit = Circuit(2)
    for number in range(1000):
        circuit.sent(number, 1, 0.0)
    assert len(circuit._sent) <= 256
    assert circuit.answered(0, 1.0, 0.5) is None
    assert circuit.answered(999, 1.0, 0.5) is not None
