"""A store's disk work, off the event loop."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, ParamSpec, Self, TypeVar

from engine.errors import RequestCancelledError

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

P = ParamSpec("P")
T = TypeVar("T")

MAX_DISK_THREADS = 3  # hashing lets other threads run, and more would only wait for the disk


class StoreThreads:
    """A few threads for calls that wait for the disk; a context manager."""

    def __init__(self, max_threads: int = MAX_DISK_THREADS) -> None:
        """Start none yet.

        Args:
            max_threads: Calls that may run at once; more wait.
        """
        self._pool = ThreadPoolExecutor(max_threads, thread_name_prefix="store")

    async def __aenter__(self) -> Self:
        """Return self."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Wait for the calls that run; those that wait are not begun."""
        await asyncio.to_thread(self._pool.shutdown, cancel_futures=True)

    def begin(
        self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> asyncio.Future[T]:
        """Have a function of the store run in a thread, whether anyone waits for it or not.

        Args:
            function: Such as ``store.serve_chunk``.
            args: Its arguments.
            kwargs: Its arguments by name.
        """
        loop = asyncio.get_running_loop()
        return loop.run_in_executor(self._pool, lambda: function(*args, **kwargs))

    async def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a function of the store in a thread, and return what it returns.

        Args:
            function: Such as ``store.serve_chunk``.
            args: Its arguments.
            kwargs: Its arguments by name.

        Cancellation: a call that runs goes on to its end, and its result is dropped.
        """
        return await self.begin(function, *args, **kwargs)

    async def call_stoppable(self, function: Callable[[Callable[[], None]], T]) -> T:
        """Run a function that may take long in a thread, and return what it returns.

        Args:
            function: Given a check it has to call often, which raises when it must stop.

        Cancellation: one that runs is stopped by its check, and waited for; one that waits for a
        thread is not begun.
        """  # noqa: DOC501 - cancellation is passed on
        stopped = threading.Event()

        def check() -> None:
            if stopped.is_set():
                raise RequestCancelledError("The work was stopped.")

        job = self._pool.submit(function, check)
        result = asyncio.wrap_future(job)
        try:
            return await asyncio.shield(result)
        except asyncio.CancelledError:
            stopped.set()
            if not job.cancel():
                await asyncio.gather(result, return_exceptions=True)  # that it stopped is no news
            raise
