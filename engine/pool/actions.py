"""What the election asks of whoever drives it, and what it tells; to be done in the order given."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from engine.domain import NodeId
from engine.messages.pool import Term


class Persist(msgspec.Struct, frozen=True):
    """Write this term to disk, durably, then report ``Written``. A later one replaces it."""

    term: Term


class Announce(msgspec.Struct, frozen=True):
    """What our heartbeat says has changed: send it now."""


class BecameCoordinator(msgspec.Struct, frozen=True):
    """We are in office, by this term."""

    term: Term


class SteppedDown(msgspec.Struct, frozen=True):
    """We are no longer in office; give no more commands of this term."""

    term: Term


class Following(msgspec.Struct, frozen=True):
    """Another node is in office, and its commands of this term are to be obeyed."""

    coordinator: NodeId
    term: Term


class CoordinatorLost(msgspec.Struct, frozen=True):
    """The coordinator we followed is not there any more."""

    coordinator: NodeId


Change: TypeAlias = BecameCoordinator | SteppedDown | Following | CoordinatorLost
Action: TypeAlias = Persist | Announce | Change
