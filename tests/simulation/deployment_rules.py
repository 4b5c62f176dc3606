"""What must hold of every order a coordinator gives, whatever happened before it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.pool.deployment_orders import (
    OrderEnd,
    OrderKeep,
    OrderPlacement,
    OrderSplit,
    OrderWarmUp,
    Publish,
)
from engine.pool.stage_memory import Workload, stage_memory
from engine.splitter.partition import check_partition
from tests.simulation.world import BreachError

if TYPE_CHECKING:
    from engine.domain import NodeId
    from engine.messages.deployment import Deployment
    from engine.messages.pool import Term
    from engine.pool.deployment_orders import Order
    from engine.pool.deployment_state import Coordination

KEEP_EVERY_S = 30.0


class Rules:
    """Checks orders as they are given, and remembers what was given before."""

    def __init__(self) -> None:
        self.versions: dict[Term, int] = {}
        self.contents: dict[tuple[type, int], object] = {}
        self.placements: dict[int, tuple[object, ...]] = {}
        self.kept_s: dict[Term, float] = {}
        self.counts: dict[str, int] = {}

    def check(self, machine: Coordination, order: Order, now_s: float) -> None:
        """Raise ``BreachError`` if an order breaks a rule.

        Args:
            machine: Whose order it is, after the step that gave it.
            order: The order.
            now_s: When.
        """
        name = type(order).__name__
        self.counts[name] = self.counts.get(name, 0) + 1
        if machine.term is None:
            raise BreachError(f"{name} out of office")
        self._check_reach(machine, order)
        match order:
            case Publish(record):
                self._check_record(machine, record)
            case OrderSplit():
                content = (order.node_id, order.wish, order.layers)
                self._check_content(OrderSplit, order.epoch, content)
            case OrderPlacement(record):
                content = (record.wish, record.stages, record.manifest_sha256)
                self._check_content(OrderPlacement, record.epoch, content)
            case OrderKeep():
                last_s = self.kept_s.get(machine.term)
                if last_s is not None and now_s - last_s < KEEP_EVERY_S:
                    raise BreachError("two orders to keep within 30 s")
                self.kept_s[machine.term] = now_s
            case OrderWarmUp() | OrderEnd():
                pass

    def _check_reach(self, machine: Coordination, order: Order) -> None:
        to: tuple[NodeId, ...] = ()
        match order:
            case OrderSplit() | OrderWarmUp() | OrderKeep():
                to = (order.node_id,)
            case OrderPlacement() | OrderEnd():
                to = order.node_ids
                if not to:
                    raise BreachError(f"{order} is for nobody")
        for node_id in to:
            seen = machine.nodes.get(node_id)
            if seen is None or not seen.is_reachable:
                raise BreachError(f"{type(order).__name__} to {node_id}, which can't be reached")

    def _check_content(self, kind: type, epoch: int, content: object) -> None:
        if self.contents.setdefault((kind, epoch), content) != content:
            raise BreachError(f"two {kind.__name__} of epoch {epoch} differ")

    def _check_record(self, machine: Coordination, record: Deployment) -> None:
        if record.term != machine.term:
            raise BreachError(f"a record of {record.term} in {machine.term}")
        if record.version <= self.versions.get(record.term, 0):
            raise BreachError(f"version {record.version} after {self.versions[record.term]}")
        self.versions[record.term] = record.version
        if (record.epoch != 0) != bool(record.stages):
            raise BreachError(f"epoch {record.epoch} with {len(record.stages)} stages")
        if not record.stages:
            if record.phase in {"splitting", "loading", "warming", "ready"}:
                raise BreachError(f"{record.phase} without stages")
            return
        wish = record.wish
        if wish is None:
            raise BreachError("stages without a wish")
        check_partition((share.layers for share in record.stages), wish.model.num_layers)
        placement = (wish, record.stages)
        if record.phase == "splitting" and record.epoch not in self.placements:
            _check_memory(machine, record)
        if self.placements.setdefault(record.epoch, placement) != placement:
            raise BreachError(f"two placements of epoch {record.epoch}")


def _check_memory(machine: Coordination, record: Deployment) -> None:
    """Nobody may be given more than it has, or what it should not be given at all."""
    wish = record.wish
    workload = Workload(
        context_tokens=wish.context_tokens,
        max_sequences=wish.max_sequences,
        kv_precision="f32" if wish.mode == "exact" else "u8",
        kind=wish.kind,
    )
    for share in record.stages:
        seen = machine.nodes[share.node_id]
        need = stage_memory(wish.model, workload, share.layers)
        if need.total_bytes > seen.facts.usable_bytes:
            raise BreachError(f"{share.node_id} is given more than it may give")
        is_out = share.node_id in machine.ledger.left_out or seen.facts.exclusions
        if is_out or not seen.is_reachable:
            raise BreachError(f"{share.node_id} is given a stage, and may not have one")
