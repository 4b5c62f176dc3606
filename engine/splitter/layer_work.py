"""What the layers of a model and its LM head take beside each other; pure.

A token reads every weight of a stage once, so its time is in proportion to their bytes: its
layers', and on the last stage the LM head's, which may be as much as ten layers. Looking up one row
of the embedding costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.splitter.partition import LayerCosts

if TYPE_CHECKING:
    from engine.domain import LayerRange, ModelDescription


def layer_times(model: ModelDescription) -> LayerCosts:
    """Return what each layer and the LM head take, where an average layer takes 1.

    Args:
        model: Whose layers.
    """
    mean = max(1.0, sum(model.layer_bytes) / model.num_layers)
    return LayerCosts(
        layers=tuple(max(1, num_bytes) / mean for num_bytes in model.layer_bytes),
        last_extra=model.head_bytes / mean,
    )


def stage_work(times: LayerCosts, layers: LayerRange) -> float:
    """Return what a stage takes for one token, in average layers.

    Args:
        times: Of ``layer_times``.
        layers: Of the stage.
    """
    is_last = layers.stop == len(times.layers)
    work = sum(times.layers[layers.start : layers.stop])
    return work + (times.last_extra if is_last else 0.0)
