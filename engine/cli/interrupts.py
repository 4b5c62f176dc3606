"""Ctrl-C and its like: the first stops what runs, in good order; more of them change nothing."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
from typing import Any

_STDIN = 0


def cancel_on_interrupt(task: asyncio.Task[Any] | None) -> None:
    """From now on Ctrl-C cancels this task, once.

    Where the loop can't be told of signals (Windows), Python's own way stays.

    Args:
        task: The command's, or the part of it that may be stopped alone.

    Thread: the main one, within the loop it runs.
    """
    is_told = False

    def interrupted() -> None:
        nonlocal is_told
        if not is_told and task is not None:
            is_told = True
            task.cancel()

    try:
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, interrupted)
    except NotImplementedError:
        return


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
        except NotImplementedError:  # Windows
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
