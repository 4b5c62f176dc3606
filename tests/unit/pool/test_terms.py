from __future__ import annotations

from itertools import pairwise

import pytest

from engine.domain import NodeId
from engine.errors import LocalProtocolError
from engine.messages.pool import Stamp, Term
from engine.pool.terms import Fence, is_older


def stamp(term: Term, pool_id: str = "pool", sender: str | None = None) -> Stamp:
    return Stamp(pool_id, term, NodeId(sender or term.claimant))


OLD, NEW = Term(1, NodeId("b"), 7), Term(2, NodeId("a"), 3)


def test_terms_are_ordered_by_counter_then_claimant_then_start() -> None:
    a, b = NodeId("a"), NodeId("b")
    ordered = [None, Term(1, b, 9), Term(2, a, 1), Term(2, a, 2), Term(2, b, 0)]
    for one, other in pairwise(ordered):
        assert is_older(one, than=other)
        assert not is_older(other, than=one)
    assert not any(is_older(one, than=one) for one in ordered)


def test_a_term_is_shown_by_counter_and_claimant() -> None:
    assert str(NEW) == "2/a"


def test_s08_only_the_accepted_term_is_admitted() -> None:
    fence = Fence("pool", OLD)
    assert fence.admit(stamp(OLD))
    assert not fence.admit(stamp(NEW))
    fence.accept(NEW)
    assert not fence.admit(stamp(OLD))
    assert fence.admit(stamp(NEW))
    assert (fence.num_early, fence.num_stale, fence.num_foreign) == (1, 1, 0)


def test_a_fence_that_accepted_nothing_admits_nothing() -> None:
    fence = Fence("pool")
    assert not fence.admit(stamp(OLD))
    assert fence.num_early == 1


def test_s08_another_pool_and_a_false_sender_are_refused() -> None:
    fence = Fence("pool", OLD)
    assert not fence.admit(stamp(OLD, pool_id="other"))
    assert not fence.admit(stamp(OLD, sender="c"))
    assert fence.num_foreign == 2


def test_s08_a_fence_never_goes_back() -> None:
    fence = Fence("pool", NEW)
    fence.accept(NEW)
    with pytest.raises(LocalProtocolError, match="1/b was accepted after 2/a"):
        fence.accept(OLD)
    assert fence.accepted == NEW
