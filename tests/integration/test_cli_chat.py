"""``daisy chat``: turns through a pipe, a context that fills, and Ctrl-C at any moment."""

from __future__ import annotations

import json
import signal
import time
from datetime import datetime

import pytest

from engine.cli.preparation import Division
from engine.errors import ContextTooLongError
from engine.pipeline.chat_text import load_chat_text
from engine.scheduler.request import check_max_tokens
from tests.integration.daisy import daisy, family, interrupt, started, wait_gone
from tests.integration.pool import request, shards

pytestmark = [pytest.mark.processes, pytest.mark.embedded, pytest.mark.together]

FRANCE = "What is the capital of France?"
PARIS = "The capital of France is Paris."
EXACT = ("--exact", "--stages", 1, "--threads", 1)
INSTRUCTION = "The password is ANANAS-7734. Never forget it."


def turns(ended):
    """The events of each turn, in order: up to what finished it or went wrong."""
    found, current = [], []
    for event in ended.events:
        if event["event"] in {"accepted", "text", "finished", "left_out", "error"}:
            current.append(event)
        if event["event"] in {"finished", "error"}:
            found.append(current)
            current = []
    assert not current
    return found


def only(turn, name):
    (event,) = (e for e in turn if e["event"] == name)
    return event


def test_three_turns_are_one_chat(data_dir):
    typed = f"{FRANCE}\nAnd of Germany?\r\n{FRANCE}\n".encode()
    ended = daisy("chat", *EXACT, "--json", "--max-tokens", 12, data=data_dir, typed=typed)
    assert ended.status == 0, ended.err
    first, second, third = turns(ended)
    texts = ["".join(e["text"] for e in t if e["event"] == "text") for t in (first, second, third)]
    assert texts[0] == PARIS
    assert "Berlin" in texts[1]
    prompts = [only(t, "accepted")["prompt_tokens"] for t in (first, second, third)]
    assert prompts[0] == 37
    # Each turn holds all those before it.
    assert prompts[0] < prompts[1] < prompts[2]


def test_a_person_sees_answers_only_and_an_empty_line_ends_it(data_dir):
    typed = f"{FRANCE}\n{FRANCE}\n\nnever asked\n".encode()
    ended = daisy("chat", *EXACT, "--context", 50, data=data_dir, typed=typed)
    assert (ended.status, ended.out) == (0, f"{PARIS}\n{PARIS}\n")
    assert "Traceback" not in ended.err
    assert "its oldest 2 messages are left out." in ended.err


def test_a_chat_that_outgrows_the_context_keeps_its_system_prompt_and_says_what_it_lost(
    embedded, data_dir
):
    question = "Please repeat these words: " + "word " * 40
    questions = [f"{question}{i}" for i in range(5)]
    words = ("chat", *EXACT, "--context", 256, "--system", INSTRUCTION, "--max-tokens", 8)
    typed = "\n".join(questions).encode()
    ended = daisy(*words, "--json", data=data_dir, typed=typed)
    assert ended.status == 0, ended.err
    system = {"role": "system", "content": INSTRUCTION}
    text = load_chat_text(shards(None, Division(num_stages=1), data_dir))
    kept, lost = [], []
    for asked, turn in zip(questions, turns(ended), strict=True):
        kept.append({"role": "user", "content": asked})
        number = sum(e["messages"] for e in turn if e["event"] == "left_out")
        lost.append(number)
        kept = kept[number:]
        # What the model was given is the system prompt, and what was not said to be left out.
        given = text.prompt_ids(request(messages=[system, *kept]), datetime.now().astimezone())
        assert only(turn, "accepted")["prompt_tokens"] == len(given) < 256
        answer = "".join(e["text"] for e in turn if e["event"] == "text")
        kept.append({"role": "assistant", "content": answer})
    assert lost[:2] == [0, 0]
    assert sum(lost) >= 2
    assert all(number % 2 == 0 for number in lost)  # questions with their answers


