"""The control messages about one PC: when it lends itself to the pool, and which models it keeps.

They are for programs of the same PC and person, over the control port. ``DropModel`` goes to other
nodes of the pool as well.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from engine.messages.message import Message

# ---- lending -----------------------------------------------------------------------------------


class SetLending(Message, frozen=True):
    """Ask the node to lend this PC otherwise; what is None stays. Answered by ``LendingReport``."""

    rule: Literal["now", "idle", "never"] | None = None
    pause_s: float | None = None  # lend nothing for so long, whatever the rule; 0 ends a pause
    mains_only: bool | None = None  # lend nothing while on battery, whatever the rule


class TellIdle(Message, frozen=True):
    """Tell the node whether somebody uses this PC; again at least every few seconds.

    Only the rule "idle" asks for it; while nobody tells, somebody does. Answered by
    ``LendingReport``.
    """

    is_idle: bool


class AskLending(Message, frozen=True):
    """Ask when this PC lends itself; answered by ``LendingReport``."""


class LendingReport(Message, frozen=True):
    """When this PC lends itself."""

    rule: Literal["now", "idle", "never"]
    is_lending: bool  # now; always so for a PC that is alone in its pool: it lends to nobody
    paused_for_s: float | None  # None where it isn't paused
    is_alone: bool
    mains_only: bool = False
    on_battery: bool = False


# ---- models ------------------------------------------------------------------------------------


class ListModels(Message, frozen=True):
    """Ask which models this PC keeps; answered by ``ModelsListed``."""


class ModelLine(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A model of which this PC has every file."""

    model_sha256: str
    name: str
    num_layers: int
    num_bytes: int  # on this PC's disk, its shards included
    is_in_use: bool  # the pool is to run it


class ModelsListed(Message, frozen=True):
    """The answer to ``ListModels`` and ``DropModel``."""

    models: tuple[ModelLine, ...]
    freed_bytes: int = 0  # of this PC's disk, by what was asked


class DropModel(Message, frozen=True):
    """Ask a node to take a model's files off its disk; a program is answered by ``ModelsListed``.

    What the pool is to run is never dropped.
    """

    model_sha256: str
    is_everywhere: bool = False  # and to tell every other node that is there to do so
