"""Which sequences form the next micro-batch, and what its answer means."""

import re

import pytest

from engine.domain import SampledRow, SampledTokens, SequenceId
from engine.errors import KVCacheFullError, LocalProtocolError, RemoteProtocolError
from engine.scheduler.cache_room import Closed
from engine.scheduler.limits import SchedulerLimits
from engine.scheduler.request import Sequence, SequenceState
from engine.scheduler.scheduler import Scheduler

EPOCH = 3


def scheduler(**changes):
    return Scheduler(
        SchedulerLimits(**{
            "max_tokens": 4096,
            "block_tokens": 16,
            "max_sequences": 8,
            **changes,
        }),
        EPOCH,
    )


def sequence(number, num_prompt_tokens=4, max_output_tokens=50):
    prompt = range(100 * number, 100 * number + num_prompt_tokens)
    return Sequence(SequenceId(number), prompt, max_output_tokens)


def with_sequences(*sequences, **changes):
    filled = scheduler(**changes)
    for each in sequences:
        filled.add(each)
    return filled


def answer(batch, token=9, epoch=EPOCH):
    rows = [
        SampledRow(step.sequence_id, step.past_len + step.num_tokens, (token,))
        for step in batch.steps
        if step.num_logits
    ]
    return SampledTokens(batch.batch_id, epoch, tuple(rows))


def work(batch):
    """Return (sequence, past_len, num_tokens, num_logits) of each step."""
    return [
        (step.sequence_id, step.past_len, step.num_tokens, step.num_logits) for step in batch.steps
    ]


def preempted(filled, *, waiting=False):
    """Return the sequences that the stages are told to free, or those of them that wait again."""
    closed = [each.sequence_id for each in filled.take_changes() if isinstance(each, Closed)]
    return tuple(i for i in closed if not waiting or filled.standing(i)[0])


def run(filled, num_batches):
    """Form and answer micro-batches one at a time; return the work of each."""
    done = []
    for _ in range(num_batches):
        batch = filled.next_micro_batch()
        done.append(work(batch))
        filled.apply(answer(batch))
        filled.check_integrity()
    return done


# ---- forming micro-batches -------------------------------------------------------------------


def test_nothing_to_do_is_none():
    """No empty batch is sent."""
    assert scheduler().next_micro_batch() is None


def test_a_short_prompt_is_prefilled_and_then_decoded_token_by_token():
    """The answer's tokens are fed back, each once."""
    filled = with_sequences(sequence(1))
    first = filled.next_micro_batch()
    assert work(first) == [(1, 0, 4, 1)]
    assert first.token_ids.tolist() == [100, 101, 102, 103]
    assert first.token_ids.dtype == "int32"
    assert first.epoch == EPOCH
    assert first.hidden_states is None
    assert filled.apply(answer(first, token=7)) == [(1, (7,))]
    second = filled.next_micro_batch()
    assert work(second) == [(1, 4, 1, 1)]
    assert second.token_ids.tolist() == [7]
    assert second.batch_id == first.batch_id + 1


def test_a_sequence_in_flight_is_not_scheduled_again():
    """Its next token is not known yet."""
    filled = with_sequences(sequence(1), max_batches_in_flight=2)
    assert filled.next_micro_batch() is not None
    assert filled.next_micro_batch() is None


def test_a_long_prompt_is_cut_into_chunks_and_only_the_last_has_logits():
    """600 tokens in chunks of 256."""
    filled = with_sequences(sequence(1, num_prompt_tokens=600))
    assert run(filled, 4) == [
        [(1, 0, 256, 0)],
        [(1, 256, 256, 0)],
        [(1, 512, 88, 1)],
        [(1, 600, 1, 1)],
    ]


def test_chunks_of_one_prompt_wait_for_each_other_unless_told():
    """Two stages; the second chunk follows at once where that is allowed."""
    long = {"num_prompt_tokens": 600}
    waiting = with_sequences(sequence(1, **long), num_stages=2)
    assert work(waiting.next_micro_batch()) == [(1, 0, 256, 0)]
    assert waiting.next_micro_batch() is None
    following = with_sequences(sequence(1, **long), num_stages=2, max_chunks_in_flight=2)
    first, second = following.next_micro_batch(), following.next_micro_batch()
    assert (work(first), work(second)) == ([(1, 0, 256, 0)], [(1, 256, 256, 0)])
    following.check_integrity()
    assert following.apply(answer(first)) == []
    assert work(following.next_micro_batch()) == [(1, 512, 88, 1)]


