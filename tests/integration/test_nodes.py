"""Nodes and stages that die, hang, or meet strangers: a reason, in time, and nothing left."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import ExitStack, suppress

import msgspec
import numpy as np
import psutil
import pytest

from engine.cli.local_pool import PoolOptions
from engine.cli.preparation import Division
from engine.domain import LayerRange, MicroBatch, NodeId, SequenceId, SequenceStep
from engine.errors import (
    DaisyError,
    PeerTimeoutError,
    PeerUnreachableError,
    StageProcessDiedError,
)
from engine.messages.chain import Placement, StageFailed, StagePlace, StageReady
from engine.messages.codec import decode, encode_control, encode_micro_batch
from engine.messages.control import (
    Accepted,
    AnswerProgress,
    Cancel,
    ErrorReport,
    Finished,
    Generate,
    TextDelta,
)
from engine.pipeline.placed_stage import CHAIN_LIVENESS
from tests.integration.daisy import wait_gone
from tests.integration.pool import RunningPool, answered, chat, request, shards

pytestmark = [pytest.mark.processes, pytest.mark.embedded, pytest.mark.together]

GONE_WITHIN_S = 20.0  # on a busy machine
FAILS_WITHIN_S = 4.0
FRANCE = "What is the capital of France?"
PARIS = "The capital of France is Paris."
# One thread a stage: three of them would fight for the cores.
OPTIONS = PoolOptions(mode="exact", context_tokens=768, max_sequences=2, num_threads=1)


@pytest.fixture(scope="module")
def folder(embedded, data_dir):
    return shards(None, Division(num_stages=3), data_dir)


@pytest.fixture(scope="module")
def pool(folder):
    # Nothing lasting is done to this one.
    running = RunningPool(folder, OPTIONS)
    yield running
    running.close()


@pytest.fixture
def doomed(folder):
    # One to break.
    running = RunningPool(folder, OPTIONS)
    yield running
    running.close()


def endless():
    return request(prompt="Once upon a time", ignore_eos=True)


def works(pool):
    answer = pool.ask(chat(FRANCE, max_tokens=16))
    assert (answer.text, answer.finish_reason) == (PARIS, "stop")


async def under_way(connection, asked, num_tokens=5):
    """Ask, and return when that many tokens have come."""
    await connection.send(encode_control(asked))
    count = 0
    while count < num_tokens:
        message = decode(await connection.receive())
        assert isinstance(message, Accepted | AnswerProgress | TextDelta), message
        if isinstance(message, TextDelta):
            count += len(message.token_ids)


async def until_it_ends(connection):
    while True:
        await connection.receive()


async def end_of(connection):
    while isinstance(message := decode(await connection.receive()), TextDelta):
        pass
    return message


def broken_by(pool, deed, within_s):
    """Do something to a pool in the middle of an answer; return the report and the seconds."""

    async def test():
        connection = await pool.connect()
        await under_way(connection, endless())
        began = time.monotonic()
        deed()
        async with asyncio.timeout(within_s):
            report = await end_of(connection)
        seconds = time.monotonic() - began
        # Whoever asks next is told the same, at once, and so is the one after.
        for _ in range(2):
            with pytest.raises(DaisyError) as refusal:
                async with asyncio.timeout(1.0):
                    await answered(connection, chat(FRANCE))
            assert refusal.value.what == report.what
        await connection.close("Done.")
        return report, seconds

    report, seconds = pool.run(test())
    assert isinstance(report, ErrorReport)
    assert report.advice
    return report, seconds


# ---- what breaks the chain --------------------------------------------------------------------


@pytest.mark.alone
def test_the_heads_own_stage_that_is_killed_is_named_like_any_other(doomed):
    report, seconds = broken_by(doomed, doomed.stage_process(0).kill, FAILS_WITHIN_S)
    assert seconds < FAILS_WITHIN_S
    assert report.code == StageProcessDiedError.code
    assert "Stage 0" in report.what
    assert "SIGKILL" in report.what


@pytest.mark.alone
def test_a_stage_process_that_is_killed_fails_the_request_with_its_name_and_signal(doomed):
    victim = doomed.stage_process(1)
    report, seconds = broken_by(doomed, victim.kill, FAILS_WITHIN_S)
    assert seconds < FAILS_WITHIN_S
    assert report.code == StageProcessDiedError.code
    assert "Stage 1" in report.what
    assert "SIGKILL" in report.what
    # The nodes stay, all three of them, and so do the other stages.
    assert all(doomed.node(i).is_running() for i in range(3))
    assert doomed.stage_process(0).is_running()
    assert doomed.stage_process(2).is_running()
    assert not doomed.node(1).children()

    async def place_again():
        """The nodes can load again, and the answer is right again."""
        links = [await doomed.connect(stage) for stage in range(3)]
        placed = again(doomed, epoch=2)
        for link in links:
            await link.send(encode_control(placed))
        told = [decode(await link.receive()) for link in links]
        assert all(isinstance(answer, StageReady) and answer.epoch == 2 for answer in told), told
        for link in links:
            await link.close("Done.")

    doomed.run(place_again())
    works(doomed)


def again(pool, epoch, max_sequences=2):
    nodes, stages = pool.pool.nodes, pool.pool.stages
    return Placement(
        epoch=epoch,
        manifest_sha256=pool.folder.manifest_sha256,
        context_tokens=OPTIONS.context_tokens,
        max_sequences=max_sequences,
        stages=tuple(
            StagePlace(
                node_id=node.node_id,
                address=node.address,
                stage_index=index,
                layers=stage.layers,
                mode="exact",
            )
            for index, (node, stage) in enumerate(zip(nodes, stages, strict=True))
        ),
    )


@pytest.mark.alone
def test_a_node_that_is_killed_fails_the_request_and_takes_its_stage_along(doomed):
    node, stage = doomed.node(1), doomed.stage_process(1)
    report, seconds = broken_by(doomed, node.kill, FAILS_WITHIN_S)
    assert seconds < FAILS_WITHIN_S
    assert report.code == PeerUnreachableError.code
    assert "Stage 1" in report.what
    wait_gone([stage], 5)
    assert doomed.node(0).is_running()
    assert doomed.node(2).is_running()


@pytest.mark.alone
def test_a_node_that_hangs_is_given_up_by_its_silence(doomed):
    node = doomed.node(1)
    report, seconds = broken_by(doomed, node.suspend, 25)
    # What it last said may have been said a while before it was stopped.
    assert CHAIN_LIVENESS.ping_after_s < seconds < 25
    assert report.code == PeerTimeoutError.code
    assert "Stage 1" in report.what


# ---- askers that go away ----------------------------------------------------------------------


def test_askers_that_vanish_give_back_their_places_and_their_blocks(pool):
    """Six answers that would fill the caches are left alone; two places hold them all in turn."""

    async def vanish():
        for _ in range(6):
            connection = await pool.connect()
            await under_way(connection, endless())
            connection.abort()
        began = time.monotonic()
        # Both places at once, each with all the context it may have.
        long = request(prompt="word " * 700, max_tokens=2)
        both = await asyncio.gather(pool.asked(long), pool.asked(long))
        assert [len(answer.token_ids) for answer in both] == [2, 2]
        return time.monotonic() - began

    pool.run(vanish())
    works(pool)


@pytest.mark.alone
def test_a_cancel_is_answered_at_any_moment(pool):
    async def cancel(after):
        connection = await pool.connect()
        asked = endless()
        if after is None:  # before the prompt is even counted
            await connection.send(encode_control(asked))
        else:
            await under_way(connection, asked, after)
        began = time.monotonic()
        await connection.send(encode_control(Cancel(request_id=asked.request_id)))
        end = None
        while not isinstance(end, Finished):
            end = decode(await connection.receive())
        await connection.close("Done.")
        return end, time.monotonic() - began

    for after in (None, 1, 5):
        end, seconds = pool.run(cancel(after))
        assert end.finish_reason == "cancelled"
        assert end.completion_tokens >= (after or 0)
        assert seconds < 1.0
    works(pool)


def test_a_request_on_a_connection_that_closes_before_it_is_counted_does_no_harm(pool):
    async def hasty():
        for _ in range(5):
            connection = await pool.connect()
            await connection.send(encode_control(endless()))
            connection.abort()

    pool.run(hasty())
    works(pool)


# ---- peers that are none of ours ---------------------------------------------------------------


def place_of(pool, stage):
    host, _, port = pool.pool.nodes[stage].address.removeprefix("wss://").rpartition(":")
    return host, int(port)


def listen_to(strangers, for_s):
    """Take what nodes say to strangers, until they hang up or the time is over."""
    until_s = time.monotonic() + for_s
    for stranger in strangers:
        with suppress(OSError):
            stranger.settimeout(max(0.001, until_s - time.monotonic()))
            while stranger.recv(4096):
                pass


def on_all_stages(pool, misbehave):
    """Do something to each of the three nodes at the same time."""

    async def all_three():
        await asyncio.gather(*(misbehave(stage) for stage in range(3)))

    pool.run(all_three())


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"\0" * 64,
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET /other HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(256)),
        b"A" * 100_000,
    ],
)
def test_a_stranger_on_the_port_changes_nothing(pool, said):
    with ExitStack() as stack:
        strangers = [
            stack.enter_context(socket.create_connection(place_of(pool, stage), timeout=5))
            for stage in range(3)
        ]
        for stranger in strangers:
            stranger.sendall(said)
        listen_to(strangers, for_s=0.3)
    works(pool)


def write_raw(connection, frame):
    """Write past our own checks."""
    connection._writer.write(len(frame).to_bytes(4, "little") + frame)


@pytest.mark.parametrize(
    "frame",
    [
        b"garbage",
        b"DZ\x01\x00",
        b"DZ\x01\x00\x1e\x00\x00\x00\xff\xff\xff\xff",  # Generate, and no msgpack
        b"DZ\x01\x00\x00\x01\x00\x00" + b"\xff" * 64,  # a micro-batch of nonsense
        b"DZ\x01\x00\x02\x01\x00\x00" + b"\0" * 24,  # sampled tokens nobody asked for
        b"",
        encode_control(Finished("x", "stop", 1, 1, None, 0.0, 0.0)),  # nobody asked the asker
    ],
)
def test_a_peer_that_breaks_the_protocol_loses_its_connection_only(pool, frame):
    async def misbehave(stage):
        other = await pool.connect(stage)
        connection = await pool.connect(stage)
        write_raw(connection, frame)
        with suppress(TimeoutError, DaisyError):
            async with asyncio.timeout(0.5):
                await connection.receive()
        # A peer that keeps the rules is not thrown out with it.
        await other.send(encode_control(Cancel(request_id="none")))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await other.receive()
        await other.close("Done.")
        await connection.close("Done.")

    on_all_stages(pool, misbehave)
    works(pool)


@pytest.mark.parametrize("past", [[(1, 0, 1, 1)], [(1, 0, 1, 1)] * 999])
def test_a_malformed_micro_batch_costs_its_sender_the_connection_not_the_stage(pool, past):
    batch = MicroBatch(9, 1, (SequenceStep(SequenceId(1), 0, 1, 1),), np.zeros(1, np.int32))
    frame = bytearray(encode_micro_batch(batch))
    frame[-4:] = (-5).to_bytes(4, "little", signed=True)  # the only token id
    told = bytes(frame) if len(past) == 1 else bytes(frame[:40])

    async def misbehave(stage):
        connection = await pool.connect(stage)
        write_raw(connection, told)
        with pytest.raises(DaisyError):
            async with asyncio.timeout(5):
                await connection.receive()

    on_all_stages(pool, misbehave)
    works(pool)


def test_a_part_of_no_kind_is_refused_and_the_node_stays(pool):
    async def ask_oddly():
        connection = await pool.connect(0)
        content = [{"type": [], "text": "a"}]
        asked = Generate(request_id="odd", messages=({"role": "user", "content": content},))
        await connection.send(encode_control(asked))
        async with asyncio.timeout(10):
            answer = decode(await connection.receive())
        assert isinstance(answer, ErrorReport)
        assert answer.code == "usage"
        await connection.close("Done.")

    pool.run(ask_oddly())
    works(pool)


def place(**changes):
    line = StagePlace(
        node_id=NodeId("elsewhere"),
        address="wss://127.0.0.1:9",
        stage_index=0,
        layers=LayerRange(0, 1),
    )
    return msgspec.structs.replace(line, **changes)


@pytest.mark.parametrize(
    "stages",
    [(), (place(),), (place(stage_index=7, node_id=NodeId("node-1")),)],
    ids=["of nobody", "of another PC", "out of order"],
)
def test_a_placement_that_is_not_for_a_node_does_not_end_what_runs_there(pool, stages):
    async def misplace(stage):
        connection = await pool.connect(stage)
        placed = Placement(
            epoch=1, manifest_sha256="0" * 64, context_tokens=64, max_sequences=1, stages=stages
        )
        await connection.send(encode_control(placed))
        async with asyncio.timeout(10):
            answer = decode(await connection.receive())
        assert isinstance(answer, StageFailed)
        await connection.close("Done.")

    on_all_stages(pool, misplace)
    works(pool)


def test_s09_a_websocket_without_tls_is_answered_with_nothing(pool):
    handshake = (
        b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    )
    for stage in range(3):
        with socket.create_connection(place_of(pool, stage), timeout=5) as peer, suppress(OSError):
            peer.sendall(handshake)
            assert b"HTTP" not in peer.recv(4096)
    works(pool)


def test_the_same_name_for_two_requests_ends_that_connection(pool):
    async def twice():
        connection = await pool.connect()
        asked = endless()
        await under_way(connection, asked, 1)
        await connection.send(encode_control(asked))
        with pytest.raises(DaisyError):
            await until_it_ends(connection)

    pool.run(twice())
    works(pool)


# ---- placements and ends -----------------------------------------------------------------------


def test_a_placer_that_vanishes_while_a_stage_loads_leaves_no_process(folder):
    running = RunningPool(folder, OPTIONS)
    try:
        head, old = running.node(0), running.stage_process(0)

        async def vanish():
            connection = await running.connect()
            # With other room for sequences, so that the stage there is can't go on.
            await connection.send(encode_control(again(running, epoch=2, max_sequences=1)))
            while not [c for c in head.children() if c != old]:  # noqa: ASYNC110 - a process's
                await asyncio.sleep(0.02)
            connection.abort()

        running.run(vanish())
        wait_gone([old], GONE_WITHIN_S)
        deadline = time.monotonic() + GONE_WITHIN_S
        while head.children() and time.monotonic() < deadline:
            running.run(asyncio.sleep(0.05))
        assert not head.children()
        assert head.is_running()
    finally:
        running.close()


def test_a_node_and_its_stage_end_with_whoever_started_them(folder):
    program = (
        "import asyncio, sys\n"
        "from pathlib import Path\n"
        "from engine.cli.local_pool import PoolOptions, open_local_pool\n"
        "from engine.pipeline.shard_folder import open_shard_folder\n"
        "async def main():\n"
        "    folder = open_shard_folder(Path(sys.argv[1]))\n"
        "    async with open_local_pool(folder, PoolOptions(context_tokens=64)):\n"
        "        print('ready', flush=True)\n"
        "        await asyncio.sleep(60)\n"
        "asyncio.run(main())\n"
    )
    starter = subprocess.Popen(
        [sys.executable, "-c", program, str(folder.path)], stdout=subprocess.PIPE
    )
    try:
        assert starter.stdout.readline() == b"ready\n"
        family = psutil.Process(starter.pid).children(recursive=True)
        assert len(family) == 6
    finally:
        os.kill(starter.pid, signal.SIGKILL)
        starter.wait()
        starter.stdout.close()
    wait_gone(family, GONE_WITHIN_S)
