"""Lines from standard input, without holding up the end of the program."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading

_STDIN = 0
_CHUNK_BYTES = 64 * 1024


class LineReader:
    """Reads standard input line by line while the loop goes on.

    A thread that waits for a person can't be ended, so it is a daemon: the loop's own threads would
    keep the program from ending until Enter is pressed.

    Thread: one event loop.
    """

    def __init__(self) -> None:
        """Begin; nothing is read yet."""
        self._buffer = b""

    async def read(self) -> str:
        """Return the next line without its end; empty at the end of the input.

        Cancellation: safe; what is typed meanwhile is lost.
        """
        while b"\n" not in self._buffer:
            chunk = await self._chunk()
            if not chunk:
                break
            self._buffer += chunk
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line.decode("utf-8", "replace").removesuffix("\r")

    @staticmethod
    async def _chunk() -> bytes:
        loop = asyncio.get_running_loop()
        arrived: asyncio.Future[bytes] = loop.create_future()

        def settle(data: bytes) -> None:
            if not arrived.done():
                arrived.set_result(data)

        def work() -> None:
            try:
                # Below Python's own buffer, whose lock would hold up the exit.
                data = os.read(_STDIN, _CHUNK_BYTES)
            except OSError:
                data = b""  # there is no standard input: the same as its end
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(settle, data)

        threading.Thread(target=work, daemon=True, name="stdin").start()
        return await arrived
