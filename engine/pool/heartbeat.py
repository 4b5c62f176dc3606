"""What each node tells every other once a second, and which node is preferred by it.

The heartbeat is the only message of the election: it states what is so, never what to do, and so
may be lost, doubled or overtaken. Bytes and sessions are not known here.
"""

from __future__ import annotations

import msgspec

from engine.domain import NodeId
from engine.pool.terms import Term

MAX_NODES = 16  # of a pool; each keeps a session to every other
HEARTBEAT_EVERY_S = 1.0
LEASE_S = 3.5  # three heartbeats missed, and half a second for the slow
UPTIME_STEPS_S = (60.0, 600.0, 3600.0, 86400.0)  # coarse, so that the order stays


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


def uptime_step(uptime_s: float) -> int:
    """Return how many of ``UPTIME_STEPS_S`` have passed.

    Args:
        uptime_s: Since the engine started.
    """
    return sum(uptime_s >= step for step in UPTIME_STEPS_S)


def memory_step(memory_bytes: int) -> int:
    """Return the power of two, in GiB, that the memory reaches; 0 below one GiB.

    Args:
        memory_bytes: What the node lends at most.
    """
    return (memory_bytes >> 30).bit_length()


Rank = tuple[int, bool, bool, int, NodeId]


def rank(preference: Preference, node_id: NodeId) -> Rank:
    """Return what sorts nodes by preference: no two are equal, and the smallest is preferred.

    The longest-lived comes first, then mains-powered, wired, roomiest, lowest id.
    """
    return (
        -preference.uptime_step,
        not preference.on_mains,
        not preference.wired,
        -preference.memory_step,
        node_id,
    )
