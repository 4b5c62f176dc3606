"""PCs that know each other: their keys are made once for a run of the tests, and shared by it.

What a test starts as a process of its own finds the same keys, where the test asked for them first.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import engine
from engine.messages.control import PROTOCOL_VERSION, SHARD_FORMAT, Hello
from engine.pool.node_folder import NodeFolder
from engine.pool.roster_changes import add_member
from engine.transport.endpoint import Endpoint
from engine.transport.identity import open_identity
from engine.transport.peer_trust import PeerTrust

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Sequence

    from engine.domain import NodeId
    from engine.transport.identity import Identity
    from engine.transport.session import Liveness

_PLACE = "DAISY_TEST_PCS"


@cache
def identity_of(name: str) -> Identity:
    """The key of a PC called so."""
    folder = Path(_place()) / name
    folder.mkdir(exist_ok=True)
    return open_identity(folder, None)


def id_of(name: str) -> NodeId:
    return identity_of(name).node_id


def trust_of(name: str, *others: str) -> PeerTrust:
    """Whom a PC trusts: these."""
    return PeerTrust(identity_of(name), [identity_of(other).certificate for other in others])


def hello_of(name: str) -> Hello:
    """What a PC says first."""
    return Hello(
        protocol_version=PROTOCOL_VERSION,
        product_version=engine.__version__,
        shard_format=SHARD_FORMAT,
        node_id=id_of(name),
    )


def endpoint_of(
    name: str, group: asyncio.TaskGroup, *others: str, liveness: Liveness | None = None
) -> Endpoint:
    """A PC's side of connections with these."""
    trust = trust_of(name, *others)
    if liveness is None:
        return Endpoint(hello_of(name), group, trust)
    return Endpoint(hello_of(name), group, trust, liveness)


def pair(folders: Sequence[NodeFolder]) -> None:
    """Write these PCs down as members of one pool, that of the first; whoever is one stays one."""
    host, *others = folders
    known = host.roster
    for folder in others:
        name = folder.roster.members[0].entry.name
        known = add_member(
            known, host.identity, folder.identity.certificate, name, "owner", os.urandom
        )
    for folder in folders:
        folder.keep_roster(known)


def pair_before_start(paths: Sequence[tuple[Path, str]]) -> None:
    """Pair PCs that do not run yet: the folders of their nodes, and their names."""
    folders = [NodeFolder(path, name) for path, name in paths]
    try:
        pair(folders)
    finally:
        for folder in folders:
            folder.close()


def _place() -> str:
    if _PLACE not in os.environ:
        os.environ[_PLACE] = tempfile.mkdtemp(prefix="daisy-pcs-")
        atexit.register(shutil.rmtree, os.environ[_PLACE], ignore_errors=True)
    return os.environ[_PLACE]
