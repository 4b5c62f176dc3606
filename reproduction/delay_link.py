"""A link of a set delay between nodes of this PC, with real TCP on both ends of it.

The kernel here has no netem. Packets to and from the nodes' ports are routed into a TUN device,
and a process of its own puts each back into it when its time has come. Both ends are addresses of
one network namespace, so nodes, pools and commands need to know nothing of it: the one thing asked
of a pool is that its nodes' ports are known beforehand (``PoolOptions.base_port``).

The namespace is this process's own (``enter_own_network``), is gone with it, and needs root.
"""

from __future__ import annotations

import json
import os
import socket
import statistics
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from deadline_queue import LinkSettings

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

DEVICE = "daisy-delay"
TABLE = 100
CHECK_PORT = 6999  # of the round trips that are measured before an arm
BASE_PORT = 7000  # of the first node
NUM_CHECKS = 40
MAX_CALIBRATIONS = 3
CALIBRATED_MS = 0.1
TOLERANCE_MS = 0.5
_ENTERED = "DAISY_OWN_NETWORK"
_LOOPBACK = "127.0.0.1"
_COMMAND_S = 10.0
_MTU = 1500


class LinkError(Exception):
    """The link can't be made, or is not what it should be; says why."""


def enter_own_network() -> None:
    """Start this program again in a network namespace of its own, unless it is in one."""
    if os.environ.get(_ENTERED) == "1":
        _run("ip", "link", "set", "lo", "up")
        return
    os.environ[_ENTERED] = "1"
    command = ["unshare", "--net", "--", sys.executable, *sys.orig_argv[1:]]
    os.execvp(command[0], command)  # noqa: S606 - the system's own


@dataclass(frozen=True, slots=True)
class RoundTrips:
    """Round trips over a link, measured.

    Attributes:
        target_ms: As set.
        p50_ms: Of them.
        p95_ms: Of them.
        all_ms: Each, in order.
    """

    target_ms: float
    p50_ms: float
    p95_ms: float
    all_ms: list[float]

    @property
    def is_as_set(self) -> bool:
        """Whether the median is the target, within ``TOLERANCE_MS``."""
        return abs(self.p50_ms - self.target_ms) <= TOLERANCE_MS

    def __str__(self) -> str:
        return f"{self.target_ms:g} ms set, p50 {self.p50_ms:.2f}, p95 {self.p95_ms:.2f}"


class DelayLink:
    """The link between the ports of some nodes.

    Thread: the one that made it.
    """

    def __init__(self, relay: subprocess.Popen[str], ports: Sequence[int]) -> None:
        """Take over a relay that runs.

        Args:
            relay: Its process.
            ports: Whose packets it may be given.
        """
        self._relay = relay
        self._ports = tuple(ports)
        self._is_routed = False
        self._settings: LinkSettings | None = None
        self.pid = relay.pid

    def set(self, settings: LinkSettings | None) -> dict[str, float]:
        """Change what the link does; what is under way is not touched.

        Args:
            settings: None takes the ports off the link: plain loopback.

        Returns:
            What the relay has carried so far, and the CPU time it took.
        """
        self._route(is_on=settings is not None)
        self._settings = settings
        return self.carried()

    def carried(self) -> dict[str, float]:
        """Return what the relay has carried so far, and the CPU time it took.

        Raises:
            LinkError: The relay has ended.
        """
        order = json.dumps(asdict(self._settings or LinkSettings()))
        if self._relay.stdin is None or self._relay.stdout is None:
            raise LinkError("The relay has no pipes.")
        try:
            self._relay.stdin.write(order + "\n")
            self._relay.stdin.flush()
        except BrokenPipeError as exc:
            raise LinkError("The process that delays packets has ended.") from exc
        line = self._relay.stdout.readline()
        if not line:
            raise LinkError("The process that delays packets has ended.")
        return dict(json.loads(line))

    def check(self, num_checks: int = NUM_CHECKS) -> RoundTrips:
        """Measure round trips of one small packet over the link as it is set.

        Args:
            num_checks: How many.
        """
        settings = self._settings
        extra = 0.0 if settings is None else settings.one_way_ms + settings.jitter_ms / 2
        all_ms = _round_trips(num_checks)
        cuts = statistics.quantiles(all_ms, n=20)
        return RoundTrips(2 * extra, cuts[9], cuts[18], all_ms)

    def calibrated(self, settings: LinkSettings) -> RoundTrips:
        """Change what the link does, less what it takes by itself to pass packets on.

        Args:
            settings: As they shall be seen from outside.

        Returns:
            Round trips measured thereafter.

        Raises:
            LinkError: Their median is off by more than ``TOLERANCE_MS``.
        """
        self.set(settings)
        seen = wanted = self.check()
        for _ in range(MAX_CALIBRATIONS):
            if abs(seen.p50_ms - wanted.target_ms) <= CALIBRATED_MS:
                break
            used = self._settings or settings
            late_ms = (seen.p50_ms - wanted.target_ms) / 2
            self.set(replace(used, one_way_ms=max(0.0, used.one_way_ms - late_ms)))
            seen = replace(self.check(), target_ms=wanted.target_ms)
        if not seen.is_as_set:
            raise LinkError(f"The link is not as it was set: {seen}.")
        return seen

    def _route(self, *, is_on: bool) -> None:
        if is_on == self._is_routed:
            return
        self._is_routed = is_on
        for port in (*self._ports, CHECK_PORT):
            for way in ("sport", "dport"):
                # "iif lo" are packets made here: what comes back out of the device is for us.
                rule = ("iif", "lo", "ipproto", "tcp", way, str(port), "lookup", str(TABLE))
                _run("ip", "rule", "add" if is_on else "del", "pref", "10", *rule)


