"""PCs of one network, made of network namespaces joined by a bridge.

Each host has a network stack of its own, so that mDNS, cables and addresses are real; files and
processes are this machine's. The switch is a namespace too, so nothing of this machine's own
network is touched. Needs root and Linux.

    with local_network(3) as network:
        process = network.hosts[0].start([sys.executable, "-m", "engine"])
        pull_cable(network.hosts[0])

``network_faults`` holds what can go wrong.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

PREFIX = "dzt"  # of every namespace made here: dzt-<pid>-<start time>-<what>
MAX_HOSTS = 5
COMMAND_S = 10.0


class NetworkCommandError(Exception):
    """A command that sets up the network failed."""


def run_command(*words: object) -> str:
    """Run a command to its end and return what it printed."""
    command = [str(word) for word in words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_S, check=False)
    if done.returncode:
        raise NetworkCommandError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


@dataclass
class Host:
    """One PC of the network.

    Attributes:
        name: Of its namespace.
        number: From 1; its first address is 10.83.0.<number>.
    """

    name: str
    number: int
    switch: str
    interfaces: dict[str, str] = field(default_factory=dict)  # name to address
    processes: list[subprocess.Popen[Any]] = field(default_factory=list)

    @property
    def address(self) -> str:
        """Return the address of its first interface."""
        return self.interfaces["eth0"]

    def ip(self, *words: object) -> str:
        """Run ``ip`` inside."""
        return run_command("ip", "-netns", self.name, *words)

    def start(self, command: Sequence[object], **options: Any) -> subprocess.Popen[Any]:
        """Start a process inside; its pid is the command's own. It ends with the network."""
        words = ["ip", "netns", "exec", self.name, *map(str, command)]
        process = subprocess.Popen(words, **options)
        self.processes.append(process)
        return process

    def run(self, command: Sequence[object], within_s: float = COMMAND_S) -> str:
        """Run a command inside to its end and return what it printed."""
        words = ["ip", "netns", "exec", self.name, *map(str, command)]
        done = subprocess.run(
            words, stdout=subprocess.PIPE, text=True, timeout=within_s, check=True
        )
        return done.stdout

    def plug_in(self, interface: str, address: str | None = None) -> None:
        """Lay a cable from a new interface to the switch.

        Args:
            interface: Such as ``eth1``.
            address: IPv4 without a mask; none for an interface without.
        """
        port = self.port(interface)
        run_ip(self.switch, "link", "add", port, "type", "veth", "peer", "name", interface,
            "netns", self.name)  # fmt: skip
        run_ip(self.switch, "link", "set", port, "master", "br0", "up")
        self.ip("link", "set", interface, "up")
        if address is not None:
            self.ip("addr", "add", f"{address}/16", "broadcast", "+", "dev", interface)
            self.interfaces[interface] = address

    def remove(self, interface: str) -> None:
        """Take an interface out of the PC."""
        self.ip("link", "del", interface)
        self.interfaces.pop(interface, None)

    def sleep(self) -> None:
        """Stop every process that was started here."""
        self._signal(signal.SIGSTOP)

    def wake_up(self) -> None:
        """Undo ``sleep``."""
        self._signal(signal.SIGCONT)

    def port(self, interface: str) -> str:
        """Return the name of the other end of an interface's cable, in the switch."""
        return f"h{self.number}{interface}"[:15]

    def close(self) -> None:
        """End every process that was started here."""
        for process in self.processes:
            process.kill()
        for process in self.processes:
            process.wait(COMMAND_S)
            for pipe in filter(None, (process.stdin, process.stdout, process.stderr)):
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()

    def _signal(self, number: signal.Signals) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(number)


@dataclass
class LocalNetwork:
    """Hosts on one switch."""

    hosts: list[Host]


@contextlib.contextmanager
def local_network(num_hosts: int, *, is_plugged_in: bool = True) -> Iterator[LocalNetwork]:
    """Make a network of hosts with one interface each, ``eth0``; all of it is gone at the end.

    Skips the test, with the reason, where the system does not allow it.

    Args:
        num_hosts: 1 to 5.
        is_plugged_in: Whether they have an interface at all.

    Yields:
        The network.
    """
    if not 1 <= num_hosts <= MAX_HOSTS:
        raise ValueError(f"{num_hosts} hosts; 1 to {MAX_HOSTS} can be made.")
    if (reason := why_not()) is not None:
        pytest.skip(reason)
    remove_leftovers()
    names = [f"{_own_prefix()}-{_next_number()}{i}" for i in range(num_hosts + 1)]
    switch, *host_names = names
    hosts = [Host(name, i + 1, switch) for i, name in enumerate(host_names)]
    try:
        for name in names:
            run_command("ip", "netns", "add", name)
            run_ip(name, "link", "set", "lo", "up")
        run_ip(
            switch, "link", "add", "br0", "type", "bridge", "mcast_snooping", 0, "forward_delay", 0
        )
        run_ip(switch, "link", "set", "br0", "up")
        if is_plugged_in:
            for host in hosts:
                host.plug_in("eth0", f"10.83.0.{host.number}")
        yield LocalNetwork(hosts)
    finally:
        for host in hosts:
            host.close()
        for name in names:
            _delete(name)


@cache
def why_not() -> str | None:
    """Return why no network can be made here; None if one can."""
    if sys.platform != "linux":
        return "network namespaces are Linux's"
    if os.geteuid() != 0:
        return "making network namespaces needs root"
    missing = [tool for tool in ("ip", "bridge", "tc") if shutil.which(tool) is None]
    if missing:
        return f"iproute2 is not installed: no {', '.join(missing)}"
    name = f"{_own_prefix()}-try"
    try:
        run_command("ip", "netns", "add", name)
        run_ip(name, "link", "add", "br0", "type", "bridge")
        run_ip(name, "link", "add", "eth0", "type", "veth", "peer", "name", "eth1")
    except NetworkCommandError as exc:
        return f"the system does not allow it: {exc}"
    finally:
        _delete(name)
    return None


def remove_leftovers() -> None:
    """Remove the namespaces of runs that are dead, and end what still runs in them."""
    names = [line.split()[0] for line in run_command("ip", "netns", "list").splitlines()]
    for name in filter(_is_leftover, names):
        for pid in run_command("ip", "netns", "pids", name).split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        _delete(name)


def _is_leftover(name: str) -> bool:
    parts = name.split("-")
    return len(parts) == 4 and parts[0] == PREFIX and not _is_alive(int(parts[1]), int(parts[2]))


def _is_alive(pid: int, started_s: int) -> bool:
    try:
        return int(psutil.Process(pid).create_time()) == started_s
    except psutil.NoSuchProcess:
        return False


def _own_prefix() -> str:
    return f"{PREFIX}-{os.getpid()}-{int(psutil.Process().create_time())}"


_made = 0


def _next_number() -> int:
    global _made  # noqa: PLW0603 - names are per process
    _made += 1
    return _made * 10


def run_ip(namespace: str, *words: object) -> str:
    """Run ``ip`` in a namespace."""
    return run_command("ip", "-netns", namespace, *words)


def _delete(name: str) -> None:
    if Path("/run/netns", name).exists():
        with contextlib.suppress(NetworkCommandError):
            run_command("ip", "netns", "del", name)


def eventually(what: Any, within_s: float, every_s: float = 0.05) -> Any:
    """Return what a function returns once that is true; fail when it takes too long."""
    deadline = time.monotonic() + within_s
    while not (found := what()):
        if time.monotonic() > deadline:
            pytest.fail(f"not within {within_s:g} s: {getattr(what, '__doc__', None) or what}")
        time.sleep(every_s)
    return found
