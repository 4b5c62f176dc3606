"""What is kept of ended sequences, who begins with it, and when it goes."""

import pytest

from engine.domain import KeptPrefix, SampledRow, SampledTokens, SequenceId
from engine.scheduler.cache_room import Closed, Opened
from engine.scheduler.limits import PrefixReuse, SchedulerLimits
from engine.scheduler.request import Sequence, SequenceState
from engine.scheduler.scheduler import Scheduler

BLOCK = 4
SHARED, TAKEN_OVER, NONE = PrefixReuse.SHARED, PrefixReuse.TAKEN_OVER, PrefixReuse.NONE
BOTH = pytest.mark.parametrize("reuse", [SHARED, TAKEN_OVER])


class Talk:
    """A scheduler, a chain that answers 1, 2, 3 …, and what the stages were told."""

    def __init__(self, reuse=SHARED, **changes):
        limits = {"max_tokens": 80, "block_tokens": BLOCK, "max_sequences": 4}
        self.scheduler = Scheduler(SchedulerLimits(**limits | changes, prefix_reuse=reuse), 1)
        self.told = []
        self.sequences = {}

    def ask(self, number, prompt, max_output_tokens=1, **options):
        each = Sequence(SequenceId(number), prompt, max_output_tokens, **options)
        self.sequences[number] = each
        self.scheduler.add(each)
        return each

    def send(self):
        batch = self.scheduler.next_micro_batch()
        self.told += self.scheduler.take_changes()
        return batch

    def take(self, batch):
        rows = [
            SampledRow(step.sequence_id, step.past_len + step.num_tokens, (9,))
            for step in batch.steps
            if step.num_logits
        ]
        self.scheduler.apply(SampledTokens(batch.batch_id, 1, tuple(rows)))
        self.scheduler.check_integrity()

    def run(self):
        """Run all that are queued to their ends; return what the stages were told."""
        before = len(self.told)
        while (batch := self.send()) is not None:
            self.take(batch)
        return self.told[before:]

    def answer(self, number, prompt, max_output_tokens=1, **options):
        self.ask(number, prompt, max_output_tokens, **options)
        return self.run()

    @property
    def kept(self):
        return self.scheduler.load().kept_ids


def opened(number, kept=None, num_tokens=0):
    return Opened(number, None if kept is None else KeptPrefix(kept, num_tokens))


PROMPT = list(range(100, 110))  # two whole blocks and a half


# ---- finding -----------------------------------------------------------------------------------


def test_a_prompt_that_begins_alike_begins_with_the_kept_blocks():
    talk = Talk()
    assert talk.answer(1, PROMPT) == [opened(1)]
    assert talk.kept == (1,)
    talk.ask(2, [*PROMPT[:9], 7, 7, 7])
    batch = talk.send()
    assert talk.told[1:] == [opened(2, 1, 8)]
    (step,) = batch.steps
    assert (step.past_len, step.num_tokens, step.num_logits) == (8, 4, 1)
    assert batch.token_ids.tolist() == [109 - 1, 7, 7, 7]


def test_the_whole_prompt_is_never_reused():
    """One row gets logits, though all eight tokens are in the caches."""
    talk = Talk()
    talk.answer(1, PROMPT)
    assert talk.answer(2, PROMPT[:8])[0] == opened(2, 1, 4)
    assert talk.answer(3, PROMPT[:4]) == [opened(3), Closed(3)], "covered by what is kept"


def test_the_answer_is_reused_in_the_next_turn_but_its_last_token_was_never_computed():
    talk = Talk()
    talk.answer(1, PROMPT, max_output_tokens=6)
    ended = talk.sequences[1]
    assert ended.num_computed_tokens == 15
    turn = [*PROMPT, *ended.output_ids, 5, 6]
    assert talk.answer(2, turn)[0] == opened(2, 1, 12)


def test_only_what_has_the_same_tokens_from_the_beginning_is_found():
    """The second block is the same, and what is before it is not."""
    talk = Talk()
    talk.answer(1, PROMPT)
    assert talk.answer(2, [1, 2, 3, 4, *PROMPT[4:]])[0] == opened(2)
    assert talk.answer(3, [*PROMPT[:4], 0, *PROMPT[5:]])[0] == opened(3, 1, 4)


