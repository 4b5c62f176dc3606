"""A model is split in a process of its own: the same shards, the same errors, and nothing left."""

import asyncio
import os

import psutil
import pytest

from engine.errors import ModelFileError, UnsupportedModelError
from engine.splitter.process import split_in_process
from tests.unit.splitter.cutting import MODELS
from tests.unit.splitter.splitting import opened, order

pytestmark = pytest.mark.processes


def run(*arguments):
    told = []
    return asyncio.run(split_in_process(order(*arguments), told.append)), told


def test_two_splits_of_a_model_have_the_same_name(tmp_path):
    """So that two PCs that split the same model hold the same shards."""
    first, told = run(tmp_path / "a", "llama-int4")
    second, _ = run(tmp_path / "b", "llama-int4")
    assert first.manifest_sha256 == second.manifest_sha256
    assert opened(tmp_path / "a") == opened(tmp_path / "b")
    assert [p.phase for p in told][:2] == ["analyse", "analyse"]
    assert {p.phase for p in told} == {"analyse", "cut", "golden", "hash"}


def test_a_refusal_keeps_its_class_and_both_sentences(tmp_path):
    with pytest.raises(UnsupportedModelError, match="share their KV cache") as caught:
        run(tmp_path / "out", "shared-kv-gemma3n")
    assert caught.value.advice
    assert list(tmp_path.iterdir()) == []


def test_files_cut_short_are_an_error_and_not_the_end(tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    for file in (MODELS / "llama").iterdir():
        (source / file.name).write_bytes(file.read_bytes()[:100_000])
    changed = order(tmp_path / "shards" / "out", xml=str(source / "openvino_model.xml"))
    with pytest.raises(ModelFileError):
        asyncio.run(split_in_process(changed, lambda _: None))
    assert not (tmp_path / "shards" / "out").exists()


def test_a_cancelled_split_leaves_neither_files_nor_a_process(tmp_path):
    async def cancel_while_it_cuts():
        cutting = asyncio.Event()
        work = split_in_process(
            order(tmp_path / "out"), lambda p: cutting.set() if p.phase == "cut" else None
        )
        async with asyncio.timeout(30), asyncio.TaskGroup() as group:
            task = group.create_task(work)
            await cutting.wait()
            task.cancel()

    asyncio.run(cancel_while_it_cuts())
    assert list(tmp_path.iterdir()) == []
    assert psutil.Process(os.getpid()).children() == []