def test_decodes_come_first_and_prefills_share_what_is_left():
    """Of 300 rows one is the decode's; the second prompt gets what the first leaves."""
    filled = with_sequences(sequence(1), max_batch_tokens=300)
    run(filled, 1)
    filled.add(sequence(2, num_prompt_tokens=400))
    filled.add(sequence(3, num_prompt_tokens=400))
    batch = filled.next_micro_batch()
    assert work(batch) == [(1, 4, 1, 1), (2, 0, 256, 0), (3, 0, 43, 0)]
    assert batch.num_tokens == 300


def test_a_prefill_leaves_a_row_for_each_decode_that_comes_after_it():
    """Served longest ago comes first, and the decode still fits."""
    filled = with_sequences(
        sequence(1, num_prompt_tokens=300), sequence(2), chunk_tokens=8, max_batch_tokens=8
    )
    assert run(filled, 2) == [[(1, 0, 7, 0), (2, 0, 1, 0)], [(1, 7, 7, 0), (2, 1, 1, 0)]]


def test_no_more_batches_are_in_flight_than_allowed():
    """The third waits for an answer."""
    filled = with_sequences(*(sequence(number) for number in range(1, 7)), num_stages=2)
    first, second = filled.next_micro_batch(), filled.next_micro_batch()
    assert filled.next_micro_batch() is None
    assert filled.load().num_batches_in_flight == 2
    filled.apply(answer(second))
    assert filled.next_micro_batch() is not None
    assert {step.sequence_id for step in first.steps}.isdisjoint({4, 5, 6})


@pytest.mark.parametrize(
    ("num_sequences", "num_stages", "sizes"),
    [(2, 2, [1, 1]), (4, 2, [2, 2]), (5, 2, [3, 2]), (6, 3, [2, 2, 2]), (1, 2, [1]), (6, 1, [6])],
)
def test_running_sequences_are_divided_so_that_every_stage_is_busy(
    num_sequences, num_stages, sizes
):
    """One stage runs them together."""
    filled = with_sequences(
        *(sequence(number) for number in range(1, num_sequences + 1)), num_stages=num_stages
    )
    batches = [filled.next_micro_batch() for _ in range(num_stages)]
    assert [len(batch.steps) for batch in batches if batch] == sizes


def test_no_more_sequences_run_than_allowed():
    """The rest wait in order, and each knows its place."""
    filled = with_sequences(*(sequence(number) for number in range(1, 5)), max_sequences=2)
    assert work(filled.next_micro_batch()) == [(1, 0, 4, 1), (2, 0, 4, 1)]
    standings = [filled.standing(SequenceId(number)) for number in (1, 2, 3, 4, 5)]
    assert standings == [(0, 0), (0, 0), (1, 0), (2, 0), (0, 0)]
    assert filled.load().num_waiting == 2
    assert filled.load().num_running == 2


# ---- answers ---------------------------------------------------------------------------------


def test_a_sequence_finishes_at_its_limit_by_itself():
    """And the place is free for the next in the queue."""
    first = sequence(1, max_output_tokens=2)
    filled = with_sequences(first, sequence(2), max_sequences=1)
    run(filled, 2)
    assert first.state is SequenceState.FINISHED
    assert first.output_ids == (9, 9)
    assert work(filled.next_micro_batch()) == [(2, 0, 4, 1)]


def test_a_stop_token_finishes_a_sequence_early():
    """The head sees it and says so; a second time does nothing."""
    only = sequence(1)
    filled = with_sequences(only)
    run(filled, 1)
    filled.finish(SequenceId(1))
    filled.finish(SequenceId(1))
    assert only.state is SequenceState.FINISHED
    assert filled.next_micro_batch() is None
    assert filled.load().free_blocks == filled.load().total_blocks


def test_answers_of_another_epoch_or_an_unknown_batch_are_dropped_and_counted():
    """The batch itself stays in flight."""
    filled = with_sequences(sequence(1))
    batch = filled.next_micro_batch()
    assert filled.apply(answer(batch, epoch=EPOCH - 1)) == []
    assert filled.apply(SampledTokens(77, EPOCH, ())) == []
    assert filled.num_stale_results == 2
    assert filled.apply(answer(batch)) == [(1, (9,))]
    assert filled.apply(answer(batch)) == []
    assert filled.num_stale_results == 3


def test_the_row_of_a_cancelled_sequence_is_dropped_and_counted():
    """Its neighbours get their tokens."""
    filled = with_sequences(sequence(1), sequence(2))
    batch = filled.next_micro_batch()
    filled.cancel(SequenceId(1))
    assert filled.apply(answer(batch)) == [(2, (9,))]
    assert filled.num_stale_results == 1
    filled.check_integrity()


