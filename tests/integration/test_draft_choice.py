"""Nodes with a draft model that fits, one that does not, and one that dies: the same answer."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal

import psutil
import pytest

from engine.cli.local_pool import PoolOptions, open_local_pool
from engine.messages.codec import decode, encode_control
from engine.messages.control import Finished, Generate, TextDelta
from engine.models.unsplit import generate_greedy
from engine.pipeline.draft_keeper import AUTO, draft_choice
from engine.pipeline.shard_folder import open_shard_folder
from engine.preparation import split_order
from engine.splitter.process import split_in_process

pytestmark = [pytest.mark.processes, pytest.mark.embedded, pytest.mark.together]

PROMPT = "List the planets of the solar system in order: 1."
NUM_TOKENS = 24


@pytest.fixture(scope="module")
def folder(embedded, tmp_path_factory):
    """The embedded model in two shards."""
    out = tmp_path_factory.mktemp("drafts") / "shards"
    asyncio.run(split_in_process(split_order(embedded, out, num_stages=2), lambda _: None))
    return open_shard_folder(out)


@pytest.fixture(scope="module")
def expected(embedded, folder):
    from engine.pipeline.chat_text import load_chat_text  # noqa: PLC0415 - it takes a second

    ids = load_chat_text(folder).tokenizer.encode(PROMPT, add_special_tokens=True)
    return generate_greedy(embedded.xml, ids, NUM_TOKENS)


def copy_of(embedded, folder, change):
    folder.mkdir()
    for file in (embedded.xml, embedded.bin):
        (folder / file.name).symlink_to(file.resolve())
    for name, file in embedded.text_files:
        shutil.copyfile(file, folder / name)
    change(folder)
    return folder


def exchange(folder):
    """Let two words mean each other."""
    file = folder / "tokenizer.json"
    known = json.loads(file.read_text(encoding="utf-8"))
    vocab = known["model"]["vocab"]
    paris, london = "\u0120Paris", "\u0120London"
    vocab[paris], vocab[london] = vocab[london], vocab[paris]
    file.write_text(json.dumps(known), encoding="utf-8")


def other_template(folder):
    (folder / "chat_template.jinja").write_text("{{ messages }}", encoding="utf-8")


async def answered(connection, on_token=lambda _: None):
    """Ask, and return the answer's ids with what is said at its end."""
    request = Generate(request_id="1", prompt=PROMPT, max_tokens=NUM_TOKENS, ignore_eos=True)
    await connection.send(encode_control(request))
    token_ids = []
    while True:
        message = decode(await connection.receive())
        if isinstance(message, TextDelta):
            token_ids += message.token_ids
            on_token(token_ids)
        elif isinstance(message, Finished):
            return token_ids, message


async def until(condition):
    """Wait for something that comes in its own time."""
    async with asyncio.timeout(120):
        while not condition():  # noqa: ASYNC110 - another process's
            await asyncio.sleep(0.05)


def children(pool):
    return psutil.Process(pool.nodes[0].process.pid).children()


def with_pool(folder, draft, test):
    async def body():
        options = PoolOptions(mode="exact", context_tokens=256, num_threads=1, draft=draft)
        async with open_local_pool(folder, options) as pool:
            await test(pool)

    asyncio.run(asyncio.wait_for(body(), 280))


def test_the_models_own_draft_guesses(folder, expected):
    """It is loaded beside the first stage, and what it guesses is told at the end."""

    async def test(pool):
        await until(lambda: len(children(pool)) == 2)
        token_ids, end = await answered(pool.head)
        assert token_ids == expected
        assert 0 <= end.accepted_tokens <= end.drafted_tokens

    with_pool(folder, AUTO, test)


@pytest.mark.parametrize("change", [exchange, None], ids=["exchanged", "of 512 tokens"])
def test_k25_a_draft_that_does_not_fit_is_refused_and_the_model_answers_alone(
    embedded, folder, expected, fixture_models, tmp_path, change, capfd
):
    """With the reason in the node's log, and the same answer."""
    draft = fixture_models / "llama"
    if change is not None:
        draft = copy_of(embedded, tmp_path / "draft", change)
    said = ""

    def is_refused():
        nonlocal said
        said += capfd.readouterr().err
        return "answers go on without one" in said

    async def test(pool):
        await until(is_refused)
        assert len(children(pool)) == 1
        token_ids, _ = await answered(pool.head)
        assert token_ids == expected

    with_pool(folder, str(draft), test)
    assert ("token 7042 is" if change else "one of 512") in said


def test_k25_a_draft_with_another_template_guesses(embedded, folder, expected, tmp_path):
    """It is the same model here, so that nearly every guess holds."""
    draft = copy_of(embedded, tmp_path / "draft", other_template)

    async def test(pool):
        await until(lambda: len(children(pool)) == 2)
        token_ids, _ = await answered(pool.head)
        assert token_ids == expected

    with_pool(folder, str(draft), test)


def test_a_draft_model_that_is_killed_ends_no_answer(folder, expected):
    """Neither the one that runs nor the next."""

    async def test(pool):
        before = {child.pid for child in children(pool)}
        await until(lambda: len(children(pool)) == 2)
        (doomed,) = {child.pid for child in children(pool)} - before or {children(pool)[-1].pid}

        def kill(token_ids):
            if len(token_ids) >= 4 and psutil.pid_exists(doomed):
                os.kill(doomed, signal.SIGKILL)

        token_ids, _ = await answered(pool.head, kill)
        assert token_ids == expected
        await until(lambda: len(children(pool)) == 1)
        assert (await answered(pool.head))[0] == expected

    with_pool(folder, AUTO, test)


@pytest.mark.parametrize(("word", "choice"), [("none", "none"), (AUTO, None)])
def test_words_that_are_no_folder(word, choice):
    """Everything else is one."""
    assert draft_choice(word) == choice
    assert str(draft_choice("a/b")) == os.path.join("a", "b")  # noqa: PTH118 - as a person writes it
