"""The doctor's control messages: a program of the same PC asks the node to try things.

What is tried takes seconds, so it isn't part of the pool's state: it is done when it is asked for.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from engine.messages.deployment import Trouble
from engine.messages.message import Message

FirewallKind = Literal["windows", "ufw", "firewalld", "unknown"]


class TryNetwork(Message, frozen=True):
    """Ask the node whether it hears its own announcement on each adapter; ``NetworkTried``."""


class AdapterTried(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One address of an adapter in use: what was announced there, and was it heard?"""

    name: str  # as the system shows it
    address: str  # IPv4
    heard_ms: float | None  # after the test began; None: not within its time
    problem: str = ""  # why it could not be tried, one sentence


class FirewallSeen(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What can be seen of this PC's firewall without being its administrator."""

    kind: FirewallKind
    is_on: bool | None = None  # None: that can't be seen
    is_public: bool | None = None  # Windows: the network counts as a public one


class NetworkTried(Message, frozen=True):
    """The answer to ``TryNetwork``."""

    adapters: tuple[AdapterTried, ...]  # those in use, the best first
    firewall: FirewallSeen
    port: int  # where this node listens, TCP


class TryDevices(Message, frozen=True):
    """Ask the node to run one token on each device of its PC; answered by ``DevicesTried``."""


class DeviceTried(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One device: a small model was compiled for it, checked, and ran a token; or it failed."""

    name: str  # as OpenVINO calls it
    full_name: str  # as the vendor does
    load_s: float | None = None  # reading and compiling; None where it failed
    token_ms: float | None = None  # of the small model
    trouble: Trouble | None = None


class DevicesTried(Message, frozen=True):
    """The answer to ``TryDevices``."""

    devices: tuple[DeviceTried, ...]