@pytest.mark.parametrize(
    "rows",
    [
        (),
        (SampledRow(SequenceId(1), 3, (9,)),),
        (SampledRow(SequenceId(1), 4, (9, 9)),),
        (SampledRow(SequenceId(1), 4, ()),),
        (SampledRow(SequenceId(2), 4, (9,)),),
    ],
    ids=str,
)
def test_an_answer_that_does_not_fit_is_the_peers_fault_and_changes_nothing(rows):
    """A missing row, a wrong position, too many or too few tokens."""
    filled = with_sequences(sequence(1))
    batch = filled.next_micro_batch()
    with pytest.raises(RemoteProtocolError, match="1 tokens from position 4"):
        filled.apply(SampledTokens(batch.batch_id, EPOCH, rows))
    assert filled.apply(answer(batch)) == [(1, (9,))]


def test_answers_to_two_chunks_must_come_in_order():
    """The chain keeps the order; who doesn't is at fault."""
    filled = with_sequences(
        sequence(1, num_prompt_tokens=300), num_stages=2, max_chunks_in_flight=2
    )
    first, second = filled.next_micro_batch(), filled.next_micro_batch()
    with pytest.raises(RemoteProtocolError, match="from 256 came before"):
        filled.apply(answer(second))
    assert filled.apply(answer(first)) == []
    assert filled.apply(answer(second)) == [(1, (9,))]


# ---- cancelling, failing, rewinding ----------------------------------------------------------


def test_cancelling_frees_a_waiting_and_a_running_sequence():
    """And nothing happens for one that is not here."""
    running, waiting = sequence(1), sequence(2)
    filled = with_sequences(running, waiting, max_sequences=1)
    filled.next_micro_batch()
    for number in (1, 2, 3):
        filled.cancel(SequenceId(number))
    assert running.state is SequenceState.CANCELLED
    assert waiting.state is SequenceState.CANCELLED
    assert filled.load().free_blocks == filled.load().total_blocks
    assert filled.load().num_waiting == filled.load().num_running == 0


def test_a_failed_batch_fails_its_sequences_and_no_other():
    """The rest go on."""
    first, second = sequence(1), sequence(2)
    filled = with_sequences(first, second, num_stages=2)
    batch, other = filled.next_micro_batch(), filled.next_micro_batch()
    assert filled.fail(batch.batch_id) == (1,)
    assert first.state is SequenceState.FAILED
    assert filled.apply(answer(other)) == [(2, (9,))]
    filled.check_integrity()


def test_a_failed_batch_can_be_replayed_from_the_beginning():
    """Committed tokens stay and are computed again with the prompt."""
    only = sequence(1)
    filled = with_sequences(only)
    run(filled, 2)
    batch = filled.next_micro_batch()
    assert work(batch) == [(1, 5, 1, 1)]
    assert filled.replay(batch.batch_id) == (1,)
    again = filled.next_micro_batch()
    assert work(again) == [(1, 0, 6, 1)]
    assert again.token_ids.tolist() == [100, 101, 102, 103, 9, 9]
    assert filled.apply(answer(again, token=8)) == [(1, (8,))]
    assert only.output_ids == (9, 9, 8)


def test_failing_or_replaying_a_batch_that_is_not_in_flight_is_counted():
    """It was answered or failed already."""
    filled = with_sequences(sequence(1))
    assert filled.fail(5) == ()
    assert filled.replay(5) == ()
    assert filled.num_stale_results == 2


def test_a_rewind_computes_the_tail_again_and_drops_what_was_in_flight():
    """Its room in the caches stays its own."""
    filled = with_sequences(sequence(1))
    run(filled, 3)
    stale = filled.next_micro_batch()
    filled.rewind(SequenceId(1), 2)
    filled.check_integrity()
    assert filled.apply(answer(stale)) == []
    batch = filled.next_micro_batch()
    assert work(batch) == [(1, 2, 5, 1)]
    assert batch.token_ids.tolist() == [102, 103, 9, 9, 9]


def test_only_a_running_sequence_can_be_rewound():
    """A waiting one has nothing in the caches."""
    filled = with_sequences(sequence(1))
    with pytest.raises(LocalProtocolError, match="1 is not running"):
        filled.rewind(SequenceId(1), 0)