@contextmanager
def delay_link(ports: Sequence[int], seed: int = 0) -> Iterator[DelayLink]:
    """Lay a link between the ports of this namespace; plain loopback until it is set.

    Args:
        ports: The nodes'.
        seed: Of the jitter.

    Yields:
        The link, for as long as the context is open.

    Raises:
        LinkError: This process is in no namespace of its own, or may not make one.
    """
    if os.environ.get(_ENTERED) != "1":
        raise LinkError("A link is laid only in a network of one's own: enter_own_network() first.")
    command = [sys.executable, str(Path(__file__).parent / "delay_relay.py"), DEVICE, str(seed)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    ) as relay:
        try:
            if relay.stdout is None or not relay.stdout.readline():
                raise LinkError("No TUN device can be made; it needs root and /dev/net/tun.")
            _set_up()
            yield DelayLink(relay, ports)
        finally:
            if relay.stdin is not None:
                relay.stdin.close()
            relay.wait(_COMMAND_S)


def _set_up() -> None:
    """Let packets between two addresses of this namespace leave it, and come back."""
    for name, value in (("route_localnet", 1), ("accept_local", 1), ("rp_filter", 0)):
        Path(f"/proc/sys/net/ipv4/conf/{DEVICE}/{name}").write_text(f"{value}\n", "ascii")
    Path("/proc/sys/net/ipv4/conf/all/rp_filter").write_text("0\n", "ascii")
    _run("ip", "link", "set", DEVICE, "mtu", str(_MTU), "up")
    _run("ip", "route", "add", "default", "dev", DEVICE, "src", _LOOPBACK, "table", str(TABLE))
    # The local table is asked first of all by default, and would keep every packet here.
    _run("ip", "rule", "add", "pref", "20", "lookup", "local")
    _run("ip", "rule", "del", "pref", "0")


def _run(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True, timeout=_COMMAND_S, check=False)
    if done.returncode:
        raise LinkError(f"{' '.join(words)}: {done.stderr.strip()}")


def _round_trips(num_checks: int) -> list[float]:
    with socket.create_server((_LOOPBACK, CHECK_PORT)) as server:
        echo = threading.Thread(target=_echo_once, args=(server,), daemon=True)
        echo.start()
        with socket.create_connection((_LOOPBACK, CHECK_PORT)) as client:
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            all_ms = [_round_trip(client) for _ in range(num_checks + 1)][1:]
        echo.join(_COMMAND_S)
    return all_ms


def _round_trip(client: socket.socket) -> float:
    began = time.perf_counter()
    client.sendall(b"x")
    client.recv(1)
    return 1e3 * (time.perf_counter() - began)


def _echo_once(server: socket.socket) -> None:
    connection, _ = server.accept()
    with connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while byte := connection.recv(1):
            connection.sendall(byte)


def main() -> int:
    """Show what links of some delays do to round trips.

    Returns:
        The exit status.
    """
    enter_own_network()
    with delay_link([BASE_PORT]) as link:
        print(f"plain loopback: {link.check()}")
        for one_way_ms in map(float, sys.argv[1:] or ["0", "10", "25", "50"]):
            print(f"{link.calibrated(LinkSettings(one_way_ms))}  {link.carried()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
