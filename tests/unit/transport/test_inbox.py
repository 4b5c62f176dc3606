"""The bounded queue between a connection and the program: order, room, cancellation, the end."""

from __future__ import annotations

import asyncio

import pytest

from engine.errors import LocalProtocolError, PeerUnreachableError
from engine.transport import inbox as inbox_module
from engine.transport.inbox import CAPACITY_FRAMES, Inbox


def test_frames_come_out_in_order_and_then_the_reason_why_no_more() -> None:
    async def main() -> None:
        inbox = Inbox()
        await inbox.put(b"1")
        await inbox.put(b"2")
        inbox.end(PeerUnreachableError("gone"))
        inbox.end(PeerUnreachableError("the second reason is not told"))
        await inbox.put(b"dropped")
        assert [await inbox.take(), await inbox.take()] == [b"1", b"2"]
        for _ in range(2):
            with pytest.raises(PeerUnreachableError, match="gone"):
                await inbox.take()

    asyncio.run(main())


def test_the_putter_waits_when_it_is_full_and_goes_on_when_there_is_room() -> None:
    async def main() -> None:
        inbox = Inbox()
        for i in range(CAPACITY_FRAMES):
            await inbox.put(b"%d" % i)
        assert inbox.is_full
        async with asyncio.TaskGroup() as group:
            put = group.create_task(inbox.put(b"last"))
            await asyncio.sleep(0)
            assert not put.done()
            taken = [await inbox.take() for _ in range(CAPACITY_FRAMES + 1)]
        assert taken[-1] == b"last"

    asyncio.run(main())


def test_large_frames_fill_it_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inbox_module, "CAPACITY_BYTES", 10)

    async def main() -> None:
        inbox = Inbox()
        await inbox.put(bytes(9))
        assert not inbox.is_full
        await inbox.put(bytes(9))
        assert inbox.is_full
        await inbox.take()
        assert not inbox.is_full
        await inbox.put(bytes(99))
        await inbox.take()
        assert inbox.is_full

    asyncio.run(main())


def test_the_end_frees_a_waiting_putter() -> None:
    async def main() -> None:
        inbox = Inbox()
        for _ in range(CAPACITY_FRAMES):
            await inbox.put(b"")
        async with asyncio.TaskGroup() as group:
            group.create_task(inbox.put(b"late"))
            await asyncio.sleep(0)
            inbox.end(PeerUnreachableError("gone"))

    asyncio.run(main())


def test_a_cancelled_take_loses_nothing() -> None:
    async def main() -> None:
        inbox = Inbox()
        async with asyncio.TaskGroup() as group:
            take = group.create_task(inbox.take())
            await asyncio.sleep(0)
            await inbox.put(b"1")  # the taker is woken, and cancelled before it runs
            take.cancel()
        assert await inbox.take() == b"1"

    asyncio.run(main())


def test_two_takers_are_a_bug_of_ours() -> None:
    async def main() -> None:
        inbox = Inbox()
        async with asyncio.TaskGroup() as group:
            group.create_task(inbox.take())
            await asyncio.sleep(0)
            with pytest.raises(LocalProtocolError, match="Two tasks"):
                await inbox.take()
            await inbox.put(b"1")

    asyncio.run(main())
