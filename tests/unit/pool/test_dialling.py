"""Whom a node dials and when: in turn, not for ever, and not what it has reached."""

from __future__ import annotations

from engine.domain import NodeId
from engine.pool.dialling import (
    FIRST_RETRY_S,
    LAST_RETRY_S,
    MAX_TARGETS,
    NEXT_ADDRESS_S,
    REDIAL_YIELD_S,
    TRY_HINTED_FOR_S,
    TRY_LOST_FOR_S,
    YIELD_S,
    Target,
    Targets,
)
from engine.pool.peer_address import PeerAddress

ME, LOWER, HIGHER = NodeId("m"), NodeId("a"), NodeId("z")
CABLE, AIR, ELSEWHERE = (PeerAddress(f"10.0.0.{i}", 7420) for i in (1, 2, 3))
NOW_S = 100.0


def targets() -> Targets:
    return Targets(ME)


def due(those: Targets, now_s: float, **ways: tuple[PeerAddress, ...]) -> list[PeerAddress]:
    reached = {NodeId(node_id): addresses for node_id, addresses in ways.items()}
    return [target.address for target in those.due(reached, now_s)]


def only(those: Targets, now_s: float) -> Target:
    (target,) = those.due({}, now_s)
    return target


def test_a_node_at_whose_addresses_nobody_listens_does_not_run() -> None:
    those = targets()
    assert not those.is_refused(LOWER), "nothing is known of it"
    those.announced(LOWER, (CABLE, AIR), NOW_S)
    cable, air = those.due({}, NOW_S + 60)
    cable.failed("Refused.", NOW_S, is_refused=True)
    air.failed("No answer.", NOW_S)
    assert not those.is_refused(LOWER), "a firewall may be in the way at the other address"
    air.failed("Refused.", NOW_S, is_refused=True)
    assert those.is_refused(LOWER)
    air.answered(NOW_S)
    assert not those.is_refused(LOWER)


def test_of_two_nodes_the_one_with_the_lower_id_dials_first() -> None:
    those = targets()
    those.announced(HIGHER, (CABLE,), NOW_S)
    those.announced(LOWER, (AIR,), NOW_S)
    assert due(those, NOW_S) == [CABLE]
    assert due(those, NOW_S + YIELD_S) == [AIR]


def test_the_addresses_of_one_node_are_dialled_one_after_the_other() -> None:
    those = targets()
    those.announced(HIGHER, (CABLE, AIR), NOW_S)
    assert due(those, NOW_S) == [CABLE]
    assert due(those, NOW_S) == []  # it is being dialled
    assert due(those, NOW_S + NEXT_ADDRESS_S) == [AIR]


def test_what_is_reached_is_not_dialled_nor_a_third_address_of_a_node() -> None:
    those = targets()
    those.announced(HIGHER, (CABLE, AIR, ELSEWHERE), NOW_S)
    late_s = NOW_S + 60
    assert due(those, late_s, z=(CABLE, AIR)) == []
    assert due(those, late_s, z=(CABLE,)) == [AIR, ELSEWHERE]


def test_an_address_somebody_gave_is_reached_whoever_is_there() -> None:
    those = targets()
    those.given(CABLE, NOW_S)
    assert due(those, NOW_S, z=(CABLE,)) == []
    assert due(those, NOW_S, z=(AIR,)) == [CABLE]


def test_tries_that_fail_become_rarer_but_go_on() -> None:
    those = targets()
    those.given(CABLE, NOW_S)
    now_s, waits = NOW_S, []
    for _ in range(7):
        target = only(those, now_s)
        target.failed("Nothing listens there.", now_s)
        waits.append(target.next_try_s - now_s)
        now_s = target.next_try_s
    assert waits == [1, 2, 4, 8, LAST_RETRY_S, LAST_RETRY_S, LAST_RETRY_S]
    assert [target.problem for target in those.unreached(())] == ["Nothing listens there."]


def test_a_problem_is_over_with_an_answer_and_none_where_the_node_is_reached_elsewhere() -> None:
    those = targets()
    those.announced(HIGHER, (CABLE,), NOW_S)
    target = only(those, NOW_S)
    target.failed("No answer.", NOW_S)
    assert those.unreached((HIGHER,)) == ()
    assert those.unreached((LOWER,)) == (target,)
    target = only(those, NOW_S + FIRST_RETRY_S)
    target.answered(NOW_S + FIRST_RETRY_S)
    assert those.unreached(()) == ()


def test_a_session_that_is_lost_at_once_is_not_dialled_in_a_circle() -> None:
    those = targets()
    those.announced(HIGHER, (CABLE,), NOW_S)
    only(those, NOW_S).answered(NOW_S)
    those.lost(HIGHER, CABLE, NOW_S)
    assert due(those, NOW_S + FIRST_RETRY_S / 2) == []
    assert due(those, NOW_S + FIRST_RETRY_S) == [CABLE]


