"""What is guessed, what is sent of it, and what an answer makes of it."""

import pytest

from engine.domain import SampledRow, SampledTokens, SequenceId
from engine.errors import RemoteProtocolError
from engine.scheduler.limits import SchedulerLimits
from engine.scheduler.request import Sequence, SequenceState
from engine.scheduler.scheduler import Scheduler
from engine.scheduler.speculation import Speculation
from reproduction.fixed_draft_length import FixedDraftLength

A, B = SequenceId(1), SequenceId(2)
FIRST = 50  # the token drawn behind each prompt of four


class Lengths(FixedDraftLength):
    """Writes down what it is asked and told."""

    def __init__(self, num_drafts, max_running=99):
        super().__init__(num_drafts, max_running)
        self.chosen, self.observed, self.forgotten = [], [], []

    def choose(self, sequence_id, num_running):
        self.chosen.append((sequence_id, num_running))
        return super().choose(sequence_id, num_running)

    def observe(self, sequence_id, num_drafted, num_accepted):
        super().observe(sequence_id, num_drafted, num_accepted)
        self.observed.append((sequence_id, num_drafted, num_accepted))

    def forget(self, sequence_id):
        super().forget(sequence_id)
        self.forgotten.append(sequence_id)


def scheduler(num_drafts=3, num_stages=2, max_frames=2, lengths=None, **changes):
    limits = SchedulerLimits(**{
        "max_tokens": 1024,
        "block_tokens": 16,
        "max_sequences": 4,
        "num_stages": num_stages,
        "vocab_size": 1000,
        **changes,
    })
    speculation = Speculation(lengths or Lengths(num_drafts), max_frames)
    return Scheduler(limits, 1, speculation)


def work(batch):
    return [(s.sequence_id, s.past_len, s.num_tokens, s.num_logits) for s in batch.steps]


def answered(filled, batch, **ids):
    """Answer a batch; ``a`` and ``b`` are what is drawn for the two sequences."""
    rows = []
    for step in batch.steps:
        drawn = ids.get("a" if step.sequence_id == A else "b")
        if drawn is not None:
            first = step.past_len + step.num_tokens - step.num_logits + 1
            rows.append(SampledRow(step.sequence_id, first, tuple(drawn)))
    committed = filled.apply(SampledTokens(batch.batch_id, 1, tuple(rows)))
    filled.check_integrity()
    return committed


def decoding(filled, *sequences):
    """Prefill sequences of four tokens, one after the other."""
    for sequence in sequences or (Sequence(A, [1, 2, 3, 4], 40),):
        filled.add(sequence)
    batches = []
    while (batch := filled.next_micro_batch()) is not None:
        batches.append(batch)
    for batch in batches:
        answered(filled, batch, a=[FIRST], b=[FIRST])
    return filled


def guess(filled, *ids, sequence=A):
    """Ask and answer once; return how many were wanted."""
    wanted = {request.sequence_id: request for request in filled.drafts.wanted()}
    request = wanted[sequence]
    filled.drafts.offer(sequence, len(request.token_ids), ids)
    return request.max_drafts


# ---- one frame -------------------------------------------------------------------------------


def test_a_decode_carries_its_drafts_and_wants_a_token_of_each_row():
    """The newest committed token, then three drafts."""
    filled = decoding(scheduler())
    (request,) = filled.drafts.wanted()
    assert request.token_ids.tolist() == [1, 2, 3, 4, FIRST]
    assert request.max_drafts == 3
    filled.drafts.offer(A, 5, (51, 52, 53))
    batch = filled.next_micro_batch()
    assert work(batch) == [(A, 4, 4, 4)]
    assert batch.token_ids.tolist() == [FIRST, 51, 52, 53]


@pytest.mark.parametrize(
    ("drawn", "past_len"),
    [((60,), 5), ((51, 60), 6), ((51, 52, 60), 7), ((51, 52, 53, 60), 8)],
    ids=str,
)
def test_what_was_drawn_is_committed_and_the_next_frame_begins_with_the_last_of_it(drawn, past_len):
    """Whether none of the drafts held, or some, or all."""
    filled = decoding(scheduler())
    guess(filled, 51, 52, 53)
    assert answered(filled, filled.next_micro_batch(), a=drawn) == [(A, drawn)]
    batch = filled.next_micro_batch()
    assert work(batch) == [(A, past_len, 1, 1)]
    assert batch.token_ids.tolist() == [60]


