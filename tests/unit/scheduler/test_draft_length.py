"""Guessing makes answers faster wherever it can, and never noticeably slower.

The chain is simulated: a frame takes what its rows cost, the links and the guessing before it.
"""

import numpy as np
import pytest

from engine.domain import RowTime, SequenceId
from engine.scheduler.draft_length import DRAFT_LENGTHS, DraftLength
from engine.scheduler.row_costs import RowCosts

A, B = SequenceId(1), SequenceId(2)
STEPS = {  # measured: one core, four-bit matrices; and a device to which rows are nearly nothing
    "bf16": [(1, 1), (2, 1.28), (3, 1.43), (4, 1.61), (5, 2.52), (8, 2.71), (16, 3.02)],
    "f32": [(1, 1), (2, 1.25), (3, 1.35), (4, 1.49), (5, 2.68), (8, 4.7), (16, 5.9)],
    "wide": [(1, 1), (2, 1), (4, 1.02), (8, 1.05), (16, 1.1)],
    "dear": [(1, 1), (2, 1.9), (4, 3.8), (16, 15)],
}
ONE_ROW_S = 0.05


def lengths_of(kind, num_stages=1):
    costs = RowCosts(RowTime(rows, ONE_ROW_S / num_stages * cost) for rows, cost in STEPS[kind])
    return DraftLength(costs, num_stages)


def speed(
    kind,
    rate,
    link_s=0.0,
    draft_s=0.0,
    *,
    fixed=None,
    num_tokens=256,
    num_answers=4,
    thought=None,
    slowness=1.0,
):
    """Return tokens a second over those of plain decoding.

    What rows cost is what ``kind`` says; where another was measured, it is ``thought``. All of it
    takes ``slowness`` times as long as was measured.
    """
    costs = RowCosts(RowTime(rows, cost) for rows, cost in STEPS[kind])
    lengths = lengths_of(thought or kind)
    generator = np.random.default_rng(7)
    took_s, written = 0.0, 0
    for answer in range(num_answers):
        left = num_tokens
        while left > 0:
            length = lengths.choose(SequenceId(answer), 1) if fixed is None else fixed
            held = generator.random(length) < rate
            num_held = length if held.all() else int(np.argmin(held))
            compute_s = slowness * ONE_ROW_S * costs.cost(length + 1)
            frame_s = compute_s + link_s + length * draft_s
            took_s += frame_s
            if length:
                lengths.took_draft(length, length * draft_s)
            lengths.observe(SequenceId(answer), length, num_held)
            lengths.took_circuit(length + 1, compute_s + link_s, compute_s)
            lengths.took_tokens(SequenceId(answer), num_held + 1, frame_s)
            left -= num_held + 1
            written += num_held + 1
        lengths.forget(SequenceId(answer))
    return written / took_s * (slowness * ONE_ROW_S + link_s)


@pytest.mark.parametrize("num_answers", [1, 4])
@pytest.mark.parametrize("draft_s", [0.0, 0.0065])
@pytest.mark.parametrize("link_s", [0.0, 0.05])
@pytest.mark.parametrize("kind", STEPS)
def test_useless_guesses_cost_next_to_nothing(kind, link_s, draft_s, num_answers):
    """With no guess ever right, at least 0.97 of plain, from the first answer on."""
    assert speed(kind, 0.0, link_s, draft_s, num_answers=num_answers) >= 0.97


@pytest.mark.parametrize("rate", [0.1, 0.3, 0.5])
@pytest.mark.parametrize("kind", STEPS)
def test_poor_guesses_never_slow_it_down(kind, rate):
    """Whether they pay or not."""
    assert speed(kind, rate, draft_s=0.0065) >= 0.97


@pytest.mark.parametrize("rate", [0.5, 0.7])
def test_guesses_that_do_not_keep_what_they_promise_are_given_up(rate):
    """Rows were cheap when they were measured and are dear now; the clock shows it."""
    slow = speed("dear", rate, thought="wide", fixed=7)
    assert slow < 0.75
    assert speed("dear", rate, thought="wide", num_tokens=1024, num_answers=1) >= 0.95
    assert speed("dear", rate, thought="wide", num_tokens=512, num_answers=8) >= 0.95


