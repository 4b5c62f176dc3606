"""The node that runs on this PC: found by what it wrote into its folder, and connected to."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, TypeVar

import engine
from engine.cli.own_node_link import OwnNodeLink
from engine.config import data_folder
from engine.errors import PeerTimeoutError, PeerUnreachableError, RemoteProtocolError, rebuilt
from engine.messages.codec import decode, encode_control
from engine.messages.control import AskPoolStatus, ErrorReport, PoolStatusReport
from engine.models.shown_path import shown_path
from engine.pool.node_folder import is_held, read_reach
from engine.transport.control_port import connect_control

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from engine.messages.message import Message
    from engine.messages.pool_status import PoolStatus
    from engine.pool.node_folder import Reach
    from engine.transport.link import Link

    A = TypeVar("A", bound=Message)

NODE_FOLDER = "node"  # in the data folder
ANSWER_WITHIN_S = 5.0
JOIN_WITHIN_S = 60.0  # each address of a link may be tried


@asynccontextmanager
async def open_own_node(data_dir: Path) -> AsyncIterator[Link]:
    """Connect to this PC's node, for as long as the context is open.

    Args:
        data_dir: Daisy's data folder, which the node has.

    Yields:
        The connection.

    Raises:
        PeerUnreachableError: None runs here; or it ended while the connection was used.

    Fails with ``PeerTimeoutError`` where it does not answer.
    """
    connection = await connect_own_node(data_dir)
    if connection is None:
        raise PeerUnreachableError(
            f"No node of Daisy runs on this PC with the data folder {shown_path(data_dir)}.",
            f"Start it: {start_command(data_dir)}. If one runs with another folder, name that "
            "folder here as well: --data DIR.",
        )
    try:
        yield connection
    finally:
        await connection.close("The command has ended.")


def start_command(data_dir: Path) -> str:
    """Return the command that starts a node with a data folder, as a person types it.

    Args:
        data_dir: Daisy's data folder.
    """
    is_usual = data_dir == data_folder().absolute()
    return "daisy node" if is_usual else f"daisy node --data {shown_path(data_dir)}"


async def connect_own_node(data_dir: Path) -> Link | None:
    """Connect to this PC's node; None if none runs here.

    Args:
        data_dir: Daisy's data folder, which the node has.

    Raises:
        PeerTimeoutError: It does not answer.
    """
    reach = await asyncio.to_thread(_reach_of_living, data_dir / NODE_FOLDER)
    if reach is None:
        return None
    try:
        connection = await connect_control(reach.control_port, reach.token, engine.__version__)
    except PeerTimeoutError as exc:
        raise PeerTimeoutError(
            f"The node of this PC (process {reach.pid}) does not answer.",
            f"End it, and start it again: {start_command(data_dir)}.",
        ) from exc
    except (PeerUnreachableError, RemoteProtocolError):
        return None  # it ended without a chance to take back what it wrote
    if reach.node_id != connection.peer.node_id:
        await connection.close("Another node was meant.")
        return None  # it ended, and another node has its port
    return OwnNodeLink(connection, start_command(data_dir))


def _reach_of_living(folder: Path) -> Reach | None:
    """Return what a node wrote; None if it has ended, however it did."""
    return read_reach(folder) if is_held(folder) else None


async def ask_status(connection: Link) -> PoolStatus:
    """Ask a node how the pool looks from it; nothing else may be under way on the connection.

    Args:
        connection: To the node.

    Raises:
        PeerTimeoutError: It did not answer in time.
        RemoteProtocolError: What answers is no node.
    """
    await connection.send(encode_control(AskPoolStatus()))
    try:
        async with asyncio.timeout(ANSWER_WITHIN_S):
            answer = decode(await connection.receive())
    except TimeoutError as exc:
        raise PeerTimeoutError(
            f"The node of this PC did not answer within {ANSWER_WITHIN_S:g} s."
        ) from exc
    if isinstance(answer, ErrorReport):
        raise RemoteProtocolError(answer.what, answer.advice)
    if not isinstance(answer, PoolStatusReport):
        raise RemoteProtocolError(
            f"The node answered a question about the pool with {type(answer).__name__}."
        )
    return answer.status


async def asked_node(connection: Link, question: Message, kind: type[A]) -> A:
    """Ask a node about who is in its pool; nothing else may be under way on the connection.

    Args:
        connection: To the node.
        question: What.
        kind: Of the answer.

    Raises:
        DaisyError: As the node says it.
        PeerTimeoutError: It does not answer.
        RemoteProtocolError: It answers something else.
    """
    await connection.send(encode_control(question))
    try:
        async with asyncio.timeout(JOIN_WITHIN_S):
            answer = decode(await connection.receive())
    except TimeoutError as exc:
        raise PeerTimeoutError("The node of this PC does not answer.") from exc
    if isinstance(answer, ErrorReport):
        error = rebuilt(answer.code, answer.what, answer.advice)
        raise error
    if not isinstance(answer, kind):
        raise RemoteProtocolError(
            f"The node of this PC answered {type(question).__name__} with {type(answer).__name__}."
        )
    return answer
