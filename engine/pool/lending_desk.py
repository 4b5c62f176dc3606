"""When this PC lends itself: asked and chosen by its person's programs, kept, and carried out."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from typing import TYPE_CHECKING

import msgspec

from engine.errors import DaisyError, LendingPausedError, StorageError
from engine.messages.control import ErrorReport
from engine.messages.own_pc_control import AskLending, LendingReport, SetLending, TellIdle
from engine.pool.disk import write_whole
from engine.pool.lending import IDLE_HOLDS_S, LendingChoice, chosen, lends, paused_for_s

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from engine.domain import StageDescription
    from engine.messages.chain import Placement
    from engine.messages.message import Message
    from engine.pool.order_desk import StageHost

LOOK_EVERY_S = 5.0  # a pause ends, and the clock may be set
GIVEN_BACK_WITHIN_S = 20.0  # by the pool's own plan; then this PC ends its stage itself

_logger = logging.getLogger(__name__)


class LendingDesk:
    """One PC's.

    Attributes:
        on_change: Told whether this PC is lent, whenever that changes.

    Thread: the node's loop.
    """

    def __init__(
        self,
        file: Path,
        is_alone: Callable[[], bool],
        host: StageHost,
        on_battery: Callable[[], bool] = lambda: False,
    ) -> None:
        """Begin with what was chosen last.

        Args:
            file: Keeps the choice; where one can't be read, nothing is lent.
            is_alone: Tells whether nobody else is in the pool.
            host: Runs this PC's stage.
            on_battery: Tells whether this PC isn't plugged in.
        """
        self.on_change: Callable[[bool], Awaitable[None]] | None = None
        self._file = file
        self._is_alone = is_alone
        self._host = host
        self._on_battery = on_battery
        self._choice = _read(file)
        self._idle_until_s = 0.0  # monotonic
        self._held_since_s: float | None = None  # a stage that is not lent any more
        self._changed = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    @property
    def is_lending(self) -> bool:
        """Whether this PC is lent now."""
        is_idle = self._loop.time() < self._idle_until_s
        return lends(
            self._choice,
            time.time(),
            is_idle=is_idle,
            is_alone=self._is_alone(),
            on_battery=self._on_battery(),
        )

    def look(self) -> None:
        """Take note that others may have come into the pool, or left it."""
        self._changed.set()

    async def run(self) -> None:
        """Tell every change, and give back what is not lent any more, until cancelled."""
        was_lending = True
        while True:
            is_lending = self.is_lending
            if is_lending != was_lending:
                _logger.info("lending: %s", "on" if is_lending else "paused")
                was_lending = is_lending
                if self.on_change is not None:
                    await self.on_change(is_lending)
            self._changed.clear()
            await self._give_back()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_EVERY_S):
                    await self._changed.wait()

    async def serve(self, message: object, send: Callable[[Message], Awaitable[None]]) -> bool:
        """Do what a program of this PC asks.

        Args:
            message: Decoded.
            send: To it.

        Returns:
            Whether it was about lending.
        """
        match message:
            case SetLending():
                fresh = chosen(
                    self._choice,
                    message.rule,
                    message.pause_s,
                    time.time(),
                    mains_only=message.mains_only,
                )
                try:
                    await asyncio.to_thread(self._write, fresh)
                except DaisyError as error:
                    await send(ErrorReport(code=error.code, what=error.what, advice=error.advice))
                    return True
                self._choice = fresh
            case TellIdle():
                holds_s = IDLE_HOLDS_S if message.is_idle else 0.0
                self._idle_until_s = self._loop.time() + holds_s
            case AskLending():
                pass
            case _:
                return False
        self._changed.set()
        await send(self._report())
        return True

    def _report(self) -> LendingReport:
        return LendingReport(
            rule=self._choice.rule,
            is_lending=self.is_lending,
            paused_for_s=paused_for_s(self._choice, time.time()),
            is_alone=self._is_alone(),
            mains_only=self._choice.mains_only,
            on_battery=self._on_battery(),
        )

    async def _give_back(self) -> None:
        """End a stage that is still here long after lending ended: nobody planned anew."""
        now_s = self._loop.time()
        if self.is_lending or not self._host.is_loaded:
            self._held_since_s = None
        elif self._held_since_s is None:
            self._held_since_s = now_s
        elif now_s - self._held_since_s >= GIVEN_BACK_WITHIN_S:
            await self._host.end()

    def _write(self, choice: LendingChoice) -> None:
        """Write a choice.

        Raises:
            StorageError: It can't be.
        """
        try:
            write_whole(self._file, msgspec.json.encode(choice))
        except OSError as exc:
            raise StorageError(f"{self._file} can't be written: {exc.strerror}.") from exc


class LentHost:
    """Runs stages as the node does, but none while this PC isn't lent."""

    def __init__(self, host: StageHost, desk: LendingDesk) -> None:
        """Stand before a host.

        Args:
            host: Runs them.
            desk: Knows whether this PC is lent.
        """
        self._host = host
        self._desk = desk

    @property
    def epoch(self) -> int:
        """Of the placement whose stage runs here; 0 for none."""
        return self._host.epoch

    @property
    def is_loaded(self) -> bool:
        """Whether a stage is loaded here."""
        return self._host.is_loaded

    async def place(self, placement: Placement, folder: Path) -> StageDescription:
        """Load this node's stage of a placement.

        Args:
            placement: Who runs what.
            folder: Of shards.

        Raises:
            LendingPausedError: This PC isn't lent.

        Fails as the host does.
        """
        if not self._desk.is_lending:
            raise LendingPausedError("This PC is not lent at the moment.")
        return await self._host.place(placement, folder)

    async def end(self, *, for_good: bool = True) -> None:
        """End the placement that runs here.

        Args:
            for_good: Whether what is loaded goes as well.
        """
        await self._host.end(for_good=for_good)

    async def probe(self, epoch: int) -> None:
        """Send a token round the chain whose head is here.

        Args:
            epoch: Of the placement that is meant.
        """
        await self._host.probe(epoch)


def _read(file: Path) -> LendingChoice:
    try:
        return msgspec.json.decode(file.read_bytes(), type=LendingChoice)
    except FileNotFoundError:
        return LendingChoice()
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        # It said something once: nothing is lent that its owner may have forbidden.
        _logger.warning("lending: %s can't be read; nothing is lent until it is chosen anew", file)
        return LendingChoice(rule="never")
