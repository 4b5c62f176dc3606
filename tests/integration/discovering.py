"""One discovery in a process of its own: prints what it tells, one line of JSON each.

Times are of the monotonic clock, which all processes of one PC share.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import socket
import sys
import time
from dataclasses import replace
from pathlib import Path

from engine.pool.announcement import Announcement
from engine.pool.discovery import Discovery, Timing
from engine.pool.peer_address import parse_peer_address
from engine.pool.sightings import (
    AdaptersChanged,
    Appeared,
    Candidate,
    DiscoveryEvent,
    Vanished,
)


def say(event: str, **fields: object) -> None:
    line = json.dumps({"event": event, "at_s": time.monotonic(), **fields})
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def tell(event: DiscoveryEvent) -> None:
    match event:
        case Appeared():
            said = event.announcement
            say(
                "appeared",
                node=event.run_id,
                addresses=event.addresses,
                port=event.port,
                flags=sorted(said.flags),
            )
        case Vanished():
            say("vanished", node=event.run_id)
        case AdaptersChanged():
            used = {adapter.name: adapter.addresses for adapter in event.adapters.used}
            ignored = {adapter.name: adapter.reason for adapter in event.adapters.ignored}
            say("adapters", used=used, ignored=ignored)
        case Candidate():
            say("candidate", address=str(event.address), source=event.source)


def usage(discovery: Discovery) -> dict[str, object]:
    return {
        "fds": len(list(Path("/proc/self/fd").iterdir())) - 1,  # one for the listing itself
        "tasks": len(asyncio.all_tasks()),
        "problem": discovery.problem,
        "used": {adapter.name: adapter.addresses for adapter in discovery.adapters.used},
        "ignored": {adapter.name: adapter.reason for adapter in discovery.adapters.ignored},
        "services_ignored": discovery.ignored,
    }


async def answer_questions(discovery: Discovery, announcement: Announcement) -> None:
    """Say how much is in use for each line ``usage``; change the flags for any other line."""
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while word := (await reader.readline()).decode().strip():
        if word == "usage":
            say("usage", **usage(discovery))
        else:
            discovery.change(replace(announcement, flags=frozenset({word})))


async def follow(options: argparse.Namespace) -> None:
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: say("unhandled", what=repr(context)))
    announcement = Announcement(
        run_id=options.node_id,
        token="abcdefghijklm",  # noqa: S106 - nobody is meant
        port=options.port,
        protocol_version=1,
        shard_format=1,
    )
    manual = tuple(Candidate(parse_peer_address(peer), "manual") for peer in options.peer)
    timing = Timing(
        adapters_every_s=options.adapters_every,
        announce_every_s=options.announce_every,
        ttl_s=options.ttl,
        slept_after_s=options.slept_after,
    )
    discovery = Discovery(announcement, tuple(options.interface), manual, timing)
    say("started")
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(discovery.run()), group.create_task(tell_all(discovery))]
        await answer_questions(discovery, announcement)
        for task in tasks:
            task.cancel()
    say("ended", tasks=len(asyncio.all_tasks()))


async def tell_all(discovery: Discovery) -> None:
    while True:
        tell(await discovery.next_event())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("node_id")
    parser.add_argument("--port", type=int, default=7420)
    parser.add_argument("--interface", action="append", default=[])
    parser.add_argument("--peer", action="append", default=[])
    parser.add_argument("--announce-every", type=float, default=10.0)
    parser.add_argument("--ttl", type=float, default=35.0)
    parser.add_argument("--adapters-every", type=float, default=2.0)
    parser.add_argument("--slept-after", type=float, default=8.0)
    parser.add_argument("--host-name", help="what this PC shall be called; in a UTS namespace")
    options = parser.parse_args()
    if options.host_name is not None:
        socket.sethostname(options.host_name)
    asyncio.run(follow(options))


if __name__ == "__main__":
    main()
