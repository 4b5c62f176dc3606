"""Whether a shard can run paged, asked of the transformation itself.

The transformation also finds each attention's sliding window, whatever way the mask was written;
the stateful stage needs to know, because a rewind by mask would shift the window.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.errors import CompileError
from engine.stages.paged_graph import make_paged

if TYPE_CHECKING:
    import openvino as ov

_SLIDING_WINDOW_INPUT = 10  # of PagedAttentionExtension in OpenVINO 2026.4


@dataclass(frozen=True, slots=True)
class PagedSupport:
    """What the transformation said.

    Attributes:
        refusal: Why the shard can't be paged; None if it can.
        sliding_window: The smallest window of its layers in tokens; None if all see everything.
    """

    refusal: str | None
    sliding_window: int | None


def probe_paged_support(shard: ov.Model, num_layers: int) -> PagedSupport:
    """Transform a copy of a shard and look at the result.

    Args:
        shard: Not changed; its weights are shared with the copy.
        num_layers: Attentions there must be afterwards.
    """
    copy = shard.clone()
    try:
        make_paged(copy, "The shard")
    except CompileError as exc:
        return PagedSupport(exc.what, None)
    attentions = [n for n in copy.get_ops() if n.get_type_name() == "PagedAttentionExtension"]
    if len(attentions) != num_layers:
        return PagedSupport(f"{len(attentions)} of {num_layers} attentions were recognised.", None)
    windows = [_window(node) for node in attentions]
    return PagedSupport(None, min((w for w in windows if w), default=None))


def _window(attention: ov.Node) -> int:
    """Read the window in tokens; 0 is none, and 1, the strictest, where it can't be told.

    It stands there as a constant, or as ``-1 * convert(squeeze(-window))``.
    """
    window = 1
    stack = [attention.input_value(_SLIDING_WINDOW_INPUT).get_node()]
    while stack:
        node = stack.pop()
        kind = node.get_type_name()
        if kind == "Constant":
            window *= abs(int(node.data.item()))
        elif kind == "Multiply":
            stack.extend(value.get_node() for value in node.input_values())
        elif kind in {"Convert", "Squeeze", "Unsqueeze", "Reshape"}:
            stack.append(node.input_value(0).get_node())
        else:
            return 1
    return window