@pytest.mark.parametrize(
    "drawn",
    [(51, 52), (51, 60, 53), (60, 52), (51, 52, 53, 60, 61)],
    ids=str,
)
def test_an_answer_must_end_with_the_first_token_that_is_not_the_draft(drawn):
    """Two of three drafts that hold and nothing behind; more behind one that does not."""
    filled = decoding(scheduler())
    guess(filled, 51, 52, 53)
    batch = filled.next_micro_batch()
    with pytest.raises(RemoteProtocolError, match="1 to 4 tokens from position 5"):
        answered(filled, batch, a=drawn)
    assert answered(filled, batch, a=(51, 60)) == [(A, (51, 60))]


def test_the_number_of_drafts_is_chosen_once_an_answer_and_told_what_became_of_it():
    """And forgotten with the sequence."""
    lengths = Lengths(3)
    filled = decoding(scheduler(lengths=lengths))
    guess(filled, 51, 52, 53)
    filled.drafts.wanted()
    answered(filled, filled.next_micro_batch(), a=(51, 60))
    assert lengths.chosen == [(A, 1)]
    assert lengths.observed == [(A, 0, 0), (A, 3, 1)]
    filled.drafts.wanted()
    assert lengths.chosen == [(A, 1), (A, 1)]
    filled.finish(A)
    assert lengths.forgotten == [A]


def test_what_was_drafted_and_accepted_is_counted():
    """Drafts that were sent, and those of them that stand in the answer."""
    sequence = Sequence(A, [1, 2, 3, 4], 40)
    filled = decoding(scheduler(), sequence)
    guess(filled, 51, 52, 53)
    answered(filled, filled.next_micro_batch(), a=(51, 60))
    assert (sequence.num_drafted_tokens, sequence.num_accepted_tokens) == (3, 1)


def test_nobody_is_asked_where_nothing_is_guessed():
    """No drafter, a request that wants none, a length of 0, a crowd, a prompt."""
    plain = Scheduler(SchedulerLimits(max_tokens=64, block_tokens=16, max_sequences=1), 1)
    assert decoding(plain).drafts.wanted() == []
    assert decoding(scheduler(), Sequence(A, [1], 9, speculates=False)).drafts.wanted() == []
    assert decoding(scheduler(num_drafts=0)).drafts.wanted() == []
    two = (Sequence(A, [1, 2, 3, 4], 40), Sequence(B, [1, 2, 3, 4], 40))
    assert decoding(scheduler(lengths=Lengths(3, max_running=1)), *two).drafts.wanted() == []
    fresh = scheduler()
    fresh.add(Sequence(A, [1], 9))
    assert fresh.drafts.wanted() == []


def test_no_guess_lies_behind_the_last_token_of_an_answer():
    """Six tokens of answer: of the five to come, the last needs only those before it."""
    filled = decoding(scheduler(num_drafts=15, num_stages=1), Sequence(A, [1, 2, 3, 4], 6))
    assert guess(filled, 51, 52, 53, 54) == 4
    batch = filled.next_micro_batch()
    assert work(batch) == [(A, 4, 5, 5)]
    assert answered(filled, batch, a=(51, 52, 53, 54, 55)) == [(A, (51, 52, 53, 54, 55))]
    assert filled.load().num_running == 0


def test_guesses_end_at_the_first_that_can_be_no_token():
    """It would never reach an embedding; a stranger's are nobody's."""
    filled = decoding(scheduler())
    guess(filled, 51, 1000, 52)
    filled.drafts.offer(SequenceId(77), 5, (51,))
    assert work(filled.next_micro_batch()) == [(A, 4, 2, 2)]