def test_the_longest_is_found_and_of_equals_the_one_with_the_least_behind():
    talk = Talk()
    common = list(range(50, 58))
    talk.answer(1, [*common, *range(20)])
    talk.answer(2, [*common, 0, 1, 2, 3, 99, 99, 99, 99, 3])
    talk.answer(3, [*common, 7, 7, 7, 7, 7])
    assert talk.answer(4, [*common, 0, 1, 2, 3, 4, 5, 6, 7, 8])[0] == opened(4, 1, 16)
    assert talk.answer(5, [*common, 1])[0] == opened(5, 3, 8)


@pytest.mark.parametrize("who", ["the first", "the second"])
def test_a_request_may_have_caches_of_its_own(who):
    talk = Talk()
    talk.answer(1, PROMPT, reuses_prefix=who != "the first")
    assert talk.kept == (() if who == "the first" else (1,))
    assert talk.answer(2, PROMPT, reuses_prefix=who != "the second")[0] == opened(2)


@pytest.mark.parametrize("end", ["cancel", "fail", "nothing is kept", "less than a block"])
def test_nothing_else_is_kept(end):
    """What was cancelled frees its blocks at once."""
    talk = Talk(reuse=NONE if end == "nothing is kept" else SHARED)
    talk.ask(1, PROMPT[:2] if end == "less than a block" else PROMPT, max_output_tokens=2)
    talk.take(talk.send())
    batch = talk.send()
    if end == "cancel":
        talk.scheduler.cancel(SequenceId(1))
    elif end == "fail":
        talk.scheduler.fail(batch.batch_id)
    else:
        talk.take(batch)
    talk.run()
    assert talk.told == [opened(1), Closed(1)]
    assert talk.scheduler.load().kept_blocks == 0


# ---- in flight ---------------------------------------------------------------------------------


def ended_with_a_step_under_way():
    """A stop string was seen when the next step was on its way."""
    talk = Talk(num_stages=2)
    talk.ask(1, PROMPT, max_output_tokens=9)
    talk.take(talk.send())
    under_way = talk.send()
    talk.scheduler.finish(SequenceId(1))
    return talk, under_way


def test_what_has_a_step_under_way_is_not_used_before_that_is_answered():
    talk, under_way = ended_with_a_step_under_way()
    assert talk.kept == (1,)
    talk.ask(2, PROMPT)
    batch = talk.send()
    assert talk.told[-1] == opened(2)
    talk.take(under_way)
    talk.take(batch)
    talk.ask(3, [*PROMPT[:8], 3])
    talk.send()
    assert talk.told[-1].prefix is not None


def test_what_had_a_step_in_a_batch_that_failed_is_forgotten():
    """A stage has freed it, or waits for a frame that never comes."""
    talk, under_way = ended_with_a_step_under_way()
    assert talk.scheduler.fail(under_way.batch_id) == ()
    talk.scheduler.check_integrity()
    assert talk.kept == ()
    talk.send()
    assert talk.told == [opened(1), Closed(1)]


def test_a_batch_that_fails_leaves_what_its_sequences_began_with():
    talk = Talk()
    talk.answer(1, PROMPT)
    talk.ask(2, [*PROMPT[:8], 5])
    talk.scheduler.fail(talk.send().batch_id)
    talk.send()
    assert talk.told[1:] == [opened(2, 1, 8), Closed(2)]
    assert talk.kept == (1,)


def test_a_step_that_cancelled_sequences_had_in_a_failed_batch_is_no_loss():
    talk = Talk(num_stages=2)
    talk.ask(1, PROMPT)
    batch = talk.send()
    talk.scheduler.cancel(SequenceId(1))
    assert talk.scheduler.fail(batch.batch_id) == ()
    talk.scheduler.check_integrity()


def test_a_sequence_that_must_write_what_it_shares_begins_anew():
    """It is replayed from its beginning, which another reads."""
    talk = Talk()
    talk.answer(1, PROMPT)
    talk.ask(2, [*PROMPT[:8], 5, 6, 7, 8, 9], max_output_tokens=3)
    batch = talk.send()
    assert talk.scheduler.replay(batch.batch_id) == (2,)
    assert talk.sequences[2].state is SequenceState.WAITING
    assert talk.run()[:2] == [Closed(2), opened(2, 1, 8)]
    assert talk.sequences[2].state is SequenceState.FINISHED


def test_a_sequence_that_is_rewound_behind_what_it_shares_goes_on():
    talk = Talk()
    talk.answer(1, PROMPT)
    talk.ask(2, [*PROMPT[:8], 5, 6, 7, 8, 9], max_output_tokens=3)
    talk.take(talk.send())
    talk.scheduler.rewind(SequenceId(2), 8)
    assert talk.sequences[2].state is SequenceState.PREFILL
    talk.scheduler.rewind(SequenceId(2), 7)
    assert talk.sequences[2].state is SequenceState.WAITING


