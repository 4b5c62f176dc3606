"""One token on every device of this PC, each in a stage process of its own that may die.

A small model that comes with Daisy is compiled for the device, its output held against the golden
one, and a token sent through it. What fails is told in words, and nothing else is touched.
"""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from engine.config import TRIAL_MODEL
from engine.domain import (
    LayerRange,
    MicroBatch,
    NodeId,
    SampledTokens,
    SequenceId,
    SequenceStep,
    StageKind,
)
from engine.errors import (
    CompileError,
    DaisyError,
    InferenceError,
    RemoteProtocolError,
    StageError,
    rebuilt,
)
from engine.messages.chain import BatchFailed, OpenSequence, Placement, StagePlace
from engine.messages.codec import decode, encode_control, encode_micro_batch, peek_batch
from engine.messages.deployment import Trouble
from engine.messages.doctor_control import DeviceTried
from engine.pipeline.shard_folder import open_shard_folder
from engine.process_ending import describe_ending, last_line
from engine.sampling.parameters import SamplingParameters
from engine.stages.host import StageProcess

if TYPE_CHECKING:
    from pathlib import Path

    from engine.messages.stage_control import LoadShard

LIST_WITHIN_S = 60.0  # loading every driver there is
LOAD_WITHIN_S = 180.0  # a device that compiles for the first time
TOKEN_WITHIN_S = 30.0
_CONTEXT_TOKENS = 64
_EPOCH = 1
_SEQUENCE = SequenceId(1)
_FIRST_TOKEN = 5  # fills what is filled at first use; the one drawn behind it is measured


class Device(msgspec.Struct, frozen=True):
    """What is needed of what ``engine.stages.devices`` tells."""

    name: str
    full_name: str
    kinds: tuple[StageKind, ...]


async def try_devices(model: Path = TRIAL_MODEL) -> tuple[DeviceTried, ...]:
    """Run one token on each device, one device after the other.

    Args:
        model: A folder with one shard that holds all layers.

    Raises:
        StageError: The devices can't be listed.

    Cancellation: ends the process that runs.
    """
    return tuple([await _tried(device, model) for device in await list_devices()])


async def list_devices() -> tuple[Device, ...]:
    """Return the devices of this PC, asked in a process of its own: a driver may end it.

    Raises:
        StageError: That process failed, or took longer than ``LIST_WITHIN_S``.

    Cancellation: ends that process.
    """
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "engine.stages.devices"),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(LIST_WITHIN_S):
            out, said = await process.communicate()
    except TimeoutError as exc:
        raise StageError(f"The drivers did not list devices within {LIST_WITHIN_S:g} s.") from exc
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    try:
        return msgspec.json.decode(out, type=tuple[Device, ...])
    except msgspec.DecodeError as exc:
        status = process.returncode or 0
        ending = describe_ending("The process that lists devices", status, last_line(said))
        raise StageError(ending, "Update the drivers of this PC.") from exc


async def _tried(device: Device, model: Path) -> DeviceTried:
    try:
        order = _order(model, device)
        async with StageProcess() as process:
            description = await process.load(order, LOAD_WITHIN_S)
            token_ms = await _token_ms(process, device.name)
    except DaisyError as error:
        trouble = Trouble(error.code, error.what, error.advice)
        return DeviceTried(name=device.name, full_name=device.full_name, trouble=trouble)
    return DeviceTried(
        name=device.name,
        full_name=device.full_name,
        load_s=description.load_s,
        token_ms=token_ms,
    )


def _order(model: Path, device: Device) -> LoadShard:
    if not device.kinds:
        raise CompileError(f"{device.name} is of no kind that runs a stage.")
    folder = open_shard_folder(model)
    place = StagePlace(
        node_id=NodeId("trial"),
        address="",
        stage_index=0,
        layers=LayerRange(0, folder.manifest.model.num_layers),
        device=device.name,
        kind=device.kinds[0],
    )
    placement = Placement(
        epoch=_EPOCH,
        manifest_sha256=folder.manifest_sha256,
        context_tokens=_CONTEXT_TOKENS,
        max_sequences=1,
        stages=(place,),
    )
    return folder.order(placement, place)


async def _token_ms(process: StageProcess, device: str) -> float:
    """Send two tokens through a stage, and return how long it computed for the second.

    Raises:
        InferenceError: It did not answer in time.
    """
    opening = OpenSequence(
        epoch=_EPOCH,
        sequence_id=_SEQUENCE,
        num_prompt_tokens=1,
        sampling=SamplingParameters(),
    )
    try:
        async with asyncio.timeout(TOKEN_WITHIN_S):
            await process.send(encode_control(opening))
            first = await _answered(process, 0, _FIRST_TOKEN)
            second = await _answered(process, 1, _drawn(first))
    except TimeoutError as exc:
        raise InferenceError(
            f"{device} did not compute two tokens within {TOKEN_WITHIN_S:g} s."
        ) from exc
    return peek_batch(second).compute_us / 1000


def _drawn(answer: bytes) -> int:
    """Return the token of an answer, with which alone the stage goes on.

    Raises:
        RemoteProtocolError: There is none.
    """
    message = decode(answer)
    if not isinstance(message, SampledTokens) or not message.rows or not message.rows[0].token_ids:
        raise RemoteProtocolError("The stage computed a token and drew none.")
    return message.rows[0].token_ids[0]


async def _answered(process: StageProcess, position: int, token: int) -> bytes:
    step = SequenceStep(_SEQUENCE, position, num_tokens=1, num_logits=1)
    batch = MicroBatch(position + 1, _EPOCH, (step,), np.array([token], np.int32))
    await process.send(encode_micro_batch(batch))
    answer = await process.receive()
    message = decode(answer)
    if isinstance(message, BatchFailed):
        error = rebuilt(message.code, message.what, message.advice)
        raise error
    return answer
