"""Which orders follow from where the work stands and what the pool is seen to do; pure.

What is said depends on the difference between the two, so an order that got lost is given again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from engine.pool.deployment_orders import (
    Order,
    OrderEnd,
    OrderKeep,
    OrderPlacement,
    OrderSplit,
    OrderWarmUp,
    Publish,
)
from engine.pool.deployment_state import Coordination, Keeping, State
from engine.pool.deployment_upkeep import keeper_due

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.domain import NodeId

REPEAT_S = 15.0  # a node that has said nothing for so long is told again
TIDY_EVERY_S = 5.0  # a node is told that a stage of another epoch is to end


def with_orders(
    before: Coordination, after: Coordination, now_s: float
) -> tuple[Coordination, list[Order]]:
    """Return the work with what was ordered noted in it, and the orders.

    Args:
        before: The work before the step.
        after: The work after it, without orders.
        now_s: Monotonic.
    """
    if after.state in {State.OUT, State.SETTLING}:
        return after, []
    orders: list[Order] = []
    gives: tuple[Callable[[Coordination, float], tuple[Coordination, list[Order]]], ...] = (
        _to_work,
        _to_keep,
    )
    after, published = _to_publish(before, after)
    orders += published
    after, ends = _to_end(before, after, now_s)
    orders += ends
    for give in gives:
        after, given = give(after, now_s)
        orders += given
    return after, orders


def _to_publish(before: Coordination, after: Coordination) -> tuple[Coordination, list[Order]]:
    record, term = after.record, after.term
    if record is None or term is None or (record.term == term and record == before.record):
        return after, []
    version = after.version + 1
    record = replace(record, term=term, version=version)
    return replace(after, record=record, version=version), [Publish(record)]


def _to_end(
    before: Coordination, after: Coordination, now_s: float
) -> tuple[Coordination, list[Order]]:
    """End the placement that was left behind, and now and then what a node still runs."""
    if before.epoch not in {0, after.epoch}:
        everyone = after.reachable
        return replace(after, tidied_s=now_s), [OrderEnd(everyone, before.epoch)]
    if after.record is None or now_s - after.tidied_s < TIDY_EVERY_S:
        return after, []
    strays: dict[int, list[NodeId]] = {}
    for node_id in after.reachable:
        epoch = after.nodes[node_id].epoch
        if epoch not in {0, after.epoch}:
            strays.setdefault(epoch, []).append(node_id)
    if not strays:
        return after, []
    orders: list[Order] = [OrderEnd(tuple(ids), epoch) for epoch, ids in sorted(strays.items())]
    return replace(after, tidied_s=now_s), orders


def _to_work(after: Coordination, now_s: float) -> tuple[Coordination, list[Order]]:
    """Order what is outstanding from those that weren't told, or have said nothing since."""
    heard_s = after.work.heard_s
    due = tuple(
        node_id
        for node_id in after.awaited
        if node_id not in heard_s or now_s - heard_s[node_id] >= REPEAT_S
    )
    if not due:
        return after, []
    record = after.deployment
    order: Order
    match after.state:
        case State.SPLITTING:
            layers = tuple(share.layers for share in record.stages)
            order = OrderSplit(due[0], record.epoch, after.wanted, layers)
        case State.LOADING:
            order = OrderPlacement(record, due)
        case _:
            order = OrderWarmUp(due[0], record.epoch)
    heard_s = heard_s | dict.fromkeys(due, now_s)
    return replace(after, work=replace(after.work, heard_s=heard_s)), [order]


def _to_keep(after: Coordination, now_s: float) -> tuple[Coordination, list[Order]]:
    keeper = keeper_due(after, now_s)
    if keeper is None:
        return after, []
    asked = after.keeping.asked
    asked = frozenset({keeper}) if keeper in asked else asked | {keeper}  # a new turn
    keeping = Keeping(node_id=keeper, heard_s=now_s, asked=asked)
    return replace(after, keeping=keeping), [OrderKeep(keeper, after.wanted.model_sha256)]
