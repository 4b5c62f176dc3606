"""What ends a node from outside: a signal, or the end of whoever started it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading

_STDIN = 0


def stop_on_signals(stop: asyncio.Event) -> None:
    """From now on Ctrl-C and a request to end set an event.

    Args:
        stop: What the program waits for.

    Thread: the main one, within the loop it runs.
    """
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        try:
            loop.add_signal_handler(number, stop.set)
        except NotImplementedError:  # loops on Windows take none; Python's own way does there
            signal.signal(number, lambda *_: loop.call_soon_threadsafe(stop.set))


def stop_when_input_ends(stop: asyncio.Event) -> None:
    """Set an event when standard input ends: whoever started this program has ended, however.

    Args:
        stop: What the program waits for.

    Thread: within the loop that runs.
    """
    loop = asyncio.get_running_loop()

    def watch() -> None:
        with contextlib.suppress(OSError):
            while os.read(_STDIN, 4096):
                pass
        with contextlib.suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(stop.set)

    threading.Thread(target=watch, daemon=True, name="stdin").start()
