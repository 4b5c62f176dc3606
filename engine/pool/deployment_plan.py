"""From a wish and the nodes that are seen to a plan, and to what the record shows of it; pure."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from msgspec.structs import replace

from engine.domain import LayerRange
from engine.errors import DaisyError, UnsupportedModelError
from engine.messages.deployment import PlanLine, StageShare
from engine.messages.limits import MAX_NODES
from engine.pool.chain_choice import Wishes
from engine.pool.placement import plan_placement, replan, with_same_cuts
from engine.pool.plan import Exclusion, Plan, PlannedStage, plan_rows
from engine.pool.sentences import sentence
from engine.pool.stage_memory import Workload, stage_memory, stage_sizes, usable_for

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from engine.domain import ModelDescription, NodeId
    from engine.messages.deployment import Deployment, Wish
    from engine.pool.deployment_inputs import NodeSeen
    from engine.pool.deployment_troubles import Ledger
    from engine.pool.plan import NodeFacts, PlanRow

    Nodes = Mapping[NodeId, NodeSeen]

UNREACHABLE = Exclusion(sentence("unreached"), sentence("unreached_remedy"))
TOLERANCE = 10  # a part of this size, in memory, is not a change that matters


def plan_for(wish: Wish, nodes: Nodes, ledger: Ledger) -> Plan:
    """Return who should run which layers.

    Args:
        wish: What is to run.
        nodes: All that are known.
        ledger: Who is left out, and why.

    Fails as ``plan_placement`` does, and with ``UnsupportedModelError`` where the description
    of the model contradicts itself.
    """
    _check_model(wish.model)
    return plan_placement(wish.model, _workload(wish), _facts(nodes, ledger), _wishes(wish, nodes))


def plan_with_cuts(
    cuts: tuple[StageShare, ...], wish: Wish, nodes: Nodes, ledger: Ledger
) -> Plan | None:
    """Return who should run the layers as they were cut last; None if that isn't possible.

    Args:
        cuts: Who had which.
        wish: What is to run.
        nodes: All that are known.
        ledger: Who is left out, and why.
    """
    if not cuts or not _is_consistent(wish.model):
        return None
    had = [(share.node_id, share.layers) for share in cuts]
    facts, wishes = _facts(nodes, ledger), _wishes(wish, nodes)
    return with_same_cuts(had, wish.model, _workload(wish), facts, wishes)


def shares_of(plan: Plan) -> tuple[StageShare, ...]:
    """Return a plan's stages as the record has them.

    Args:
        plan: Whose.
    """
    return tuple(StageShare(stage.node_id, stage.layers) for stage in plan.stages)


def lines_of(rows: Iterable[PlanRow]) -> tuple[PlanLine, ...]:
    """Return a plan's rows as the record has them.

    Args:
        rows: One for each PC.
    """
    return tuple(
        PlanLine(
            node_id=row.node_id,
            name=row.name,
            role=row.role,
            layers=row.layers[0] if row.layers else None,
            last_layers=row.layers[1] if len(row.layers) > 1 else None,
            usable_bytes=row.usable_bytes,
            needed_bytes=row.memory.total_bytes,
            reason=row.reason,
            remedy=row.remedy,
        )
        for row in islice(rows, MAX_NODES)  # those with stages come first
    )


def lines_for(record: Deployment, nodes: Nodes, ledger: Ledger) -> tuple[PlanLine, ...]:
    """Return fresh lines for the stages a record has, be it none.

    Args:
        record: With a wish or without; without one there is nothing to show.
        nodes: All that are known.
        ledger: Who is left out, and why.
    """
    wish = record.wish
    if wish is None or not _is_consistent(wish.model):
        return ()
    sizes = stage_sizes(wish.model, _workload(wish))
    smallest = sizes.whole if sizes.num_layers == 1 else min(sizes.layers)
    rows = plan_rows(
        _facts(nodes, ledger), _planned_stages(wish, record.stages, nodes), usable_for(smallest)
    )
    return lines_of(rows)


def have_lines_changed(old: tuple[PlanLine, ...], new: tuple[PlanLine, ...]) -> bool:
    """Return whether people would see a difference: a PC, its part, or a tenth of its memory.

    Args:
        old: As they were published.
        new: As they are now.
    """

    def shape(lines: tuple[PlanLine, ...]) -> list[tuple[object, ...]]:
        return [(ln.node_id, ln.name, ln.role, ln.layers, ln.last_layers) for ln in lines]

    return shape(old) != shape(new) or any(
        differs(before.usable_bytes, after.usable_bytes)
        for before, after in zip(old, new, strict=True)
    )


def differs(before: int, after: int) -> bool:
    """Return whether an amount of memory has changed by more than a tenth.

    Args:
        before: In bytes.
        after: In bytes.
    """
    return abs(after - before) * TOLERANCE > before


def is_whole(record: Deployment) -> bool:
    """Return whether a record's stages cover the model it names, each layer once and in order.

    Args:
        record: As a node told it.
    """
    if record.wish is None or not record.stages or not _is_consistent(record.wish.model):
        return False
    start = 0
    for share in record.stages:
        if share.layers.start != start or share.layers.stop <= start:
            return False
        start = share.layers.stop
    return start == record.wish.model.num_layers


def has_better_plan(wish: Wish, record: Deployment, nodes: Nodes, ledger: Ledger) -> bool:
    """Return whether a placement should be replaced by what ``plan_for`` returns.

    Args:
        wish: What runs.
        record: With whole stages, whose nodes are all seen.
        nodes: All that are known.
        ledger: Who is left out, and why.
    """
    current = Plan(
        model_name=wish.model.name,
        num_layers=wish.model.num_layers,
        context_tokens=wish.context_tokens,
        max_sequences=wish.max_sequences,
        basis="memory",
        stages=_planned_stages(wish, record.stages, nodes),
        rows=(),
        expected=None,
        reason=record.reason,
    )
    if any(_is_briefly_short(stage, nodes) for stage in current.stages):
        return False
    try:
        answer = replan(
            current,
            wish.model,
            _workload(wish),
            _facts(nodes, ledger),
            _wishes(wish, nodes),
        )
    except DaisyError:
        return False  # it can't stay as it is, and nothing else is possible: better than nothing
    return answer.has_changed


def _is_briefly_short(stage: PlannedStage, nodes: Nodes) -> bool:
    """Return whether a stage's PC lacks less than a tenth of what it needs: that comes and goes."""
    usable = nodes[stage.node_id].facts.usable_bytes
    need = stage.memory.total_bytes
    return usable < need and not differs(need, usable)


