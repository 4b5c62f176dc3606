"""Finds the other PCs of the network, and lets them find this one.

mDNS is a hint and nothing more. Anyone on the network can announce anything, take it back in
another's name, or drown it; multicast gets lost, and some networks drop all of it. So every node
found is only an address worth trying: who answers there is settled by the session, and whether it
is still there by its heartbeats. For the same reason addresses that worked before and those a
person gave are told beside what mDNS sees.

One task follows the adapters and the clocks, and compares what mDNS holds now with what it has
told; nothing depends on having seen a change happen.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from engine.errors import TransportError
from engine.messages.doctor_control import AdapterTried
from engine.pool.adapters import RankedAdapters, rank_adapters
from engine.pool.announcement import Unreadable, encode_announcement, run_id_of
from engine.pool.clocks import Clocks, has_slept
from engine.pool.mdns import Mdns
from engine.pool.multicast_trial import Heard, hear_own
from engine.pool.sentences import sentence
from engine.pool.service_names import ServiceNames
from engine.pool.sightings import (
    AdaptersChanged,
    Appeared,
    Candidate,
    DiscoveryEvent,
    news,
    read_sighting,
)
from engine.pool.system_interfaces import system_interfaces

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.pool.adapters import Interface
    from engine.pool.announcement import Announcement

MAX_EVENTS = 64

_TICK_S = 1.0  # how late an announcement that holds no longer may be noticed
_GATHER_S = 0.05  # records of one answer may come in a few packets
_MDNS_WITHIN_S = 5.0
_REPEAT_AFTER_S = (
    2.0  # the last of three is sent within one, and what comes again too soon is dropped
)
_MIN_RETRY_S = 0.5
_MAX_RETRY_S = 32.0

_logger = logging.getLogger(__name__)

ReadInterfaces: TypeAlias = "Callable[[], tuple[Interface, ...]]"


@dataclass(frozen=True)
class Timing:
    """How often and how long, in seconds.

    Attributes:
        adapters_every_s: Between two looks at this PC's adapters.
        announce_every_s: Between two announcements while nothing changes.
        ttl_s: How long an announcement holds: three that got lost, and a little.
        candidates_every_s: Between two tries of the addresses that were passed in.
        slept_after_s: A step of a clock by more than this means that the PC slept.
        close_within_s: The longest a goodbye may take.
    """

    adapters_every_s: float = 2.0
    announce_every_s: float = 10.0
    ttl_s: float = 35.0
    candidates_every_s: float = 30.0
    slept_after_s: float = 8.0
    close_within_s: float = 2.0


@dataclass
class _Due:
    """When what is done from time to time is due, in monotonic seconds."""

    adapters_at_s: float = 0.0
    mdns_at_s: float = 0.0
    announce_at_s: float = 0.0
    candidates_at_s: float = 0.0


class Discovery:
    """Announces this node and tells of others until its task is cancelled.

    To be used in one loop.

    Attributes:
        adapters: This PC's adapters as they were last seen, for the doctor.
        problem: Why mDNS does not work at present, one sentence; None while it does.
    """

    def __init__(
        self,
        announcement: Announcement,
        chosen: tuple[str, ...] = (),
        candidates: tuple[Candidate, ...] = (),
        timing: Timing | None = None,
        read_interfaces: ReadInterfaces = system_interfaces,
    ) -> None:
        """Keep what to announce and where; nothing is opened before ``run``.

        Args:
            announcement: What this node says of itself.
            chosen: Names or addresses of the only adapters to use; none for the best there are.
            candidates: Addresses to tell at the start, on another network, and from time to time,
                unless mDNS sees them. Keeping them is the caller's.
            timing: How often and how long.
            read_interfaces: Asks the system; runs in a thread.

        Raises:
            LocalProtocolError: The announcement is out of bounds.
        """
        encode_announcement(announcement)
        self.adapters = RankedAdapters()
        self.problem: str | None = None
        self._announcement = announcement
        self._chosen = chosen
        self._candidates = candidates
        self._timing = timing or Timing()
        self._read_interfaces = read_interfaces
        self._events: asyncio.Queue[DiscoveryEvent] = asyncio.Queue(MAX_EVENTS)
        self._pending: deque[DiscoveryEvent] = deque()  # beside sightings; each at most once
        self._told: dict[str, Appeared] = {}
        self._names = ServiceNames()
        self._mdns: Mdns | None = None
        self._wake = asyncio.Event()
        self._is_renewal_due = False
        self._clocks = _read_clocks()
        self._due = _Due()
        self._retry_s = _MIN_RETRY_S

    @property
    def ignored(self) -> dict[str, str]:
        """Why each service of our type that is none of ours is ignored, by its name in ASCII."""
        return self._names.ignored

    async def next_event(self) -> DiscoveryEvent:
        """Wait for what happens next.

        A reader that is slow misses what came and went in between, never the present state.

        Cancellation: safe; nothing is lost.
        """
        event = await self._events.get()
        if self._pending or self._events.qsize() == MAX_EVENTS - 1:
            self._wake.set()  # there is room for one that was held back
        return event

    def change(self, announcement: Announcement) -> None:
        """Announce something else from now on.

        Raises:
            LocalProtocolError: The announcement is out of bounds.
        """
        encode_announcement(announcement)
        self._announcement = announcement
        self._is_renewal_due = True
        self._wake.set()

    async def try_multicast(self) -> tuple[AdapterTried, ...]:
        """Find out whether this PC hears its own announcement on each adapter in use.

        Cancellation: safe.
        """
        mdns, adapters = self._mdns, self.adapters
        heard: dict[str, Heard] = {}
        problem = self.problem or ""
        if mdns is not None:
            try:
                heard = await hear_own(adapters.addresses, mdns.label, mdns.announce_again)
            except TransportError as exc:
                problem = exc.what
        return tuple(
            AdapterTried(
                name=adapter.name,
                address=address,
                heard_ms=heard.get(address, Heard()).after_ms,
                problem=problem or heard.get(address, Heard()).problem,
            )
            for adapter in adapters.used
            for address in adapter.addresses
        )

    async def run(self) -> None:
        """Announce, and look for others.

        No adapter, no multicast, or a port that is taken are no errors: it tries again, and
        ``adapters`` and ``problem`` say what is wrong.

        Cancellation: says goodbye, for at most ``close_within_s``.
        """
        async with asyncio.TaskGroup() as group:
            try:
                while True:
                    await self._step(group)
                    await self._rest()
            finally:
                await self._drop_mdns()

    async def _rest(self) -> None:
        now_s = time.monotonic()
        until_due_s = min(self._due.adapters_at_s, self._due.announce_at_s) - now_s
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(min(_TICK_S, max(0.0, until_due_s))):
                await self._wake.wait()
                await asyncio.sleep(_GATHER_S)
        self._wake.clear()

    async def _step(self, group: asyncio.TaskGroup) -> None:
        before, self._clocks = self._clocks, _read_clocks()
        now_s = self._clocks.monotonic_s
        if has_slept(before, self._clocks, self._timing.slept_after_s):
            self._is_renewal_due = True
            self._due = _Due()
        if self._is_renewal_due or self._due.adapters_at_s <= now_s:
            self._due.adapters_at_s = now_s + self._timing.adapters_every_s
            await self._look_at_adapters()
        if self._due.announce_at_s <= now_s:
            self._due.announce_at_s = now_s + self._timing.announce_every_s
            self._announce_again()
        if self._due.candidates_at_s <= now_s:
            self._due.candidates_at_s = now_s + self._timing.candidates_every_s
            self._hold_candidates()
        self._tell(group)

    async def _look_at_adapters(self) -> None:
        """Follow a change of this PC's adapters, and heal what could not be followed before."""
        try:
            interfaces = await asyncio.to_thread(self._read_interfaces)
        except OSError as exc:
            _logger.info("discovery: the system did not list its adapters: %s", exc)
            return
        before, self.adapters = self.adapters, rank_adapters(interfaces, self._chosen)
        if before.used != self.adapters.used:
            self._is_renewal_due = True
            self._due.candidates_at_s = 0.0
            self._hold(AdaptersChanged(self.adapters))
        if self._due.mdns_at_s > self._clocks.monotonic_s:
            return
        try:
            async with asyncio.timeout(_MDNS_WITHIN_S):
                await self._follow(_remade(before, self.adapters))
        except (TransportError, TimeoutError) as exc:
            self.problem = str(exc) or sentence(
                "mdns", problem=f"no end within {_MDNS_WITHIN_S:g} s"
            )
            _logger.info("discovery: %s", self.problem)
            self._due.mdns_at_s = self._clocks.monotonic_s + self._retry_s
            self._retry_s = min(2 * self._retry_s, _MAX_RETRY_S)
            await self._drop_mdns()
        else:
            self.problem = None
            self._retry_s = _MIN_RETRY_S

    async def _follow(self, remade: set[str]) -> None:
        """Bring mDNS to the adapters and the announcement there are now."""
        if self._mdns is not None and self._mdns.run_id != self._announcement.run_id:
            await self._drop_mdns()
        addresses = self.adapters.addresses
        if self._mdns is None:
            self._mdns = Mdns(self._announcement.run_id, self._on_change)
            await self._mdns.use_addresses(addresses, frozenset())
            self._is_renewal_due = True
        if self._is_renewal_due:
            await self._mdns.announce(self._announcement, addresses, self._timing.ttl_s)
            await self._mdns.browse()
            self._names.ask_anew()
            # Others hold on to a replaced address that they heard less than a second before.
            self._due.announce_at_s = self._clocks.monotonic_s + _REPEAT_AFTER_S
        # After that: on a network it joins, mDNS repeats at once what it was told to announce, and
        # others would hold on to an address that was just repeated.
        await self._mdns.use_addresses(addresses, remade)
        self._is_renewal_due = False

    async def _drop_mdns(self) -> None:
        mdns, self._mdns = self._mdns, None
        if mdns is not None:
            await mdns.close(self._timing.close_within_s)

    def _announce_again(self) -> None:
        if self._mdns is None:
            return
        try:
            self._mdns.announce_again()
        except TransportError as exc:
            _logger.info("discovery: %s", exc.what)

    def _on_change(self, name: str, is_there: bool) -> None:
        """Take note of a service; called in the loop for every record that is new."""
        if is_there:
            self._names.add(name, lambda other: run_id_of(other) in self._told)
        else:
            self._names.remove(name)
        self._wake.set()

    def _hold_candidates(self) -> None:
        seen = {(a, sight.port) for sight in self._told.values() for a in sight.addresses}
        for candidate in self._candidates:
            place = (candidate.address.host, candidate.address.port)
            if place not in seen and candidate not in self._pending:
                self._pending.append(candidate)

    def _hold(self, event: AdaptersChanged) -> None:
        """Tell an event as soon as there is room; only the last one of its kind counts."""
        for older in [held for held in self._pending if type(held) is type(event)]:
            self._pending.remove(older)
        self._pending.appendleft(event)

    def _tell(self, group: asyncio.TaskGroup) -> None:
        seen = self._told if self._mdns is None else self._look_around(self._mdns, group)
        while self._pending and not self._events.full():
            self._events.put_nowait(self._pending.popleft())
        for event in news(self._told, seen):
            if self._events.full():
                return
            self._events.put_nowait(event)
            if isinstance(event, Appeared):
                self._told[event.run_id] = event
            else:
                del self._told[event.run_id]

    def _look_around(self, mdns: Mdns, group: asyncio.TaskGroup) -> dict[str, Appeared]:
        """Return every node whose announcement holds now; ask for what is missing of others."""
        seen: dict[str, Appeared] = {}
        is_loopback_used = any(adapter.link == "loopback" for adapter in self.adapters.used)
        for name in self._names:
            run_id = run_id_of(name)
            if run_id is None:
                self._ignore(name, "Its name is no id.")
            elif run_id == self._announcement.run_id:
                continue
            elif (found := mdns.read(name)) is None:
                if self._names.start_asking(name, self._clocks.monotonic_s):
                    group.create_task(self._ask(mdns, name))
            else:
                sight = read_sighting(name, *found, is_loopback_used=is_loopback_used)
                if isinstance(sight, Unreadable):
                    self._ignore(name, sight.reason)
                else:
                    seen[run_id] = sight
                    self._names.accept(name)
        return seen

    def _ignore(self, name: str, reason: str) -> None:
        if self._names.ignore(name, reason):
            _logger.info("discovery: ignored %a: %s", name, reason)

    async def _ask(self, mdns: Mdns, name: str) -> None:
        try:
            await mdns.ask(name)
        except TransportError as exc:
            _logger.info("discovery: %s", exc.what)
        finally:
            self._names.end_asking(name)
            self._wake.set()


def _read_clocks() -> Clocks:
    return Clocks(time.monotonic(), time.time())


def _remade(before: RankedAdapters, now: RankedAdapters) -> set[str]:
    """Return the addresses that stand on another interface than before, of the same name or not."""
    indexes = {a: adapter.index for adapter in before.used for a in adapter.addresses}
    return {
        address
        for adapter in now.used
        for address in adapter.addresses
        if indexes.get(address, adapter.index) != adapter.index
    }