def test_guesses_that_were_given_up_are_tried_again():
    """What kept the processors busy may be over."""
    lengths, chosen = lengths_of("wide"), []

    def answer(num_accepted, factor):
        chosen.append(length := lengths.choose(A, 1))
        held = num_accepted(length)
        lengths.observe(A, length, held)
        lengths.took_circuit(length + 1, ONE_ROW_S, ONE_ROW_S)
        lengths.took_tokens(A, held + 1, ONE_ROW_S * factor(length))

    for _ in range(200):
        answer(lambda length: length // 2, lambda length: 1 + 2 * length)
    assert chosen[-100:].count(0) > 90
    for _ in range(2000):
        answer(lambda length: length, lambda _: 1)
    assert min(chosen[-20:]) > 3


def test_guesses_that_slow_others_down_are_given_up():
    """Seven that are not guessed are answered in the same frames, and slower for it."""
    lengths, chosen = lengths_of("wide"), []
    for _ in range(300):
        chosen.append(length := lengths.choose(A, 8))
        lengths.observe(A, length, length // 2)
        everybody_s = ONE_ROW_S * (1 + length)
        lengths.took_tokens(A, length // 2 + 1, everybody_s)
        for other in range(7):
            lengths.observe(SequenceId(10 + other), 0, 0)
            lengths.took_tokens(SequenceId(10 + other), 1, everybody_s)
    assert chosen[-100:].count(0) > 80


def test_tokens_beside_guessed_ones_say_nothing_of_plain_ones():
    """They are as slow as the guesses in their frames make them, which is no excuse for those."""
    lengths = lengths_of("wide")
    assert lengths.choose(A, 2)
    assert lengths.choose(B, 2)
    for _ in range(200):
        lengths.observe(B, 0, 0)
        lengths.took_tokens(B, 1, 10 * ONE_ROW_S)
        lengths.observe(A, 7, 3)
        lengths.took_tokens(A, 4, 10 * ONE_ROW_S)
    assert not lengths.choose(A, 2)


def test_times_that_cannot_be_are_not_counted():
    lengths = lengths_of("f32")
    lengths.took_circuit(1, 0.0, 0.0)
    lengths.took_tokens(A, 3, 1.0)
    assert settled(lengths, 0.7) == 3


@pytest.mark.parametrize("rate", [0.7, 0.9])
@pytest.mark.parametrize("kind", ["bf16", "f32", "wide"])
def test_a_pc_that_is_slow_altogether_goes_on_guessing(kind, rate):
    """Everything takes three times as long as when it was loaded, guesses like the rest."""
    assert speed(kind, rate, slowness=3.0) >= 0.85 * speed(kind, rate)


@pytest.mark.parametrize("rate", [0.7, 0.9])
@pytest.mark.parametrize("link_s", [0.0, 0.05])
@pytest.mark.parametrize("kind", ["bf16", "f32", "wide"])
def test_good_guesses_are_nearly_as_good_as_with_the_best_fixed_length(kind, link_s, rate):
    """Which differs with costs, links and acceptance, and is not known before."""
    best = max(speed(kind, rate, link_s, fixed=length) for length in DRAFT_LENGTHS)
    assert best > 1.4
    assert speed(kind, rate, link_s) >= 0.8 * best


def settled(lengths, rate, sequence_id=A, num_running=1, num_drafts=200):
    """Return what is chosen once the rate is known."""
    generator = np.random.default_rng(5)
    for _ in range(num_drafts):
        held = generator.random(15) < rate
        num_held = 15 if held.all() else int(np.argmin(held))
        lengths.observe(sequence_id, 15, num_held)
    return lengths.choose(sequence_id, num_running)


def test_every_choice_is_one_that_stages_are_warmed_for():
    """At any rate."""
    chosen = {settled(lengths_of(kind), rate) for kind in STEPS for rate in np.linspace(0, 1, 11)}
    assert chosen <= set(DRAFT_LENGTHS)
    assert len(chosen) >= 4


def test_stops_before_a_step_in_the_cost_of_rows():
    """The fifth row costs as much as the four before it: three guesses, not five."""
    assert settled(lengths_of("f32"), 0.7) == 3


def test_a_long_way_round_makes_guesses_cheap():
    """The same stages and guesses, far apart."""
    near, far = lengths_of("bf16"), lengths_of("bf16")
    for _ in range(20):
        near.took_circuit(1, ONE_ROW_S, ONE_ROW_S)
        far.took_circuit(1, ONE_ROW_S + 0.5, ONE_ROW_S)
    assert settled(near, 0.15) == 0
    assert settled(far, 0.15) >= 1


def test_dear_guesses_are_not_made():
    """A draft model as slow as the model itself is of no use."""
    lengths = lengths_of("wide")
    for _ in range(20):
        lengths.took_draft(3, 3 * ONE_ROW_S)
    assert settled(lengths, 0.7) == 0


def test_one_slow_guess_is_not_taken_for_the_price():
    """The first one reads the whole prompt before; the next ones show what it costs."""
    lengths = lengths_of("f32")
    lengths.took_draft(3, 30 * ONE_ROW_S)
    assert settled(lengths, 0.9) == 0
    tried = 0
    while not lengths.choose(A, 1):
        tried += 1
    assert tried <= 128
    lengths.took_draft(1, ONE_ROW_S / 100)
    lengths.observe(A, 1, 1)
    assert lengths.choose(A, 1) == 3


def test_a_crowded_pool_does_not_guess():
    """Where other people's rows fill the frames, theirs are sure and guesses are not."""
    assert settled(lengths_of("f32"), 0.7, num_running=1) == 3
    assert settled(lengths_of("f32", 2), 0.7, num_running=8) == 0


@pytest.mark.parametrize("rate", [0.5, 0.7, 0.9])
@pytest.mark.parametrize("kind", ["bf16", "f32", "dear"])
def test_where_running_sequences_fill_the_rows_nothing_is_guessed(kind, rate):
    """Behind what was measured each row costs what rows cost on the whole: no guess is cheap."""
    assert settled(lengths_of(kind, 4), rate, num_running=1) > 0 or kind == "dear"
    for num_running in (64, 128, 256):
        assert settled(lengths_of(kind), rate, num_running=num_running) == 0


def test_where_rows_are_nearly_free_a_crowd_is_guessed_too():
    """It is not how many there are, but what their rows cost."""
    assert settled(lengths_of("wide"), 0.7, num_running=64) > 0


def test_a_crowded_pool_is_not_probed_either():
    """Not even right guesses would pay."""
    lengths = lengths_of("dear", 2)
    assert not any(lengths.choose(A, 16) for _ in range(1000))


def test_comes_back_when_guesses_hold_again():
    """After a stretch in which none did, by rare guesses of one token."""
    lengths = lengths_of("f32")
    for _ in range(100):
        lengths.observe(A, 1, 0)
    waits = []
    for _ in range(40):
        waited = 0
        while not (length := lengths.choose(A, 1)):
            waited += 1
        waits.append(waited)
        lengths.observe(A, length, length)
        if length > 1:
            break
    assert waits[0] >= 64
    assert len(waits) < 40
    assert sum(waits[1:]) < 200


def test_a_guess_that_was_not_made_stays_due():
    """A drafter may have nothing to say when it is asked; then it is asked again."""
    lengths = lengths_of("f32")
    for _ in range(100):
        lengths.observe(A, 1, 0)
    while not lengths.choose(A, 1):
        pass
    lengths.observe(A, 0, 0)
    assert lengths.choose(A, 1) == 1


def test_a_new_sequence_begins_with_what_others_showed():
    """Good or bad."""
    bad, good = lengths_of("f32"), lengths_of("f32")
    settled(bad, 0.0)
    settled(good, 0.9)
    assert bad.choose(B, 1) == 0
    assert good.choose(B, 1) >= 3


def test_sequences_are_judged_by_themselves():
    """One that is guessed badly does not stop another."""
    lengths = lengths_of("f32")
    for _ in range(60):
        settled(lengths, 0.0, A, num_drafts=5)
        settled(lengths, 0.9, B, num_drafts=5)
    assert lengths.choose(A, 1) == 0
    assert lengths.choose(B, 1) >= 3


def test_an_ended_sequence_is_forgotten():
    """Its number would begin as a stranger's."""
    lengths = lengths_of("f32")
    settled(lengths, 0.9, B, num_drafts=1000)
    settled(lengths, 0.0, A, num_drafts=30)
    assert lengths.choose(A, 1) == 0
    settled(lengths, 0.9, B, num_drafts=1000)
    lengths.forget(A)
    lengths.forget(A)
    assert lengths.choose(A, 1) >= 3


def test_frames_that_follow_each_other_make_more_guesses_pay():
    """Four stages that would else wait for one sequence."""
    assert settled(lengths_of("dear", 1), 0.8) == 0
    assert settled(lengths_of("dear", 4), 0.8) > 0
