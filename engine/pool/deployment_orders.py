"""What the coordinator's machine asks of whoever drives it, to be done in the order given.

An order may come again with the same content, until the pool says that it was carried out. So
whoever obeys goes by the epoch: what is under way already goes on, what is done is answered again.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from engine.domain import LayerRange, NodeId
from engine.messages.deployment import Deployment, Wish


class Publish(msgspec.Struct, frozen=True):
    """Keep this record and tell it to every node."""

    record: Deployment


class OrderSplit(msgspec.Struct, frozen=True):
    """Have a node that keeps the model cut it; answered by ``SplitEnded``."""

    node_id: NodeId
    epoch: int
    wish: Wish
    layers: tuple[LayerRange, ...]


class OrderPlacement(msgspec.Struct, frozen=True):
    """Have nodes fetch and load their stages; each answers ``StageLoaded`` or ``StageTrouble``.

    The first time for every stage's node, later for those that have said nothing for a while.
    """

    record: Deployment
    node_ids: tuple[NodeId, ...]


class OrderWarmUp(msgspec.Struct, frozen=True):
    """Have the head send a token round the chain; answered by ``WarmEnded``."""

    node_id: NodeId
    epoch: int


class OrderKeep(msgspec.Struct, frozen=True):
    """Have a node fetch the model's files, so that another one can cut it as well."""

    node_id: NodeId
    model_sha256: str


class OrderEnd(msgspec.Struct, frozen=True):
    """Have nodes end what they do or run for this epoch, if it is anything."""

    node_ids: tuple[NodeId, ...]
    epoch: int


Order: TypeAlias = Publish | OrderSplit | OrderPlacement | OrderWarmUp | OrderKeep | OrderEnd
