"""What the pool is to run, and how far it has come: the one record every node keeps a copy of.

Plain data; who changes it, and when, is decided in ``engine.pool``.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from engine.domain import (
    ComputeMode,
    LayerRange,
    LinkPrecision,
    ModelDescription,
    NodeId,
    StageKind,
)
from engine.messages.pool import Term

# What the pool is doing about a wish, in order; "failed" waits for the pool to change.
Phase = Literal["planning", "splitting", "loading", "warming", "ready", "failed", "unloaded"]

# What one node is doing about it.
Step = Literal["convert", "keep", "split", "push", "compile", "warm-up"]


class Wish(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What somebody asked the pool to run.

    Attributes:
        wish_id: Drawn at random by the node that was asked; tells its answer from another's.
        asked_on: That node; it has the model's files.
        model_sha256: Names the model's files in the stores of those that keep them.
        model: What is to be divided.
        context_tokens: Of one sequence.
        max_sequences: At once.
        kind: Of every stage.
        mode: Of every stage.
        is_private: The first and the last stage stay on that node's PC, so that no other sees
            the text.
        link_precision: What every stage sends its hidden states in.
        speculate: Whether the head may guess ahead, for any request.
    """

    wish_id: str
    asked_on: NodeId
    model_sha256: str
    model: ModelDescription
    context_tokens: int
    max_sequences: int
    kind: StageKind = "paged"
    mode: ComputeMode = "fast"
    is_private: bool = False
    link_precision: LinkPrecision = "auto"
    speculate: bool = True


class StageShare(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Who runs which layers, in the order of the chain."""

    node_id: NodeId
    layers: LayerRange


class Trouble(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An error of ours, as it is told to people: class, and both sentences."""

    code: str
    what: str
    advice: str


class PlanLine(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One PC of the plan, as people are shown it."""

    node_id: NodeId
    name: str
    role: Literal["stage", "standby", "left out"]
    layers: LayerRange | None
    usable_bytes: int  # what it may give to stages
    needed_bytes: int  # by its stage; 0 without one
    reason: str
    remedy: str  # what would help; empty where nothing need
    last_layers: LayerRange | None = None  # of its second stage, where it has first and last


class Deployment(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The record. Of two the one with the higher ``(term, version)`` counts.

    Attributes:
        term: In which it was last changed.
        version: Counts its changes in that term, from 1.
        phase: How far it is.
        wish: None only where nothing is to run.
        epoch: Of the placement that is being made or runs; 0 for none.
        manifest_sha256: Of the shards of that placement; None before they are cut.
        stages: Of that placement; the first one's node is the head.
        plan: Every PC, with its role and the reason for it.
        reason: Why the placement is as it is, in one sentence.
        trouble: What went wrong last; None once it is ready.
    """

    term: Term
    version: int
    phase: Phase
    wish: Wish | None = None
    epoch: int = 0
    manifest_sha256: str | None = None
    stages: tuple[StageShare, ...] = ()
    plan: tuple[PlanLine, ...] = ()
    reason: str = ""
    trouble: Trouble | None = None

    @property
    def head(self) -> NodeId | None:
        """The node that takes requests; None while there is no placement."""
        return self.stages[0].node_id if self.stages else None

    @property
    def order(self) -> tuple[Term, int]:
        """What tells the newer of two records."""
        return (self.term, self.version)


class NodeProgress(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How far one node is with its step; of bytes only verified or written ones count."""

    node_id: NodeId
    epoch: int  # 0 outside of a placement
    step: Step
    done: int
    total: int  # 0 while it isn't known
    unit: Literal["bytes", "layers", "steps"]
    rate_per_s: float = 0.0  # of the unit; 0 while it isn't known
    detail: str = ""  # a name to show, such as the model's
