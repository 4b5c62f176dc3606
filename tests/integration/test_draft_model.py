"""A draft model in its process: it guesses what it would write, and can't hurt an answer."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shutil
import signal

import numpy as np
import psutil
import pytest

from engine.domain import LayerRange, NodeId, SequenceId
from engine.errors import OtherVocabularyError, StageProcessDiedError
from engine.messages.chain import Placement, StagePlace
from engine.models.files import open_folder
from engine.models.tokenizer import load_tokenizer
from engine.pipeline.draft_loading import DRAFTS, DraftTarget, find_draft, load_draft_model
from engine.pipeline.draft_model import CHUNK_TOKENS, DraftModel
from engine.scheduler.drafting import DraftRequest
from engine.stages.host import StageProcess
from tests.unit.stages.running import PROMPTS, plain_greedy, whole

pytestmark = [pytest.mark.processes, pytest.mark.together]

LOAD_S = 60.0
LONDON, PARIS = 4528, 7042  # " London" and " Paris" to the embedded model


def run(coroutine) -> None:
    """Run a test; nothing may be left running and no child unreaped."""
    before = set(psutil.Process().children())
    asyncio.run(asyncio.wait_for(coroutine, 200))
    assert set(psutil.Process().children()) == before


def request(sequence: int, token_ids, max_drafts: int = 4) -> DraftRequest:
    return DraftRequest(SequenceId(sequence), np.array(token_ids, np.int32), max_drafts)


def with_llama(test, **changes):
    """Run a test with a fixture as the draft model, and its process."""

    async def body() -> None:
        process = StageProcess()
        await process.load(whole("llama", "stateful", **changes), LOAD_S)
        draft = DraftModel(process, "llama")
        try:
            await test(draft, process)
        finally:
            await draft.end()

    run(body())


def test_guesses_are_what_it_would_write():
    """Of several sequences at once, of different lengths, some asked for more than others."""
    expected = [plain_greedy("llama", prompt, 8) for prompt in PROMPTS]

    async def test(draft, _process) -> None:
        guesses = await draft.draft([
            request(number, prompt, number + 2) for number, prompt in enumerate(PROMPTS)
        ])
        assert [list(g) for g in guesses] == [
            expected[number][: number + 2] for number in range(len(PROMPTS))
        ]

    with_llama(test)


def test_its_cache_follows_the_sequence():
    """Whatever held: all of a draft, some, none; also while guesses are still in flight."""
    prompt = PROMPTS[1]

    async def test(draft, process) -> None:
        async def check(token_ids, count=3) -> list[int]:
            (guess,) = await draft.draft([request(1, token_ids, count)])
            assert list(guess) == plain_greedy("llama", token_ids, count)
            return list(guess)

        text = list(prompt)
        guess = await check(text)
        in_flight = text + guess
        guess = await check(in_flight)  # the chain goes on
        text = in_flight + guess + [17]  # all held, and one more was drawn
        guess = await check(text)
        text = [*text, guess[0], 5]  # the second did not
        guess = await check(text)
        text = [*text, *guess[:2], 9]  # the last did not, which was never fed
        guess = await check(text)
        text = [*text, 3]  # none did
        await check(text)
        await check(text)  # asked again for the same
        await check(text[:-4])  # and further back
        assert (await process.usage()).num_sequences == 1
        await draft.close(SequenceId(1))
        await draft.close(SequenceId(1))
        assert (await process.usage()).used_blocks == 0

    with_llama(test)


def test_a_long_prompt_is_fed_in_chunks():
    """And several at once beside a short one."""
    generator = np.random.default_rng(3)
    long_ones = [generator.integers(3, 500, CHUNK_TOKENS + extra).tolist() for extra in (0, 1, 90)]

    async def test(draft, _process) -> None:
        requests = [request(n, p, 3) for n, p in enumerate([*long_ones, PROMPTS[0]])]
        guesses = await draft.draft(requests)
        assert [list(g) for g in guesses] == [
            plain_greedy("llama", list(r.token_ids), 3) for r in requests
        ]

    with_llama(test, max_tokens=4096)


def test_a_full_cache_gives_no_guess_and_is_no_end():
    """The sequence is forgotten; when there is room again it begins anew."""
    many = np.random.default_rng(5).integers(3, 500, 300).tolist()

    async def test(draft, process) -> None:
        assert await draft.draft([request(1, many)]) == [()]
        assert draft.failure is None
        assert (await process.usage()).used_blocks == 0
        (guess,) = await draft.draft([request(1, PROMPTS[0])])
        assert list(guess) == plain_greedy("llama", PROMPTS[0], 4)

    with_llama(test, max_tokens=64, max_sequences=1)


def test_a_cancelled_draft_leaves_it_in_step():
    """Wherever it was when it was cancelled."""

    async def test(draft, _process) -> None:
        text = list(PROMPTS[2])
        for number in range(12):
            task = asyncio.ensure_future(draft.draft([request(1, text, 15)]))  # noqa: TID251
            if number % 2:
                await asyncio.sleep(0.0005 * number)  # its first pass, or one behind it, runs
            for _ in range(number * 3):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            text.append(int(number))
            (guess,) = await draft.draft([request(1, text, 3)])
            assert list(guess) == plain_greedy("llama", text, 3)

    with_llama(test)


def test_a_dead_process_ends_the_guesses_and_nothing_else(caplog):
    """It is said once, and whoever asks gets none."""

    async def test(draft, process) -> None:
        await draft.draft([request(1, PROMPTS[0])])
        os.kill(process.pid, signal.SIGKILL)
        await process.wait_ended()
        assert await draft.draft([request(1, PROMPTS[0]), request(2, PROMPTS[1])]) == [(), ()]
        assert await draft.draft([request(1, PROMPTS[0])]) == [()]
        await draft.close(SequenceId(1))
        assert isinstance(draft.failure, StageProcessDiedError)

    with caplog.at_level(logging.WARNING):
        with_llama(test)
    said = [record.message for record in caplog.records if "draft model llama" in record.message]
    assert len(said) == 1


def test_a_process_that_dies_while_it_guesses():
    """The draft that waits for it ends."""

    async def test(draft, process) -> None:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(draft.draft([request(1, PROMPTS[3], 400)]))
            await asyncio.sleep(0)
            os.kill(process.pid, signal.SIGKILL)
        assert task.result() == [()]
        await draft.close(SequenceId(1))

    with_llama(test)


# ---- which models go together ------------------------------------------------------------------


@pytest.fixture(scope="module")
def target(embedded) -> DraftTarget:
    return DraftTarget(load_tokenizer(embedded), 49152)


def placement() -> Placement:
    place = StagePlace(
        node_id=NodeId("here"), address="", stage_index=0, layers=LayerRange(0, 30), mode="exact"
    )
    return Placement(
        epoch=1, manifest_sha256="", context_tokens=512, max_sequences=2, stages=(place,)
    )


def embedded_copy(embedded, folder, change=None):
    """Copy the embedded model, its weights by links, with its text side changed."""
    folder.mkdir()
    for file in (embedded.xml, embedded.bin):
        (folder / file.name).symlink_to(file.resolve())
    for name, file in embedded.text_files:
        shutil.copyfile(file, folder / name)
    if change is not None:
        change(folder)
    return folder


def refused(folder, target, match) -> None:
    async def test() -> None:
        with pytest.raises(OtherVocabularyError, match=match):
            await load_draft_model(folder, target, placement())

    run(test())


@pytest.mark.embedded
def test_k25_a_draft_of_another_size_is_refused(target, fixture_models):
    """512 tokens beside 49,152."""
    refused(fixture_models / "llama", target, r"49152 tokens .* one of 512")


@pytest.mark.embedded
def test_k25_a_draft_with_two_tokens_exchanged_is_refused(embedded, target, tmp_path):
    """Both are named: the one with the lower id first."""

    def exchange(folder) -> None:
        file = folder / "tokenizer.json"
        known = json.loads(file.read_text(encoding="utf-8"))
        vocab = known["model"]["vocab"]
        paris, london = "\u0120Paris", "\u0120London"
        vocab[paris], vocab[london] = vocab[london], vocab[paris]
        file.write_text(json.dumps(known), encoding="utf-8")

    folder = embedded_copy(embedded, tmp_path / "exchanged", exchange)
    assert target.tokenizer.encode(" Paris", add_special_tokens=False) == [PARIS]
    refused(folder, target, f"token {LONDON} is .*London.* and .*Paris.*, token {PARIS} is ")


@pytest.mark.embedded
def test_a_draft_that_does_not_say_what_it_knows_is_refused(target, tmp_path):
    """Neither a tokenizer nor the hash of one."""
    (source,) = DRAFTS.iterdir()
    folder = tmp_path / "silent"
    shutil.copytree(source, folder, ignore=shutil.ignore_patterns("vocabulary.json"))
    refused(folder, target, "does not say")


@pytest.mark.embedded
def test_k25_a_draft_with_another_chat_template_is_taken(embedded, target, tmp_path):
    """Templates are the head's; the draft model sees ids only."""

    def other_template(folder) -> None:
        (folder / "chat_template.jinja").write_text("{{ messages }}", encoding="utf-8")

    folder = embedded_copy(embedded, tmp_path / "template", other_template)

    async def test() -> None:
        draft = await load_draft_model(folder, target, placement())
        try:
            prompt = target.tokenizer.encode("The capital of France is", add_special_tokens=False)
            (guess,) = await draft.draft([request(1, prompt, 1)])
            assert guess == (PARIS,)
        finally:
            await draft.end()

    run(test())


@pytest.mark.embedded
def test_the_embedded_model_has_a_draft_model_of_its_own(target):
    """It is found by its vocabulary, loads, and guesses."""

    async def test() -> None:
        folder = find_draft(target)
        assert folder is not None
        draft = await load_draft_model(folder, target, placement())
        try:
            prompt = target.tokenizer.encode(
                "Once upon a time, there was", add_special_tokens=False
            )
            (guess,) = await draft.draft([request(1, prompt, 7)])
            assert len(guess) == 7
        finally:
            await draft.end()

    run(test())


@pytest.mark.embedded
def test_a_model_with_other_tokens_has_none(embedded, tmp_path):
    """One token more is enough."""

    def add(folder) -> None:
        file = folder / "tokenizer.json"
        known = json.loads(file.read_text(encoding="utf-8"))
        known["model"]["vocab"]["one more"] = 49152
        file.write_text(json.dumps(known), encoding="utf-8")

    folder = embedded_copy(embedded, tmp_path / "more", add)
    assert find_draft(DraftTarget(load_tokenizer(open_folder(folder)), 49153)) is None
