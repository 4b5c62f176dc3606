"""PCs with keys and without folders, and pools of them, for tests of the roster."""

from __future__ import annotations

import random
from functools import cache
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import ec

from engine.pool.roster_changes import add_member, found_pool
from engine.transport.certificates import CURVE, make_certificate, parse_certificate
from engine.transport.identity import Identity

POOL = "aaaabbbbccccddddeeee"


def seeded(seed):
    """Numbers that come again with the seed, so that a run that fails can be repeated."""
    return random.Random(seed)  # noqa: S311


def entropy(seed=1):
    """Random bytes that come again."""
    return seeded(seed).randbytes


@cache
def person(number):
    """A PC; the same for the same number within a run."""
    key = ec.derive_private_key(seeded(number).getrandbits(250) + 1, CURVE)
    return Identity(parse_certificate(make_certificate(key)), Path("nowhere"), key, None)


@cache
def crowd(num):
    """So many PCs."""
    return tuple(map(person, range(num)))


def pool_of(founder, *others, role="member"):
    """A pool that somebody founded and let others into."""
    draw = entropy()
    known = found_pool(founder, "founder", POOL, draw)
    for index, other in enumerate(others):
        known = add_member(known, founder, other.certificate, f"pc {index}", role, draw)
    return known
