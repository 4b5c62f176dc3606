"""Opening what a person named, for a command and a node: typed errors, and no OpenVINO here."""

import asyncio
import gc
import shutil
import subprocess
import sys
import threading

import pytest

from engine import preparation
from engine.errors import (
    ModelError,
    ModelFileError,
    ModelNotFoundError,
    RequestCancelledError,
)
from engine.pool.store_threads import StoreThreads
from engine.preparation import describe_order, holds_shards, open_source, split_order


def test_no_openvino_is_loaded_where_models_are_opened_and_cut():
    program = (
        "import sys, engine.preparation, engine.pool.model_shelf, engine.splitter.process;"
        "sys.exit('openvino' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def opened(source, data_dir):
    return asyncio.run(open_source(str(source), data_dir))


@pytest.mark.parametrize(
    ("name", "kind", "reason"),
    [
        ("missing", ModelNotFoundError, "There is no folder"),
        ("missing.gguf", ModelError, "missing.gguf"),
        ("notes.txt", ModelNotFoundError, "is neither an openvino_model.xml nor a .gguf file"),
        ("empty", ModelNotFoundError, "There is no openvino_model.xml"),
        ("x" * 300, ModelFileError, "can't be read: File name too long"),
    ],
)
def test_what_is_no_model_is_said_in_two_sentences(tmp_path, name, kind, reason):
    (tmp_path / "notes.txt").write_text("no model")
    (tmp_path / "empty").mkdir()
    with pytest.raises(kind, match=reason) as told:
        opened(tmp_path / name, tmp_path / "data")
    assert told.value.advice


def test_a_folder_is_opened_and_its_orders_say_what_its_files_say(tmp_path, fixture_models):
    folder = tmp_path / "tiny"
    shutil.copytree(fixture_models / "llama", folder)
    files = opened(folder, tmp_path / "data")
    about = describe_order(files)
    order = split_order(files, tmp_path / "out", (1, 3))
    assert (about.xml, about.name, about.architecture) == (
        str(folder / "openvino_model.xml"),
        "tiny",
        "llama",
    )
    assert about.context_length
    for field in ("xml", "name", "architecture", "context_length", "eos_token_ids"):
        assert getattr(order, field) == getattr(about, field)
    assert (order.out, order.cuts, order.num_stages) == (str(tmp_path / "out"), (1, 3), None)
    assert order.text_files == tuple((name, str(path)) for name, path in files.text_files)


def test_a_divided_model_is_told_from_a_whole_one(tmp_path):
    (tmp_path / "manifest.json").write_text("{}")
    assert asyncio.run(holds_shards(str(tmp_path)))
    assert not asyncio.run(holds_shards(str(tmp_path / "deeper")))
    assert not asyncio.run(holds_shards(str(tmp_path / ("x" * 300))))


@pytest.fixture
def complaints():
    """What a loop says of failures that nobody took."""
    return []


async def cancel_once(begun, work, complaints):
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: complaints.append(context["message"]))
    async with asyncio.TaskGroup() as group:
        task = group.create_task(work)
        await asyncio.to_thread(begun.wait, 10.0)
        task.cancel()
    assert task.cancelled()
    del task
    gc.collect()  # a future complains when it is forgotten
    await asyncio.sleep(0)


def test_a_conversion_that_is_stopped_leaves_no_failure_behind(tmp_path, monkeypatch, complaints):
    begun = threading.Event()

    def long_conversion(_path, _data_dir, _report, is_cancelled):
        begun.set()
        while not is_cancelled():
            pass
        raise RequestCancelledError("The work was stopped.")

    monkeypatch.setattr(preparation, "open_model", long_conversion)
    asyncio.run(cancel_once(begun, open_source("model.gguf", tmp_path), complaints))
    assert complaints == []


def test_work_of_the_store_that_is_stopped_leaves_no_failure_behind(complaints):
    begun = threading.Event()

    def work(check):
        begun.set()
        while True:
            check()

    async def scenario():
        async with StoreThreads() as threads:
            await cancel_once(begun, threads.call_stoppable(work), complaints)

    asyncio.run(scenario())
    assert complaints == []
