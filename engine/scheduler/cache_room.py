"""Whose caches are on the stages: those of the sequences that run, and what is kept of ended ones.

What is kept lies in room that nobody needs. It goes, used longest ago first, before a sequence
that runs is sent back, before one that waits is not let in, and so before a batch could fail.

The stages are told of every change, in order: ``take_changes``. They take each before the frames
that come after it, so what is counted here is what they hold when those frames arrive. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from engine.domain import KeptPrefix
from engine.scheduler.kept_prefixes import FoundPrefix, KeptPrefixes
from engine.scheduler.kv_budget import KVBudget
from engine.scheduler.limits import PrefixReuse

if TYPE_CHECKING:
    from collections.abc import Collection

    from engine.domain import SequenceId
    from engine.scheduler.in_flight import InFlight
    from engine.scheduler.limits import SchedulerLimits
    from engine.scheduler.request import Sequence


class Opened(NamedTuple):
    """A sequence begins on the stages, with what is kept of an ended one where that helps."""

    sequence_id: SequenceId
    prefix: KeptPrefix | None


class Closed(NamedTuple):
    """The stages free what they hold of a sequence."""

    sequence_id: SequenceId


class CacheRoom:
    """The blocks of one placement epoch.

    Attributes:
        total_blocks: For all sequences together.
    """

    def __init__(self, limits: SchedulerLimits, in_flight: InFlight) -> None:
        """Begin with everything free.

        Args:
            limits: Of the placement.
            in_flight: What is under way; it is only looked at.
        """
        self._limits = limits
        self._in_flight = in_flight
        self._budget = KVBudget(limits.max_tokens, limits.block_tokens)
        self._kept = KeptPrefixes()
        self._changes: list[Opened | Closed] = []
        self.total_blocks = self._budget.total_blocks

    # ---- a sequence's caches -------------------------------------------------------------------

    def blocks_for(self, num_tokens: int) -> int:
        """Return the blocks that many tokens of one sequence take."""
        return self._budget.blocks_for(num_tokens)

    def open(self, sequence: Sequence, num_running: int) -> int | None:
        """Let a sequence begin, if there is room for its tokens and a block beside them.

        With that block it is not sent back at its first step; it is not asked for where the
        sequence can't come to it.

        Args:
            sequence: That holds nothing yet.
            num_running: Sequences that run beside it.

        Returns:
            How many of its tokens are in the caches already; None where it has to wait.
        """
        beside = sequence.num_tokens + self._limits.block_tokens
        needed = self.blocks_for(min(beside, sequence.max_length))
        found = self._find(sequence)
        if found is not None:
            needed -= found.num_blocks
            self._budget.share(found.sequence_id, sequence.sequence_id, found.num_blocks)
        if needed > self.free_blocks:
            self._budget.release(sequence.sequence_id)
            return None
        prefix = self._begin(sequence, found)
        self._evict_for(needed, num_running)
        self._budget.reserve(sequence.sequence_id, sequence.num_tokens)
        return 0 if prefix is None else prefix.num_tokens

    def reserve(self, sequence_id: SequenceId, num_tokens: int) -> bool:
        """Hold room for the first tokens of a sequence that runs, if need be where one was kept.

        Returns:
            Whether it is held now; if not, nothing is kept any more.
        """
        while not self._budget.reserve(sequence_id, num_tokens):
            if not self._evict():
                return False
        return True

    def close(self, sequence_id: SequenceId) -> None:
        """Free what a sequence holds, which ran or was kept."""
        self._kept.forget(sequence_id)
        self._budget.release(sequence_id)
        self._changes.append(Closed(sequence_id))

    def end(self, sequence: Sequence) -> None:
        """Keep what an answered sequence has in the caches, as far as it may be of use.

        Args:
            sequence: That held blocks until now.
        """
        num_blocks = min(sequence.num_computed_tokens, sequence.num_tokens)
        hashes = self._hashes(sequence, num_blocks // self._limits.block_tokens)
        is_shared = self._limits.prefix_reuse is PrefixReuse.SHARED
        covering = self._kept.covering(hashes) if hashes and is_shared else None
        if covering is not None:
            self._kept.use(covering)
        if not hashes or covering is not None:
            self.close(sequence.sequence_id)
            return
        covered = self._kept.covered_by(hashes) if is_shared else ()
        self._kept.keep(sequence.sequence_id, hashes)
        self._budget.keep(sequence.sequence_id)
        for each in covered:
            self.close(each)

    def forget_kept(self, sequence_id: SequenceId) -> None:
        """Free what is kept of a sequence; nothing happens for one that runs or is not known."""
        if sequence_id in self._kept:
            self.close(sequence_id)

    def shares_from(self, sequence_id: SequenceId, position: int) -> bool:
        """Whether a sequence may not compute the token at a position again: another reads it."""
        return self._budget.shares_from(sequence_id, position)

    def clear(self) -> None:
        """Free everything and tell nobody: the stages have ended."""
        for sequence_id in self._budget.holders():
            self.close(sequence_id)
        self._changes.clear()

    def take_changes(self) -> tuple[Opened | Closed, ...]:
        """Return what the stages must be told before the next frame, in order."""
        changes = tuple(self._changes)
        self._changes.clear()
        return changes

    # ---- counts --------------------------------------------------------------------------------

    @property
    def free_blocks(self) -> int:
        """Blocks that are free, or would be if nothing were kept."""
        return self.total_blocks - self._budget.used_blocks

    @property
    def kept_blocks(self) -> int:
        """Blocks that are held for what is kept alone."""
        return self.free_blocks - self._budget.free_blocks

    @property
    def kept_ids(self) -> tuple[SequenceId, ...]:
        """Ended sequences that are kept, the one used longest ago first."""
        return self._kept.ids()

    @property
    def is_whole(self) -> bool:
        """Whether every block is either held or free."""
        return self._budget.is_whole

    def is_held_by(self, running: Collection[SequenceId]) -> bool:
        """Whether blocks are held by these and what is kept, and by nobody else."""
        return self._budget.holders() == {*running, *self._kept.ids()}

    # ---- what is kept --------------------------------------------------------------------------

    def _find(self, sequence: Sequence) -> FoundPrefix | None:
        # One token at least is computed: the answer's first is drawn from it.
        num_blocks = (sequence.num_tokens - 1) // self._limits.block_tokens
        hashes = self._hashes(sequence, num_blocks)
        # One with frames under way is not known to hold what it should: they may fail.
        return self._kept.longest(hashes, lambda i: not self._in_flight.has_sent(i))

    def _hashes(self, sequence: Sequence, num_blocks: int) -> tuple[bytes, ...]:
        if self._limits.prefix_reuse is PrefixReuse.NONE or not sequence.reuses_prefix:
            return ()
        return sequence.block_hashes(num_blocks, self._limits.block_tokens)

    def _begin(self, sequence: Sequence, found: FoundPrefix | None) -> KeptPrefix | None:
        if found is None:
            self._changes.append(Opened(sequence.sequence_id, None))
            return None
        num_tokens = found.num_blocks * self._limits.block_tokens
        prefix = KeptPrefix(found.sequence_id, num_tokens)
        self._changes.append(Opened(sequence.sequence_id, prefix))
        if self._limits.prefix_reuse is PrefixReuse.TAKEN_OVER:
            self.close(found.sequence_id)
        else:
            self._kept.use(found.sequence_id)
        return prefix

    def _evict_for(self, num_blocks: int, num_running: int) -> None:
        """Make so much room, and a place beside what runs where each sequence needs its own."""
        is_one_each = self._limits.prefix_reuse is PrefixReuse.TAKEN_OVER
        num_places = self._limits.max_sequences - num_running - 1
        while self._budget.free_blocks < num_blocks and self._evict():
            pass
        while is_one_each and len(self._kept) > num_places and self._evict():
            pass

    def _evict(self) -> bool:
        """Free what was used longest ago of what is kept; return whether there was anything."""
        for sequence_id in self._kept.ids():
            self.close(sequence_id)
            return True
        return False
