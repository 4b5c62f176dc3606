"""``daisy load``, ``unload`` and ``status`` against a node that does as the test says."""

import asyncio
import json
import time

import pytest
from msgspec.structs import replace

from engine.cli import load_command as loading
from engine.cli.arguments import build_parser
from engine.cli.load_command import load_command, unload_command
from engine.cli.output import Output
from engine.cli.status_command import status_command
from engine.errors import (
    InsufficientMemoryError,
    ModelNotFoundError,
    PeerUnreachableError,
    RemoteProtocolError,
    RequestError,
    UsageError,
)
from engine.messages.control import AskPoolStatus, ErrorReport
from engine.messages.deployment import Trouble
from engine.messages.pool_control import LoadModel, UnloadModel
from tests.unit.cli.fake_node import running
from tests.unit.cli.records import (
    KITCHEN,
    NO_ROOM,
    STUDY,
    node_status,
    nothing_to_run,
    pool_status,
    progress,
    record,
    report,
    wish,
)

WHOLE_LOAD = (
    report(None, progress(KITCHEN, "convert", 5, epoch=0), wish_id=None),
    report(record("planning", has_plan=False)),
    report(record("splitting"), progress(KITCHEN, "split", 1, 4, "layers")),
    report(record("loading"), progress(STUDY, "push", 50_000_000, 100_000_000)),
    report(record("warming"), progress(KITCHEN, "warm-up", 1, 1, "steps")),
    report(record("ready", version=9)),
)


def given_for(data, *words):
    return build_parser().parse_args([*words, "--data", str(data)])


def run(command, data, words, script, *, as_json=False, watch=None):
    """Run a command against a node; return what the node heard."""

    async def work():
        output = Output(as_json=as_json)
        async with running(data, script) as node:
            task = asyncio.get_running_loop().create_task(command(given_for(data, *words), output))
            if watch is not None:
                await watch(node, task)
            await task
            return node.heard

    return asyncio.run(work())


def telling(*messages):
    """A script that answers everything by the same messages."""

    async def script(_message, send):
        for message in messages:
            await send(message)

    return script


def events(out):
    return [json.loads(line) for line in out.splitlines()]


# ---- load -----------------------------------------------------------------------------------


def test_a_program_gets_every_report_and_the_end(tmp_path, capfd):
    run(load_command, tmp_path, ["load", "--json"], telling(*WHOLE_LOAD), as_json=True)
    told = events(capfd.readouterr().out)
    assert [e["event"] for e in told] == ["deployment"] * 6 + ["ready"]
    assert told[3]["progress"][0]["step"] == "push"
    assert told[3]["deployment"]["plan"][2]["role"] == "left out"
    ready = told[-1]
    assert (ready["model"], ready["epoch"]) == ("Small", 7)
    assert [s["node_id"] for s in ready["stages"]] == [KITCHEN, STUDY]
    assert ready["seconds"] > 0


def test_a_person_sees_the_plan_once_and_who_runs_what(tmp_path, capfd):
    run(load_command, tmp_path, ["load"], telling(*WHOLE_LOAD))
    out, err = capfd.readouterr()
    assert not out
    assert err.count("Laptop   left out") == 1
    assert "Small: These are the fewest that hold it." in err
    assert "Kitchen  convert" in err
    assert err.splitlines()[-3].startswith("Ready after ")
    assert err.splitlines()[-2:] == [
        "  Kitchen  layers 0..1  takes the questions",
        "  Study    layers 2..3",
    ]
    assert "\x1b" not in err  # no terminal, nothing to draw over


