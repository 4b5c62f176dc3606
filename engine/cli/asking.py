"""Asking a node, where the commands find it."""

from __future__ import annotations

from engine.pipeline.asking import ask

__all__ = ["ask"]
