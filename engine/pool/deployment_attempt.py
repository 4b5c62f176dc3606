"""One attempt to bring a model up: planned, watched, given up or tried again; pure.

An attempt has an epoch of its own. Whatever goes wrong ends it; the next one is planned afresh,
after a wait that grows while nothing succeeds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from engine.errors import DaisyError
from engine.pool.deployment_changes import has_changed, look
from engine.pool.deployment_keepers import best_splitter, keepers
from engine.pool.deployment_plan import (
    lines_for,
    lines_of,
    plan_for,
    plan_with_cuts,
    shares_of,
)
from engine.pool.deployment_state import (
    AT_WORK,
    Coordination,
    Failure,
    Input,
    State,
    Work,
    moved,
    remembered,
)
from engine.pool.deployment_troubles import (
    away,
    charged,
    nobody_keeps,
    silent,
    trouble_of,
    withheld,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.domain import NodeId
    from engine.messages.deployment import Deployment, Trouble
    from engine.pool.plan import Plan

MAX_ATTEMPTS = 6
MAX_ATTEMPTS_WITH_CUTS = 2  # then the layers are divided anew
BACK_OFF_S = (0.0, 1.0, 2.0, 4.0, 8.0, 16.0)  # before the attempt after so many that failed
PLAN_EVERY_S = 2.0  # at most, while there is no plan
PLAN_AGAIN_S = 30.0  # without a plan, though no change was big enough to count
TRY_AGAIN_S = 120.0  # after too many attempts, though the pool didn't change
MAX_EPOCH = 2**31 - 1

DEADLINES_S = {State.SPLITTING: 300.0, State.LOADING: 600.0, State.WARMING: 60.0}
_NOT_DONE = {
    State.SPLITTING: "silent_splitting",
    State.LOADING: "silent_loading",
    State.WARMING: "silent_warming",
}


def planned(coordination: Coordination, now_s: float, draw: Callable[[], int]) -> Coordination:
    """Return the work after planning an attempt: splitting, or failed.

    Args:
        coordination: PLANNING, with a wish.
        now_s: Monotonic.
        draw: A random number of 31 bits.
    """
    wish = coordination.wanted
    try:
        plan = _best_plan(coordination)
    except DaisyError as error:
        return _failed(coordination, Input.IMPOSSIBLE, trouble_of(error), now_s)
    able = able_to_cut(coordination)
    splitter = best_splitter(wish, able, plan.node_ids, coordination.cannot_cut)
    if splitter is None:
        trouble = nobody_keeps(wish.model.name, _names_of_keepers(coordination))
        return _failed(coordination, Input.IMPOSSIBLE, trouble, now_s)
    epoch = _fresh_epoch(coordination, draw)
    involved = (*(stage.node_id for stage in plan.stages), splitter)
    return moved(
        coordination,
        Input.PLANNED,
        record=replace(
            coordination.deployment,
            epoch=epoch,
            stages=shares_of(plan),
            plan=lines_of(plan.rows),
            reason=plan.reason,
        ),
        epochs=remembered(coordination.epochs, epoch),
        work=Work(
            splitter=splitter,
            incarnations={n: coordination.nodes[n].incarnation for n in involved},
            progress_s=now_s,
        ),
    )


def _best_plan(coordination: Coordination) -> Plan:
    """Return a plan: with the cuts there are if that goes, since then nothing has to be cut."""
    wish, nodes, ledger = coordination.wanted, coordination.nodes, coordination.ledger
    cuts = coordination.cuts if coordination.attempts < MAX_ATTEMPTS_WITH_CUTS else ()
    return plan_with_cuts(cuts, wish, nodes, ledger) or plan_for(wish, nodes, ledger)


def able_to_cut(coordination: Coordination) -> frozenset[NodeId]:
    """Return who keeps the wished model and can be reached.

    Args:
        coordination: With a wish.
    """
    return keepers(coordination.wanted, coordination.nodes, coordination.asker_incarnation)


def troubled(
    coordination: Coordination, trouble: Trouble, now_s: float, node_id: NodeId | None = None
) -> Coordination:
    """Return the work after a placement can't go on: planning again, or given up.

    Args:
        coordination: SPLITTING to READY.
        trouble: What happened.
        now_s: Monotonic.
        node_id: Whose stage it was, where the trouble is to be held against that node.
    """
    ledger = coordination.ledger
    if node_id is not None:
        ledger = charged(ledger, coordination.nodes[node_id], trouble)
    has_left_out = ledger.left_out != coordination.ledger.left_out
    ended = replace(
        coordination,
        ledger=ledger,
        cannot_cut=frozenset(),
        record=None
        if coordination.record is None
        else without_stages(coordination.record, trouble),
    )
    if coordination.state is State.READY:
        return moved(ended, Input.BROKEN, until_s=now_s)
    attempts = coordination.attempts + (0 if has_left_out else 1)
    if attempts >= MAX_ATTEMPTS:
        return _failed(ended, Input.GAVE_UP, trouble, now_s)
    return moved(ended, Input.TROUBLED, attempts=attempts, until_s=now_s + BACK_OFF_S[attempts])


def splitter_troubled(coordination: Coordination, trouble: Trouble, now_s: float) -> Coordination:
    """Return the work after the model couldn't be cut there: another node that keeps it tries.

    Args:
        coordination: SPLITTING.
        trouble: What happened.
        now_s: Monotonic.
    """
    cannot = coordination.cannot_cut | frozenset(coordination.awaited)
    if not able_to_cut(coordination) - cannot:
        return troubled(coordination, trouble, now_s)
    record = without_stages(coordination.deployment, trouble)
    return moved(coordination, Input.TROUBLED, record=record, cannot_cut=cannot, until_s=now_s)


def without_lost(coordination: Coordination, now_s: float) -> Coordination:
    """Return the work after looking whether every node it needs is still there, and still lent.

    Args:
        coordination: SPLITTING to READY.
        now_s: Monotonic.
    """
    for node_id, incarnation in coordination.work.incarnations.items():
        node = coordination.nodes.get(node_id)
        if node is not None and node.is_reachable and node.incarnation == incarnation:
            continue
        trouble = away(coordination.name_of(node_id), node)
        if node_id == coordination.work.splitter and node_id not in coordination.chain:
            return splitter_troubled(coordination, trouble, now_s)
        return troubled(coordination, trouble, now_s)
    for node_id in coordination.chain:
        if coordination.nodes[node_id].facts.exclusions:
            return troubled(coordination, withheld(coordination.name_of(node_id)), now_s)
    return coordination


def without_silent(coordination: Coordination, now_s: float) -> Coordination:
    """Return the work after looking at its deadline.

    Args:
        coordination: In any state.
        now_s: Monotonic.
    """
    state = coordination.state
    if state not in AT_WORK:
        return coordination
    deadline_s = DEADLINES_S[state]
    if now_s - coordination.work.progress_s < deadline_s:
        return coordination
    name = coordination.name_of(coordination.awaited[0])
    trouble = silent(name, deadline_s, _NOT_DONE[state])
    if state is State.SPLITTING:
        return splitter_troubled(coordination, trouble, now_s)
    return troubled(coordination, trouble, now_s)


def looked_again(coordination: Coordination, now_s: float) -> Coordination:
    """Return the work after looking whether the pool has changed since nothing could be done.

    Args:
        coordination: In any state.
        now_s: Monotonic.
    """
    failure = coordination.failure
    if coordination.state is not State.FAILED or failure is None:
        return coordination
    waited_s = now_s - failure.at_s
    if waited_s < PLAN_EVERY_S:
        return coordination
    pool = look(coordination.nodes, able_to_cut(coordination))
    record = coordination.deployment
    if not failure.gave_up:
        record = replace(record, trouble=None)  # it is over, if there is a plan now
    again = replace(coordination, record=record, until_s=now_s, failure=None)
    if has_changed(failure.pool, pool, by_memory=not failure.gave_up):
        return moved(again, Input.CHANGED, attempts=0)
    if waited_s < (TRY_AGAIN_S if failure.gave_up else PLAN_AGAIN_S):
        return coordination
    return moved(again, Input.WAITED, attempts=MAX_ATTEMPTS - 1 if failure.gave_up else 0)


def without_stages(record: Deployment, trouble: Trouble | None) -> Deployment:
    """Return a record without its placement.

    Args:
        record: With a placement or without.
        trouble: Why it has none; None where nothing went wrong.
    """
    return replace(record, epoch=0, manifest_sha256=None, stages=(), reason="", trouble=trouble)


def _failed(
    coordination: Coordination, happened: Input, trouble: Trouble | None, now_s: float
) -> Coordination:
    record = without_stages(coordination.deployment, trouble)
    lines = lines_for(record, coordination.nodes, coordination.ledger)
    failure = Failure(
        pool=look(coordination.nodes, able_to_cut(coordination)),
        at_s=now_s,
        gave_up=happened is Input.GAVE_UP,
    )
    return moved(
        coordination,
        happened,
        record=replace(record, plan=lines),
        failure=failure,
        cannot_cut=frozenset(),
    )


def _names_of_keepers(coordination: Coordination) -> list[str]:
    wish = coordination.wanted
    known = {wish.asked_on} | {
        node_id
        for node_id, node in coordination.nodes.items()
        if wish.model_sha256 in node.kept_models
    }
    names = {coordination.name_of(node_id) for node_id in known}
    return sorted(names - known)  # an id says nothing to people


def _fresh_epoch(coordination: Coordination, draw: Callable[[], int]) -> int:
    """Return an epoch unlike any that somebody may still have in mind."""
    taken = {0, *coordination.epochs, *(node.epoch for node in coordination.nodes.values())}
    epoch = draw()
    while epoch in taken:
        epoch = epoch % MAX_EPOCH + 1
    return epoch
