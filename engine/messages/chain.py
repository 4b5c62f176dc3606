"""The control messages of a chain: who runs what, what stages report, and their sequences."""

from __future__ import annotations

from engine.domain import (
    ComputeMode,
    KeptPrefix,
    LayerRange,
    LinkPrecision,
    NodeId,
    SequenceId,
    StageDescription,
    StageKind,
)
from engine.errors import PlacementError
from engine.messages.message import Message
from engine.messages.pool import Stamp
from engine.sampling.parameters import SamplingParameters


class StagePlace(Message, frozen=True):
    """One line of a placement: which node runs which shard, and how."""

    node_id: NodeId
    address: str  # wss://host:port
    stage_index: int
    layers: LayerRange
    device: str = "CPU"
    kind: StageKind = "paged"
    mode: ComputeMode = "fast"
    num_threads: int | None = None  # None: the device decides
    link_precision: LinkPrecision = "auto"  # of the hidden states it sends


class Placement(Message, frozen=True):
    """Who runs what; sent whole to every node, which finds itself in it."""

    epoch: int
    manifest_sha256: str  # names the shards in each node's own store; never a path
    context_tokens: int  # per sequence
    max_sequences: int
    stages: tuple[StagePlace, ...]
    stamp: Stamp | None = None  # None only for nodes that are in no pool
    speculate: bool = True  # whether the head may guess ahead, for any request


class StageReady(Message, frozen=True):
    """The node has loaded its stage and reached its next one."""

    epoch: int
    stage_index: int
    description: StageDescription


class StageFailed(Message, frozen=True):
    """The node's stage could not be loaded, or ended."""

    epoch: int
    stage_index: int
    code: str
    what: str
    advice: str


class BatchFailed(Message, frozen=True):
    """One micro-batch failed on a stage; its sequences are released there. Goes to the head."""

    epoch: int
    batch_id: int
    stage_index: int
    sequence_ids: tuple[SequenceId, ...]
    code: str
    what: str
    advice: str


# ---- along the chain, before and after a sequence's frames -----------------------------------


class OpenSequence(Message, frozen=True):
    """A sequence begins; forwarded down the chain ahead of its first frame.

    With a prefix, every stage lets it begin with what it keeps of an ended sequence: a paged stage
    shares the blocks, a stateful one hands its whole state over, and the ended one is gone there.
    """

    epoch: int
    sequence_id: SequenceId
    num_prompt_tokens: int  # penalties tell prompt from answer by it
    sampling: SamplingParameters
    prefix: KeptPrefix | None = None  # its first step goes on behind it


class CloseSequence(Message, frozen=True):
    """A sequence is wanted no more; forwarded down the chain, every stage frees what it holds."""

    epoch: int
    sequence_id: SequenceId


def own_places(placement: Placement, node_id: NodeId) -> tuple[StagePlace, ...]:
    """Find a node in a placement.

    Args:
        placement: Who runs what.
        node_id: The node.

    Returns:
        Its line; or two, where it has the first stage and the last and others are in between.

    Raises:
        PlacementError: It is not in it so, or the stages are out of order.
    """
    stages = placement.stages
    if any(place.stage_index != index for index, place in enumerate(stages)):
        raise PlacementError(f"Placement {placement.epoch} does not number its stages in order.")
    own = tuple(place for place in stages if place.node_id == node_id)
    if not own:
        raise PlacementError(f"This PC is not part of placement {placement.epoch}.")
    if len(own) == 1 or (own == (stages[0], stages[-1]) and len(stages) > len(own)):
        return own
    raise PlacementError(
        f"Placement {placement.epoch} gives this PC {len(own)} stages; it can run one, or the "
        "first and the last."
    )
