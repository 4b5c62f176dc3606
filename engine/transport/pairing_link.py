"""Pairing over a real connection: the rim around ``pairing``, for both sides.

The arithmetic takes some 10 ms and is done off the loop, one run at a time. An answer to a code
leaves no sooner than ``REPLY_AFTER_S`` after its question, whatever the arithmetic took; a link has
128 bits, of which a time tells nothing worth having.
"""

from __future__ import annotations

import asyncio
import secrets
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from engine.errors import (
    DaisyError,
    NotJoinableError,
    NotTrustedError,
    PeerTimeoutError,
    RemoteProtocolError,
    TransportError,
)
from engine.transport.pairing import (
    REPLY_AFTER_S,
    RUN_WITHIN_S,
    Host,
    HostStep,
    Joiner,
    Welcome,
)
from engine.transport.peer_trust import PeerTrust
from engine.transport.tls import PAIR_PROTOCOL
from engine.transport.websocket import (
    CLOSE_NORMAL,
    CLOSE_PROTOCOL_FAULT,
    PAIR_PATH,
    open_websocket,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from engine.transport.identity import Identity
    from engine.transport.invited import Invited
    from engine.transport.pairing import Newcomer
    from engine.transport.websocket import Websocket

    Admit = Callable[[Newcomer, str], Awaitable[bytes]]

JOIN_WITHIN_S = RUN_WITHIN_S + 5.0  # and to connect; the other side writes its roster meanwhile


async def serve_joiner(websocket: Websocket, host: Host, turn: asyncio.Lock, admit: Admit) -> None:
    """Let in whoever is at the other end, if it knows the code or the link.

    Args:
        websocket: To somebody who may pair and do nothing else.
        host: Of this connection alone.
        turn: Held while a message is judged: the door counts guesses one after the other.
        admit: Writes a newcomer into the roster, and returns it signed. The second argument is
            what the invitation grants by which it came.

    Raises:
        PairingError: It was refused; says why.

    Fails with ``TransportError`` where it left, took too long or sent something else, and as
    ``admit`` does, after the other side was told that it can't be let in.

    Cancellation: the socket is closed by the caller.
    """
    async with _in_time(RUN_WITHIN_S):
        await _answer(websocket, await _judged(websocket, host, turn))
        step = await _judged(websocket, host, turn)
        if step.newcomer is not None:
            step = HostStep(await _welcome(websocket, host, step.newcomer, admit))
        await _answer(websocket, step)
        await websocket.close(CLOSE_NORMAL, "")


async def _judged(websocket: Websocket, host: Host, turn: asyncio.Lock) -> HostStep:
    message = await websocket.receive()
    async with _no_sooner(host), turn:
        return await asyncio.to_thread(host.receive, message, _now_s())


async def _answer(websocket: Websocket, step: HostStep) -> None:
    """Send what the host says; a refusal ends it.

    Raises:
        PairingError: It was one.
    """
    if step.reply is not None:
        websocket.write(step.reply)
        await websocket.drain()
    if step.failure is not None:
        await websocket.close(CLOSE_NORMAL, "")
        raise step.failure


async def _welcome(websocket: Websocket, host: Host, newcomer: Newcomer, admit: Admit) -> bytes:
    """Write a newcomer into the roster and return the last message.

    Raises:
        DaisyError: It can't be let in; it was told so.
    """
    try:
        return host.welcome(await admit(newcomer, host.grants))
    except DaisyError:
        websocket.write(host.turn_away())
        await websocket.close(CLOSE_NORMAL, "")
        raise


async def join(
    address: str, identity: Identity, invited: Invited, name: str, within_s: float = JOIN_WITHIN_S
) -> Welcome:
    """Join a pool.

    Args:
        address: Where a PC waits for one to join: ``wss://host:port``.
        identity: This PC's.
        invited: By a code or a link.
        name: What this PC is called.
        within_s: Seconds for all of it.

    Returns:
        What a member has to know; the roster in it is not checked.

    Raises:
        PairingError: The code is wrong, or that PC waits for nobody.
        NotTrustedError: It is not the PC that made the link.
        PeerUnreachableError: Nobody is there.
        PeerTimeoutError: It took too long.
        RemoteProtocolError: It is not Daisy.

    Cancellation: safe; nothing stays open.
    """
    try:
        async with _in_time(within_s):
            return await _join(address, identity, invited, name)
    except TransportError as exc:
        raise type(exc)(f"{address}: {exc.what}", exc.advice) from exc


async def _join(address: str, identity: Identity, invited: Invited, name: str) -> Welcome:
    websocket = await _opened(address)
    try:
        shown = websocket.shown
        if shown.protocol != PAIR_PROTOCOL or shown.certificate is None:
            raise NotJoinableError("The other PC is not waiting for one to join, or no longer.")
        joiner = await asyncio.to_thread(
            Joiner, identity, shown.certificate, invited, name, secrets.token_bytes
        )
        websocket.write(joiner.greeting)
        while True:
            answer = await asyncio.to_thread(joiner.receive, await websocket.receive())
            if isinstance(answer, Welcome):
                return answer
            websocket.write(answer)
    except RemoteProtocolError as exc:
        await websocket.close(CLOSE_PROTOCOL_FAULT, exc.what)
        raise
    finally:
        await websocket.close(CLOSE_NORMAL, "")


async def _opened(address: str) -> Websocket:
    """Connect as somebody who shows no certificate.

    Raises:
        NotJoinableError: Nobody may come in that way now.
        TransportError: Nobody is there.
    """
    try:
        return await open_websocket(f"{address}{PAIR_PATH}", PeerTrust.joining_context())
    except TransportError as exc:
        if isinstance(exc, NotTrustedError):
            # TLS ended it: a port lets nobody in without a certificate while no window is open.
            raise NotJoinableError("That PC is not waiting for one to join, or no longer.") from exc
        raise


@asynccontextmanager
async def _no_sooner(host: Host) -> AsyncIterator[None]:
    """Leave the context no sooner than the reply to a code may go."""
    began_s = _now_s()
    yield
    if host.link_id is None:
        await asyncio.sleep(max(0.0, REPLY_AFTER_S - (_now_s() - began_s)))


@asynccontextmanager
async def _in_time(within_s: float) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(within_s):
            yield
    except TimeoutError as exc:
        raise PeerTimeoutError(f"The pairing was not over within {within_s:g} s.") from exc


def _now_s() -> float:
    return asyncio.get_running_loop().time()
