"""A node's window, and amounts of memory as people write them."""

import asyncio
import os
import pathlib
import subprocess
import sys

import pytest

from engine.cli import node_window
from engine.cli.node_command import little_memory_note, parse_size
from engine.cli.node_window import tell_news
from engine.cli.output import Output
from engine.errors import UsageError
from engine.node import Listening
from engine.pool.node_folder import read_reach
from tests.unit.cli.fake_node import running
from tests.unit.cli.records import KITCHEN, node_status, pool_status


@pytest.mark.parametrize(
    ("text", "num_bytes"),
    [
        ("6GiB", 6 << 30),
        ("6 gib", 6 << 30),
        ("6G", 6 << 30),
        ("1.5GiB", 3 << 29),
        ("512MiB", 512 << 20),
        ("6GB", 6_000_000_000),
        ("800 MB", 800_000_000),
        ("1TiB", 1 << 40),
        ("1000", 1000),
        ("1000 B", 1000),
    ],
)
def test_a_size_is_read_as_it_is_written(text, num_bytes):
    assert parse_size(text) == num_bytes


@pytest.mark.parametrize(
    "text",
    ["", "lots", "0", "0.4", "-1GiB", "6 giraffes", "6GiBs", "GiB", "1e9", "9" * 20, "六G"],
)
def test_what_is_no_size_is_shown_with_how_to_write_one(text):
    with pytest.raises(UsageError, match="is no amount of memory") as caught:
        parse_size(text)
    assert caught.value.advice == "Write it like 6GiB."


def test_a_limit_no_stage_fits_under_is_noted():
    assert little_memory_note(1 << 20) == (
        "--memory 1 MiB is too little for a part of any model: its process alone takes 149 MiB. "
        "This PC will be left out."
    )
    assert little_memory_note(200 << 20) is None
    assert little_memory_note(None) is None


async def no_script(_message, _send):
    return


def test_the_window_says_each_change_once_until_it_is_ended(tmp_path, capfd, monkeypatch):
    monkeypatch.setattr(node_window, "LOOK_EVERY_S", 0.02)

    async def work():
        async with running(tmp_path, no_script) as node:
            node.status = pool_status(node_status(KITCHEN), coordinator=KITCHEN)
            reach = read_reach(tmp_path / "node")
            listening = asyncio.get_running_loop().create_future()
            listening.set_result(
                Listening("wss://h:1", reach.control_port, reach.token, reach.node_id)
            )
            task = asyncio.get_running_loop().create_task(
                tell_news(listening, Output(as_json=False))
            )
            await node.until(lambda: len(node.heard) > 2)
            node.status = pool_status(coordinator=KITCHEN)
            looks = len(node.heard)
            await node.until(lambda: len(node.heard) > looks + 2)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await asyncio.wait_for(node.left.wait(), 5)

    asyncio.run(work())
    assert capfd.readouterr().err.splitlines() == [
        "This PC is the coordinator now.",
        "Found Study (bbbbbb).",
        "Found Laptop (cccccc).",
    ]


def test_a_node_names_itself_and_its_folder_and_says_that_it_has_ended(tmp_path):
    command = [sys.executable, "-m", "engine.cli.entry", "node", "--data", str(tmp_path)]
    command += ["--interface", "lo", "--name", "Kitchen", "--memory", "1MiB"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        lines = [process.stderr.readline()]
        # Other pools may be under way on the loopback: then another PC is.
        while " is the coordinator now." not in lines[-1]:
            assert lines[-1], lines
            lines.append(process.stderr.readline())
        process.terminate()
        rest = process.stderr.read()
        assert process.wait(10) == 0
    said = "".join(lines)
    assert lines[0].startswith("Node Kitchen (")
    assert f"Its data folder is {tmp_path}.\n" in said
    assert "Note: --memory 1 MiB is too little" in said
    assert rest.splitlines()[-1].startswith("Node Kitchen (")
    assert rest.endswith(") has ended.\n")


def test_a_node_whose_reader_left_goes_on_and_ends_well(tmp_path):
    reading, writing = os.pipe()
    command = [sys.executable, "-m", "engine.cli.entry", "node", "--data", str(tmp_path), "--json"]
    with subprocess.Popen([*command, "--interface", "lo"], stdout=writing) as process:
        os.close(writing)
        with pathlib.os.fdopen(reading, "rb") as lines:
            assert b'"listening"' in lines.readline()
        process.terminate()
        assert process.wait(10) == 0