def _check_model(model: ModelDescription) -> None:
    if not _is_consistent(model):
        raise UnsupportedModelError(f"The description of {model.name} contradicts itself.")


def _is_consistent(model: ModelDescription) -> bool:
    per_layer = (model.layer_bytes, model.num_kv_heads, model.head_size, model.value_head_size)
    return model.num_layers > 0 and all(len(each) == model.num_layers for each in per_layer)


def _workload(wish: Wish) -> Workload:
    return Workload(
        context_tokens=wish.context_tokens,
        max_sequences=wish.max_sequences,
        kv_precision="f32" if wish.mode == "exact" else "u8",
        kind=wish.kind,
    )


def _wishes(wish: Wish, nodes: Nodes) -> Wishes:
    if wish.is_private:  # no other PC will do, be it reachable or not
        return Wishes(asker=wish.asked_on, is_private=True)
    asker = nodes.get(wish.asked_on)
    return Wishes(asker=wish.asked_on if asker is not None and asker.is_reachable else None)


def _facts(nodes: Nodes, ledger: Ledger) -> list[NodeFacts]:
    """Return what is known of each PC, with every reason not to use it."""
    facts = []
    for node_id, node in nodes.items():
        more = []
        if not node.is_reachable:
            more.append(UNREACHABLE)
        if node_id in ledger.left_out:
            more.append(ledger.left_out[node_id].exclusion)
        facts.append(replace(node.facts, exclusions=(*node.facts.exclusions, *more)))
    return facts


def _planned_stages(
    wish: Wish, shares: tuple[StageShare, ...], nodes: Nodes
) -> tuple[PlannedStage, ...]:
    """Return a record's stages as a plan has them."""
    workload = _workload(wish)
    return tuple(
        PlannedStage(
            node_id=share.node_id,
            layers=LayerRange(share.layers.start, share.layers.stop),
            device=(nodes[share.node_id].facts.devices or ("",))[0],
            memory=stage_memory(wish.model, workload, share.layers),
            compute_ms=None,
        )
        for share in shares
    )
