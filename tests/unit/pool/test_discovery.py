"""Discovery on a PC without a network: what fails is told, and nothing waits for it."""

from __future__ import annotations

import asyncio
import socket
import time
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING

import pytest
from zeroconf.asyncio import AsyncZeroconf

from engine.errors import LocalProtocolError
from engine.pool.adapters import Interface
from engine.pool.announcement import Announcement
from engine.pool.discovery import MAX_EVENTS, Discovery, Timing
from engine.pool.peer_address import PeerAddress
from engine.pool.sightings import Candidate

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.usefixtures("alone_on_mdns_port")

SAID = Announcement("unit-test", "abcdefghijklm", 7420, 1, 1)
PEER = Candidate(PeerAddress("192.0.2.7", 7420), "known")
PORT_FREE_WITHIN_S = 60.0
QUICK = Timing(adapters_every_s=0.02, candidates_every_s=0.1, close_within_s=0.3)


def no_network() -> tuple[Interface, ...]:
    return ()


async def bound_to_mdns_port(bound: socket.socket) -> None:
    """Take the port, once whoever else on this PC has it in another way has ended."""
    async with asyncio.timeout(PORT_FREE_WITHIN_S):
        while True:
            with suppress(OSError):
                bound.bind(("", 5353))
                return
            await asyncio.sleep(0.05)


@pytest.fixture
def mdns_port():
    """Keep others on this PC from taking the port for themselves alone during a test."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as shared:
        shared.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if hasattr(socket, "SO_REUSEPORT"):
            shared.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        asyncio.run(bound_to_mdns_port(shared))
        yield


@asynccontextmanager
async def running(discovery: Discovery) -> AsyncIterator[asyncio.Task]:
    """Run it for the time of the block; whatever it raises is raised.

    Yields:
        Its task.
    """
    async with asyncio.TaskGroup() as group:
        task = group.create_task(discovery.run())
        yield task
        task.cancel()


async def next_event(discovery: Discovery):
    return await asyncio.wait_for(discovery.next_event(), 5.0)


async def longest_pause_s(within: asyncio.Event) -> float:
    """Return the longest time the loop was blocked until the event."""
    longest = 0.0
    while not within.is_set():
        before = time.monotonic()
        await asyncio.sleep(0.005)
        longest = max(longest, time.monotonic() - before)
    return longest


async def wedged(_: AsyncZeroconf) -> None:
    """A goodbye that never ends and can't be cancelled."""
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            if wedged.is_over:
                raise


@pytest.mark.usefixtures("mdns_port")
def test_a_wedged_goodbye_holds_up_neither_the_end_nor_the_loop(monkeypatch):
    monkeypatch.setattr(AsyncZeroconf, "async_close", wedged)
    wedged.is_over = False

    async def scenario() -> tuple[float, float]:
        discovery = Discovery(SAID, timing=QUICK, candidates=(PEER,), read_interfaces=no_network)
        ended = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            pause = group.create_task(longest_pause_s(ended))
            async with running(discovery):
                await next_event(discovery)
                began = time.monotonic()
            took_s = time.monotonic() - began
            ended.set()
        wedged.is_over = True
        return took_s, pause.result()

    took_s, pause_s = asyncio.run(scenario())
    assert 0.25 < took_s < 1.0
    assert pause_s < 0.2


# zeroconf leaves the socket that it could not bind to be collected.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_taken_port_is_told_and_peers_that_are_known_are_tried_all_the_same():
    async def scenario() -> Discovery:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
            await bound_to_mdns_port(taken)
            discovery = Discovery(
                SAID, timing=QUICK, candidates=(PEER,), read_interfaces=no_network
            )
            async with running(discovery):
                assert await next_event(discovery) == PEER
                assert await next_event(discovery) == PEER  # again, after a while
                assert discovery.problem is not None
        return discovery

    discovery = asyncio.run(scenario())
    assert discovery.problem.startswith("mDNS does not work: ")


@pytest.mark.usefixtures("mdns_port")
def test_without_any_adapter_nothing_is_wrong():
    async def scenario() -> Discovery:
        discovery = Discovery(SAID, timing=QUICK, candidates=(PEER,), read_interfaces=no_network)
        async with running(discovery):
            assert await next_event(discovery) == PEER
            await asyncio.sleep(0.2)
        return discovery

    discovery = asyncio.run(scenario())
    assert discovery.problem is None
    assert discovery.adapters.used == ()


@pytest.mark.usefixtures("mdns_port")
def test_what_fails_for_a_while_is_told_for_that_while(monkeypatch):
    works = AsyncZeroconf.async_update_interfaces
    failures = [OSError(19, "No such device"), RuntimeError("No adapter found")]

    async def fails_at_first(zeroconf: AsyncZeroconf, **arguments) -> None:
        if failures:
            raise failures.pop()
        await works(zeroconf, **arguments)

    monkeypatch.setattr(AsyncZeroconf, "async_update_interfaces", fails_at_first)
    problems: list[str | None] = []

    async def scenario() -> None:
        discovery = Discovery(SAID, timing=QUICK, candidates=(PEER,), read_interfaces=no_network)
        async with running(discovery), asyncio.timeout(10.0):
            while not (problems and problems[-1] is None):
                await next_event(discovery)
                problems.append(discovery.problem)

    asyncio.run(scenario())
    told = [problem for problem, _ in groupby(problems)]
    assert [problem and problem.rpartition(": ")[2] for problem in told] == [
        "No adapter found.",
        "[Errno 19] No such device.",
        None,
    ]


@pytest.mark.usefixtures("mdns_port")
def test_a_system_that_does_not_list_its_adapters_is_asked_again():
    answers = [OSError("not now"), OSError("not now"), (Interface("eth0", is_up=False),)]

    def read() -> tuple[Interface, ...]:
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(answer, OSError):
            raise answer
        return answer

    async def scenario() -> None:
        discovery = Discovery(SAID, timing=QUICK, candidates=(PEER,), read_interfaces=read)
        async with running(discovery), asyncio.timeout(5.0):
            while not discovery.adapters.ignored:
                await next_event(discovery)

    asyncio.run(scenario())


@pytest.mark.usefixtures("mdns_port")
def test_a_reader_that_is_slow_finds_a_bounded_queue_and_everything_in_it_once():
    many = tuple(Candidate(PeerAddress("192.0.2.1", port), "known") for port in range(1, 201))

    async def scenario() -> list:
        timing = replace(QUICK, candidates_every_s=3600)
        discovery = Discovery(SAID, timing=timing, candidates=many, read_interfaces=no_network)
        async with running(discovery):
            await asyncio.sleep(0.3)
            return [await next_event(discovery) for _ in many]

    assert asyncio.run(scenario()) == list(many)
    assert len(many) > MAX_EVENTS


def test_an_announcement_nobody_could_read_is_refused_at_once():
    with pytest.raises(LocalProtocolError):
        Discovery(replace(SAID, port=0))
    with pytest.raises(LocalProtocolError):
        Discovery(SAID).change(replace(SAID, run_id=""))
