"""A head that guesses, over a chain of stage services in this process: frames in any order."""

from __future__ import annotations

from collections import deque
from functools import partial

from engine.domain import SampledTokens, SequenceId
from engine.messages.chain import BatchFailed, CloseSequence, OpenSequence
from engine.messages.codec import decode, encode_control, encode_micro_batch
from engine.scheduler.cache_room import Opened
from engine.scheduler.request import Sequence, SequenceState
from engine.scheduler.scheduler import Scheduler
from engine.stages.service import StageService

ENDS = {SequenceState.FINISHED, SequenceState.CANCELLED, SequenceState.FAILED}


class Chain:
    """Stages with a queue in front of each, which are served in any order."""

    def __init__(self, stages):
        self.stages = stages
        self.services = [StageService(stage) for stage in stages]
        self.queues = [deque() for _ in stages]
        self.answers = deque()

    def run_one(self, number):
        """Let a stage take one frame; say whether there was one."""
        if not self.queues[number]:
            return False
        frame = self.queues[number].popleft()
        message = decode(frame)
        if isinstance(message, OpenSequence | CloseSequence):
            assert self.services[number].answer(message) is None
            answer = frame
        else:
            answer = self.services[number].answer(message)
        is_for_head = isinstance(decode(answer), SampledTokens | BatchFailed)
        if is_for_head:
            self.answers.append(answer)
        elif number + 1 < len(self.queues):
            self.queues[number + 1].append(answer)
        return True


class Head:
    """What the head does around the scheduler: open, close, send, receive, guess."""

    def __init__(self, limits, stages, answer, speculation=None, guess=None):
        """Begin.

        Args:
            limits: Of the scheduler.
            stages: Makes the stages of a chain.
            answer: ``answer(prompt, num_tokens, sampling)`` without any of this.
            speculation: None for none.
            guess: ``guess(head, sequence, request)`` returns ids.
        """
        self.limits = limits
        self.stages = stages
        self.answer = answer
        self.speculation = speculation
        self.guess = guess
        self.sequences = {}
        self.samplings = {}
        self.received = {}
        self.asked = deque()
        self.place(0)

    def place(self, epoch):
        self.epoch = epoch
        self.asked.clear()
        self.scheduler = Scheduler(self.limits, epoch, self.speculation)
        self.chain = Chain(self.stages())

    def ask(self, prompt, max_output_tokens, sampling, *, speculates=True):
        sequence_id = SequenceId(len(self.sequences) + 1)
        sequence = Sequence(sequence_id, prompt, max_output_tokens, speculates=speculates)
        self.sequences[sequence_id] = sequence
        self.samplings[sequence_id] = sampling
        self.scheduler.add(sequence)
        return sequence_id

    def opening(self, sequence_id):
        return OpenSequence(
            epoch=self.epoch,
            sequence_id=sequence_id,
            num_prompt_tokens=self.sequences[sequence_id].num_prompt_tokens,
            sampling=self.samplings[sequence_id],
        )

    def ask_for_drafts(self):
        self.asked.extend(self.scheduler.drafts.wanted())

    def draft_one(self):
        if not self.asked:
            return False
        request = self.asked.popleft()
        length = len(request.token_ids)
        ids = self.guess(self, self.sequences[request.sequence_id], request)
        assert len(ids) <= request.max_drafts
        self.scheduler.drafts.offer(request.sequence_id, length, ids)
        return True

    def send(self, held=()):
        batch = self.scheduler.next_micro_batch(held)
        queue = self.chain.queues[0]
        for change in self.scheduler.take_changes():
            if isinstance(change, Opened):
                queue.append(encode_control(self.opening(change.sequence_id)))
            else:
                closing = CloseSequence(epoch=self.epoch, sequence_id=change.sequence_id)
                queue.append(encode_control(closing))
        if batch is not None:
            queue.append(encode_micro_batch(batch))
        return batch is not None

    def receive(self, *, gives_up=False):
        if not self.chain.answers:
            return False
        answer = decode(self.chain.answers.popleft())
        if isinstance(answer, BatchFailed) and gives_up:
            self.scheduler.fail(answer.batch_id)
        elif isinstance(answer, BatchFailed):
            self.scheduler.replay(answer.batch_id)
        else:
            for sequence_id, token_ids in self.scheduler.apply(answer):
                self.received.setdefault(sequence_id, []).extend(token_ids)
        return True

    def go_round(self):
        """Send what can be sent, run and receive everything; say whether there was anything."""
        is_busy = False
        while self.send_guessed():
            is_busy = True
        for number in range(len(self.chain.queues)):
            while self.chain.run_one(number):
                is_busy = True
        while self.receive():
            is_busy = True
        return is_busy

    def send_guessed(self):
        """Have guessed all that is wanted, and send a frame; say whether there was one."""
        self.ask_for_drafts()
        while self.draft_one():
            pass
        return self.send()

    def lose_stages(self):
        """Go on with others, as behind a PC that was lost: what was under way never comes back."""
        withdrawn = self.scheduler.withdraw()
        self.place(self.epoch + 1)
        for sequence in withdrawn:
            self.scheduler.add(sequence)

    def turn(self, rng):
        """Do one of the things that may happen next; say whether there was any."""
        is_guessed = rng.random() < 0.8  # a drafter may be late
        turns = [lambda: self.send_guessed() if is_guessed else self.send(), self.receive]
        turns += [partial(self.chain.run_one, number) for number in range(len(self.chain.queues))]
        rng.shuffle(turns)
        return any(turn() for turn in turns) or any(self.chain.queues)

    def expected(self, sequence_id):
        sequence = self.sequences[sequence_id]
        prompt = sequence.token_ids(0, sequence.num_prompt_tokens).tolist()
        return self.answer(prompt, sequence.max_output_tokens, self.samplings[sequence_id])

    def check_answers(self):
        for sequence_id, sequence in self.sequences.items():
            assert sequence.state in ENDS, "something never finishes"
            received = tuple(self.received.get(sequence_id, ()))
            expected = self.expected(sequence_id)
            assert received == sequence.output_ids == expected[: len(received)]
            assert sequence.num_accepted_tokens <= sequence.num_drafted_tokens
            if sequence.state is SequenceState.FINISHED:
                assert received == expected


def always(kind, vocab_size):
    """Return a guess that is always right, always wrong, or right or wrong by a fixed pattern."""
    known = {}

    def guess(head, sequence, request):
        truth = known.get(sequence.sequence_id)
        if truth is None:
            truth = known[sequence.sequence_id] = head.expected(sequence.sequence_id)
        start = len(request.token_ids) - sequence.num_prompt_tokens
        ids = truth[start : start + request.max_drafts]
        if kind == "wrong":
            return tuple((i + 1) % vocab_size for i in ids)
        if kind == "mixed":
            return tuple(i if (start + n) % 5 else (i + 1) % vocab_size for n, i in enumerate(ids))
        return ids

    return guess
