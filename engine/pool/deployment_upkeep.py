"""What is looked after while the pool is ready; pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from engine.pool.deployment_attempt import able_to_cut, troubled, without_stages
from engine.pool.deployment_keepers import next_keeper
from engine.pool.deployment_plan import has_better_plan, have_lines_changed, lines_for
from engine.pool.deployment_state import Coordination, Input, State, moved
from engine.pool.deployment_troubles import stage_gone

if TYPE_CHECKING:
    from engine.domain import NodeId

AMISS_S = 10.0  # a stage's node says that it doesn't run it; reports come every few seconds
STEADY_S = 600.0  # ready for so long, what went wrong before is forgiven
LINES_EVERY_S = 5.0
REPLAN_EVERY_S = 30.0
KEEP_EVERY_S = 30.0


def kept_up(coordination: Coordination, now_s: float) -> Coordination:
    """Return the work after looking after what runs.

    Args:
        coordination: In any state; only in READY there is something to look after.
        now_s: Monotonic.
    """
    for look_after in (_watched, _forgiven, _replanned, _refreshed):
        if coordination.state is State.READY:
            coordination = look_after(coordination, now_s)
    return coordination


def keeper_due(coordination: Coordination, now_s: float) -> NodeId | None:
    """Return who is to be told now to keep the model; None for nobody.

    Args:
        coordination: In any state.
        now_s: Monotonic.
    """
    keeping = coordination.keeping
    is_waiting = keeping.heard_s is not None and now_s - keeping.heard_s < KEEP_EVERY_S
    if coordination.state is not State.READY or is_waiting:
        return None
    return next_keeper(
        coordination.nodes,
        able_to_cut(coordination),
        coordination.ledger.left_out.keys(),
        keeping.asked,
        coordination.node_id,
    )


def _watched(coordination: Coordination, now_s: float) -> Coordination:
    """Notice a stage that its own node doesn't know of, in case nobody said that it ended."""
    amiss = [n for n in coordination.chain if coordination.nodes[n].epoch != coordination.epoch]
    upkeep = coordination.upkeep
    if not amiss:
        return replace(coordination, upkeep=replace(upkeep, amiss_s=None))
    if upkeep.amiss_s is None:
        return replace(coordination, upkeep=replace(upkeep, amiss_s=now_s))
    if now_s - upkeep.amiss_s < AMISS_S:
        return coordination
    trouble = stage_gone(coordination.name_of(amiss[0]))
    return troubled(coordination, trouble, now_s, amiss[0])


def _forgiven(coordination: Coordination, now_s: float) -> Coordination:
    if now_s - coordination.upkeep.ready_s < STEADY_S or not coordination.ledger.strikes:
        return coordination
    return replace(coordination, ledger=replace(coordination.ledger, strikes={}))


def _replanned(coordination: Coordination, now_s: float) -> Coordination:
    record, upkeep = coordination.deployment, coordination.upkeep
    head = coordination.nodes[coordination.chain[0]]
    is_due = now_s - upkeep.replan_s >= REPLAN_EVERY_S and head.active_requests == 0
    if not is_due:
        return coordination
    if not has_better_plan(coordination.wanted, record, coordination.nodes, coordination.ledger):
        return replace(coordination, upkeep=replace(upkeep, replan_s=now_s))
    return moved(
        coordination, Input.BETTER, record=without_stages(record, None), cuts=(), until_s=now_s
    )


def _refreshed(coordination: Coordination, now_s: float) -> Coordination:
    record, upkeep = coordination.deployment, coordination.upkeep
    if now_s - upkeep.lines_s < LINES_EVERY_S:
        return coordination
    coordination = replace(coordination, upkeep=replace(upkeep, lines_s=now_s))
    lines = lines_for(record, coordination.nodes, coordination.ledger)
    if not have_lines_changed(record.plan, lines):
        return coordination
    return replace(coordination, record=replace(record, plan=lines))
