"""Holds the packets of a TUN device for a set time; a process of its own, started by delay_link.

Every packet that comes out of the device goes back into it when its time has come. Settings come
in on standard input as lines of JSON; each is answered with what was carried until then.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import struct
import sys
import time
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING

from deadline_queue import DeadlineQueue, LinkSettings

if TYPE_CHECKING:
    from collections.abc import Iterable

TUNSETIFF = 0x400454CA
IFF_TUN, IFF_NO_PI = 0x0001, 0x1000
IPV4, TCP = 4, 6
MAX_PACKET_BYTES = 65536
BURST = 64  # packets read before those that are due leave
_STDIN, _STDOUT = 0, 1
_PRIORITY = 10


def open_tun(name: str) -> int:
    """Make a TUN device in this network namespace; return it, not blocking.

    Args:
        name: Of the interface.
    """
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    request = struct.pack("16sH22x", name.encode(), IFF_TUN | IFF_NO_PI)
    fcntl.ioctl(device, TUNSETIFF, request)
    return device


def ports_of(packet: bytes) -> tuple[int, int] | None:
    """Return the ports a TCP packet goes from and to; None for any other packet.

    Args:
        packet: IPv4, or something else.
    """
    if len(packet) < 24 or packet[0] >> 4 != IPV4 or packet[9] != TCP:
        return None
    begin = 4 * (packet[0] & 0x0F)
    source, target = struct.unpack_from("!HH", packet, begin)
    return source, target


class Relay:
    """The packets under way, one queue for each direction of each connection."""

    def __init__(self, device: int, seed: int) -> None:
        """Begin with none, and without delay.

        Args:
            device: The TUN device.
            seed: Of the jitter.
        """
        self._device = device
        self._random = Random(seed)
        self._settings = LinkSettings()
        self._queues: dict[tuple[int, int], DeadlineQueue] = {}
        self.num_packets = 0
        self.num_bytes = 0

    def change(self, settings: LinkSettings) -> None:
        """Let packets that come from now on take another time.

        Args:
            settings: Of every link.
        """
        self._settings = settings
        for queue in self._queues.values():
            queue.settings = settings

    def take_packets(self) -> None:
        """Read what has come, and stamp it."""
        for _ in range(BURST):
            try:
                packet = os.read(self._device, MAX_PACKET_BYTES)
            except BlockingIOError:
                return
            ports = ports_of(packet)
            if ports is None:
                continue  # neighbour discovery and the like; nobody waits for it
            queue = self._queues.get(ports)
            if queue is None:
                queue = self._queues[ports] = DeadlineQueue(self._settings, self._random)
            queue.push(packet, time.monotonic_ns())
            self.num_packets += 1
            self.num_bytes += len(packet)

    def release_due(self) -> float | None:
        """Put back what is due; return the seconds until the next packet is, None without one."""
        now_ns = time.monotonic_ns()
        for queue in self._queues.values():
            for packet in queue.pop_due(now_ns):
                with suppress(BlockingIOError):  # lost, as on any link
                    os.write(self._device, packet)
        dues = [due for queue in self._queues.values() if (due := queue.next_due_ns) is not None]
        return max(0, min(dues) - time.monotonic_ns()) / 1e9 if dues else None

    def report(self) -> dict[str, float]:
        """Return what was carried, and the CPU time it took."""
        return {
            "packets": self.num_packets,
            "bytes": self.num_bytes,
            "dropped": sum(queue.num_dropped for queue in self._queues.values()),
            "cpu_s": time.process_time(),
        }


def _be_prompt() -> None:
    """Come before the stages that share the cores: a link does not wait for a processor."""
    with suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(_PRIORITY))


def _orders(data: bytes) -> Iterable[LinkSettings]:
    for line in data.splitlines():
        yield LinkSettings(**json.loads(line))


def main(arguments: list[str]) -> int:
    """Carry packets until standard input ends.

    Args:
        arguments: The device's name and the seed.

    Returns:
        The exit status.
    """
    name, seed = arguments
    relay = Relay(device := open_tun(name), int(seed))
    _be_prompt()
    os.write(_STDOUT, b"{}\n")
    until_due_s: float | None = None
    while True:
        ready, _, _ = select.select([device, _STDIN], [], [], until_due_s)
        if device in ready:
            relay.take_packets()
        if _STDIN in ready:
            data = os.read(_STDIN, 65536)
            if not data:
                return 0
            for settings in _orders(data):
                relay.change(settings)
                os.write(_STDOUT, json.dumps(relay.report()).encode() + b"\n")
        until_due_s = relay.release_due()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
