"""What somebody on this PC asks the pool to run: the model taken in, and the wish made."""

from __future__ import annotations

import asyncio
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from msgspec.structs import replace

from engine.config import DEFAULT_CONTEXT_TOKENS, MAX_DEFAULT_CONTEXT_TOKENS
from engine.errors import DaisyError, PeerTimeoutError, PlacementError, UsageError
from engine.messages.deployment import Wish
from engine.messages.hidden_states import hidden_precision
from engine.messages.pool_control import DeploymentReport, MakeWish
from engine.pool.order_desk import trouble_of
from engine.pool.work_report import WorkReport

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from engine.domain import ModelDescription, NodeId
    from engine.messages.message import Message
    from engine.messages.pool_control import LoadModel
    from engine.pool.model_shelf import KeptModel, ModelShelf
    from engine.pool.record_book import RecordBook

REPEAT_S = 1.0  # a wish is repeated until the record shows it
RECORDED_WITHIN_S = 30.0  # of a coordinator being elected, and hearing the wish
REPORT_EVERY_S = 0.25


class Office(Protocol):
    """The pool around this node, as far as a wish needs it."""

    def tell_all(self, message: Message) -> None:
        """Hand a message to every node, this one included; returns at once."""
        ...

    def tell_coordinator(self, message: Message) -> None:
        """Hand a message to whoever is in office; returns at once."""
        ...

    async def tell_facts(self) -> None:
        """Tell every node what this one is and has."""
        ...


class Loading:
    """One node's askers, as far as they load and unload.

    Thread: the node's loop.
    """

    def __init__(
        self, node_id: NodeId, data_dir: Path, shelf: ModelShelf, book: RecordBook, office: Office
    ) -> None:
        """Begin with nobody asking.

        Args:
            node_id: This node.
            data_dir: Daisy's data folder here; converted models are kept in it.
            shelf: Takes models in.
            book: Shows how far the pool is.
            office: Reaches the coordinator.
        """
        self._node_id = node_id
        self._data_dir = data_dir
        self._shelf = shelf
        self._book = book
        self._office = office
        self._loop = asyncio.get_running_loop()

    async def load(self, asked: LoadModel, send: Callable[[Message], Awaitable[None]]) -> None:
        """Have the pool run a model, and tell the asker how far it is until it runs or can't.

        Args:
            asked: What.
            send: Reaches the asker.

        Cancellation: a conversion stops; once the wish is made, the pool goes on.
        """
        wish_id = secrets.token_hex(8)
        async with asyncio.TaskGroup() as group:
            watch = group.create_task(self._tell(wish_id, send))
            try:
                hidden_precision(asked.mode, asked.link_precision)  # before anything long begins
                name = Path(asked.source or "").name  # the others need not know where it lies
                report = WorkReport(self._node_id, 0, self._office.tell_all, self._loop.time, name)
                kept = await self._shelf.take_in(asked.source, self._data_dir, report)
                wish = self._wish(asked, kept, wish_id)
                await self._office.tell_facts()  # the coordinator looks for who can cut it
                await self._make(wish, wish_id)
            except DaisyError as error:
                watch.cancel()
                await send(
                    DeploymentReport(deployment=self._book.deployment, trouble=trouble_of(error))
                )

    async def unload(self, send: Callable[[Message], Awaitable[None]]) -> None:
        """Have the pool run nothing.

        Args:
            send: Reaches the asker.
        """
        try:
            if self._book.deployment is not None:
                await self._make(None, secrets.token_hex(8))
        except DaisyError as error:
            await send(
                DeploymentReport(deployment=self._book.deployment, trouble=trouble_of(error))
            )
        else:
            await send(DeploymentReport(deployment=self._book.deployment))

    async def _make(self, wish: Wish | None, wish_id: str) -> None:
        """Tell the coordinator, whoever that is by then, until the record shows it.

        Raises:
            PeerTimeoutError: Nobody took it.
        """
        message = MakeWish(wish=wish, wish_id=wish_id)
        try:
            async with asyncio.timeout(RECORDED_WITHIN_S):
                while not self._is_recorded(wish_id if wish is not None else None):
                    self._office.tell_coordinator(message)
                    await self._changed_within(REPEAT_S)
        except TimeoutError as exc:
            raise PeerTimeoutError(
                f"No coordinator took the request within {RECORDED_WITHIN_S:g} s.",
                "Look at daisy status, then try again.",
            ) from exc

    def _is_recorded(self, wish_id: str | None) -> bool:
        record = self._book.deployment
        if wish_id is None:
            return record is None or record.phase == "unloaded"
        return record is not None and record.wish is not None and record.wish.wish_id == wish_id

    async def _tell(self, wish_id: str, send: Callable[[Message], Awaitable[None]]) -> None:
        """Tell the asker of every change, until its wish is fulfilled or can't be."""
        was_recorded = False
        while True:
            is_recorded = self._is_recorded(wish_id)
            record = self._book.deployment
            report = DeploymentReport(
                deployment=record,
                progress=self._book.progress,
                wish_id=wish_id if is_recorded else None,
            )
            if was_recorded and not is_recorded:
                await send(
                    replace(
                        report,
                        trouble=trouble_of(
                            PlacementError(
                                "Somebody asked for something else meanwhile.", "See daisy status."
                            )
                        ),
                    )
                )
                return
            await send(report)
            if is_recorded and record is not None and record.phase in {"ready", "failed"}:
                return
            was_recorded = is_recorded
            await self._changed_within(REPEAT_S)
            await asyncio.sleep(REPORT_EVERY_S)

    async def _changed_within(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._book.changed()
        except TimeoutError:
            return

    def _wish(self, asked: LoadModel, kept: KeptModel, wish_id: str) -> Wish:
        return Wish(
            wish_id=wish_id,
            asked_on=self._node_id,
            model_sha256=kept.model_sha256,
            model=kept.model,
            context_tokens=context_for(asked.context_tokens, kept.model),
            max_sequences=asked.max_sequences,
            kind=asked.kind or ("paged" if kept.can_be_paged else "stateful"),
            mode=asked.mode,
            is_private=asked.is_private,
            link_precision=asked.link_precision,
            speculate=asked.speculate,
        )


def context_for(asked: int | None, model: ModelDescription) -> int:
    """Return how many tokens a sequence may have.

    Args:
        asked: By a person; None leaves it to the model, up to a limit.
        model: Knows the most it takes.

    Raises:
        UsageError: It is less than 2, or more than the model takes.
    """
    longest = model.context_length
    if asked is None:
        return min(longest or DEFAULT_CONTEXT_TOKENS, MAX_DEFAULT_CONTEXT_TOKENS)
    if asked < 2 or (longest is not None and asked > longest):
        upper = longest if longest is not None else "any number"
        raise UsageError(f"--context is {asked}; this model takes from 2 to {upper} tokens.")
    return asked
