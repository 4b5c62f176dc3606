"""``daisy ask``: the unsplit model's tokens, an end to everything, and what a program reads."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from datetime import datetime

import psutil
import pytest

from engine.cli.preparation import Division
from engine.models.tokenizer import load_tokenizer
from engine.models.unsplit import UnsplitModel
from engine.pipeline.chat_text import load_chat_text
from tests.integration.daisy import (
    C_LOCALE,
    command,
    daisy,
    daisy_here,
    family,
    interrupt,
    started,
    wait_gone,
)
from tests.integration.pool import chat, shards

pytestmark = [pytest.mark.processes, pytest.mark.embedded, pytest.mark.together]

FRANCE = "What is the capital of France?"
PARIS = "The capital of France is Paris."
ALPHABET = "Here is the English alphabet: ABC"


@pytest.fixture(scope="module")
def unsplit(embedded):
    return UnsplitModel(embedded.xml)


@pytest.fixture(scope="module")
def expected(embedded, unsplit):
    """24 greedy tokens of the unsplit model."""
    ids = load_tokenizer(embedded).encode(ALPHABET, add_special_tokens=True)
    return ids, unsplit.generate(ids, 24).tokens


@pytest.mark.parametrize(
    "how",
    [["--stages", 1], ["--stages", 2], ["--stages", 3], ["--stages", 2, "--kind", "stateful"]],
    ids=str,
)
def test_any_number_of_stages_gives_the_unsplit_models_tokens(how, expected, data_dir):
    words = ("ask", "--raw", ALPHABET, "--exact", "--ignore-eos", "--max-tokens", 24, "--json")
    ended = daisy(*words, *how, data=data_dir)
    assert ended.status == 0, ended.err
    prompt, tokens = expected
    assert ended.token_ids == tokens
    accepted, end = ended.one("accepted"), ended.one("finished")
    assert accepted["prompt_tokens"] == end["prompt_tokens"] == len(prompt)
    assert (end["completion_tokens"], end["finish_reason"]) == (24, "length")
    assert end["ttft_s"] > 0
    assert end["tokens_per_s"] > 0
    assert end["chain_compute_ms"] > 0
    stages = [e for e in ended.events if e["event"] == "stage"]
    assert len(stages) == how[1]
    assert {s["kind"] for s in stages} == {"stateful" if "stateful" in how else "paged"}
    assert {s["mode"] for s in stages} == {"exact"}
    assert [e["event"] for e in ended.events][-1] == "finished"
    assert not ended.err


def test_a_person_gets_the_answer_alone_on_standard_output(data_dir):
    ended = daisy("ask", FRANCE, "--exact", "--stages", 1, data=data_dir)
    assert (ended.status, ended.out) == (0, PARIS + "\n")
    assert ended.err.splitlines()[-1].startswith("[37 tokens in, 8 out, stop; ")
    assert "Traceback" not in ended.err


def test_the_locale_changes_nothing(data_dir, unsplit):
    """A question in any letters, under a locale that has none of them."""
    question = "Was heißt „Grüße“ auf 中文?"
    words = ("ask", question, "--exact", "--stages", 1, "--max-tokens", 6, "--ignore-eos")
    ended = daisy(*words, "--json", data=data_dir, env=C_LOCALE)
    assert ended.status == 0, ended.out
    text = load_chat_text(shards(None, Division(num_stages=1), data_dir))
    ids = text.prompt_ids(chat(question), datetime.now().astimezone())
    assert ended.one("accepted")["prompt_tokens"] == len(ids)
    assert ended.token_ids == unsplit.generate(ids, 6).tokens


@pytest.mark.alone
def test_ctrl_c_in_the_middle_of_an_answer_ends_everything(data_dir):
    words = ("ask", "--raw", "Once upon a time", "--ignore-eos", "--stages", 3, "--json")
    words += ("--draft", "none")  # so that it is clear which processes there are
    with started(*words, "--data", data_dir) as process:
        while json.loads(process.stdout.readline())["event"] != "text":
            pass
        members = family(process.pid)
        assert len(members) == 6  # three nodes and their stages
        status, seconds, _, err = interrupt(process)
        wait_gone(members, 0.5)
    assert status == 130
    assert seconds < 3
    assert b"Traceback" not in err


@pytest.mark.alone
def test_ctrl_c_while_stages_load_ends_everything(data_dir):
    with started("ask", FRANCE, "--stages", 3, "--json", "--data", data_dir) as process:
        while json.loads(process.stdout.readline()).get("phase") != "Loading stages":
            pass
        time.sleep(0.3)
        members = family(process.pid)
        status, seconds, _, err = interrupt(process)
        wait_gone(members, 0.5)
    assert status == 130
    assert seconds < 4
    assert b"Traceback" not in err


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_nothing_outlives_a_command_that_is_killed(number, talking, own_data):
    words = ("ask", "--raw", "hello", "--ignore-eos", "--stages", 2, "--json", "--model", talking)
    with started(*words, "--data", own_data) as process:
        while json.loads(process.stdout.readline())["event"] != "text":
            pass
        members = family(process.pid)
        process.send_signal(number)
        process.wait(20)
        wait_gone(members, 20)


@pytest.mark.alone
def test_a_reader_that_leaves_ends_everything_without_a_word(data_dir):
    """Its output is buffered, as everybody's is: what is in the buffer fails no second time."""
    words = command("ask", "--raw", "Once upon a time", "--ignore-eos", "--stages", 1)
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    process = subprocess.Popen(
        [*words, "--max-tokens", "400", "--data", str(data_dir)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=buffered,
    )
    try:
        assert process.stdout.read(4)
        members = psutil.Process(process.pid).children(recursive=True)
        process.stdout.close()
        err = process.stderr.read()
        status = process.wait(20)
        wait_gone(members, 1)
    finally:
        process.kill()
        process.stderr.close()
    assert b"Traceback" not in err
    assert b"Exception" not in err
    assert status == 141  # as a shell says it of SIGPIPE


@pytest.mark.parametrize("links", ["f16", "int8"])
def test_a_chain_answers_with_fewer_bytes_between_its_stages_and_says_what_that_changes(
    links, data_dir
):
    words = ("ask", FRANCE, "--stages", 3, "--link-precision", links, "--max-tokens", 16, "--json")
    ended = daisy(*words, data=data_dir)
    assert ended.status == 0, ended.err
    assert "Paris" in ended.text
    notes = [note for e in ended.events if e["event"] == "stage" for note in e["notes"]]
    assert any("answers differ slightly" in note for note in notes) == (links == "int8")


def test_exact_mode_with_fewer_bytes_between_stages_is_refused_before_anything_runs(
    data_dir, capfd
):
    words = ("ask", FRANCE, "--exact", "--link-precision", "int8")
    refused = daisy_here(*words, data=data_dir, capfd=capfd)
    assert refused.status == 2
    assert "Exact mode sends hidden states in f32" in refused.err
