"""Blocks are conserved, and refused without a trace."""

import pytest

from engine.domain import SequenceId
from engine.scheduler.kv_budget import KVBudget

A, B = SequenceId(1), SequenceId(2)


@pytest.mark.parametrize(("num_tokens", "blocks"), [(0, 0), (1, 1), (16, 1), (17, 2), (32, 2)])
def test_blocks_are_counted_up(num_tokens, blocks):
    """A block that is begun is taken."""
    assert KVBudget(100, 16).blocks_for(num_tokens) == blocks


def test_a_partial_block_is_not_counted():
    """100 tokens are 6 blocks of 16."""
    assert KVBudget(100, 16).total_blocks == 6


def test_growing_takes_only_what_is_missing():
    """And shrinking takes nothing back until it is released."""
    budget = KVBudget(96, 16)
    assert budget.reserve(A, 17)
    assert budget.free_blocks == 4
    assert budget.reserve(A, 33)
    assert budget.free_blocks == 3
    assert budget.reserve(A, 5)
    assert budget.free_blocks == 3
    assert budget.holders() == {A}
    assert budget.is_whole


def test_what_does_not_fit_changes_nothing():
    """Neither for the one that asked nor for the others."""
    budget = KVBudget(96, 16)
    assert budget.reserve(A, 64)
    assert not budget.reserve(B, 33)
    assert (budget.free_blocks, budget.holders()) == (2, {A})
    assert budget.reserve(B, 32)
    assert not budget.reserve(A, 65)
    assert budget.reserve(A, 64)
    assert budget.is_whole


def test_release_frees_everything_once():
    """A second release, and that of a stranger, do nothing."""
    budget = KVBudget(96, 16)
    budget.reserve(A, 50)
    budget.release(A)
    budget.release(A)
    budget.release(B)
    assert budget.free_blocks == budget.total_blocks
    assert budget.holders() == frozenset()


def test_a_lost_block_is_seen():
    """What the scheduler's own check relies on."""
    budget = KVBudget(96, 16)
    budget._free.pop()
    assert not budget.is_whole
