"""``daisy ask`` and ``chat`` through the node of this PC: what is shown when a PC is lost."""

import asyncio
import io
import json
import os

import pytest

from engine.cli.answerer import open_answerer
from engine.cli.arguments import build_parser, wants_own_chain
from engine.cli.chat_command import chat_command
from engine.cli.commands import ask_command
from engine.cli.output import Output
from engine.errors import PlacementError
from engine.messages.control import (
    Accepted,
    AnswerInterrupted,
    AnswerProgress,
    AnswerResumed,
    Cancel,
    ErrorReport,
    Finished,
    Generate,
    TextDelta,
)
from tests.unit.cli.fake_node import running


def given_for(data, *words):
    return build_parser().parse_args([*words, "--data", str(data)])


def finished(request_id, reason="stop"):
    return Finished(
        request_id=request_id,
        finish_reason=reason,
        prompt_tokens=5,
        completion_tokens=3,
        ttft_s=0.25,
        decode_s=1.0,
        chain_compute_ms=1.0,
        drafted_tokens=4,
        accepted_tokens=2,
    )


def answering(*pieces):
    """A script that answers a question by pieces of text, and by other messages in between."""

    async def script(message, send):
        if not isinstance(message, Generate):
            return
        name = message.request_id
        await send(Accepted(name, prompt_tokens=5, seed=1))
        number = 0
        for piece in pieces:
            if isinstance(piece, str):
                await send(TextDelta(name, number, piece, (number,)))
                number += 1
            else:
                await send(piece(name))
        await send(finished(name))

    return script


def lost(name):
    return AnswerInterrupted(name, "The PC Study\x1b left.")


def resumed(name):
    return AnswerResumed(name, 3.21)


def ask(data, script, *words, as_json=False):
    async def work():
        async with running(data, script) as node:
            await ask_command(given_for(data, "ask", *words), Output(as_json=as_json))
            return node.heard

    return asyncio.run(work())


def test_the_node_of_this_pc_is_asked_and_the_answer_is_alone_on_standard_output(tmp_path, capfd):
    (request,) = ask(tmp_path, answering("Hel", "lo."), "Why?", "--seed", "3")
    assert request.messages == ({"role": "user", "content": "Why?"},)
    assert request.sampling.seed == 3
    out, err = capfd.readouterr()
    assert out == "Hello.\n"
    assert err.splitlines()[0] == "The pool answers, through the node of this PC."
    assert err.splitlines()[-1].startswith("[5 tokens in, 3 out (2 guessed), stop; first token")


def test_the_loss_of_a_pc_is_told_beside_the_answer_whose_text_stays_whole(tmp_path, capfd):
    ask(tmp_path, answering("The sky ", lost, resumed, "is blue."), "Why?")
    out, err = capfd.readouterr()
    assert out == "The sky is blue.\n"
    assert err.splitlines()[1:3] == [
        "A PC was lost; the others take over ... (The PC Study  left.)",
        "They go on, after 3.2 s.",
    ]


def test_a_program_is_told_of_the_loss_between_the_text(tmp_path, capfd):
    ask(tmp_path, answering("a", lost, resumed, "b"), "Why?", "--json", as_json=True)
    told = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    names = ["answered_by", "accepted", "text", "interrupted", "resumed", "text", "finished"]
    assert [e["event"] for e in told] == names
    assert told[0]["who"] == "pool"
    assert told[3]["what"].startswith("The PC Study")
    assert told[4]["pause_s"] == 3.21
    assert (told[-1]["drafted_tokens"], told[-1]["accepted_tokens"]) == (4, 2)


@pytest.mark.parametrize(("words", "speculates"), [((), True), (("--no-speculation",), False)])
def test_a_question_says_whether_it_may_be_guessed_ahead(tmp_path, words, speculates):
    (request,) = ask(tmp_path, answering("a"), "Why?", *words)
    assert request.speculate is speculates