# ---- one kept sequence for each conversation ---------------------------------------------------


def test_the_next_turn_takes_the_place_of_the_one_before():
    """And what it shares is counted once."""
    talk = Talk()
    talk.answer(1, PROMPT)
    assert talk.answer(2, [*PROMPT, 1, 2, 3, 4]) == [opened(2, 1, 8), Closed(1)]
    assert talk.kept == (2,)
    assert talk.scheduler.load().kept_blocks == 4


def test_two_that_begin_alike_are_kept_both_and_share_their_beginning():
    talk = Talk()
    talk.answer(1, [*PROMPT[:8], 1, 1, 1, 1, 1])
    talk.answer(2, [*PROMPT[:8], 2, 2, 2, 2, 2])
    assert talk.kept == (1, 2)
    assert talk.scheduler.load().kept_blocks == 2 + 2 + 2


def test_a_whole_state_is_used_up_by_who_takes_it_over():
    talk = Talk(reuse=TAKEN_OVER)
    talk.answer(1, [*PROMPT, *range(20)])
    talk.ask(2, [*PROMPT[:8], 2, 2])
    talk.ask(3, [*PROMPT[:8], 3, 3])
    talk.send()
    assert talk.told[1:] == [opened(2, 1, 8), Closed(1), opened(3)]
    talk.scheduler.check_integrity()
    assert talk.kept == ()


def test_whole_states_are_no_more_than_sequences_may_run():
    talk = Talk(reuse=TAKEN_OVER, max_sequences=2)
    for number in (1, 2, 3):
        talk.answer(number, [number * 10, *range(6)])
    assert talk.kept == (2, 3)
    assert talk.told == [opened(1), opened(2), opened(3), Closed(1)]


# ---- room --------------------------------------------------------------------------------------


@BOTH
def test_what_is_kept_goes_before_a_waiting_sequence_waits_for_room(reuse):
    """Used longest ago first, and no more than has to go."""
    talk = Talk(reuse=reuse, max_tokens=40)
    for number in (1, 2, 3):
        talk.answer(number, [number * 10, *range(7)])
    assert talk.kept == (1, 2, 3)
    assert talk.scheduler.load().free_blocks == 10
    told = talk.answer(4, list(range(200, 220)))
    assert told == [opened(4), Closed(1)]
    assert talk.kept == (2, 3, 4)


def test_what_was_used_last_goes_last():
    talk = Talk(max_tokens=40)
    for number in (1, 2, 3):
        talk.answer(number, [number * 10, *range(7)])
    talk.answer(4, [10, *range(7)])
    assert talk.kept == (2, 3, 1)


def test_what_is_kept_goes_before_a_running_sequence_is_sent_back():
    talk = Talk(max_tokens=40)
    talk.answer(1, PROMPT)
    talk.ask(2, list(range(10)), max_output_tokens=26)
    talk.ask(3, [77], max_output_tokens=3)
    told = talk.run()
    assert Closed(1) in told
    assert told.count(opened(2)) == told.count(opened(3)) == 1, "nobody was sent back"


def test_what_is_begun_with_may_go_itself_and_the_shared_blocks_stay():
    talk = Talk(max_tokens=32)
    talk.answer(1, [*PROMPT[:8], *range(15)])
    told = talk.answer(2, [*PROMPT[:8], *range(300, 316)], max_output_tokens=4)
    assert told[:2] == [opened(2, 1, 8), Closed(1)]
    assert talk.sequences[2].state is SequenceState.FINISHED


def test_who_has_to_wait_takes_nothing_and_nothing_goes_for_it():
    talk = Talk(max_tokens=40)
    talk.answer(1, PROMPT)
    talk.ask(2, list(range(24)), max_output_tokens=4)
    talk.send()
    talk.ask(3, [*PROMPT[:8], *range(60, 72)], max_output_tokens=2)
    assert talk.send() is None
    assert talk.told == [opened(1), opened(2)]
    assert talk.kept == (1,)
    talk.scheduler.check_integrity()


def test_a_new_placement_begins_with_nothing_kept():
    talk = Talk()
    talk.answer(1, PROMPT)
    talk.ask(2, PROMPT)
    talk.send()
    (withdrawn,) = talk.scheduler.withdraw()
    assert talk.scheduler.take_changes() == ()
    assert talk.kept == ()
    talk.scheduler.check_integrity()
    after = Talk()
    after.scheduler.add(withdrawn)
    assert after.run() == [opened(2)]
