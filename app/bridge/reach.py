"""Where this PC's node is reached: it writes that into its folder when it listens."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import psutil

from engine.domain import NodeId

if TYPE_CHECKING:
    from pathlib import Path

NODE_FOLDER = "node"  # in the data folder


class Reach(msgspec.Struct, frozen=True):
    """What the node wrote."""

    control_port: int  # on loopback
    token: str  # that opens it
    pid: int
    node_id: NodeId  # who must answer there: another may have the port by now


def read_reach(data_dir: Path) -> Reach | None:
    """Return where the node of a data folder is reached; None if none lives.

    Args:
        data_dir: Daisy's data folder.
    """
    try:
        written = (data_dir / NODE_FOLDER / "reach.json").read_bytes()
        reach = msgspec.json.decode(written, type=Reach)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None
    return reach if psutil.pid_exists(reach.pid) else None