def test_a_notice_begins_a_line_where_both_streams_are_one_file(tmp_path, monkeypatch):
    with (tmp_path / "log").open("w", encoding="utf-8") as log:
        monkeypatch.setattr("sys.stdout", log)
        monkeypatch.setattr("sys.stderr", log)
        output = Output(as_json=False)
        output.text("The sky ", (1,))
        output.aside("Study left.")
        output.text("is blue.", (2,))
    assert (tmp_path / "log").read_text() == "The sky \nStudy left.\nis blue."


def test_an_error_begins_a_line_where_both_streams_are_one_file(tmp_path, monkeypatch):
    with (tmp_path / "log").open("w", encoding="utf-8") as log:
        monkeypatch.setattr("sys.stdout", log)
        monkeypatch.setattr("sys.stderr", log)
        output = Output(as_json=False)
        output.text("The sk", (1,))
        output.error(PlacementError("The node has ended.", "Start it."))
    assert (tmp_path / "log").read_text() == "The sk\nError: The node has ended.\nStart it.\n"


def test_on_a_terminal_a_notice_begins_a_line_and_so_does_what_follows(monkeypatch):
    """Both streams are one terminal there; a notice in the middle of a line would be unreadable."""

    class Terminal(io.TextIOWrapper):
        def isatty(self):
            return True

    screen = Terminal(io.BytesIO(), encoding="utf-8", newline="", write_through=True)
    monkeypatch.setattr("sys.stdout", screen)
    monkeypatch.setattr("sys.stderr", screen)
    output = Output(as_json=False)
    output.text("The sky\x1b[2J ", (1,))
    output.aside("Study left.")
    output.aside("They go on.")
    output.text("is blue.\n", (2,))
    output.aside("Done.")
    assert screen.buffer.getvalue() == b"The sky[2J \nStudy left.\nThey go on.\nis blue.\nDone.\n"


@pytest.mark.parametrize(("delay_s", "is_said"), [(0.9, True), (0.0, False)])
def test_a_question_that_waits_is_said_to_wait(tmp_path, capfd, monkeypatch, delay_s, is_said):
    monkeypatch.setattr("engine.cli.answering.QUIET_S", 0.6)
    answer = answering("Yes.")

    async def script(message, send):
        await asyncio.sleep(delay_s)
        await answer(message, send)
        await asyncio.sleep(0.3)

    ask(tmp_path, script, "Why?")
    out, err = capfd.readouterr()
    assert out == "Yes.\n"
    assert ("The pool has not taken the question yet, for 0.6 s: it loads" in err) is is_said


def test_a_long_wait_is_said_again_and_for_what_it_is(tmp_path, capfd, monkeypatch):
    monkeypatch.setattr("engine.cli.answering.QUIET_S", 0.2)
    monkeypatch.setattr("engine.cli.answering.AGAIN_S", 0.3)

    async def script(message, send):
        await asyncio.sleep(0.35)
        await send(Accepted(message.request_id, prompt_tokens=5, seed=1))
        await asyncio.sleep(0.35)
        await send(TextDelta(message.request_id, 0, "Yes.", (0,)))
        await asyncio.sleep(0.5)  # from here on the person sees that it goes on
        await send(finished(message.request_id))

    ask(tmp_path, script, "Why?")
    waiting = [line for line in capfd.readouterr().err.splitlines() if ", for 0." in line]
    assert [line.split(", for")[0] for line in waiting] == [
        "The pool has not taken the question yet",
        "Waiting for the first token",
    ]


@pytest.mark.parametrize(
    ("told", "why"),
    [
        ({"queue_place": 2, "wait_s": None, "num_read": 0}, "place 2 in the queue."),
        ({"queue_place": 1, "wait_s": 7.0, "num_read": 0}, "place 1 in the queue, about 7.0 s."),
        ({"queue_place": 0, "wait_s": None, "num_read": 4}, "4 tokens of the prompt are read."),
    ],
)
def test_a_long_wait_is_said_with_how_far_it_is(tmp_path, capfd, monkeypatch, told, why):
    monkeypatch.setattr("engine.cli.answering.QUIET_S", 0.1)

    async def script(message, send):
        await send(Accepted(message.request_id, prompt_tokens=5, seed=1))
        await send(AnswerProgress(message.request_id, **told))
        await asyncio.sleep(0.3)
        await send(TextDelta(message.request_id, 0, "Yes.", (0,)))
        await send(finished(message.request_id))

    ask(tmp_path, script, "Why?")
    assert why in capfd.readouterr().err


