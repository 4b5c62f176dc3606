"""What nodes of a pool tell each other of themselves, and the terms of office in it.

Plain data; what it means is decided in ``engine.pool``.
"""

from __future__ import annotations

import msgspec

from engine.domain import LayerRange, NodeId


class Term(msgspec.Struct, frozen=True, order=True, forbid_unknown_fields=True):
    """One coordinator's time in office; ordered by counter, then claimant, then incarnation."""

    counter: int  # from 1
    claimant: NodeId
    incarnation: int  # of the claimant: the random number of its start

    def __str__(self) -> str:
        return f"{self.counter}/{self.claimant}"


class Stamp(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What every command of a coordinator carries: on whose authority it is given."""

    pool_id: str
    term: Term
    sender: NodeId


class Preference(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How well a node would serve as coordinator."""

    uptime_step: int = 0  # how many of UPTIME_STEPS_S it has run
    on_mains: bool = False
    wired: bool = False
    memory_step: int = 0  # powers of two, in GiB


class Versions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What must agree between nodes, or at least be named where it doesn't."""

    product: str
    protocol: int
    shard_format: int


class Heartbeat(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The state of one node, as it says itself."""

    node_id: NodeId
    incarnation: int  # u64, drawn at random when the engine started
    number: int  # counts up from 1 in an incarnation; tells the newest of several
    term: Term | None  # the highest accepted, already on disk; None for never
    coordinator: NodeId | None  # in office by that term, as far as the sender knows
    vouches: bool  # the sender is the coordinator, or the two hear each other
    followers: int  # nodes that say the sender is their coordinator
    hears: tuple[NodeId, ...]  # everyone heard within the lease, sorted
    preference: Preference
    versions: Versions

    @property
    def coordinates(self) -> bool:
        """Whether the sender is in office."""
        return self.coordinator == self.node_id


class Neighbour(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Another node, as the one that tells of it reaches it."""

    node_id: NodeId
    address: str  # "host:port" where it listens
    round_trip_ms: float | None = None  # None before it was measured


class NodeReport(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a node is and has, as it says itself; told when a session opens and now and then."""

    node_id: NodeId
    name: str  # as its owner calls it; cleaned before it is shown
    memory_total_bytes: int
    memory_free_bytes: int  # what the system could give now
    memory_cap_bytes: int | None  # what its owner lends at most; None for no cap
    memory_lent_bytes: int  # taken by its stage
    devices: tuple[str, ...]
    uptime_s: float
    layers: LayerRange | None  # of the stage it holds
    model: str | None  # whose
    port: int = 0  # where it listens, on each of its addresses
    kept_models: tuple[str, ...] = ()  # SHA-256 of models it has all files of: it can cut them
    epoch: int = 0  # of the placement its stage belongs to; 0 for none
    layer_ms: float | None = None  # one token through one of its layers, as its stage measures it
    link_kind: str | None = None  # "wired" or "wireless"; None where that isn't known
    on_battery: bool = False
    active_requests: int = 0  # that it answers or relays now
    is_lending: bool = True  # else its owner lets it take no part in running models
    neighbours: tuple[Neighbour, ...] = ()  # those it has a session with
