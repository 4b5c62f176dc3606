"""The record's way to disk: beside everything else, and always the newest."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from msgspec.structs import replace

from engine.errors import StorageError
from engine.pool.record_book import RecordBook, keep_on_disk
from tests.unit.pool.coordinator import ready_record

if TYPE_CHECKING:
    from engine.messages.deployment import Deployment

RECORD = ready_record()


def version(number: int) -> Deployment:
    return replace(RECORD, version=number)


class SlowDisk:
    """Writes one record at a time, each when it is let."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.has_begun = asyncio.Event()
        self.is_full = False
        self.loop: asyncio.AbstractEventLoop
        self.may_write = threading.Semaphore(0)

    def keep(self, record: Deployment) -> None:
        self.begun.append(record.version)
        self.loop.call_soon_threadsafe(self.has_begun.set)
        assert self.may_write.acquire(timeout=5.0)
        if self.is_full:
            raise StorageError("The disk is full.")

    async def until_begun(self, count: int) -> None:
        async with asyncio.timeout(5.0):
            while len(self.begun) < count:
                self.has_begun.clear()
                await self.has_begun.wait()


def run(scenario, book: RecordBook, disk: SlowDisk) -> None:
    async def test() -> None:
        disk.loop = asyncio.get_running_loop()
        with suppress(asyncio.CancelledError):
            async with asyncio.TaskGroup() as group:
                writing = group.create_task(keep_on_disk(book, disk.keep))
                await asyncio.sleep(0)
                await scenario()
                disk.may_write.release(9)
                writing.cancel()

    asyncio.run(test())


def test_of_many_changes_while_the_disk_is_slow_the_last_is_written_and_nobody_waits() -> None:
    book, disk = RecordBook(), SlowDisk()

    async def scenario() -> None:
        assert book.take(version(1))
        await disk.until_begun(1)
        for number in range(2, 6):
            assert book.take(version(number))
        disk.may_write.release()
        await disk.until_begun(2)

    run(scenario, book, disk)
    assert disk.begun == [1, 5]


def test_what_came_from_disk_is_not_written_again_and_yields_to_what_is_newer() -> None:
    book, disk = RecordBook(version(3)), SlowDisk()

    async def scenario() -> None:
        assert book.deployment == version(3)
        assert not book.take(version(2))
        await asyncio.sleep(0.02)
        assert disk.begun == []
        assert book.take(version(4))
        await disk.until_begun(1)

    run(scenario, book, disk)
    assert disk.begun == [4]


def test_a_disk_that_is_full_ends_nothing_and_the_next_change_is_tried() -> None:
    book, disk = RecordBook(), SlowDisk()
    disk.is_full = True

    async def scenario() -> None:
        book.take(version(1))
        await disk.until_begun(1)
        disk.may_write.release()
        await asyncio.sleep(0.02)
        book.take(version(2))
        await disk.until_begun(2)

    run(scenario, book, disk)
    assert disk.begun == [1, 2]
