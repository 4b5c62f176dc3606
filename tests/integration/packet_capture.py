"""What goes over the switch of a network, packet for packet; needs no tool but Python.

python -m tests.integration.packet_capture FILE     until standard input ends
"""

from __future__ import annotations

import contextlib
import socket
import struct
import subprocess
import sys
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.integration.namespaces import LocalNetwork

_ALL, _IPV4, _TCP, _UDP = 0x0003, 0x0800, 6, 17
_SYN = 2
_LENGTH = struct.Struct("<I")
_TLS_TYPES = {20, 21, 22, 23}
_TLS_VERSIONS = {b"\x03\x01", b"\x03\x03"}  # as TLS 1.3 writes them for old boxes in between


def capture(file: Path) -> None:
    """Write every packet of every interface into a file, each after its length."""
    with (
        socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ALL)) as packets,
        file.open("wb") as out,
    ):
        packets.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 20)
        packets.settimeout(0.1)
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        while not _is_over():
            with contextlib.suppress(TimeoutError):
                packet = packets.recv(1 << 17)
                out.write(_LENGTH.pack(len(packet)) + packet)


def _is_over() -> bool:
    import select  # noqa: PLC0415 - of this process only

    ready, _, _ = select.select([sys.stdin], [], [], 0)
    return bool(ready)


@dataclass
class Captured:
    """What was captured.

    Attributes:
        raw: All packets, one after the other.
        streams: What was sent in one direction of a TCP connection whose beginning was seen; by
            both ends.
        mdns: What was said by multicast DNS.
    """

    raw: bytes = b""
    streams: dict[tuple[str, int, str, int], bytes] = field(default_factory=dict)
    mdns: bytes = b""

    def all_but_mdns(self) -> bytes:
        return self.raw


@contextlib.contextmanager
def capturing(network: LocalNetwork, file: Path) -> Iterator[Captured]:
    """Capture for as long as the context is open.

    Yields:
        What was captured, once the context is left.
    """
    switch = network.hosts[0].switch
    command = ["ip", "netns", "exec", switch, sys.executable, "-m"]
    process = subprocess.Popen(
        [*command, "tests.integration.packet_capture", str(file)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    captured = Captured()
    try:
        assert process.stdout.readline() == b"ready\n"
        yield captured
        time.sleep(0.3)
    finally:
        process.stdin.close()
        process.stdout.close()
        process.wait(10)
    _read(file, captured)


def tls_records(stream: bytes) -> list[tuple[int, int]]:
    """Return type and length of each record of a stream; fail where one is none."""
    records, at = [], 0
    while at + 5 <= len(stream):
        kind, version = stream[at], stream[at + 1 : at + 3]
        (length,) = struct.unpack_from(">H", stream, at + 3)
        assert kind in _TLS_TYPES, f"byte {at} is {kind}"
        assert version in _TLS_VERSIONS, f"version {version.hex()}"
        assert length <= (1 << 14) + 256
        records.append((kind, length))
        at += 5 + length
    return records


def _read(file: Path, captured: Captured) -> None:
    content = file.read_bytes()
    segments: dict[tuple[str, int, str, int], dict[int, bytes]] = defaultdict(dict)
    begins: dict[tuple[str, int, str, int], int] = {}
    packets, at = [], 0
    while at < len(content):
        (length,) = _LENGTH.unpack_from(content, at)
        packets.append(content[at + 4 : at + 4 + length])
        at += 4 + length
    for packet in packets:
        if len(packet) < 34 or struct.unpack_from(">H", packet, 12)[0] != _IPV4:
            continue
        ip = packet[14 : 14 + struct.unpack_from(">H", packet, 16)[0]]
        payload = ip[4 * (ip[0] & 15) :]
        source, target = socket.inet_ntoa(ip[12:16]), socket.inet_ntoa(ip[16:20])
        ports = struct.unpack_from(">HH", payload)
        if ip[9] == _UDP and 5353 in ports:
            captured.mdns += payload[8:]
        elif ip[9] == _TCP:
            ends = (source, ports[0], target, ports[1])
            (number,) = struct.unpack_from(">I", payload, 4)
            data = payload[4 * (payload[12] >> 4) :]
            if payload[13] & _SYN:
                begins[ends] = number + 1
            elif data and len(data) > len(segments[ends].get(number, b"")):
                segments[ends][number] = data
    captured.raw = b"".join(packets)
    for ends, begin in begins.items():
        captured.streams[ends] = _joined(segments[ends], begin)


def _joined(segments: dict[int, bytes], begin: int) -> bytes:
    """Return a direction of a connection as far as no packet was missed."""
    stream, at = bytearray(), begin
    for number in sorted(segments):
        data = segments[number]
        if number > at:
            break
        stream += data[at - number :] if number + len(data) > at else b""
        at = max(at, number + len(data))
    return bytes(stream)


if __name__ == "__main__":
    capture(Path(sys.argv[1]))
