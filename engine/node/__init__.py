"""One node: the composition root of everything a PC does for the pool."""

from engine.node.run import NodeOptions, run_node

__all__ = ["NodeOptions", "run_node"]