def test_withdrawn_sequences_go_on_in_another_scheduler():
    """In order of arrival, with their committed tokens; old answers are stale there."""
    filled = with_sequences(*(sequence(number) for number in (1, 2, 3)), max_sequences=2)
    run(filled, 1)
    batch = filled.next_micro_batch()
    withdrawn = filled.withdraw()
    assert [each.sequence_id for each in withdrawn] == [1, 2, 3]
    assert {each.state for each in withdrawn} == {SequenceState.WAITING}
    assert filled.next_micro_batch() is None
    assert filled.load().free_blocks == filled.load().total_blocks
    after = Scheduler(SchedulerLimits(max_tokens=256, block_tokens=16, max_sequences=3), EPOCH + 1)
    for each in withdrawn:
        after.add(each)
    assert work(after.next_micro_batch()) == [(1, 0, 5, 1), (2, 0, 5, 1), (3, 0, 4, 1)]
    assert after.apply(answer(batch)) == []


def test_a_sequence_can_be_queued_once_only():
    """Its id is in use while it waits and while it runs."""
    filled = with_sequences(sequence(1))
    with pytest.raises(LocalProtocolError, match="1 can't be queued"):
        filled.add(sequence(1))
    filled.next_micro_batch()
    with pytest.raises(LocalProtocolError, match="1 can't be queued"):
        filled.add(sequence(1))
    ended = sequence(2)
    filled.add(ended)
    filled.cancel(SequenceId(2))
    with pytest.raises(LocalProtocolError, match="it is CANCELLED"):
        filled.add(ended)


# ---- room in the caches ----------------------------------------------------------------------


def test_a_sequence_too_long_for_the_caches_is_refused_at_once():
    """It would wait for ever."""
    filled = scheduler(max_tokens=64)
    with pytest.raises(KVCacheFullError) as caught:
        filled.add(sequence(1, num_prompt_tokens=60, max_output_tokens=5))
    assert (caught.value.required_blocks, caught.value.free_blocks) == (5, 4)
    filled.add(sequence(1, num_prompt_tokens=60, max_output_tokens=4))
    assert work(filled.next_micro_batch()) == [(1, 0, 60, 1)]


def test_a_huge_limit_reserves_nothing():
    """Only prompt and one block are asked for at admission."""
    filled = with_sequences(
        sequence(1, num_prompt_tokens=16, max_output_tokens=48),
        sequence(2, num_prompt_tokens=16, max_output_tokens=48),
        max_tokens=64,
    )
    assert len(filled.next_micro_batch().steps) == 2
    assert filled.load().free_blocks == 2


def test_a_sequence_is_admitted_only_if_its_prompt_and_a_block_fit():
    """A short one behind it does not overtake."""
    filled = with_sequences(
        sequence(1, num_prompt_tokens=32, max_output_tokens=8),
        sequence(2, num_prompt_tokens=32, max_output_tokens=8),
        sequence(3, num_prompt_tokens=1, max_output_tokens=2),
        max_tokens=64,
    )
    assert [step[0] for step in run(filled, 1)[0]] == [1]
    assert filled.standing(SequenceId(2)) == (1, 0)
    assert filled.standing(SequenceId(3)) == (2, 0)
    filled.cancel(SequenceId(1))
    assert [step[0] for step in run(filled, 1)[0]] == [2, 3]


def test_the_youngest_goes_back_to_the_queue_when_room_runs_out():
    """The older goes on; the younger is computed again and both answers are whole."""
    first = sequence(1, num_prompt_tokens=16, max_output_tokens=40)
    second = sequence(2, num_prompt_tokens=16, max_output_tokens=40)
    filled = with_sequences(first, second, max_tokens=64)
    gone = []
    num_batches = 0
    while (batch := filled.next_micro_batch()) is not None:
        gone += preempted(filled, waiting=True)
        filled.apply(answer(batch, token=num_batches % 7))
        filled.check_integrity()
        num_batches += 1
    assert gone == [2]
    assert preempted(filled, waiting=True) == ()
    assert first.state is second.state is SequenceState.FINISHED
    assert (len(first.output_ids), len(second.output_ids)) == (40, 40)
    assert num_batches < 40 + 40


def test_of_several_younger_ones_the_youngest_goes_back():
    """Three need a third block at once, and none is free."""
    filled = with_sequences(
        *(sequence(number, num_prompt_tokens=16, max_output_tokens=40) for number in (1, 2, 3)),
        max_tokens=96,
    )
    run(filled, 17)
    assert filled.load().free_blocks == 0
    assert work(filled.next_micro_batch()) == [(1, 32, 1, 1), (2, 32, 1, 1)]
    assert preempted(filled) == (3,)
    assert filled.standing(SequenceId(3)) == (1, 0)


