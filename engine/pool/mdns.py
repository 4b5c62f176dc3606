"""One multicast DNS socket pair and its cache; the only file that knows zeroconf.

What zeroconf raises is translated here. It is used through its public calls only, and its
registration without probing: RFC 6762, 8.1 says to skip probing for names known to be unique, and
ours are random ids. That saves the second it takes to be seen.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from ipaddress import IPv4Address
from typing import TYPE_CHECKING, Any

from zeroconf import DNSQuestionType, Error, IPVersion, ServiceStateChange, current_time_millis
from zeroconf.asyncio import AsyncServiceBrowser, AsyncServiceInfo, AsyncZeroconf

from engine.errors import TransportError
from engine.pool.announcement import (
    SERVICE_TYPE,
    Announcement,
    encode_announcement,
    host_name,
    instance_name,
)
from engine.pool.sentences import sentence

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterator

    from zeroconf import Zeroconf


_TYPE_A, _TYPE_TXT, _TYPE_SRV = 1, 16, 33  # RFC 1035, 3.2.2, and RFC 2782
_CLASS_IN = 1
_ASK_WITHIN_S = 2.0
_FOREIGN_ERRORS = (OSError, RuntimeError, ValueError, AssertionError, Error)

_logger = logging.getLogger(__name__)


class Mdns:
    """Announces one node, and keeps what others announced; to be used in one loop.

    Attributes:
        run_id: Of the start of the node that it announces.
    """

    def __init__(self, run_id: str, on_change: Callable[[str, bool], None]) -> None:
        """Open the port; no network is joined before ``use_addresses``.

        Args:
            run_id: Of the start of the node that it will announce.
            on_change: Called in the loop with the full name of a service of ours when a record of
                it is new, and whether the service is still there.

        Raises:
            TransportError: The port can't be opened.
        """
        # Nothing of it is for a terminal: the adapters tell of a cable that was pulled, and errors
        # of ours of the rest.
        logging.getLogger("zeroconf").setLevel(logging.CRITICAL)
        self.run_id = run_id
        self._name = instance_name(run_id)
        self._on_change = on_change
        self._info: AsyncServiceInfo | None = None
        self._browser: AsyncServiceBrowser | None = None
        self._sending: set[asyncio.Future[Any]] = set()
        with _translated():
            self._zeroconf = AsyncZeroconf(interfaces=[], ip_version=IPVersion.V4Only)

    @property
    def label(self) -> bytes:
        """What every announcement of this node has in it, and no other's."""
        label = self._name.partition(".")[0].encode()
        return bytes([len(label)]) + label

    async def use_addresses(self, addresses: tuple[str, ...], remade: Collection[str]) -> None:
        """Join the networks of these addresses of this PC, and leave all others.

        What could not be joined is tried again with the next call, which else does nothing.

        Args:
            addresses: IPv4.
            remade: Those of them whose interface went away and came back as another one; the
                system forgot what had been joined there.

        Raises:
            TransportError: The system refused.

        Cancellation: safe; the next call goes on from there.
        """
        with _translated():
            if remade:
                kept = [address for address in addresses if address not in remade]
                await self._zeroconf.async_update_interfaces(interfaces=kept)
            await self._zeroconf.async_update_interfaces(interfaces=list(addresses))

    async def announce(
        self, announcement: Announcement, addresses: tuple[str, ...], ttl_s: float
    ) -> None:
        """Announce the node from now on, three times within half a second.

        Args:
            announcement: Of the start of ``run_id``.
            addresses: IPv4; with none, nothing is announced.
            ttl_s: How long others may believe it; whole seconds.

        Raises:
            TransportError: It can't be sent.
            LocalProtocolError: The announcement is out of bounds.
        """
        if not addresses:
            return
        self._stop_sending()  # else the old is repeated after the new
        is_first = self._info is None
        self._info = AsyncServiceInfo(
            SERVICE_TYPE,
            self._name,
            port=announcement.port,
            properties=encode_announcement(announcement),
            server=host_name(announcement.run_id),
            host_ttl=int(ttl_s),
            parsed_addresses=list(addresses),
        )
        with _translated():
            self._follow(
                await self._zeroconf.async_register_service(self._info, cooperating_responders=True)
                if is_first
                else await self._zeroconf.async_update_service(self._info)
            )

    def announce_again(self) -> None:
        """Send what is announced once more, so that it goes on to hold.

        Raises:
            TransportError: It can't be sent.
        """
        if self._info is not None:
            zeroconf = self._zeroconf.zeroconf
            with _translated():
                zeroconf.async_send(zeroconf.generate_service_broadcast(self._info, None))

    async def browse(self) -> None:
        """Ask who is there, four times within fourteen seconds, and listen.

        Raises:
            TransportError: It can't be asked.
        """
        with _translated():
            if self._browser is not None:
                await self._browser.async_cancel()
            self._browser = AsyncServiceBrowser(
                self._zeroconf.zeroconf,
                SERVICE_TYPE,
                handlers=[self._changed],
                # Answers to one asker alone reach only one of several nodes on this PC.
                question_type=DNSQuestionType.QM,
            )

    def read(self, name: str) -> tuple[bytes, list[str]] | None:
        """Return the text and IPv4 addresses of a service; None where a record is missing or old.

        Args:
            name: Its full name, one of ours.
        """
        texts = self._holding(name, _TYPE_TXT)
        services = self._holding(name, _TYPE_SRV)
        if not texts or not services:
            return None
        addresses = [
            str(IPv4Address(r.address)) for r in self._holding(services[-1].server, _TYPE_A)
        ]
        return (texts[-1].text, addresses) if addresses else None

    async def ask(self, name: str) -> None:
        """Ask for the records of a service that are missing, for two seconds.

        Raises:
            TransportError: It can't be asked.
        """
        with _translated():
            info = AsyncServiceInfo(SERVICE_TYPE, name)
            milliseconds = _ASK_WITHIN_S * 1000
            await info.async_request(
                self._zeroconf.zeroconf, milliseconds, question_type=DNSQuestionType.QM
            )

    async def close(self, within_s: float) -> None:
        """Say goodbye and close the port, whatever zeroconf does.

        Args:
            within_s: Seconds for the goodbye; after that the sockets are closed without it.

        Cancellation: closes at once.
        """
        self._stop_sending()
        # Outside of any task group: one that waits for a wedged goodbye would be as wedged.
        closing = asyncio.get_running_loop().create_task(self._zeroconf.async_close())
        try:
            await asyncio.wait({closing}, timeout=within_s)
        finally:
            closing.add_done_callback(_log_failure)
            if not closing.done():
                closing.cancel()
                with contextlib.suppress(*_FOREIGN_ERRORS):
                    self._zeroconf.zeroconf.close()

    def _holding(self, name: str, record_type: int) -> list[Any]:
        """Return the records that hold, oldest first.

        One with a second left has been replaced by its owner (RFC 6762, 10.2); zeroconf gives it
        that second anew with every announcement.
        """
        now_ms = current_time_millis()
        records = [r for r in self._cached(name, record_type) if r.ttl > 1]
        holding = [record for record in records if not record.is_expired(now_ms)]
        return sorted(holding, key=lambda record: float(record.created))

    def _cached(self, name: str, record_type: int) -> list[Any]:
        cache = self._zeroconf.zeroconf.cache
        return list(cache.get_all_by_details(name, record_type, _CLASS_IN))

    def _changed(
        self, zeroconf: Zeroconf, service_type: str, name: str, state_change: ServiceStateChange
    ) -> None:
        del zeroconf, service_type
        self._on_change(name, state_change is not ServiceStateChange.Removed)

    def _stop_sending(self) -> None:
        for sending in self._sending:
            sending.cancel()

    def _follow(self, sending: Awaitable[Any]) -> None:
        """Keep a task of zeroconf's until it ends, and see how."""
        future = asyncio.ensure_future(sending)  # noqa: TID251 - it is a task already
        self._sending.add(future)
        future.add_done_callback(self._sending.discard)
        future.add_done_callback(_log_failure)


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    """Turn what zeroconf and its sockets raise into one error of ours.

    Raises:
        TransportError: Something of that kind happened.
    """
    try:
        yield
    except _FOREIGN_ERRORS as exc:
        raise TransportError(
            sentence("mdns", problem=str(exc) or type(exc).__name__),
            "Other PCs can be added by their address.",
        ) from exc


def _log_failure(future: asyncio.Future[Any]) -> None:
    if not future.cancelled() and (error := future.exception()) is not None:
        _logger.info("mdns: %s: %s", type(error).__name__, error)