def test_a_sequence_that_waits_for_guesses_is_held_and_its_neighbour_goes():
    """As long as the head says so."""
    two = (Sequence(A, [1, 2, 3, 4], 40), Sequence(B, [1, 2, 3, 4], 40))
    filled = decoding(scheduler(), *two)
    filled.drafts.wanted()
    assert work(filled.next_micro_batch({A})) == [(B, 4, 1, 1)]
    assert filled.next_micro_batch({A}) is None
    assert work(filled.next_micro_batch()) == [(A, 4, 1, 1)]


def test_rows_of_a_batch_limit_drafts():
    """Six rows, of which the neighbour's is one."""
    two = (Sequence(A, [1, 2], 40), Sequence(B, [1, 2], 40))
    filled = decoding(scheduler(num_drafts=7, num_stages=1, max_batch_tokens=6), *two)
    filled.drafts.wanted()
    filled.drafts.offer(A, 3, range(51, 58))
    assert work(filled.next_micro_batch()) == [(A, 2, 5, 5), (B, 2, 1, 1)]


# ---- frames that follow each other ------------------------------------------------------------


def streaming(filled=None):
    """Send a frame on certain ground, and one on guesses behind it."""
    filled = filled or decoding(scheduler())
    guess(filled, 51, 52, 53)
    first = filled.next_micro_batch()
    assert guess(filled, 54, 55, 56, 57) == 4
    second = filled.next_micro_batch()
    assert work(second) == [(A, 8, 4, 4)]
    assert second.token_ids.tolist() == [54, 55, 56, 57]
    filled.check_integrity()
    return filled, first, second


def test_a_frame_that_holds_leaves_the_one_behind_it_standing():
    """All drafts, and the guess for the token behind them."""
    filled, first, second = streaming()
    assert answered(filled, first, a=(51, 52, 53, 54)) == [(A, (51, 52, 53, 54))]
    assert guess(filled, 58, 59) == 4
    third = filled.next_micro_batch()
    assert work(third) == [(A, 12, 2, 2)]
    assert answered(filled, second, a=(55, 56, 57, 58)) == [(A, (55, 56, 57, 58))]
    assert answered(filled, third, a=(59, 60)) == [(A, (59, 60))]
    assert work(filled.next_micro_batch()) == [(A, 14, 1, 1)]


@pytest.mark.parametrize("drawn", [(60,), (51, 60), (51, 52, 53, 60)], ids=str)
def test_a_wrong_guess_takes_all_that_stands_on_it_and_the_correction_goes_at_once(drawn):
    """A draft, or only the token behind them all."""
    filled, first, second = streaming()
    answered(filled, first, a=drawn)
    correction = filled.next_micro_batch()
    assert work(correction) == [(A, 4 + len(drawn), 1, 1)]
    assert filled.next_micro_batch() is None  # two are under way, the stale one among them
    assert answered(filled, second, a=()) == []
    assert filled.num_stale_results == 1
    assert answered(filled, correction, a=(61,)) == [(A, (61,))]


def test_frames_on_guesses_come_only_where_nothing_certain_is_to_send():
    """Two sequences share two frames: each has one."""
    two = (Sequence(A, [1, 2, 3, 4], 40), Sequence(B, [1, 2, 3, 4], 40))
    filled = decoding(scheduler(), *two)
    wanted = {request.sequence_id: request.max_drafts for request in filled.drafts.wanted()}
    assert wanted == {A: 3, B: 3}
    for each in (A, B):
        filled.drafts.offer(each, 5, (51, 52, 53))
    first, second = filled.next_micro_batch(), filled.next_micro_batch()
    assert (work(first), work(second)) == ([(A, 4, 4, 4)], [(B, 4, 4, 4)])
    assert filled.drafts.wanted() == []
    assert filled.next_micro_batch() is None


def test_a_wide_chain_has_room_for_guesses_of_both():
    """Four frames under way, two of each."""
    two = (Sequence(A, [1, 2, 3, 4], 40), Sequence(B, [1, 2, 3, 4], 40))
    filled = decoding(scheduler(max_frames=4), *two)
    sent = []
    for _ in range(9):
        for request in filled.drafts.wanted():
            length = len(request.token_ids)
            ids = range(46 + length, 46 + length + request.max_drafts)
            filled.drafts.offer(request.sequence_id, length, tuple(ids))
        batch = filled.next_micro_batch()
        sent += [] if batch is None else work(batch)
    assert sent == [(A, 4, 4, 4), (B, 4, 4, 4), (A, 8, 4, 4), (B, 8, 4, 4)]


