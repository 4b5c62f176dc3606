"""Heartbeats for tests."""

from __future__ import annotations

from engine.domain import NodeId
from engine.messages.pool import Heartbeat, Preference, Term, Versions

VERSIONS = Versions(product="1.0", protocol=1, shard_format=1)


def term(counter: int, claimant: str) -> Term:
    return Term(counter, NodeId(claimant), ord(claimant[0]))


def beat(node_id: str, number: int = 1, **said: object) -> Heartbeat:
    """Build the heartbeat of a node that hears ``me`` and knows no coordinator."""
    fields: dict[str, object] = {
        "incarnation": ord(node_id[0]),
        "term": None,
        "coordinator": None,
        "vouches": False,
        "followers": 0,
        "hears": ("me",),
        "preference": Preference(),
        "versions": VERSIONS,
    }
    return Heartbeat(node_id=NodeId(node_id), number=number, **(fields | said))


def leader(node_id: str, counter: int, followers: int = 0, **said: object) -> Heartbeat:
    """Build the heartbeat of a coordinator."""
    return beat(
        node_id,
        term=term(counter, node_id),
        coordinator=node_id,
        vouches=True,
        followers=followers,
        **said,
    )


def follower(node_id: str, counter: int, of: str, **said: object) -> Heartbeat:
    """Build the heartbeat of a node that hears its coordinator both ways."""
    return beat(node_id, **({"term": term(counter, of), "coordinator": of, "vouches": True} | said))
