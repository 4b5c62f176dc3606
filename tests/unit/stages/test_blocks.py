"""KV blocks are neither lost nor given twice, whatever sequences do."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from engine.domain import SequenceId
from engine.errors import KVCacheFullError, LocalProtocolError, StageError
from engine.stages.blocks import KVBlocks

NUM_BLOCKS, BLOCK_TOKENS = 12, 4
SEQUENCES = st.integers(0, 4).map(SequenceId)


class AnySequenceOfCalls(RuleBasedStateMachine):
    """Against a model that only knows how many tokens each sequence has, and who shares blocks."""

    def __init__(self):
        super().__init__()
        self.blocks = KVBlocks(NUM_BLOCKS, BLOCK_TOKENS, 100)
        self.tokens: dict[SequenceId, int] = {}

    @rule(wanted=st.dictionaries(SEQUENCES, st.integers(1, 40), min_size=1))
    def resize(self, wanted):
        tables = self.tables()
        growth = shrinkage = 0
        for sequence, count in wanted.items():
            before = tables.get(sequence, [])
            growth += max(needed(count) - len(before), 0)
            gone = before[needed(count) :]
            shrinkage += sum(self.num_owners(tables, block) == 1 for block in gone)
        if growth <= self.blocks.usage().free_blocks + shrinkage:
            self.blocks.resize(wanted.items())
            self.tokens |= wanted
            for sequence in tables.keys() & wanted.keys():
                kept = tables[sequence][: needed(wanted[sequence])]
                assert self.blocks.table(sequence)[: len(kept)].tolist() == kept
        else:
            with pytest.raises(KVCacheFullError):
                self.blocks.resize(wanted.items())
            assert self.tables() == tables

    @rule(sequence=SEQUENCES)
    def release(self, sequence):
        self.blocks.release(sequence)
        self.tokens.pop(sequence, None)

    @rule(kept=SEQUENCES, sequence=SEQUENCES, num_tokens=st.integers(1, 40))
    def share(self, kept, sequence, num_tokens):
        if kept == sequence:
            return
        table = self.tables().get(kept, [])
        self.blocks.share(kept, sequence, num_tokens)
        self.tokens.pop(sequence, None)
        if num_tokens % BLOCK_TOKENS == 0 and num_tokens <= self.tokens.get(kept, 0):
            self.tokens[sequence] = num_tokens
            assert self.tables()[sequence] == table[: num_tokens // BLOCK_TOKENS]

    @rule(kept=SEQUENCES, sequence=SEQUENCES)
    def hand_over(self, kept, sequence):
        if kept == sequence:
            return
        table = self.tables().get(kept)
        self.blocks.hand_over(kept, sequence)
        if table is not None:
            self.tokens[sequence] = self.tokens.pop(kept)
            assert self.tables()[sequence] == table

    @rule(sequence=SEQUENCES, past_len=st.integers(0, 40))
    def check_writable(self, sequence, past_len):
        tables = self.tables()
        behind = tables.get(sequence, [])[past_len // BLOCK_TOKENS :]
        if any(self.num_owners(tables, block) > 1 for block in behind):
            with pytest.raises(LocalProtocolError, match=f"position {past_len}, inside"):
                self.blocks.check_writable(sequence, past_len)
        else:
            self.blocks.check_writable(sequence, past_len)

    def tables(self):
        return {s: self.blocks.table(s).tolist() for s in self.tokens}

    def num_owners(self, tables, block):
        return sum(block in table for table in tables.values())

    @invariant()
    def nothing_is_lost(self):
        self.blocks.check()
        usage = self.blocks.usage()
        assert usage.used_blocks == len(set().union(*self.tables().values()))
        assert usage.used_blocks + usage.free_blocks == NUM_BLOCKS
        assert usage.used_bytes == 100 * usage.used_blocks
        assert usage.num_sequences == len(self.tokens)
        for sequence, count in self.tokens.items():
            assert self.blocks.num_tokens(sequence) == count
            assert len(self.blocks.table(sequence)) == needed(count)


def needed(num_tokens):
    return -(-num_tokens // BLOCK_TOKENS)


TestAnySequenceOfCalls = AnySequenceOfCalls.TestCase
TestAnySequenceOfCalls.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


def test_what_one_sequence_gives_back_another_may_take_in_the_same_call():
    blocks = KVBlocks(3, 4, 1)
    blocks.resize([(SequenceId(1), 12)])
    blocks.resize([(SequenceId(2), 8), (SequenceId(1), 4)])
    assert (len(blocks.table(SequenceId(1))), len(blocks.table(SequenceId(2)))) == (1, 2)


def test_the_error_names_what_is_needed_and_what_is_free():
    blocks = KVBlocks(3, 4, 1)
    blocks.resize([(SequenceId(1), 4)])
    with pytest.raises(KVCacheFullError) as caught:
        blocks.resize([(SequenceId(1), 17)])
    assert (caught.value.required_blocks, caught.value.free_blocks) == (4, 2)


def test_wrong_accounting_is_noticed():
    """A block with two owners would mix two people's conversations."""
    blocks = KVBlocks(3, 4, 1)
    blocks.resize([(SequenceId(1), 4)])
    blocks._free.append(int(blocks.table(SequenceId(1))[0]))
    with pytest.raises(StageError, match="not each where they belong"):
        blocks.usage()


def test_a_long_sequence_keeps_its_blocks_in_their_order():
    """Its table outgrows its first array twice."""
    blocks = KVBlocks(100, 4, 1)
    seen = []
    for num_tokens in range(1, 201):
        blocks.resize([(SequenceId(1), num_tokens)])
        table = blocks.table(SequenceId(1)).tolist()
        assert table[: len(seen)] == seen
        seen = table
    assert len(seen) == len(set(seen)) == 50
    blocks.check()


@pytest.mark.parametrize("spoil", ["an owner nobody knows", "a block that is lost"])
def test_wrong_owners_are_noticed(spoil):
    blocks = KVBlocks(3, 4, 1)
    blocks.resize([(SequenceId(1), 4)])
    if spoil == "an owner nobody knows":
        blocks._num_owners[blocks.table(SequenceId(1))] += 1
    else:
        blocks._free.pop()
    with pytest.raises(StageError, match="not each where they belong"):
        blocks.check()


def test_a_long_prefix_is_shared_beyond_the_first_size_of_a_table():
    blocks = KVBlocks(100, 4, 1)
    blocks.resize([(SequenceId(1), 200)])
    blocks.share(SequenceId(1), SequenceId(2), 196)
    blocks.resize([(SequenceId(2), 204)])
    assert blocks.usage().used_blocks == 52
    blocks.release(SequenceId(1))
    assert blocks.usage().used_blocks == 51
    blocks.check_writable(SequenceId(2), 0)


def test_who_has_no_block_may_write_its_first():
    KVBlocks(3, 4, 1).check_writable(SequenceId(1), 0)
