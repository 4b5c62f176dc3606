"""Which models this PC keeps: listed, and taken off its disk, here or everywhere."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Protocol

from msgspec.structs import replace

from engine.errors import DaisyError, ModelInUseError
from engine.messages.control import ErrorReport
from engine.messages.own_pc_control import DropModel, ListModels, ModelsListed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from engine.messages.message import Message
    from engine.messages.own_pc_control import ModelLine
    from engine.pool.model_shelf import ModelShelf
    from engine.pool.record_book import RecordBook

MAX_WAITING = 64  # models other PCs told to drop
_OVER = frozenset({"unloaded", "failed"})  # phases in which the pool can do without the files

_logger = logging.getLogger(__name__)


class Office(Protocol):
    """The pool around this node, as far as it needs it."""

    def tell_all(self, message: Message) -> None:
        """Hand a message to every node, this one included; returns at once."""
        ...

    async def tell_facts(self) -> None:
        """Tell every node what this one is and has."""
        ...


class ModelDesk:
    """One node's.

    Thread: the node's loop.
    """

    def __init__(self, data_dir: Path, shelf: ModelShelf, book: RecordBook, office: Office) -> None:
        """Begin with nothing asked.

        Args:
            data_dir: Daisy's data folder here.
            shelf: Keeps the models.
            book: Knows what the pool is to run.
            office: Reaches the others.
        """
        self._data_dir = data_dir
        self._shelf = shelf
        self._book = book
        self._office = office
        self._told: asyncio.Queue[str] = asyncio.Queue(MAX_WAITING)

    async def run(self) -> None:
        """Drop what other PCs told to drop, until cancelled."""
        while True:
            model_sha256 = await self._told.get()
            try:
                await self._drop(model_sha256)
            except DaisyError as error:
                _logger.info("models: one is kept that another PC dropped, %s", error.what)

    def told(self, message: DropModel) -> None:
        """Take note that another PC, or this one, dropped a model everywhere.

        Args:
            message: Which; beyond a bound of those that wait nothing happens.
        """
        if not self._told.full():
            self._told.put_nowait(message.model_sha256)

    async def serve(self, message: object, send: Callable[[Message], Awaitable[None]]) -> bool:
        """Do what a program of this PC asks.

        Args:
            message: Decoded.
            send: To it.

        Returns:
            Whether it was about the models this PC keeps.
        """
        if not isinstance(message, ListModels | DropModel):
            return False
        try:
            freed = await self._dropped(message) if isinstance(message, DropModel) else 0
            listed = ModelsListed(models=await self._lines(), freed_bytes=freed)
        except DaisyError as error:
            await send(ErrorReport(code=error.code, what=error.what, advice=error.advice))
        else:
            await send(listed)
        return True

    async def _dropped(self, message: DropModel) -> int:
        freed = await self._drop(message.model_sha256)
        if message.is_everywhere:
            self._office.tell_all(DropModel(model_sha256=message.model_sha256))
        return freed

    async def _drop(self, model_sha256: str) -> int:
        """Take a model off this PC's disk.

        Raises:
            ModelInUseError: The pool is to run it, or a model is being read here.
        """
        if model_sha256 == self._wanted():
            raise ModelInUseError("The pool runs that model, or is to run it.")
        freed = await self._shelf.drop(model_sha256, self._data_dir)
        await self._office.tell_facts()
        return freed

    async def _lines(self) -> tuple[ModelLine, ...]:
        wanted = self._wanted()
        lines = await self._shelf.listed()
        return tuple(replace(line, is_in_use=line.model_sha256 == wanted) for line in lines)

    def _wanted(self) -> str | None:
        """Return the model the pool is to run."""
        record = self._book.deployment
        if record is None or record.wish is None or record.phase in _OVER:
            return None
        return record.wish.model_sha256