def test_the_node_is_asked_as_the_options_say(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    words = ["load", "models/tiny", "--context", "256", "--users", "3", "--exact"]
    heard = run(
        load_command,
        tmp_path / "data",
        [*words, "--kind", "stateful", "--link-precision", "f32"],
        telling(*WHOLE_LOAD),
    )
    assert heard == [
        AskPoolStatus(),
        LoadModel(
            source=str(tmp_path / "models" / "tiny"),  # the node stands in another folder
            context_tokens=256,
            max_sequences=3,
            kind="stateful",
            mode="exact",
            link_precision="f32",
        ),
    ]


def test_a_plan_whose_links_change_answers_is_labelled(tmp_path, capfd):
    narrow = replace(wish(), link_precision="int8")
    script = telling(*(report(record(phase, wish=narrow)) for phase in ("planning", "ready")))
    run(load_command, tmp_path, ["load", "--link-precision", "int8"], script)
    err = capfd.readouterr().err
    assert err.count("  int8 between PCs: answers differ slightly") == 2, "the plan and the end"


def test_without_a_model_the_embedded_one_is_asked_for(tmp_path, capfd):
    assert run(load_command, tmp_path, ["load"], telling(*WHOLE_LOAD))[1] == LoadModel(source=None)


@pytest.mark.parametrize(
    ("words", "match"),
    [
        (["--context", "1"], "--context is 1;"),
        (["--users", "0"], "--users is 0;"),
        (["--users", "1025"], "--users is 1025; it must be at most 1024."),
    ],
)
def test_numbers_that_make_no_sense_are_said_before_anyone_is_asked(tmp_path, words, match):
    with pytest.raises(UsageError, match=match):
        asyncio.run(load_command(given_for(tmp_path, "load", *words), Output(as_json=True)))


def test_lines_come_every_other_second_where_nothing_can_be_drawn_over(
    tmp_path, capfd, monkeypatch
):
    monkeypatch.setattr(loading, "LINES_EVERY_S", 0.3)
    began_s = time.monotonic()
    many = [report(record("loading"), progress(STUDY, "push", n, 400)) for n in range(400)]

    async def script(_message, send):
        for each in many:
            await send(each)
            await asyncio.sleep(0.002)
        await send(WHOLE_LOAD[-1])

    run(load_command, tmp_path, ["load"], script)
    passed_s = time.monotonic() - began_s
    lines = [line for line in capfd.readouterr().err.splitlines() if line.startswith("Study  push")]
    assert 2 <= len(lines) <= passed_s / 0.3 + 1


def test_a_trouble_the_pool_gets_over_is_a_note(tmp_path, capfd):
    lost = Trouble("peer_unreachable", "Study left.", "Wait.")
    script = telling(report(record("planning", trouble=lost)), *WHOLE_LOAD[2:])
    run(load_command, tmp_path, ["load"], script)
    assert capfd.readouterr().err.count("Study left. The pool tries again.") == 1


# ---- what goes wrong ------------------------------------------------------------------------


def test_a_plan_that_can_not_be_ends_with_its_own_error_and_its_reasons(tmp_path, capfd):
    script = telling(report(record("failed", trouble=NO_ROOM, reason="")))
    with pytest.raises(InsufficientMemoryError) as caught:
        run(load_command, tmp_path, ["load"], script)
    assert (caught.value.what, caught.value.advice) == (NO_ROOM.what, NO_ROOM.advice)
    assert caught.value.exit_code == 5
    err = capfd.readouterr().err
    assert "Small: no place was found for it." in err
    assert "Raise its memory limit by 1.0 GiB." in err
    # It stays wished for; a person must know how to take that back.
    assert err.splitlines()[-1].startswith("The pool tries again when its PCs change.")
    assert "daisy unload" in err


def test_what_the_asked_node_can_not_read_ends_at_once(tmp_path, capfd):
    trouble = Trouble("model_not_found", "There is no folder /x.", "Check the path.")
    with pytest.raises(ModelNotFoundError, match="There is no folder /x") as caught:
        run(load_command, tmp_path, ["load"], telling(report(trouble=trouble, wish_id=None)))
    assert caught.value.exit_code == 3


def test_the_old_model_is_no_news_of_the_new_one(tmp_path, capfd):
    """A program that waits for "ready" must not take the model that still runs for its own."""
    old = report(record("ready", wish=wish("another", "Old")), wish_id=None)
    gone = Trouble("model_not_found", "There is no folder /x.", "Check the path.")
    script = telling(old, replace(old, trouble=gone))
    with pytest.raises(ModelNotFoundError):
        run(load_command, tmp_path, ["load", "/x", "--json"], script, as_json=True)
    told = events(capfd.readouterr().out)
    assert [e["event"] for e in told] == ["deployment"] * 2
    assert [e["deployment"] for e in told] == [None, None]
    assert told[1]["trouble"]["what"] == gone.what


def test_a_wish_that_was_replaced_is_a_failed_request_whatever_the_node_calls_it(tmp_path, capfd):
    other = record("planning", wish=wish("another", "Larger"))
    trouble = Trouble("placement", "Somebody asked for something else.", "See daisy status.")
    script = telling(report(record("loading")), report(other, trouble=trouble, wish_id=None))
    with pytest.raises(RequestError, match="to run Larger meanwhile") as caught:
        run(load_command, tmp_path, ["load"], script)
    assert caught.value.exit_code == 8


@pytest.mark.parametrize("command", [load_command, unload_command])
def test_the_end_of_this_pcs_node_is_said_as_that(tmp_path, command):
    """No firewall stands between a PC and itself."""

    async def work():
        ended = asyncio.Event()

        async def script(_message, _send):
            ended.set()

        async def leave():
            async with running(tmp_path, script):
                await ended.wait()

        node = asyncio.get_running_loop().create_task(leave())
        await asyncio.sleep(0.2)
        name = command.__name__.removesuffix("_command")
        try:
            await command(given_for(tmp_path, name), Output(as_json=True))
        finally:
            await node

    with pytest.raises(PeerUnreachableError, match=r"^The node on this PC has ended\.$") as caught:
        asyncio.run(work())
    assert caught.value.advice == f"Start it again: daisy node --data {tmp_path}."


def test_a_wish_that_was_replaced_is_said(tmp_path, capfd):
    other = report(record("planning", wish=wish("another", "Larger\x1b")), wish_id=None)
    with pytest.raises(RequestError, match="to run Larger  meanwhile"):
        run(load_command, tmp_path, ["load"], telling(report(record("loading")), other))


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (UnloadModel(), RemoteProtocolError),
        (ErrorReport("model_not_found", "No.", "Look."), ModelNotFoundError),
    ],
)
def test_another_answer_is_no_report(tmp_path, answer, error):
    with pytest.raises(error):
        run(load_command, tmp_path, ["load"], telling(answer))


