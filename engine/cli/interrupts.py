"""Ctrl-C and its like: the first stops what runs, in good order; more of them change nothing."""

from __future__ import annotations

import asyncio
import signal
from typing import Any


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
