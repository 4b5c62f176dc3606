"""``daisy doctor``: who hears whom, whether this PC hears itself, and one token on each device."""

from __future__ import annotations

import asyncio
import platform
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

import msgspec

import engine
from engine.cli.arguments import data_dir
from engine.cli.doctor_words import doctor_lines, finding_words
from engine.cli.own_node import ask_status, connect_own_node
from engine.errors import DaisyError, PeerTimeoutError, RemoteProtocolError, rebuilt
from engine.messages.codec import decode, encode_control
from engine.messages.control import PROTOCOL_VERSION, ErrorReport
from engine.messages.deployment import Trouble
from engine.messages.doctor_control import DevicesTried, NetworkTried, TryDevices, TryNetwork
from engine.pipeline.device_trial import try_devices
from engine.pool.findings import Tried, findings_of, hearing_of

if TYPE_CHECKING:
    import argparse

    from engine.cli.output import Output
    from engine.messages.message import Message
    from engine.messages.pool_status import PoolStatus
    from engine.transport.link import Link

    A = TypeVar("A", bound=Message)

NETWORK_WITHIN_S = 30.0
DEVICES_WITHIN_S = 900.0  # a driver that compiles for the first time, on several devices


async def doctor_command(given: argparse.Namespace, output: Output) -> None:
    """Find what is wrong with this PC, its network and its pool.

    Without a node on this PC the devices are tried all the same.

    Args:
        given: Parsed options.
        output: Told what is found, on standard output.
    """
    output.say("Looking at the pool, the network and the devices; this takes a few seconds.")
    connection = await connect_own_node(data_dir(given))
    if connection is None:
        status, tried = None, await _tried_here()
    else:
        try:
            status = await ask_status(connection)
            tried = await _tried_by(connection)
        finally:
            await connection.close("The command has ended.")
    versions = _versions()
    output.event("doctor", **_for_programs(status, tried), versions=versions)
    output.result(list(doctor_lines(status, tried, versions)))


async def _tried_here() -> Tried:
    try:
        return Tried(devices=DevicesTried(devices=await try_devices()))
    except DaisyError as error:
        return Tried(troubles=(Trouble(error.code, error.what, error.advice),))


async def _tried_by(connection: Link) -> Tried:
    tried = Tried()
    try:
        network = await _answer(connection, TryNetwork(), NetworkTried, NETWORK_WITHIN_S)
        tried = replace(tried, network=network)
    except DaisyError as error:
        tried = _with(tried, error)
    try:
        devices = await _answer(connection, TryDevices(), DevicesTried, DEVICES_WITHIN_S)
        return replace(tried, devices=devices)
    except DaisyError as error:
        return _with(tried, error)


def _with(tried: Tried, error: DaisyError) -> Tried:
    trouble = Trouble(error.code, error.what, error.advice)
    return replace(tried, troubles=(*tried.troubles, trouble))


async def _answer(connection: Link, question: Message, kind: type[A], within_s: float) -> A:
    """Ask a node to try something.

    Raises:
        PeerTimeoutError: It did not answer in time.
        RemoteProtocolError: It answered something else.
    """
    await connection.send(encode_control(question))
    try:
        async with asyncio.timeout(within_s):
            answer = decode(await connection.receive())
    except TimeoutError as exc:
        raise PeerTimeoutError(f"The node did not answer within {within_s:g} s.") from exc
    if isinstance(answer, ErrorReport):
        error = rebuilt(answer.code, answer.what, answer.advice)
        raise error
    if not isinstance(answer, kind):
        name = type(answer).__name__
        raise RemoteProtocolError(f"The node answered {type(question).__name__} with {name}.")
    return answer


def _versions() -> dict[str, str]:
    return {
        "Daisy": engine.__version__,
        "protocol": str(PROTOCOL_VERSION),
        "Python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()}",
    }


def _for_programs(status: PoolStatus | None, tried: Tried) -> dict[str, object]:
    """Return the same facts as plain data, each finding with its code, fields and words."""
    port = None if tried.network is None else tried.network.port
    findings = []
    for found in findings_of(status, tried):
        what, advice = finding_words(found, port)
        told = {"severity": found.severity, "code": found.code, "fields": found.fields}
        findings.append({**told, "what": what, "advice": advice})
    hearing = None if status is None else hearing_of(status)
    return {
        "findings": findings,
        "hearing": None if hearing is None else {"names": hearing.names, "rows": hearing.cells},
        "adapters": [] if status is None else msgspec.to_builtins(status.adapters),
        "network": None if tried.network is None else msgspec.to_builtins(tried.network),
        "devices": None if tried.devices is None else msgspec.to_builtins(tried.devices.devices),
    }
