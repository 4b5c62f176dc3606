"""``daisy doctor``: the same facts for people and for programs, with a node and without one."""

from __future__ import annotations

import asyncio
import json

import pytest
from msgspec.structs import replace

from engine.cli import doctor_command
from engine.cli.arguments import build_parser
from engine.cli.doctor_words import FINDINGS, FIREWALLS, finding_words
from engine.cli.output import Output
from engine.messages.control import ErrorReport, Ping
from engine.messages.deployment import Trouble
from engine.messages.doctor_control import (
    AdapterTried,
    DevicesTried,
    DeviceTried,
    FirewallSeen,
    NetworkTried,
    TryDevices,
    TryNetwork,
)
from engine.messages.pool_status import AdapterStatus
from engine.pool.findings import Finding
from tests.unit.cli.fake_node import running
from tests.unit.cli.records import KITCHEN, STUDY, node_status, pool_status

STATUS = replace(
    pool_status(
        nodes=(node_status(KITCHEN, hears=()), node_status(STUDY, hears=(KITCHEN,))),
    ),
    adapters=(
        AdapterStatus(name="eth0", addresses=("10.0.0.2",), is_used=True, link="wired"),
        AdapterStatus(name="wlan0", addresses=("10.0.1.2",), is_used=True, link="wireless"),
        AdapterStatus(name="usb0", addresses=("10.0.2.2",), is_used=True),
        AdapterStatus(
            name="docker0", addresses=(), is_used=False, reason="It belongs to containers."
        ),
    ),
)
NETWORK = NetworkTried(
    adapters=(
        AdapterTried(name="eth0", address="10.0.0.2", heard_ms=2.0),
        AdapterTried(name="wlan0", address="10.0.1.2", heard_ms=None),
        AdapterTried(name="usb0", address="10.0.2.2", heard_ms=None, problem="No such\x1b device"),
    ),
    firewall=FirewallSeen(kind="ufw", is_on=True),
    port=7420,
)
DEVICES = DevicesTried(
    devices=(
        DeviceTried(name="CPU", full_name="A CPU", load_s=0.5, token_ms=1.5),
        DeviceTried(
            name="NPU",
            full_name="An NPU",
            trouble=Trouble("compile", "NPU can't run it.", "Update it."),
        ),
    )
)
ANSWERS = {TryNetwork: NETWORK, TryDevices: DEVICES}


def run(data, *, answers=ANSWERS, as_json=False):
    async def script(message, send):
        await send(answers[type(message)])

    async def work():
        given = build_parser().parse_args(["doctor", "--data", str(data)])
        async with running(data, script) as node:
            node.status = STATUS
            await doctor_command.doctor_command(given, Output(as_json=as_json))

    asyncio.run(work())


def test_people_are_told_what_is_wrong_what_to_do_and_what_was_seen(tmp_path, capfd):
    run(tmp_path)
    out, _ = capfd.readouterr()

    assert "! Study hears Kitchen, but Kitchen does not hear Study." in out
    assert "sudo ufw allow 7420/tcp" in out
    assert "! NPU did not compute a token. NPU can't run it." in out
    lines = [line.split() for line in out.splitlines()]
    assert ["eth0", "used", "10.0.0.2", "hears", "itself"] in lines
    assert ["wlan0", "used", "10.0.1.2", "does", "not", "hear", "itself"] in lines
    assert ["Kitchen", ".", "NO"] in lines
    assert ["Study", "yes", "."] in lines
    assert any(line[:2] == ["CPU", "A"] and "1.5" in line for line in lines)
    assert "It belongs to containers." in out
    assert "\x1b" not in out


def test_programs_are_told_the_same_facts(tmp_path, capfd):
    run(tmp_path, as_json=True)
    (event,) = [json.loads(line) for line in capfd.readouterr().out.splitlines()]

    assert event["event"] == "doctor"
    found = {one["code"]: one for one in event["findings"]}
    assert found["one_way"]["fields"] == {"hearer": "Study", "deaf": "Kitchen"}
    assert found["device_failed"]["severity"] == "wrong"
    assert event["hearing"] == {
        "names": ["Kitchen", "Study"],
        "rows": [[None, False], [True, None]],
    }
    assert event["network"]["adapters"][0]["heard_ms"] == 2.0
    assert event["devices"][0]["token_ms"] == 1.5
    assert event["adapters"][3]["reason"] == "It belongs to containers."
    assert event["versions"]["Daisy"]


@pytest.mark.parametrize(
    "answers",
    [
        {
            TryNetwork: ErrorReport(code="usage", what="It is in no network.", advice="Start it."),
            TryDevices: Ping(number=1),
        }
    ],
)
def test_what_could_not_be_tried_is_said_and_the_rest_is_shown(tmp_path, capfd, answers):
    run(tmp_path, answers=answers)
    out, _ = capfd.readouterr()

    assert "! Something could not be tried. It is in no network." in out
    assert "! Something could not be tried. The node answered TryDevices with Ping." in out
    assert "Network adapters of this PC" in out


def test_a_node_that_does_not_answer_is_not_waited_for(tmp_path, capfd, monkeypatch):
    monkeypatch.setattr(doctor_command, "NETWORK_WITHIN_S", 0.05)

    async def script(message, send):
        if isinstance(message, TryDevices):
            await send(DEVICES)

    async def work():
        given = build_parser().parse_args(["doctor", "--data", str(tmp_path)])
        async with running(tmp_path, script):
            await doctor_command.doctor_command(given, Output(as_json=False))

    asyncio.run(work())
    assert "did not answer within 0.05 s" in capfd.readouterr().out


def test_every_finding_of_the_engine_and_every_firewall_has_its_words():
    fields = dict.fromkeys(
        ("n", "hearer", "deaf", "one", "other", "pc", "adapter", "address", "device"), "⟨x⟩"
    )
    for code in FINDINGS:
        what, _ = finding_words(Finding("wrong", code, fields), None)
        assert what
    for kind in FIREWALLS:
        _, advice = finding_words(Finding("hint", "alone", firewall=kind), 7420)
        assert "7420" in advice