@pytest.mark.parametrize("command", [load_command, unload_command, status_command])
def test_without_a_node_nothing_can_be_asked(tmp_path, command):
    name = command.__name__.removesuffix("_command")
    with pytest.raises(PeerUnreachableError, match="No node of Daisy runs on this PC") as caught:
        asyncio.run(command(given_for(tmp_path, name), Output(as_json=True)))
    assert str(tmp_path) in caught.value.what  # it may have been started with another folder
    assert caught.value.advice == (
        f"Start it: daisy node --data {tmp_path}. If one runs with another folder, name that "
        "folder here as well: --data DIR."
    )
    assert caught.value.exit_code == 7


def test_a_node_that_was_killed_is_none(tmp_path):
    """It could not take back what it wrote: a process that is gone, or a port nobody has."""
    (tmp_path / "node").mkdir()
    for pid in (2**22 + 1, 1):
        reach = {"address": "wss://127.0.0.1:9", "pid": pid}
        (tmp_path / "node" / "reach.json").write_text(json.dumps(reach))
        with pytest.raises(PeerUnreachableError, match="No node of Daisy"):
            asyncio.run(status_command(given_for(tmp_path, "status"), Output(as_json=True)))


# ---- Ctrl-C ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("last", "sentence", "goes_on"),
    [
        (WHOLE_LOAD[0], "Stopped. The pool had not taken it up yet: nothing is loaded.", False),
        (
            report(record("ready", wish=wish("another", "Old")), wish_id=None),
            "Stopped. The pool had not taken it up yet: Old goes on running.",
            False,
        ),
        (WHOLE_LOAD[3], "Stopped showing; the pool goes on loading.", True),
    ],
)
def test_ctrl_c_says_what_goes_on_and_leaves_the_node(tmp_path, capfd, last, sentence, goes_on):
    async def interrupt(node, task):
        await node.until(lambda: LoadModel in map(type, node.heard))
        await asyncio.sleep(0.1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.shield(task)
        await asyncio.wait_for(node.left.wait(), 5)  # a conversion ends by that
        assert UnloadModel() not in node.heard

    with pytest.raises(asyncio.CancelledError):
        run(load_command, tmp_path, ["load"], telling(last), watch=interrupt)
    err = capfd.readouterr().err
    assert sentence in err
    assert ("daisy unload" in err) is goes_on


# ---- unload ---------------------------------------------------------------------------------


def test_unloading_waits_until_nothing_is_to_run(tmp_path, capfd):
    script = telling(report(record("ready")), report(nothing_to_run()))
    assert run(unload_command, tmp_path, ["unload"], script) == [UnloadModel()]
    assert capfd.readouterr().err == "The pool runs no model now.\n"


def test_unloading_tells_a_program_the_end(tmp_path, capfd):
    run(unload_command, tmp_path, ["unload", "--json"], telling(report(None)), as_json=True)
    assert [e["event"] for e in events(capfd.readouterr().out)] == ["deployment", "unloaded"]


def test_what_stops_unloading_is_said(tmp_path, capfd):
    trouble = Trouble("peer_timeout", "No coordinator took it.", "Look at daisy status.")
    with pytest.raises(Exception, match="No coordinator took it") as caught:
        run(unload_command, tmp_path, ["unload"], telling(report(trouble=trouble)))
    assert caught.value.exit_code == 7


# ---- status ---------------------------------------------------------------------------------


def test_status_is_a_table_on_standard_output(tmp_path, capfd):
    run(status_command, tmp_path, ["status"], telling())
    out, err = capfd.readouterr()
    assert out.splitlines()[0] == "Coordinator: Study (bbbbbb), for 3 min 20 s"
    assert len(out.splitlines()) == 10
    assert not err


def test_status_for_programs_is_everything_that_is_known(tmp_path, capfd):
    run(status_command, tmp_path, ["status", "--json"], telling(), as_json=True)
    (event,) = events(capfd.readouterr().out)
    assert event["event"] == "status"
    assert {"coordinator", "term", "nodes", "notes"} <= set(event)


def test_watching_goes_on_until_it_is_stopped(tmp_path, capfd, monkeypatch):
    monkeypatch.setattr("engine.cli.status_command.WATCH_EVERY_S", 0.05)

    async def watch(node, task):
        await node.until(lambda: node.heard.count(AskPoolStatus()) > 2)
        node.status = pool_status(node_status(KITCHEN), coordinator=None)
        await node.until(lambda: node.heard.count(AskPoolStatus()) > 5)
        task.cancel()

    with pytest.raises(asyncio.CancelledError):
        run(status_command, tmp_path, ["status", "--watch"], telling(), watch=watch)
    out = capfd.readouterr().out
    assert "Coordinator: Study" in out
    assert "Coordinator: none yet" in out


def test_watching_outlives_the_node_and_sees_it_come_back(tmp_path, capfd, monkeypatch):
    monkeypatch.setattr("engine.cli.status_command.WATCH_EVERY_S", 0.05)

    async def work():
        output = Output(as_json=False)
        given = given_for(tmp_path, "status", "--watch")
        async with running(tmp_path, telling()) as node:
            task = asyncio.get_running_loop().create_task(status_command(given, output))
            await node.until(lambda: node.heard.count(AskPoolStatus()) > 1)
            await node.until(lambda: "Coordinator: Study" in capfd.readouterr().out)
        await asyncio.sleep(0.3)
        assert "The node on this PC has ended. Start it again:" in capfd.readouterr().out
        async with running(tmp_path, telling()) as node:
            await node.until(lambda: node.heard.count(AskPoolStatus()) > 1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(work())
    assert "Coordinator: Study" in capfd.readouterr().out
