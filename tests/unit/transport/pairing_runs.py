"""Pairings for tests: whole ones, and what somebody in the middle can do to one."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from engine.transport.invited import invited_by_code
from engine.transport.pairing import Host, HostStep, Joiner
from engine.transport.pairing_door import PairingDoor

POOL = "aaaabbbbccccddddeeee"
ROSTER = b"the roster, signed"

if TYPE_CHECKING:
    from engine.transport.identity import Identity


def seeded(seed):
    """Numbers that come again with the seed, so that a run that fails can be repeated."""
    return random.Random(seed)  # noqa: S311


@dataclass
class Scene:
    """A host with its door, who may join it, and random numbers from a seed."""

    host: Identity
    joiner: Identity
    random: random.Random = field(default_factory=lambda: seeded(1))
    door: PairingDoor = field(default_factory=PairingDoor)
    now_s: float = 1000.0

    def show_code(self):
        return self.door.show_code(self.random.randrange, self.now_s)

    def new_host(self, shown=None):
        own = (shown or self.host).certificate
        return Host(own, POOL, self.door, self.random.randbytes)

    def new_joiner(self, code, *, sees=None, invited=None, name=""):
        return Joiner(
            self.joiner,
            (sees or self.host).certificate.der,
            invited or invited_by_code(code),
            name,
            self.random.randbytes,
        )

    def proved(self, host, joiner) -> HostStep:
        """Carry the first three messages."""
        answer = host.receive(joiner.greeting, self.now_s)
        return host.receive(joiner.receive(answer.reply), self.now_s)

    def guess(self, code) -> HostStep:
        """One whole attempt with a code."""
        return self.proved(self.new_host(), self.new_joiner(code))


def another(code):
    """A code that is not this one."""
    return f"{(int(code) + 1) % 10**6:06}"
