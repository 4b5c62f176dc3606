"""How fast a chain will be, from what its PCs measured; pure.

A stage's time is in proportion to the weights it reads for a token: its layers', and the LM head's
on the last one.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engine.domain import LayerRange, ModelDescription

UNKNOWN_LINK_MS = 1.0  # a round trip in a local network, until it is measured


def layer_work(model: ModelDescription, layers: Sequence[LayerRange]) -> float:
    """Return how many average layers' work some layers are.

    Args:
        model: Whose.
        layers: Those of one PC.
    """
    mean = sum(model.layer_bytes) / max(1, len(model.layer_bytes))
    own = sum(sum(model.layer_bytes[part.start : part.stop]) for part in layers)
    if any(part.stop == model.num_layers for part in layers):
        own += model.head_bytes
    return own / mean if mean > 0 else 0.0


def tokens_per_s(
    stage_ms: Sequence[float | None], round_trips_ms: Sequence[float | None]
) -> float | None:
    """Return the tokens a second of one answer that runs alone; None before all was measured.

    Args:
        stage_ms: One token through each stage.
        round_trips_ms: Of each link of the ring; the one way is half of it.
    """
    known = [ms for ms in stage_ms if ms is not None and 0 < ms < math.inf]
    if not known or len(known) < len(stage_ms):
        return None
    links = (UNKNOWN_LINK_MS if ms is None else max(0.0, ms) for ms in round_trips_ms)
    return 1000 / (sum(known) + sum(links) / 2)


def error_percent(forecast: float | None, measured: float | None) -> int | None:
    """Return by how much a forecast was off, in percent of what came; None without both.

    Args:
        forecast: Tokens a second.
        measured: Tokens a second.
    """
    if forecast is None or measured is None or measured <= 0:
        return None
    return round(100 * (forecast - measured) / measured)