def test_a_younger_one_never_takes_the_room_of_an_older():
    """It waits, though it was served longest ago."""
    filled = with_sequences(
        *(sequence(number, num_prompt_tokens=16, max_output_tokens=40) for number in (1, 2)),
        max_tokens=64,
        num_stages=2,
    )
    assert run(filled, 3) == [[(1, 0, 16, 1)], [(2, 0, 16, 1)], [(1, 16, 1, 1)]]
    filled._room._budget.reserve(SequenceId(1), 48)  # as if the older had grown meanwhile
    assert work(filled.next_micro_batch()) == [(1, 17, 1, 1)]
    assert preempted(filled) == ()


def test_a_sequence_without_room_waits_while_the_younger_are_in_flight():
    """What is in flight is not sent back; as soon as it returns, the older takes the room."""
    filled = with_sequences(
        sequence(1, num_prompt_tokens=16, max_output_tokens=40),
        sequence(2, num_prompt_tokens=20, max_output_tokens=40),
        max_tokens=64,
        num_stages=2,
    )
    first, second = filled.next_micro_batch(), filled.next_micro_batch()
    assert (work(first), work(second)) == ([(1, 0, 16, 1)], [(2, 0, 20, 1)])
    filled._room._budget.reserve(SequenceId(2), 48)  # as if the younger had grown meanwhile
    filled.apply(answer(first))
    assert filled.next_micro_batch() is None
    filled.apply(answer(second))
    assert work(filled.next_micro_batch()) == [(1, 16, 1, 1)]
    assert preempted(filled) == (2,)


# ---- fairness --------------------------------------------------------------------------------


def test_who_was_served_longest_ago_comes_first():
    """Four sequences in batches of two, one batch at a time: they take turns."""
    filled = with_sequences(*(sequence(number) for number in (1, 2, 3, 4)), num_stages=2)
    turns = [[step[0] for step in batch] for batch in run(filled, 4)]
    assert turns == [[1, 2], [3, 4], [1, 2], [3, 4]]


def test_neither_decodes_nor_prefills_starve_each_other():
    """Three decodes and two long prompts in batches of half of them: all advance alike."""
    filled = with_sequences(
        *(sequence(number) for number in (1, 2, 3)), num_stages=2, max_batch_tokens=64
    )
    served = dict.fromkeys((1, 2, 3, 4, 5), 0)
    pending = []
    for number in range(62):
        if number == 2:
            filled.add(sequence(4, num_prompt_tokens=2000))
            filled.add(sequence(5, num_prompt_tokens=2000))
        batch = filled.next_micro_batch()
        if batch is not None:
            pending.append(batch)
            for step in batch.steps:
                served[step.sequence_id] += 1
        if len(pending) == 2 or batch is None:
            filled.apply(answer(pending.pop(0)))
    assert min(served.values()) > 0
    assert max(served.values()) - min(served.values()) <= 3


def test_everything_finishes_in_order_of_arrival_when_equals_queue():
    """Ten equal requests through two places."""
    sequences = [sequence(number, max_output_tokens=3) for number in range(1, 11)]
    filled = with_sequences(*sequences, max_sequences=2)
    finished = []
    while (batch := filled.next_micro_batch()) is not None:
        filled.apply(answer(batch))
        finished += [
            each.sequence_id
            for each in sequences
            if each.state is SequenceState.FINISHED and each.sequence_id not in finished
        ]
    assert finished == list(range(1, 11))


# ---- the scheduler's own check ---------------------------------------------------------------


def spoil_blocks(filled):
    filled._room._budget._free.pop()


def spoil_holders(filled):
    filled._room._budget.release(SequenceId(1))


def spoil_queue(filled):
    filled._waiting.reverse()


def spoil_counters(filled):
    filled._running[SequenceId(1)].num_scheduled_tokens += 1


@pytest.mark.parametrize(
    ("spoil", "problem"),
    [
        (spoil_blocks, "blocks are lost"),
        (spoil_holders, "blocks are held for what does not run"),
        (spoil_queue, "the queue is out of order"),
        (spoil_counters, "steps in flight and counters disagree"),
    ],
)
def test_the_check_finds_each_inconsistency_by_name(spoil, problem):
    """A fault of ours, told before it becomes a wrong answer."""
    filled = with_sequences(*(sequence(number) for number in (1, 2, 3)), max_sequences=1)
    filled.next_micro_batch()
    filled.check_integrity()
    spoil(filled)
    with pytest.raises(LocalProtocolError, match=re.escape(problem)):
        filled.check_integrity()
