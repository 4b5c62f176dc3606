"""How little memory the demo's nodes may give: too little for the model, enough for two; pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.domain import LayerRange
from engine.errors import PlacementError
from engine.pool.stage_memory import stage_memory

if TYPE_CHECKING:
    from engine.domain import ModelDescription
    from engine.pool.stage_memory import Workload


def memory_cap(model: ModelDescription, workload: Workload) -> int:
    """Return what each node may give, so that one can't hold a model and any two can.

    Args:
        model: To be divided.
        workload: What it must have room for.

    Returns:
        Bytes; half-way between what two nodes need at least and what one would.

    Raises:
        PlacementError: The model can't be divided.
    """
    last = model.num_layers
    if last < 2:
        raise PlacementError(f"{model.name} has one layer: there is nothing to divide.")

    def need(start: int, stop: int) -> int:
        return stage_memory(model, workload, LayerRange(start, stop)).total_bytes

    of_two = min(max(need(0, cut), need(cut, last)) for cut in range(1, last))
    return (of_two + need(0, last)) // 2