def test_a_sequence_held_sends_no_frame_on_guesses_either():
    """It is being guessed further."""
    filled = decoding(scheduler())
    guess(filled, 51, 52, 53)
    filled.next_micro_batch()
    guess(filled, 54)
    assert filled.next_micro_batch({A}) is None
    assert work(filled.next_micro_batch()) == [(A, 8, 1, 1)]


def test_a_length_that_is_now_0_sends_no_more_guesses():
    """A crowd came meanwhile."""
    filled = decoding(scheduler(lengths=Lengths(3, max_running=1), max_frames=4))
    guess(filled, 51, 52, 53)
    filled.next_micro_batch()
    guess(filled, 54, 55, 56, 57)
    filled.add(Sequence(B, [1, 2, 3, 4], 40))
    filled._speculation._chosen.clear()
    assert work(filled.next_micro_batch()) == [(B, 0, 4, 1)]
    assert filled.next_micro_batch() is None


# ---- what else happens ------------------------------------------------------------------------


def test_drafts_take_no_room_that_somebody_may_need():
    """What the sequence holds already, and what is left beside a block for each that runs."""
    for max_tokens, num_rows in ((48, 16), (32, 12)):
        short = Sequence(A, [1, 2, 3, 4], 20)
        filled = decoding(scheduler(num_drafts=15, num_stages=1, max_tokens=max_tokens), short)
        guess(filled, *range(51, 66))
        assert work(filled.next_micro_batch()) == [(A, 4, num_rows, num_rows)]


@pytest.mark.parametrize("event", ["cancel", "finish"])
def test_a_sequence_that_ends_takes_its_frames_with_it(event):
    """Their answers count for nothing, and its room is free."""
    filled, first, second = streaming()
    getattr(filled, event)(A)
    filled.check_integrity()
    assert answered(filled, first, a=(51, 60)) == []
    assert answered(filled, second, a=()) == []
    assert filled.load().num_running == 0


def test_a_rewind_forgets_guesses_and_frames():
    """And computes from there with committed tokens."""
    filled, first, _ = streaming()
    filled.rewind(A, 2)
    filled.check_integrity()
    assert answered(filled, first, a=(51, 60)) == []
    assert work(filled.next_micro_batch()) == [(A, 2, 3, 1)]


def test_a_failed_frame_ends_its_sequence_and_the_ones_behind_it_count_no_more():
    """As any batch that fails."""
    filled, first, second = streaming()
    assert filled.fail(first.batch_id) == (A,)
    assert answered(filled, second, a=()) == []


def test_a_step_that_a_stage_dropped_is_computed_from_the_beginning():
    """A stale frame failed there, and the caches went with it."""
    sequence = Sequence(A, [1, 2, 3, 4], 40)
    filled = decoding(scheduler(), sequence)
    batch = filled.next_micro_batch()
    assert answered(filled, batch, a=()) == []
    assert sequence.state is SequenceState.PREFILL
    again = filled.next_micro_batch()
    assert work(again) == [(A, 0, 5, 1)]
    assert answered(filled, again, a=(51,)) == [(A, (51,))]
    missing = filled.next_micro_batch()
    assert answered(filled, missing) == []
    assert sequence.num_losses == 1


def test_a_step_dropped_again_and_again_is_the_peers_fault():
    """So is one that begins a sequence: no stage has a reason to."""
    sequence = Sequence(A, [1, 2, 3, 4], 40)
    filled = decoding(scheduler(chunk_tokens=4), sequence)
    for _ in range(3):
        batch = filled.next_micro_batch()
        while batch.steps[0].past_len == 0:
            assert answered(filled, batch) == []
            batch = filled.next_micro_batch()
        answered(filled, batch, a=())
    first = filled.next_micro_batch()
    with pytest.raises(RemoteProtocolError):
        answered(filled, first, a=())
    answered(filled, first)
    batch = filled.next_micro_batch()
    with pytest.raises(RemoteProtocolError):
        answered(filled, batch, a=())
