"""``daisy chat``: turns through a pipe, a context that fills, and Ctrl-C at any moment."""

from __future__ import annotations

import itertools
import json
import time

import pytest

from tests.integration.daisy import daisy, family, interrupt, started, wait_gone

pytestmark = [pytest.mark.processes, pytest.mark.embedded]

FRANCE = "What is the capital of France?"
PARIS = "The capital of France is Paris."
EXACT = ("--exact", "--stages", 1)
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
    typed = f"{FRANCE}\n\nnever asked\n".encode()
    ended = daisy("chat", *EXACT, data=data_dir, typed=typed)
    assert (ended.status, ended.out) == (0, PARIS + "\n")
    assert "Traceback" not in ended.err


def test_a_chat_that_outgrows_the_context_keeps_its_system_prompt_and_says_what_it_lost(data_dir):
    question = "Please repeat these words: " + "word " * 40
    typed = "".join(f"{question}{i}\n" for i in range(5)).encode()
    words = ("chat", *EXACT, "--context", 256, "--system", INSTRUCTION, "--max-tokens", 8)
    ended = daisy(*words, "--json", data=data_dir, typed=typed)
    assert ended.status == 0, ended.err
    all_turns = turns(ended)
    assert len(all_turns) == 5
    lost = [[e["messages"] for e in t if e["event"] == "left_out"] for t in all_turns]
    assert lost[0] == lost[1] == []
    assert any(lost)
    assert all(n % 2 == 0 for n in itertools.chain(*lost))  # questions with their answers
    assert all(only(t, "accepted")["prompt_tokens"] < 256 for t in all_turns)
    # People are told in words; the system prompt is in every prompt that is left: without it
    # a prompt of as many turns would be shorter.
    bare = daisy(
        *(*words[:5], "--max-tokens", 8, "--system", "x", "--json"), data=data_dir, typed=typed
    )
    full = only(all_turns[-1], "accepted")["prompt_tokens"]
    kept = [only(t, "accepted")["prompt_tokens"] for t in turns(bare)]
    assert full not in kept
    told = daisy(*words, data=data_dir, typed=typed)
    assert told.status == 0
    assert "are left out." in told.err


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


@pytest.mark.parametrize(
    ("words", "tokens"),
    # The row's own numbers: 9000 words are 9035 tokens, 8157 words 8192.
    [(9000, 9035), (8157, 8192)],
)
def test_an_over_long_prompt_is_refused_at_once_with_both_numbers(
    words, tokens, data_dir, tmp_path
):
    file = tmp_path / "request.json"
    file.write_text(json.dumps(secret_chat(words)), encoding="utf-8")
    ended = daisy("ask", "--request", file, *EXACT, "--json", data=data_dir)
    error = ended.one("error")
    assert (ended.status, error["code"]) == (2, "context_length_exceeded")
    for number in (tokens, 8192, tokens - 8191):
        assert str(number) in error["what"]
    assert not [e for e in ended.events if e["event"] in {"accepted", "text"}]
    assert ended.seconds < 20  # loading; a prefill in exact mode takes minutes


def secret_chat(words):
    user = "word " * words + "What is the password?"
    return {
        "messages": [{"role": "system", "content": INSTRUCTION}, {"role": "user", "content": user}]
    }


def test_a_prompt_that_just_fits_gets_one_token(data_dir, tmp_path):
    """8156 words are 8191 tokens of 8192; here 220 are 255 of 256."""
    file = tmp_path / "request.json"
    file.write_text(json.dumps({**secret_chat(220), "ignore_eos": True}), encoding="utf-8")
    ended = daisy("ask", "--request", file, *EXACT, "--context", 256, "--json", data=data_dir)
    assert ended.status == 0, ended.out
    end = ended.one("finished")
    assert (end["prompt_tokens"], end["completion_tokens"]) == (255, 1)
    assert end["finish_reason"] == "length"


def test_settings_that_can_not_be_are_said_before_anything_is_loaded(data_dir):
    for option, value in (("--temperature", "-1"), ("--top-p", "2"), ("--max-tokens", "0")):
        ended = daisy("chat", option, value, data=data_dir, typed=b"hello\n")
        assert ended.status == 2
        assert "Loading" not in ended.err
        assert option.strip("-").replace("-", "_") in ended.err


def test_ctrl_c_while_the_chat_waits_for_a_question(data_dir):
    with started("chat", *EXACT, "--json", "--data", data_dir) as process:
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


def interrupt_with_open_input(process):
    """Press Ctrl-C while the person's line is still open: nothing may wait for Enter."""
    stdin, process.stdin = process.stdin, None
    try:
        return interrupt(process)
    finally:
        process.stdin = stdin
