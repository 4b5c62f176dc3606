"""What the doctor asks of this node, tried: its network and its devices, one trial at a time."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from engine.errors import DaisyError, TransportError, UsageError
from engine.messages.codec import encode_control
from engine.messages.control import ErrorReport
from engine.messages.doctor_control import DevicesTried, NetworkTried, TryDevices, TryNetwork
from engine.pipeline.device_trial import try_devices
from engine.pool.firewall import seen_firewall

if TYPE_CHECKING:
    from engine.messages.message import Message
    from engine.pool.part import PoolPart
    from engine.transport.link import Link

_logger = logging.getLogger(__name__)


class DoctorDesk:
    """One node's.

    Thread: the node's loop; what is tried runs in processes and threads of its own.
    """

    def __init__(self) -> None:
        """Begin with nothing tried."""
        self._one_at_a_time = asyncio.Lock()

    async def serve(
        self, question: TryNetwork | TryDevices, asker: Link, part: PoolPart | None
    ) -> None:
        """Try what is asked for, and tell the asker; what fails is told as well.

        Args:
            question: What.
            asker: A program of this PC; one that has gone is told nothing.
            part: This node's in the pool; None where it is in none.

        Cancellation: ends what is tried.
        """
        try:
            answer = await self._answer(question, part)
        except DaisyError as error:
            answer = ErrorReport(code=error.code, what=error.what, advice=error.advice)
        try:
            await asker.send(encode_control(answer))
        except TransportError as lost:
            _logger.info("doctor: the asker is gone, %s", lost.what)

    async def _answer(self, question: TryNetwork | TryDevices, part: PoolPart | None) -> Message:
        async with self._one_at_a_time:
            if isinstance(question, TryDevices):
                return DevicesTried(devices=await try_devices())
            if part is None:
                raise UsageError("This node takes part in no network.")
            adapters = await part.try_network()
            firewall = await asyncio.to_thread(seen_firewall)
            return NetworkTried(adapters=adapters, firewall=firewall, port=part.facts.port)
