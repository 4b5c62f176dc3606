"""One node: the composition root of everything a PC does for the pool."""

from engine.node.run import Listening, NodeOptions, run_node

__all__ = ["Listening", "NodeOptions", "run_node"]
