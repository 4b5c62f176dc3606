"""KV blocks are neither lost nor given twice, whatever sequences do."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from engine.domain import SequenceId
from engine.errors import KVCacheFullError, StageError
from engine.stages.blocks import KVBlocks

NUM_BLOCKS, BLOCK_TOKENS = 12, 4
SEQUENCES = st.integers(0, 4).map(SequenceId)


class AnySequenceOfCalls(RuleBasedStateMachine):
    """Against a model that only knows how many tokens each sequence has."""

    def __init__(self):
        super().__init__()
        self.blocks = KVBlocks(NUM_BLOCKS, BLOCK_TOKENS, 100)
        self.tokens: dict[SequenceId, int] = {}

    @rule(wanted=st.dictionaries(SEQUENCES, st.integers(1, 40), min_size=1))
    def resize(self, wanted):
        after = self.tokens | wanted
        tables = {s: self.blocks.table(s).tolist() for s in self.tokens}
        if needed(after) <= NUM_BLOCKS:
            self.blocks.resize(wanted.items())
            self.tokens = after
            for sequence in tables.keys() & wanted.keys():
                kept = tables[sequence][: needed({0: wanted[sequence]})]
                assert self.blocks.table(sequence)[: len(kept)].tolist() == kept
        else:
            with pytest.raises(KVCacheFullError):
                self.blocks.resize(wanted.items())
            assert {s: self.blocks.table(s).tolist() for s in self.tokens} == tables

    @rule(sequence=SEQUENCES)
    def release(self, sequence):
        self.blocks.release(sequence)
        self.tokens.pop(sequence, None)

    @invariant()
    def nothing_is_lost(self):
        self.blocks.check()
        usage = self.blocks.usage()
        assert usage.used_blocks == needed(self.tokens)
        assert usage.used_blocks + usage.free_blocks == NUM_BLOCKS
        assert usage.used_bytes == 100 * usage.used_blocks
        assert usage.num_sequences == len(self.tokens)
        for sequence, count in self.tokens.items():
            assert self.blocks.num_tokens(sequence) == count


def needed(tokens):
    return sum(-(-count // BLOCK_TOKENS) for count in tokens.values())


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
    with pytest.raises(StageError, match="not each once"):
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