def test_an_error_of_the_node_is_told_with_both_sentences(tmp_path):
    async def script(message, send):
        await send(
            ErrorReport(
                "placement", "The pool runs no model.", "Load one: daisy load.", message.request_id
            )
        )

    with pytest.raises(PlacementError, match="The pool runs no model") as caught:
        ask(tmp_path, script, "Why?")
    assert caught.value.advice == "Load one: daisy load."
    assert caught.value.exit_code == 5


def test_ctrl_c_cancels_the_answer_at_the_node(tmp_path, capfd):
    is_cancelled = asyncio.Event()

    async def script(message, send):
        match message:
            case Generate():
                await send(Accepted(message.request_id, prompt_tokens=5, seed=1))
                await send(TextDelta(message.request_id, 0, "Hel", (0,)))
            case Cancel():
                is_cancelled.set()
                await send(finished(message.request_id, "cancelled"))

    async def work():
        async with running(tmp_path, script) as node:
            given = given_for(tmp_path, "ask", "Why?")
            task = asyncio.get_running_loop().create_task(ask_command(given, Output(as_json=False)))
            await node.until(lambda: any(isinstance(m, Generate) for m in node.heard))
            await asyncio.sleep(0.1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert is_cancelled.is_set()

    asyncio.run(work())


def test_each_turn_of_a_chat_asks_the_node_anew(tmp_path, capfd, monkeypatch):
    """So a node that was started again in between is found."""
    reading, writing = os.pipe()
    os.write(writing, b"One?\nTwo?\n\n")
    os.close(writing)
    monkeypatch.setattr("engine.cli.line_reader._STDIN", reading)

    async def work():
        async with running(tmp_path, answering("Yes.")) as node:
            await chat_command(given_for(tmp_path, "chat"), Output(as_json=False))
            return node.heard

    first, second = asyncio.run(work())
    os.close(reading)
    assert [len(first.messages), len(second.messages)] == [1, 3]
    assert capfd.readouterr().out == "Yes.\nYes.\n"


# ---- who answers ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [
        ["--model", "m"],
        ["--stages", "2"],
        ["--cuts", "1,2"],
        ["--exact"],
        ["--kind", "paged"],
        ["--context", "64"],
        ["--threads", "1"],
        ["--port", "4000"],
        ["--draft", "none"],
    ],
)
def test_options_about_the_chain_ask_for_a_chain(words):
    assert wants_own_chain(build_parser().parse_args(["ask", "x", *words]))
    assert wants_own_chain(build_parser().parse_args(["chat", *words]))


def test_options_about_the_answer_leave_it_to_the_pool():
    words = ["--temperature", "1", "--seed", "1", "--max-tokens", "4", "--stop", "x", "--json"]
    assert not wants_own_chain(build_parser().parse_args(["ask", "x", *words]))


@pytest.mark.parametrize(
    ("words", "is_said"), [([], True), (["--model", "models/none"], False)], ids=str
)
def test_a_pc_without_a_node_answers_alone_and_says_so(tmp_path, capfd, words, is_said):
    async def work():
        given = given_for(tmp_path, "ask", "x", "--model", str(tmp_path / "none"))
        given.model = None if is_said else given.model
        async with open_answerer(given, Output(as_json=False)):
            pass

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("engine.cli.answerer.shards_for", refuse)
        with pytest.raises(PlacementError):
            asyncio.run(work())
    assert ("No node of Daisy runs on this PC, so it answers alone" in capfd.readouterr().err) is (
        is_said
    )


async def refuse(*_):
    raise PlacementError("Nothing is loaded in this test.")
