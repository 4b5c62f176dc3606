"""What can happen to the coordinator's work of bringing the pool to what is wished; pure data."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from engine.domain import NodeId
from engine.messages.deployment import Deployment, Trouble, Wish
from engine.messages.pool import Term
from engine.pool.plan import NodeFacts


class NodeSeen(msgspec.Struct, frozen=True, kw_only=True):
    """One node, as the coordinator sees it now; itself too.

    Attributes:
        node_id: Its id.
        is_reachable: Commands get there: a session is open, its lease runs, and it has accepted
            our term. The coordinator itself always is.
        facts: Its memory and times, for planning.
        kept_models: SHA-256 of the models whose files it has all of.
        epoch: Of the stage it says is loaded there; 0 for none.
        active_requests: That it has as a head.
        incarnation: The random number of its start.
        has_left: It said goodbye: somebody ended it.
    """

    node_id: NodeId
    is_reachable: bool
    facts: NodeFacts
    kept_models: tuple[str, ...] = ()
    epoch: int = 0
    active_requests: int = 0
    incarnation: int = 0
    has_left: bool = False


class TookOffice(msgspec.Struct, frozen=True):
    """This node is the coordinator by this term; the record is its own copy."""

    term: Term
    record: Deployment | None


class LeftOffice(msgspec.Struct, frozen=True):
    """It is no longer."""


class Known(msgspec.Struct, frozen=True):
    """A node told the record it has."""

    record: Deployment


class Wished(msgspec.Struct, frozen=True):
    """A node told what is to run; None for nothing. It repeats that until the record says so."""

    wish: Wish | None
    wish_id: str


class PoolSeen(msgspec.Struct, frozen=True):
    """Something about the nodes changed; these are all that are known, the coordinator included."""

    nodes: tuple[NodeSeen, ...]


class SplitEnded(msgspec.Struct, frozen=True):
    """The node that was to cut the model has, or has not."""

    node_id: NodeId
    epoch: int
    manifest_sha256: str | None
    trouble: Trouble | None = None


class StageLoaded(msgspec.Struct, frozen=True):
    """A node has loaded its stage and reached its next one."""

    node_id: NodeId
    epoch: int


class StageTrouble(msgspec.Struct, frozen=True):
    """A stage could not be loaded, ended, or can't be reached; ``node_id`` is whose it was."""

    node_id: NodeId
    epoch: int
    trouble: Trouble


class WarmEnded(msgspec.Struct, frozen=True):
    """The head sent a token round the chain; no trouble if it came back."""

    node_id: NodeId
    epoch: int
    trouble: Trouble | None = None


class Progressed(msgspec.Struct, frozen=True):
    """A node got on with its step; the epoch is 0 while it fetches a model to keep."""

    node_id: NodeId
    epoch: int


class Ticked(msgspec.Struct, frozen=True):
    """Time passed; four times a second."""


Answer: TypeAlias = SplitEnded | StageLoaded | StageTrouble | WarmEnded
Happened: TypeAlias = (
    TookOffice | LeftOffice | Known | Wished | PoolSeen | Answer | Progressed | Ticked
)