def test_a_node_whose_session_was_lost_is_dialled_within_a_second_by_both() -> None:
    for node_id, wait_s in ((HIGHER, 0.0), (LOWER, REDIAL_YIELD_S)):
        those = targets()
        those.lost(node_id, CABLE, NOW_S)  # it had dialled us
        assert due(those, NOW_S + wait_s - 0.01) == []
        assert due(those, NOW_S + wait_s) == [CABLE]


def test_a_lost_node_that_was_hard_to_reach_is_dialled_soon_all_the_same() -> None:
    those = targets()
    those.announced(HIGHER, (CABLE,), NOW_S)
    for i in range(6):
        only(those, NOW_S + 20 * i).failed("No answer.", NOW_S + 20 * i)
    now_s = NOW_S + 101  # it dialled us meanwhile, and that session ends
    those.lost(HIGHER, CABLE, now_s)
    assert due(those, now_s + FIRST_RETRY_S) == [CABLE]


def test_a_lost_node_is_given_up_after_a_while_unless_it_is_announced() -> None:
    for is_announced in (False, True):
        those = targets()
        those.lost(HIGHER, CABLE, NOW_S)
        if is_announced:
            those.announced(HIGHER, (CABLE,), NOW_S)
        only(those, NOW_S).failed("No answer.", NOW_S)
        late_s = NOW_S + TRY_LOST_FOR_S
        due(those, late_s)
        assert those.addresses_of(HIGHER) == ((CABLE,) if is_announced else ())


def test_an_address_from_before_is_tried_once_and_its_failure_is_no_news() -> None:
    those = targets()
    those.known(CABLE, NOW_S)
    target = only(those, NOW_S)
    target.failed("No answer.", NOW_S)
    assert those.unreached(()) == ()
    assert due(those, NOW_S + 60) == []
    those.known(CABLE, NOW_S + 60)
    assert due(those, NOW_S + 60) == [CABLE]


def test_a_hint_is_followed_while_it_is_given() -> None:
    those = targets()
    those.hinted(HIGHER, CABLE, NOW_S)
    only(those, NOW_S).failed("No answer.", NOW_S)
    those.hinted(HIGHER, CABLE, NOW_S + 5)
    only(those, NOW_S + TRY_HINTED_FOR_S + 1).failed("No answer.", NOW_S + TRY_HINTED_FOR_S + 1)
    assert due(those, NOW_S + TRY_HINTED_FOR_S + 60) == []
    assert those.addresses_of(HIGHER) == ()


def test_a_node_that_announces_other_addresses_is_not_looked_for_at_the_old_ones() -> None:
    those = targets()
    those.announced(HIGHER, (CABLE, AIR), NOW_S)
    those.announced(HIGHER, (AIR, ELSEWHERE), NOW_S)
    assert those.addresses_of(HIGHER) == (AIR, ELSEWHERE)


def test_a_node_that_left_is_not_dialled() -> None:
    those = targets()
    those.announced(HIGHER, (CABLE, AIR), NOW_S)
    those.given(ELSEWHERE, NOW_S)
    those.left(HIGHER)
    assert due(those, NOW_S + 60) == [ELSEWHERE]


def test_on_another_network_everything_is_tried_anew() -> None:
    those = targets()
    those.announced(HIGHER, (CABLE,), NOW_S)
    for i in range(6):
        only(those, NOW_S + 20 * i).failed("No answer.", NOW_S + 20 * i)
    those.try_all_now(NOW_S + 101)
    only(those, NOW_S + 101).failed("No answer.", NOW_S + 101)
    assert due(those, NOW_S + 101 + FIRST_RETRY_S) == [CABLE]


def test_only_so_many_are_kept() -> None:
    those = targets()
    for i in range(2 * MAX_TARGETS):
        those.announced(NodeId(f"z{i}"), (PeerAddress("10.0.0.9", 1 + i),), NOW_S)
    assert len(due(those, NOW_S + 60)) == MAX_TARGETS


def test_losing_one_node_hurries_no_try_of_another() -> None:
    those = targets()
    those.given(ELSEWHERE, NOW_S)
    those.given(AIR, NOW_S)
    elsewhere, air = those.due({}, NOW_S)
    for _ in range(3):
        elsewhere.failed("No answer.", NOW_S)
    those.lost(HIGHER, CABLE, NOW_S)
    those.lost(LOWER, AIR, NOW_S)  # it is being dialled already
    assert elsewhere.next_try_s > NOW_S + FIRST_RETRY_S
    assert air.is_dialling
    assert due(those, NOW_S) == [CABLE]
