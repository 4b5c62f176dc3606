"""A signal ends a node on every system, whichever way its loops take signals."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from engine.node.stopping import stop_on_signals


class LoopWithoutSignals(asyncio.SelectorEventLoop):
    """Takes no handlers, as loops on Windows."""

    def add_signal_handler(self, *_):
        raise NotImplementedError


@pytest.mark.parametrize("loop_factory", [asyncio.SelectorEventLoop, LoopWithoutSignals])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_sets_the_event(loop_factory, number):
    async def ended():
        stop = asyncio.Event()
        stop_on_signals(stop)
        os.kill(os.getpid(), number)
        async with asyncio.timeout(10):
            await stop.wait()

    before = {each: signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)}
    try:
        with asyncio.Runner(loop_factory=loop_factory) as runner:
            runner.run(ended())
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
