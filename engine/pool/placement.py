"""Which PC runs which layers; pure.

One PC if it holds the model, unless a chain would answer faster by more than a tenth; otherwise
the fewest PCs that hold it. Among those the layers are divided in proportion to free memory, or,
once every PC has been measured, so that the slowest stage is as fast as can be.

The result depends on what is known of the PCs, never on the order in which they are given.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from engine.domain import LayerRange
from engine.errors import InsufficientMemoryError, PlacementError
from engine.pool.announcement import short_id
from engine.pool.chain_choice import (
    PlacementQuestion,
    Wishes,
    faster_chain,
    smallest_chain,
    solo_node,
)
from engine.pool.chain_times import compute_ms, expectation
from engine.pool.plan import Plan, PlannedStage, in_gib, plan_rows
from engine.pool.private_chain import private_chain
from engine.pool.sentences import sentence
from engine.pool.shortage import shortage
from engine.pool.stage_memory import StageMemory, stage_memory, stage_sizes, usable_for
from engine.splitter.layer_work import layer_times
from engine.splitter.partition import check_partition

if TYPE_CHECKING:
    from collections.abc import Iterable

    from engine.domain import ModelDescription, NodeId
    from engine.pool.chain_times import Chain
    from engine.pool.plan import Basis, Expectation, NodeFacts
    from engine.pool.stage_memory import Workload

REPLAN_GAIN = 1.2  # another placement must be so much faster to be worth loading


@dataclass(frozen=True, slots=True)
class Replan:
    """The answer of ``replan``."""

    plan: Plan  # the present one with fresh rows, or another
    has_changed: bool
    reason: str


def plan_placement(
    model: ModelDescription,
    workload: Workload,
    nodes: Iterable[NodeFacts],
    wishes: Wishes | None = None,
) -> Plan:
    """Divide a model among PCs.

    Args:
        model: What to divide.
        workload: What it must have room for.
        nodes: Every PC that is known, also those that may not be used.
        wishes: Where the head should be, and privacy.

    Fails with ``InsufficientMemoryError``, which says by how much and what would help;
    with ``PlacementError`` if two PCs have one id or the asker of a private chain isn't among
    them; with ``UsageError`` if the workload makes no sense.
    """
    return _plan(_question(model, workload, nodes, wishes or Wishes()))


def replan(
    current: Plan,
    model: ModelDescription,
    workload: Workload,
    nodes: Iterable[NodeFacts],
    wishes: Wishes | None = None,
) -> Replan:
    """Look at a placement again, after PCs came, went, or changed.

    It is kept as long as it is possible, unless another one is ``REPLAN_GAIN`` times as fast for
    one reply or for all together, and slower for neither. A PC that joins stands by.

    Args:
        current: The present placement.
        model: What it divides.
        workload: What it must have room for now.
        nodes: Every PC that is known now, with what its stages hold in ``lent_bytes``.
        wishes: As for ``plan_placement``.

    Fails as ``plan_placement`` does, if the present placement can't stay and there is no other.
    """
    question = _question(model, workload, nodes, wishes or Wishes())
    obstacle = _obstacle(current, question)
    if obstacle is not None:
        return Replan(_plan(question), has_changed=True, reason=obstacle)
    by_id = {node.node_id: node for node in question.nodes}
    chain = tuple((by_id[stage.node_id], stage.layers) for stage in current.stages)
    kept = _finished(question, chain, current.basis, current.reason)
    same_devices = zip(kept.stages, current.stages, strict=True)
    kept = msgspec.structs.replace(
        kept,
        stages=tuple(msgspec.structs.replace(s, device=old.device) for s, old in same_devices),
    )
    try:
        other = _plan(question)
    except InsufficientMemoryError:
        # With very many PCs and uneven layers the search may miss what stands already.
        other = kept
    gain = _gain(kept.expected, other.expected)
    if other.chain == kept.chain or gain < REPLAN_GAIN:
        return Replan(kept, has_changed=False, reason=sentence("why_kept"))
    return Replan(other, has_changed=True, reason=sentence("why_gain", gain=f"{gain:.1f}"))


def with_same_cuts(
    shares: Iterable[tuple[NodeId, LayerRange]],
    model: ModelDescription,
    workload: Workload,
    nodes: Iterable[NodeFacts],
    wishes: Wishes | None = None,
) -> Plan | None:
    """Let other PCs take over the layers of those that were lost, and change nothing else.

    Nothing has to be cut then, and what the others have loaded goes on.

    Args:
        shares: Who had which layers, in the order of the chain.
        model: What is divided.
        workload: What it must have room for.
        nodes: Every PC that is known.
        wishes: As for ``plan_placement``.

    Returns:
        None where no PC that stands by has room for them, or privacy binds layers to one PC.
    """
    question = _question(model, workload, nodes, wishes or Wishes())
    before = tuple(shares)
    if question.wishes.is_private:
        return None
    standing_by = {n.node_id: n for n in question.nodes if not n.exclusions and n.devices}
    takes: dict[int, NodeFacts] = {}
    needs = [stage_memory(model, workload, layers).total_bytes for _, layers in before]
    for index, (node_id, _) in enumerate(before):
        node = standing_by.get(node_id)
        if node is not None and needs[index] <= node.usable_bytes:
            takes[index] = standing_by.pop(node_id)
    for index in sorted(range(len(before)), key=lambda i: -needs[i]):
        if index in takes:
            continue
        able = [n for n in standing_by.values() if needs[index] <= n.usable_bytes]
        if not able:
            return None
        best = min(able, key=lambda n: (n.on_battery, -n.usable_bytes, n.node_id))
        takes[index] = standing_by.pop(best.node_id)
    chain = tuple((takes[i], layers) for i, (_, layers) in enumerate(before))
    basis: Basis = "time" if question.are_times_known else "memory"
    return _finished(question, chain, basis, sentence("why_same_cuts"))


def _question(
    model: ModelDescription, workload: Workload, nodes: Iterable[NodeFacts], wishes: Wishes
) -> PlacementQuestion:
    ordered = tuple(sorted(nodes, key=lambda node: node.node_id))
    twice = [name for name, count in Counter(n.node_id for n in ordered).items() if count > 1]
    if twice:
        raise PlacementError(f"Two PCs have the id {twice[0]}.", "Restart Daisy on one of them.")
    if wishes.is_private:
        _check_home(ordered, wishes.asker)
    sizes = stage_sizes(model, workload.checked())
    smallest = sizes.whole if sizes.num_layers == 1 else min(sizes.layers)
    return PlacementQuestion(model, workload, ordered, wishes, sizes, usable_for(smallest))


def _check_home(nodes: Iterable[NodeFacts], asker: NodeId | None) -> None:
    """Return if the PC that alone may see the text is there.

    Raises:
        PlacementError: It isn't; how much memory the others have is then beside the point.
    """
    away = sentence("unreached")
    home = next((node for node in nodes if node.node_id == asker), None)
    if home is not None and away not in {exclusion.reason for exclusion in home.exclusions}:
        return
    pc = home.name if home is not None else "" if asker is None else short_id(asker)
    raise PlacementError(sentence("private_away", pc=pc), sentence("private_away_advice"))


def _plan(question: PlacementQuestion) -> Plan:
    """Return the best plan.

    Raises:
        shortage: There is none; an ``InsufficientMemoryError``.
    """
    basis: Basis = "time" if question.are_times_known else "memory"
    solo = solo_node(question)
    if solo is not None:
        alone: Chain = ((solo, LayerRange(0, question.model.num_layers)),)
        faster = None if question.wishes.is_private else faster_chain(question, alone)
        if faster is None:
            return _finished(question, alone, basis, sentence("why_one"))
        return _finished(question, faster, basis, sentence("why_faster"))
    if question.wishes.is_private:
        chain = private_chain(question)
        reason = sentence("why_private")
    else:
        chain = smallest_chain(question)
        reason = sentence("why_fewest")
    if chain is None:
        raise shortage(question)
    return _finished(question, chain, basis, reason)


def _finished(question: PlacementQuestion, chain: Chain, basis: Basis, reason: str) -> Plan:
    check_partition((layers for _, layers in chain), question.model.num_layers)
    times = layer_times(question.model)
    stages = tuple(
        PlannedStage(
            node_id=node.node_id,
            layers=layers,
            device=node.devices[0],
            memory=stage_memory(question.model, question.workload, layers),
            compute_ms=compute_ms(times, node, layers),
        )
        for node, layers in chain
    )
    return Plan(
        model_name=question.model.name,
        num_layers=question.model.num_layers,
        context_tokens=question.workload.context_tokens,
        max_sequences=question.workload.max_sequences,
        basis=basis,
        stages=stages,
        rows=plan_rows(question.nodes, stages, question.smallest_bytes),
        expected=expectation(question.model, chain),
        reason=reason,
    )


def _obstacle(current: Plan, question: PlacementQuestion) -> str | None:
    """Return why a placement can't stay; None if it can."""
    by_id = {node.node_id: node for node in question.nodes}
    needs: dict[NodeId, StageMemory] = {}
    for stage in current.stages:
        own = stage_memory(question.model, question.workload, stage.layers)
        needs[stage.node_id] = needs.get(stage.node_id, StageMemory()) + own
    for node_id, need in needs.items():
        node = by_id.get(node_id)
        if node is None:
            return sentence("why_gone", pc=node_id)
        if node.exclusions:
            return sentence("why_excluded", pc=node.name, reason=node.exclusions[0].reason)
        if need.total_bytes > node.usable_bytes:
            usable, needed = in_gib(node.usable_bytes), in_gib(need.total_bytes)
            return sentence("why_shrunk", pc=node.name, usable=usable, needed=needed)
    ends = {current.stages[0].node_id, current.stages[-1].node_id}
    if question.wishes.is_private and ends != {question.wishes.asker}:
        return sentence("why_moved")
    for stage in current.stages:
        if stage.device not in by_id[stage.node_id].devices:
            return sentence("why_device", pc=by_id[stage.node_id].name, device=stage.device)
    return None


def _gain(present: Expectation | None, other: Expectation | None) -> float:
    """Return how many times as fast another placement is; 0 if it is slower in any way."""
    if present is None or other is None:
        return 0.0
    gains = (present.circuit_ms / other.circuit_ms, present.slowest_ms / other.slowest_ms)
    return max(gains) if min(gains) >= 1.0 else 0.0
