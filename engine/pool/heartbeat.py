"""What each node tells every other once a second, and which node is preferred by it.

The heartbeat is the only message of the election: it states what is so, never what to do, and so
may be lost, doubled or overtaken. Bytes and sessions are not known here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.domain import NodeId

if TYPE_CHECKING:
    from engine.messages.pool import Preference

MAX_NODES = 16  # of a pool; each keeps a session to every other
HEARTBEAT_EVERY_S = 1.0
LEASE_S = 3.5  # three heartbeats missed, and half a second for the slow
UPTIME_STEPS_S = (60.0, 600.0, 3600.0, 86400.0)  # coarse, so that the order stays


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
