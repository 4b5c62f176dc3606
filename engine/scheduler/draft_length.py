"""How many tokens to guess for a sequence: as many as make its next tokens come soonest, or none.

What is weighed: how often guesses have held, what further rows cost the stages, what guessing
itself costs, and how long a frame takes round the chain, links included. A long way round makes
guesses cheap; stages that others keep busy make them dear. Most of that was measured once, when the
stage was loaded, and each by itself; whether tokens then come as much sooner with guesses as was
reckoned is seen by the clock, and guesses that do not keep what they promise are made less.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING

from engine.scheduler.acceptance import Acceptance
from engine.scheduler.circuit import MAX_FRAMES
from engine.scheduler.pace import Pace
from engine.typical_time import TypicalTime

if TYPE_CHECKING:
    from engine.domain import SequenceId
    from engine.scheduler.row_costs import RowCosts

# The lengths a stage is warmed for: with its first row, a draft of 3 makes 4 rows and one of 15
# makes 16, which is where CPUs change to another kernel.
DRAFT_LENGTHS = (0, 1, 2, 3, 5, 7, 10, 15)
_MAX_LENGTH = DRAFT_LENGTHS[-1]
_FIRST_RATE = 0.6  # before anything is known; what a small draft model reaches on its first token
_RATE_BY_DEPTH = 0.98  # and how it falls from one token to the next
_FIRST_TRIALS = 6.0  # that counts for; a few trials at some depth say little
_PRIOR_TRIALS = 8.0  # what other sequences showed counts for so many of one's own
_POOL_DECAY = 0.995
_PRIORS_EVERY = 8  # drafts
_SEQUENCE_DECAY = 0.97
_REMEMBERED_TIMES = 10
_PRIOR_PASSES = 3.0  # what was measured at load counts for so many
_PRIOR_TOKENS = 24.0
_STREAMING_SHARE = 0.9  # of the speed of frames that never stand in each other's way
_MIN_GAIN = 1.08  # less than that is within the error of what is reckoned, and loses as often
_FIRST_PROBE_AFTER = 16  # tokens without a guess
_MIN_PROBE_AFTER = 8  # where the last one held
_MAX_PROBE_AFTER = 128
_BEST_RATE = 0.95  # where even guesses as good as this do not pay, nothing is probed


@dataclass(slots=True)
class _Record:
    """What is known of one sequence."""

    acceptance: Acceptance
    num_silent: int = 0  # choices of 0 since its last guess
    probe_after: int = _FIRST_PROBE_AFTER
    rates: list[float] | None = field(default=None)  # as of the last trial
    length: int = 0  # of the last choice
    num_running: int = 0  # at it; 0 before any
    num_drafted: int = 0  # in the last frame that was answered


class _RunningMean:
    """Of the newest times; the first one counts whole."""

    def __init__(self, assumed: float = 0.0) -> None:
        self.mean = assumed
        self._num = 0

    def add(self, value: float) -> None:
        self._num = min(self._num + 1, _REMEMBERED_TIMES)
        self.mean += (value - self.mean) / self._num


class DraftLength:
    """Chooses among ``DRAFT_LENGTHS`` for the sequences of one head. For one thread."""

    def __init__(self, row_costs: RowCosts, num_stages: int) -> None:
        """Begin with what was measured at load.

        Args:
            row_costs: Of the head's own stage; the others are taken to be of its kind.
            num_stages: Of the chain. With two or more, frames of one sequence follow each other
                down it without waiting.
        """
        self._costs = row_costs
        self._num_stages = num_stages
        # Of a pass without guesses, for one row, by all stages together; of a frame's ways
        # between them; to guess a token.
        self._loaded_s = row_costs.one_row_s * num_stages
        self._compute_s = _RunningMean(self._loaded_s)
        self._link_s = _RunningMean()
        self._draft_s = TypicalTime()
        self._paces: dict[int, Pace] = {}  # of passes with guesses, by their rows
        self._plain_pace, self._guessed_pace = Pace(_PRIOR_TOKENS), Pace(_PRIOR_TOKENS)
        self._num_plain_rows = 1
        self._pool = Acceptance(_MAX_LENGTH, _POOL_DECAY)
        self._records: dict[SequenceId, _Record] = {}
        self._priors = self._pool_rates()
        self._num_observed = 0

    def choose(self, sequence_id: SequenceId, num_running: int) -> int:
        """Return how many tokens to guess for a sequence now.

        Args:
            sequence_id: Any; one that is not known yet begins with what others have shown.
            num_running: Sequences that run, this one included.

        Returns:
            One of ``DRAFT_LENGTHS``. Where guessing does not pay it is 0, but for a rare guess of
            one token that shows whether it would again.
        """
        record = self._record(sequence_id)
        rates = self._rates(record)
        record.num_running = num_running
        self._num_plain_rows = -(-num_running // self._num_stages)
        record.length = self._best(rates, num_running, self._draft_s.value)
        if record.length:
            return record.length
        self._guessed_pace.fade()
        record.num_silent += 1
        if record.num_silent >= record.probe_after:
            # What guessing costs is learned by guessing only: it does not keep from trying.
            best = self._best([_BEST_RATE] * _MAX_LENGTH, num_running, draft_s=0.0)
            record.length = int(best > 0)
        return record.length

    def observe(self, sequence_id: SequenceId, num_drafted: int, num_accepted: int) -> None:
        """Take what became of a draft.

        Args:
            sequence_id: Whose.
            num_drafted: Tokens that were sent as guesses; with 0, only that is noted.
            num_accepted: How many of them held.
        """
        if not num_drafted:
            if sequence_id in self._records:
                self._records[sequence_id].num_drafted = 0
            return
        record = self._record(sequence_id)
        record.num_drafted = num_drafted
        record.acceptance.observe(num_drafted, num_accepted)
        record.rates = None
        self._pool.observe(num_drafted, num_accepted)
        self._num_observed += 1
        # At first each draft says much; later they move slowly.
        if self._num_observed <= _PRIORS_EVERY or self._num_observed % _PRIORS_EVERY == 0:
            self._priors = self._pool_rates()
        record.num_silent = 0
        longer = min(2 * record.probe_after, _MAX_PROBE_AFTER)
        record.probe_after = _MIN_PROBE_AFTER if num_accepted else longer

    def forget(self, sequence_id: SequenceId) -> None:
        """Drop what is known of a sequence that has ended; nothing happens for a stranger."""
        self._records.pop(sequence_id, None)

    def took_circuit(self, num_rows: int, circuit_s: float, compute_s: float) -> None:
        """Take how long a decode frame was under way.

        Args:
            num_rows: Of the frame.
            circuit_s: From its leaving the head to its answer.
            compute_s: How long the stages computed of that.
        """
        if compute_s <= 0.0:
            return
        self._link_s.add(max(circuit_s - compute_s, 0.0))
        if num_rows <= self._num_plain_rows:
            self._compute_s.add(compute_s / self._costs.cost(num_rows))
            return
        for pace in self._paces.values():
            pace.fade()
        reckoned_s = self._loaded_s * self._costs.cost(num_rows)
        self._paces.setdefault(num_rows, Pace(_PRIOR_PASSES)).add(1, compute_s, reckoned_s)

    def took_draft(self, num_tokens: int, seconds: float) -> None:
        """Take how long guessing took.

        Args:
            num_tokens: Guessed for one sequence, 1 or more; for others beside it no more.
            seconds: For all of them. What a drafter reads first, a prompt say, is in it, and so
                the typical time counts and not the mean.
        """
        self._draft_s.add(seconds / num_tokens)

    def took_tokens(self, sequence_id: SequenceId, num_tokens: int, seconds: float) -> None:
        """Take how long a sequence's newest tokens took; what became of their drafts is known.

        Args:
            sequence_id: Whose.
            num_tokens: That came together, 1 or more.
            seconds: Since those before them.
        """
        record = self._records.get(sequence_id)
        if record is None or not record.num_running:
            return
        num_running, num_drafted = record.num_running, record.num_drafted
        others = (other for other in self._records.values() if other is not record)
        if not num_drafted and any(other.length for other in others):
            return  # their guesses may have been in its frame, which was no plain one then
        speed = self._speed(num_drafted, self._rates(record), num_running, self._draft_s.value)
        pace = self._guessed_pace if num_drafted else self._plain_pace
        pace.add(num_tokens, seconds, num_running / speed)

    # ---- what pays -----------------------------------------------------------------------------

    def _best(self, rates: list[float], num_running: int, draft_s: float) -> int:
        """Return the length with the most tokens a second; 0 unless another is clearly better."""
        # That everything takes longer than was reckoned is no fault of guesses.
        kept = min(self._plain_pace.ratio() / self._guessed_pace.ratio(), 1.0)
        best, most = 0, self._speed(0, rates, num_running, draft_s) * _MIN_GAIN / kept
        for length in DRAFT_LENGTHS[1:]:
            speed = self._speed(length, rates, num_running, draft_s)
            if speed > most:
                best, most = length, speed
        return best

    def _speed(self, length: int, rates: list[float], num_running: int, draft_s: float) -> float:
        """Return tokens a second of all running sequences, each with drafts of one length."""
        num_groups = min(num_running, self._num_stages)
        per_frame = -(-num_running // self._num_stages)
        compute_s = self._compute_s.mean * self._cost(per_frame * (length + 1))
        circuit_s = compute_s + self._link_s.mean
        stage_s = compute_s / self._num_stages
        # A round ends when its frame is back, and not before every group's frame went through
        # the slowest stage.
        round_s = max(circuit_s + length * draft_s, num_groups * stage_s)
        num_sequences = num_groups * per_frame
        speed = num_sequences * _expected_tokens(length, rates) / round_s
        # As many frames as fill the way round are under way, shared out among the groups.
        num_frames = min(round(circuit_s / stage_s), MAX_FRAMES) // num_groups
        if length and num_frames > 1:
            # While the chain holds, a frame's tokens come every ``frame_s``; a miss costs one
            # circuit. All of a frame hold, and the first of the next one, with chance ``held``.
            num_rows = length + 1
            frame_s = max(num_groups * stage_s, circuit_s / num_frames, num_rows * draft_s)
            held = prod(rates[:num_rows])
            token_s = (1 - held) * (circuit_s + length * draft_s) + held * frame_s
            token_s /= _expected_tokens(length, rates)
            speed = max(speed, num_sequences * _STREAMING_SHARE / token_s)
        return speed

    def _cost(self, num_rows: int) -> float:
        """Return c(r) as passes of late had it, or else those with the next number of rows."""
        cost = self._costs.cost(num_rows)
        if num_rows <= self._num_plain_rows or not self._paces:
            return cost
        nearest = min(self._paces, key=lambda known: abs(known - num_rows))
        plain = self._compute_s.mean / self._loaded_s
        return max(cost * self._paces[nearest].ratio(plain) / plain, 1.0)

    # ---- bookkeeping ---------------------------------------------------------------------------

    def _record(self, sequence_id: SequenceId) -> _Record:
        record = self._records.get(sequence_id)
        if record is None:
            record = _Record(Acceptance(_MAX_LENGTH, _SEQUENCE_DECAY))
            self._records[sequence_id] = record
        return record

    def _rates(self, record: _Record) -> list[float]:
        if record.rates is None:
            record.rates = record.acceptance.rates(self._priors, _PRIOR_TRIALS)
        return record.rates

    def _pool_rates(self) -> list[float]:
        first = [_FIRST_RATE * _RATE_BY_DEPTH**depth for depth in range(_MAX_LENGTH)]
        return self._pool.rates(first, _FIRST_TRIALS)


def _expected_tokens(length: int, rates: list[float]) -> float:
    """Return the tokens a verified draft gives: those that hold, and the one that is drawn."""
    expected = held = 1.0
    for rate in rates[:length]:
        held *= rate
        expected += held
    return expected