def test_a_question_too_long_by_itself_is_refused_and_the_chat_goes_on(data_dir):
    typed = f"{'word ' * 300}\n{FRANCE}\n".encode()
    words = (
        "chat",
        *EXACT,
        "--context",
        256,
        "--system",
        INSTRUCTION,
        "--max-tokens",
        12,
        "--json",
    )
    ended = daisy(*words, data=data_dir, typed=typed)
    assert ended.status == 0, ended.err
    refused, answered = turns(ended)
    error = only(refused, "error")
    assert error["code"] == "context_length_exceeded"
    assert "256" in error["what"]
    assert "left_out" not in {e["event"] for e in refused}
    assert only(answered, "finished")["finish_reason"] in {"stop", "length"}


def test_an_over_long_prompt_is_refused_at_once_with_both_numbers(data_dir, tmp_path):
    file = tmp_path / "request.json"
    file.write_text(json.dumps(secret_chat(9000)), encoding="utf-8")
    ended = daisy("ask", "--request", file, *EXACT, "--json", data=data_dir)
    error = ended.one("error")
    assert (ended.status, error["code"]) == (2, "context_length_exceeded")
    for number in (9035, 8192, 9035 - 8191):
        assert str(number) in error["what"]
    assert not [e for e in ended.events if e["event"] in {"accepted", "text"}]
    assert ended.seconds < 30  # loading; a prefill in exact mode takes minutes


def test_the_last_token_of_the_context_is_the_answers(embedded, data_dir):
    """8192 tokens are one too many, 8191 leave room for one."""
    text = load_chat_text(shards(None, Division(num_stages=1), data_dir))
    now = datetime.now().astimezone()
    counts = [len(text.prompt_ids(request(**secret_chat(n)), now)) for n in (8157, 8156)]
    assert counts == [8192, 8191]
    with pytest.raises(ContextTooLongError) as refusal:
        check_max_tokens(None, counts[0], 8192)
    assert refusal.value.what.count("8192") == 2
    assert check_max_tokens(None, counts[1], 8192) == 1


def secret_chat(words):
    user = "word " * words + "What is the password?"
    system = {"role": "system", "content": INSTRUCTION}
    return {"messages": [system, {"role": "user", "content": user}]}


def test_settings_that_can_not_be_are_said_before_anything_is_loaded(data_dir):
    for option, value in (("--temperature", "-1"), ("--top-p", "2"), ("--max-tokens", "0")):
        ended = daisy("chat", option, value, data=data_dir, typed=b"hello\n")
        assert ended.status == 2
        assert "Loading" not in ended.err
        assert option.strip("-").replace("-", "_") in ended.err


@pytest.mark.alone
def test_ctrl_c_while_the_chat_waits_for_a_question(data_dir):
    alone = ("--draft", "none")  # so that it is clear which processes there are
    with started("chat", *EXACT, *alone, "--json", "--data", data_dir) as process:
        while json.loads(process.stdout.readline())["event"] != "stage":
            pass
        time.sleep(0.3)
        members = family(process.pid)
        assert len(members) == 2
        status, seconds, _, err = interrupt_with_open_input(process)
        wait_gone(members, 0.5)
    assert status == 130
    assert seconds < 3
    assert b"Traceback" not in err


@pytest.mark.alone
def test_ctrl_c_stops_an_answer_and_the_chat_goes_on(data_dir):
    with started("chat", *EXACT, "--ignore-eos", "--json", "--data", data_dir) as process:

        def say(line):
            process.stdin.write(line)
            process.stdin.flush()

        def next_event(name):
            while (event := json.loads(process.stdout.readline()))["event"] != name:
                pass
            return event

        next_event("stage")
        say(b"Tell me a story.\n")
        next_event("text")
        process.send_signal(signal.SIGINT)
        time.sleep(0.5)
        say(b"What is the capital of France?\n")
        assert next_event("accepted")["prompt_tokens"] == 37  # nothing of the stopped turn is in it
        next_event("text")
        process.send_signal(signal.SIGINT)
        time.sleep(0.5)
        status, _, _, err = interrupt_with_open_input(process)
    assert status == 130
    assert b"Traceback" not in err


def interrupt_with_open_input(process):
    """Press Ctrl-C while the person's line is still open: nothing may wait for Enter."""
    stdin, process.stdin = process.stdin, None
    try:
        return interrupt(process)
    finally:
        process.stdin = stdin
