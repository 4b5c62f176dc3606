"""The pool as one node sees it, as it is told to whoever asks.

Plain data; the words and the table are the asker's.
"""

from __future__ import annotations

import msgspec

from engine.domain import NodeId
from engine.messages.deployment import Deployment, NodeProgress
from engine.messages.pool import NodeReport


class NodeStatus(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One node, as the node that was asked sees it."""

    node_id: NodeId
    is_asked: bool  # the one that answers
    is_coordinator: bool
    state: str  # online, silent, offline, gone
    hears_us: bool
    heard_ago_s: float
    addresses: tuple[str, ...]
    round_trip_ms: float | None
    hears: tuple[NodeId, ...]
    report: NodeReport | None  # None before it has told
    notes: tuple[str, ...]  # what is wrong with it, one sentence each
    memory_reserved_bytes: int = 0  # left alone, whatever its owner lends


class AdapterStatus(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One network adapter of the node that was asked."""

    name: str  # as the system shows it
    addresses: tuple[str, ...]
    is_used: bool
    link: str | None = None  # "wired", "wireless", "loopback"; None where that isn't known
    reason: str = ""  # why it is left alone, one sentence


class PoolStatus(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The pool, as one node sees it."""

    coordinator: NodeId | None
    term: str | None
    coordinator_since_s: float | None  # how long it has been in office, as far as seen
    nodes: tuple[NodeStatus, ...]
    notes: tuple[str, ...]  # what is wrong with the pool or the network, one sentence each
    deployment: Deployment | None = None  # what it is to run, and how far it is
    progress: tuple[NodeProgress, ...] = ()  # of those that work on it
    adapters: tuple[AdapterStatus, ...] = ()  # of the node that was asked, the used ones first
