"""A node's models on a real disk: taken in once, cut once, fetched by others, and never half."""

import asyncio
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import psutil
import pytest

from engine.domain import LayerRange
from engine.errors import (
    ModelError,
    ModelFileError,
    ModelInUseError,
    ModelNotFoundError,
    PlacementError,
    ShardCorruptError,
    StorageError,
    UsageError,
)
from engine.models.embedded import fetch_embedded_gguf
from engine.pipeline.shard_folder import open_shard_folder
from engine.pool.chunks import CHUNK_BYTES, ChunkList, chunk_list_of
from engine.pool.disk import pieces_of
from engine.pool.shard_files import stored_manifest
from engine.pool.taking_in import LINKED_FROM_BYTES
from engine.preparation import open_source, split_order
from engine.splitter.manifest import MAX_MANIFEST_BYTES, sha256_of
from engine.splitter.process import split_in_process
from tests.unit.pool.shelves import Silent, StoreSource, Told, opened, scratch_of, with_shelf

pytestmark = [pytest.mark.processes, pytest.mark.together]

CHECKOUT = Path(__file__).parents[2]
HALVES = (LayerRange(0, 2), LayerRange(2, 4))
THIRDS = (LayerRange(0, 1), LayerRange(1, 2), LayerRange(2, 4))
WHOLE = (LayerRange(0, 4),)


@pytest.fixture
def tiny(talking, tmp_path):
    """A model of four layers of the test's own: files may be changed."""
    folder = tmp_path / "tiny"
    shutil.copytree(talking, folder)
    return folder


@pytest.fixture
def large(tiny):
    """The same with weights large enough to be linked; what is behind the last is not read."""
    with (tiny / "openvino_model.bin").open("r+b") as file:
        file.truncate(LINKED_FROM_BYTES + 1000)
    return tiny


@pytest.fixture
def root(tmp_path):
    return tmp_path / "node"


def objects_of(shelf):
    return {path.name for path in (shelf.store.paths.root / "objects").iterdir()}


def fingerprint(shelf):
    """What changes when an object is written or read into again."""
    objects = (shelf.store.paths.root / "objects").iterdir()
    return {path.name: (path.stat().st_mtime_ns, path.stat().st_ino) for path in objects}


async def take(shelf, source, told=None):
    return await shelf.take_in(str(source), shelf.store.paths.root.parent, told or Told())


async def cut(shelf, source, layers=HALVES):
    kept = await take(shelf, source)
    return kept, await shelf.split(kept.model_sha256, layers, Told())


# ---- a model comes in


def test_a_model_is_kept_with_all_its_files_and_described(root, tiny, tmp_path):
    async def work(shelf):
        told = Told()
        kept = await take(shelf, tiny, told)
        assert shelf.kept() == (kept.model_sha256,)
        assert kept.model.num_layers == 4
        assert kept.model.name == "tiny"
        assert kept.can_be_paged
        for path in tiny.iterdir():
            assert shelf.store.has(sha256_of(path.read_bytes()))
        total = sum(path.stat().st_size for path in tiny.iterdir())
        assert told.of("keep")[-1] == (total, total)
        assert scratch_of(root) == []
        files = await open_source(str(tiny), tmp_path / "data")
        order = split_order(files, tmp_path / "out", (2,))
        await split_in_process(order, lambda _: None)
        assert open_shard_folder(tmp_path / "out").manifest.model == kept.model

    with_shelf(root, work)


def test_a_second_time_nothing_is_read_also_after_a_restart(root, tiny):
    """Other bytes of the same size and date are not noticed: they are not looked at."""
    before = with_shelf(root, lambda shelf: take(shelf, tiny))
    for name in ("openvino_model.bin", "tokenizer.json", "openvino_model.xml"):
        file = tiny / name
        stat = file.stat()
        file.write_bytes(bytes(stat.st_size))
        os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))

    async def work(shelf):
        assert shelf.kept() == (before.model_sha256,)
        seen = fingerprint(shelf)
        told = Told()
        assert await take(shelf, tiny, told) == before
        assert told.all == []
        assert fingerprint(shelf) == seen

    with_shelf(root, work)


def test_a_file_that_changed_makes_another_model_and_the_first_stays_as_it_was(root, tiny):
    async def work(shelf):
        first = await take(shelf, tiny)
        (tiny / "tokenizer_config.json").write_text('{"eos_token": "</s>"}')
        second = await take(shelf, tiny)
        assert second.model_sha256 != first.model_sha256
        assert set(shelf.kept()) == {first.model_sha256, second.model_sha256}
        (tiny / "README.md").write_text("no part of the model")
        told = Told()
        assert await take(shelf, tiny, told) == second
        assert told.all == []

    with_shelf(root, work)


def test_weights_are_linked_and_what_people_edit_is_copied(root, large):
    async def work(shelf):
        await take(shelf, large)
        weights = large / "openvino_model.bin"
        name = chunk_list_of(pieces_of(weights)).sha256
        assert shelf.store.object_path(name).samefile(weights)
        text = (large / "tokenizer.json").read_bytes()
        with (large / "tokenizer.json").open("r+b") as file:
            file.write(b"[")
        assert shelf.store.object_path(sha256_of(text)).read_bytes() == text
        assert shelf.kept()

    with_shelf(root, work)


def test_weights_on_another_volume_are_copied_while_they_are_hashed(root, large):
    other = Path("/dev/shm")  # noqa: S108 - the one other volume there is
    if not other.is_dir() or other.stat().st_dev == root.parent.stat().st_dev:
        pytest.skip("there is no second volume")
    folder = other / f"daisy-test-{os.getpid()}"
    shutil.copytree(large, folder)

    async def work(shelf):
        kept = await take(shelf, folder)
        assert shelf.kept() == (kept.model_sha256,)
        weights = folder / "openvino_model.bin"
        copy = shelf.store.object_path(chunk_list_of(pieces_of(weights)).sha256)
        assert copy.read_bytes() == weights.read_bytes()
        assert copy.stat().st_nlink == 1
        assert scratch_of(root) == []

    try:
        with_shelf(root, work)
    finally:
        shutil.rmtree(folder)


def test_weights_that_are_edited_in_place_are_not_cut_and_come_in_anew(root, large):
    async def work(shelf):
        first = await take(shelf, large)
        with (large / "openvino_model.bin").open("r+b") as file:
            file.seek(LINKED_FROM_BYTES)
            file.write(b"edited")
        assert shelf.kept() == ()
        with pytest.raises(ShardCorruptError, match=r"1 files of the model .* changed"):
            await shelf.split(first.model_sha256, HALVES, Told())
        assert shelf.kept() == ()
        second = await take(shelf, large)
        assert second.model_sha256 != first.model_sha256
        assert shelf.kept() == (second.model_sha256,)
        assert await shelf.split(second.model_sha256, HALVES, Told())

    with_shelf(root, work)


def test_a_touched_file_is_hashed_again_before_it_is_cut(root, large):
    """Its date is another; its bytes are right, and that counts."""

    async def work(shelf):
        kept = await take(shelf, large)
        os.utime(large / "openvino_model.bin", ns=(1, 1))
        assert shelf.kept() == ()
        assert await shelf.split(kept.model_sha256, HALVES, Told())
        assert shelf.kept() == (kept.model_sha256,)

    with_shelf(root, work)


def test_a_hubs_cache_of_links_is_followed(root, large):
    """The store gets the files, not the links."""
    snapshot = large.parent / "models--someone--small" / "snapshots" / "1"
    snapshot.mkdir(parents=True)
    for file in large.iterdir():
        (snapshot / file.name).symlink_to(file)

    async def work(shelf):
        kept = await take(shelf, snapshot)
        assert kept.model.name == "someone/small"
        assert not any(shelf.store.paths.whole(name).is_symlink() for name in objects_of(shelf))
        return await shelf.split(kept.model_sha256, HALVES, Told())

    assert with_shelf(root, work)


@pytest.mark.parametrize(
    ("change", "kind", "reason"),
    [
        (shutil.rmtree, ModelNotFoundError, "There is no folder"),
        (
            lambda f: (f / "openvino_model.xml").unlink(),
            ModelError,
            "openvino_model.xml is missing",
        ),
        (lambda f: (f / "openvino_model.xml").write_text("<html/>"), ModelError, "openvino_model"),
        (lambda f: (f / "manifest.json").write_text("{}"), UsageError, "holds shards already"),
        (
            lambda f: (f / "tokenizer.json").unlink() or (f / "tokenizer.json").symlink_to("gone"),
            ModelFileError,
            "tokenizer.json is missing",
        ),
    ],
)
def test_what_is_no_whole_model_is_refused_and_leaves_nothing(root, tiny, change, kind, reason):
    change(tiny)

    async def work(shelf):
        with pytest.raises(kind, match=reason) as told:
            await take(shelf, tiny)
        assert told.value.advice
        assert shelf.kept() == ()
        assert objects_of(shelf) == set()
        assert scratch_of(root) == []

    with_shelf(root, work)


def test_a_file_that_not_every_pc_could_hold_is_said_before_anything_is_read(root, tiny):
    (tiny / "additional_chat_templates").mkdir()
    (tiny / "additional_chat_templates" / "Tools.jinja").write_text("{{ messages }}")

    async def work(shelf):
        with pytest.raises(ModelFileError, match=r"Tools\.jinja") as told:
            await take(shelf, tiny)
        assert "Rename it" in told.value.advice
        assert objects_of(shelf) == set()

    with_shelf(root, work)


def test_a_store_too_small_for_a_model_says_by_how_much_and_holds_nothing(root, large):
    quota = LINKED_FROM_BYTES // 2
    total = sum(path.stat().st_size for path in large.iterdir())

    async def work(shelf):
        told = Told()
        with pytest.raises(StorageError) as caught:
            await take(shelf, large, told)
        assert f"{total} bytes are to come, and the store may take {quota} in all" in str(
            caught.value
        )
        assert "too few" in str(caught.value)
        assert told.of("keep") == [(0, 0)]
        assert shelf.kept() == ()
        assert scratch_of(root) == []
        assert objects_of(shelf) == set()

    with_shelf(root, work, quota_bytes=quota)


def test_taking_in_is_cancelled_at_once_and_can_be_done_again(root, large):
    with (large / "openvino_model.bin").open("r+b") as file:
        file.truncate(40 * CHUNK_BYTES)

    async def work(shelf):
        hashing = asyncio.Event()

        def report(step, done, _total, _unit):
            if step == "keep" and done:
                hashing.set()

        async with asyncio.TaskGroup() as group:
            task = group.create_task(take(shelf, large, report))
            await hashing.wait()
            before = time.perf_counter()
            task.cancel()
            await asyncio.wait([task])
            assert time.perf_counter() - before < 1
        assert shelf.kept() == ()
        assert scratch_of(root) == []
        shelf.store.collect_garbage(10**12)
        assert objects_of(shelf) == set()
        kept = await take(shelf, large)
        assert shelf.kept() == (kept.model_sha256,)

    with_shelf(root, work)


# ---- a model is cut


def test_a_model_is_cut_as_the_command_cuts_it(root, tiny, tmp_path):
    """The manifest has the same name, so that it does not matter which PC cuts."""

    async def work(shelf):
        told = Told()
        kept = await take(shelf, tiny)
        manifest = await shelf.split(kept.model_sha256, THIRDS, told)
        files = await open_source(str(tiny), tmp_path / "data")
        await split_in_process(split_order(files, tmp_path / "out", (1, 2)), lambda _: None)
        assert open_shard_folder(tmp_path / "out").manifest_sha256 == manifest
        done = [amount for amount, _ in told.of("split")]
        assert done == sorted(done)
        assert told.all[-1] == ("split", 4, 4, "layers")
        assert {total for _, total in told.of("split")} == {4}
        assert scratch_of(root) == []

    with_shelf(root, work)


def test_the_same_division_again_is_found_also_after_a_restart(root, tiny):
    kept, manifest = with_shelf(root, lambda shelf: cut(shelf, tiny))

    async def work(shelf):
        seen = fingerprint(shelf)
        told = Told()
        before = time.perf_counter()
        assert await shelf.split(kept.model_sha256, HALVES, told) == manifest
        assert time.perf_counter() - before < 1
        assert told.all == [("split", 4, 4, "layers")]
        assert fingerprint(shelf) == seen

    with_shelf(root, work)


def test_calls_for_one_division_at_once_cut_it_once(root, tiny):
    async def work(shelf):
        kept = await take(shelf, tiny)
        told = [Told() for _ in range(3)]
        names = await asyncio.gather(*(shelf.split(kept.model_sha256, HALVES, one) for one in told))
        assert len(set(names)) == 1
        assert sorted(len(one.all) > 1 for one in told) == [False, False, True]

    with_shelf(root, work)


def test_a_caller_that_goes_does_not_stop_another(root, tiny):
    async def work(shelf):
        kept = await take(shelf, tiny)
        begun = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            first = group.create_task(
                shelf.split(kept.model_sha256, HALVES, lambda *_: begun.set())
            )
            second = group.create_task(shelf.split(kept.model_sha256, HALVES, Told()))
            await begun.wait()
            first.cancel()
        assert stored_manifest(shelf.store, second.result()).shards[1].layers == HALVES[1]

    with_shelf(root, work)


def test_a_division_of_which_a_file_is_gone_is_cut_again(root, tiny):
    async def work(shelf):
        kept, manifest = await cut(shelf, tiny)
        shard = stored_manifest(shelf.store, manifest).shards[1]
        shelf.store.remove(shard.weights.sha256)
        told = Told()
        assert await shelf.split(kept.model_sha256, HALVES, told) == manifest
        assert len(told.all) > 1
        assert shelf.store.has(shard.weights.sha256)

    with_shelf(root, work)


def test_what_can_not_be_cut_is_said(root, tiny):
    async def work(shelf):
        with pytest.raises(ModelNotFoundError, match="does not keep the model"):
            await shelf.split("a" * 64, HALVES, Told())
        kept = await take(shelf, tiny)
        for layers in (HALVES[:1], HALVES[1:], (), (*HALVES, LayerRange(4, 5))):
            with pytest.raises(PlacementError):
                await shelf.split(kept.model_sha256, layers, Told())
        assert scratch_of(root) == []

    with_shelf(root, work)


def test_a_store_too_small_for_the_shards_says_by_how_much_before_it_cuts(root, tiny):
    total = sum(path.stat().st_size for path in tiny.iterdir())
    quota = total + 100_000

    async def work(shelf):
        kept = await take(shelf, tiny)
        seen = objects_of(shelf)
        told = Told()
        with pytest.raises(StorageError, match=rf"the store may take {quota} in all: \d+ too few"):
            await shelf.split(kept.model_sha256, HALVES, told)
        assert told.all == []
        assert shelf.kept() == (kept.model_sha256,)
        assert objects_of(shelf) == seen
        assert psutil.Process().children() == []

    with_shelf(root, work, quota_bytes=quota)


def test_a_cancelled_split_leaves_neither_files_nor_a_process(root, tiny):
    async def work(shelf):
        kept = await take(shelf, tiny)
        seen = objects_of(shelf)
        begun = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            task = group.create_task(shelf.split(kept.model_sha256, HALVES, lambda *_: begun.set()))
            await begun.wait()
            task.cancel()
        assert scratch_of(root) == []
        assert objects_of(shelf) == seen
        assert psutil.Process().children() == []

    with_shelf(root, work)


# ---- shards go to other PCs


@pytest.fixture
def two(tmp_path):
    """Two nodes' folders."""
    return tmp_path / "a", tmp_path / "b"


def with_two(roots, work):
    async def run():
        async with opened(roots[0]) as a, opened(roots[1]) as b:
            return await work(a, b)

    return asyncio.run(run())


def test_a_shard_is_fetched_without_the_weights_of_others(two, tiny):
    async def work(a, b):
        _, manifest = await cut(a, tiny)
        source, told = StoreSource(a.store), Told()
        folder = open_shard_folder(await b.fetch(manifest, HALVES[1], [source], told))
        assert folder.manifest_sha256 == manifest
        folder.verify(HALVES[1])
        first, second = folder.manifest.shards
        assert (folder.path / second.weights.path).is_file()
        assert not (folder.path / first.weights.path).exists()
        assert not folder.text_folder.exists()
        done = [amount for amount, _ in told.of("push")]
        assert done == sorted(done)
        assert told.of("push")[-1] == (done[-1], done[-1])
        fetched = {name for name, _ in source.asked}
        sizes = {e.sha256: e.num_bytes for e in folder.manifest.files}
        assert done[-1] == sum(sizes[name] for name in fetched if name != manifest)
        head = open_shard_folder(await b.fetch(manifest, HALVES[0], [source], Told()))
        assert (head.text_folder / "tokenizer.json").is_file()

    with_two(two, work)


def test_a_second_fetch_moves_nothing_also_after_a_restart(two, tiny):
    async def first(a, b):
        _, manifest = await cut(a, tiny)
        await b.fetch(manifest, HALVES[0], [StoreSource(a.store)], Told())
        return manifest

    manifest = with_two(two, first)

    async def again(a, b):
        source = StoreSource(a.store)
        folder = await b.fetch(manifest, HALVES[0], [source], Told())
        assert source.asked == []
        assert (
            open_shard_folder(await b.fetch(manifest, HALVES[0], [Silent()], Told())).path == folder
        )

    with_two(two, again)


def test_s10_a_manifest_that_is_said_to_be_huge_is_refused_before_any_of_it_comes(two, tiny):
    async def work(a, b):
        _, manifest = await cut(a, tiny)
        source = StoreSource(a.store, "liar")
        num_bytes = MAX_MANIFEST_BYTES + 1
        num_chunks = -(-num_bytes // CHUNK_BYTES)
        source.lists[manifest] = ChunkList(1, manifest, num_bytes, bytes(num_chunks * 32)).encoded()
        with pytest.raises(ShardCorruptError, match=f"liar: it has {num_bytes} bytes"):
            await b.fetch(manifest, HALVES[0], [source], Told())
        assert source.asked == []

    with_two(two, work)


def test_what_is_no_manifest_or_no_shard_is_refused_and_not_held(two, tiny):
    async def work(a, b):
        kept, manifest = await cut(a, tiny)
        source = StoreSource(a.store)
        with pytest.raises(ShardCorruptError, match="manifest can't be read"):
            await b.fetch(kept.model_sha256, HALVES[0], [source], Told())
        with pytest.raises(ShardCorruptError, match=r"no shard of layers 1\.\.3"):
            await b.fetch(manifest, LayerRange(1, 4), [source], Told())
        with pytest.raises(ShardCorruptError, match="files can't be read"):
            await b.keep(manifest, [source], Told())
        assert b.kept() == ()
        b.store.collect_garbage(10**12)
        assert objects_of(b) == set()

    with_two(two, work)


def test_s10_a_shard_that_changed_on_the_disk_is_found_and_fetched_anew(two, tiny):
    async def work(a, b):
        _, manifest = await cut(a, tiny)
        source = StoreSource(a.store)
        await b.fetch(manifest, HALVES[0], [source], Told())
        await b.verify(manifest, HALVES[0])
        shard = stored_manifest(b.store, manifest).shards[0]
        with b.store.object_path(shard.weights.sha256).open("r+b") as file:
            file.write(b"damage")
        with pytest.raises(ShardCorruptError, match="changed on the disk"):
            await b.verify(manifest, HALVES[0])
        folder = open_shard_folder(await b.fetch(manifest, HALVES[0], [source], Told()))
        folder.verify(HALVES[0])

    with_two(two, work)


def test_shards_stay_until_they_are_released_and_the_kept_model_stays_then(root, tiny):
    async def work(shelf):
        kept, manifest = await cut(shelf, tiny)
        shelf.store.collect_garbage(10**12)
        shards = stored_manifest(shelf.store, manifest).files
        assert all(shelf.store.has(entry.sha256) for entry in shards)
        shelf.release(manifest)
        shelf.release("b" * 64)
        shelf.store.collect_garbage(10**12)
        assert not shelf.store.has(manifest)
        texts = stored_manifest_texts(shards)
        assert all(shelf.store.has(entry.sha256) for entry in texts)  # the model's too
        assert not any(shelf.store.has(e.sha256) for e in shards if e not in texts)
        assert shelf.kept() == (kept.model_sha256,)
        shelf.let_go(kept.model_sha256)
        assert shelf.kept() == (kept.model_sha256,)
        shelf.store.collect_garbage(10**12)
        assert shelf.kept() == ()
        assert objects_of(shelf) == set()

    def stored_manifest_texts(shards):
        return [entry for entry in shards if entry.path.startswith("text/")]

    with_shelf(root, work)


def test_what_the_pool_ran_before_goes_and_what_it_runs_now_stays(root, tiny):
    async def work(shelf):
        kept, before = await cut(shelf, tiny)
        now = await shelf.split(kept.model_sha256, THIRDS, Told())
        shelf.let_go_all_but((kept.model_sha256, now))
        shelf.store.collect_garbage(10**12)
        assert not shelf.store.has(before)
        assert all(shelf.store.has(e.sha256) for e in stored_manifest(shelf.store, now).files)
        assert shelf.kept() == (kept.model_sha256,)
        shelf.let_go_all_but(())
        shelf.store.collect_garbage(10**12)
        assert objects_of(shelf) == set()

    with_shelf(root, work)


@pytest.mark.embedded
def test_a_gguf_is_not_even_hashed_a_second_time(root, data_dir, embedded):
    gguf = fetch_embedded_gguf(data_dir)
    assert gguf.stem.startswith(embedded.name)

    async def work(shelf):
        kept = await shelf.take_in(str(gguf), data_dir, Told())
        told = Told()
        assert await shelf.take_in(str(gguf), data_dir, told) == kept
        assert told.all == []

    with_shelf(root, work)


def test_a_fetch_that_is_cancelled_goes_on_where_it_was(two, large):
    async def work(a, b):
        _, manifest = await cut(a, large, WHOLE)
        slow = StoreSource(a.store)
        slow.delay_s = 0.05
        some = asyncio.Event()

        def report(_step, done, total, _unit):
            if 0 < done < total:
                some.set()

        async with asyncio.TaskGroup() as group:
            task = group.create_task(b.fetch(manifest, WHOLE[0], [slow], report))
            await some.wait()
            task.cancel()
        there = {
            e.sha256 for e in stored_manifest(b.store, manifest).files if b.store.has(e.sha256)
        }
        assert there
        again = StoreSource(a.store)
        open_shard_folder(await b.fetch(manifest, WHOLE[0], [again], Told())).verify(WHOLE[0])
        asked = {name for name, _ in again.asked}
        assert asked
        assert not asked & {manifest, *there}

    with_two(two, work)


# ---- a second PC keeps the model


def test_a_second_pc_keeps_the_model_and_cuts_it_the_same(two, tiny):
    async def work(a, b):
        kept, manifest = await cut(a, tiny)
        source, told = StoreSource(a.store), Told()
        await b.keep(kept.model_sha256, [source], told)
        assert b.kept() == a.kept()
        total = sum(path.stat().st_size for path in tiny.iterdir())
        assert told.of("keep")[-1] == (total, total)
        assert await b.split(kept.model_sha256, HALVES, Told()) == manifest
        await b.keep(kept.model_sha256, [Silent()], Told())
        return kept

    kept = with_two(two, work)

    async def restarted(shelf):
        assert shelf.kept() == (kept.model_sha256,)
        shelf.store.collect_garbage(10**12)
        assert shelf.kept() == (kept.model_sha256,)

    with_shelf(two[1], restarted)


def test_a_kept_file_that_is_damaged_is_fetched_anew_and_only_that(two, tiny):
    async def work(a, b):
        kept = await take(a, tiny)
        await b.keep(kept.model_sha256, [StoreSource(a.store)], Told())
        name = sha256_of((tiny / "openvino_model.bin").read_bytes())
        with b.store.object_path(name).open("r+b") as file:
            file.write(b"damage")
        assert b.kept() == ()
        source = StoreSource(a.store)
        await b.keep(kept.model_sha256, [source], Told())
        assert b.kept() == (kept.model_sha256,)
        assert {asked for asked, _ in source.asked} == {name}

    with_two(two, work)


def test_a_model_that_nobody_has_whole_is_not_kept(two, tiny):
    async def work(a, b):
        kept = await take(a, tiny)
        a.store.remove(sha256_of((tiny / "tokenizer.json").read_bytes()))
        with pytest.raises(ShardCorruptError, match="source: The store has no file"):
            await b.keep(kept.model_sha256, [StoreSource(a.store)], Told())
        assert b.kept() == ()

    with_two(two, work)


def test_a_damaged_record_costs_a_look_and_nothing_else(root, tiny):
    kept = with_shelf(root, lambda shelf: take(shelf, tiny))
    (root / "work" / "shelf.json").write_bytes(b"{")

    async def work(shelf):
        assert len(shelf.notes) == 1
        assert shelf.kept() == ()
        assert await take(shelf, tiny) == kept
        assert shelf.kept() == (kept.model_sha256,)

    with_shelf(root, work)


# ---- the embedded model, and being killed


@pytest.mark.embedded
def test_the_embedded_model_is_taken_in_cut_and_fetched(two, data_dir, embedded):
    layers = (LayerRange(0, 14), LayerRange(14, 30))

    async def work(a, b):
        told = Told()
        kept = await a.take_in(None, data_dir, told)
        assert kept.model.name == embedded.name
        assert kept.can_be_paged
        weights = chunk_list_of(pieces_of(embedded.bin)).sha256
        if embedded.bin.stat().st_dev == two[0].stat().st_dev:
            assert a.store.object_path(weights).samefile(embedded.bin)
        again = Told()
        assert await a.take_in(None, data_dir, again) == kept
        assert again.of("keep") == []
        manifest = await a.split(kept.model_sha256, layers, told)
        folder = open_shard_folder(await b.fetch(manifest, layers[1], [StoreSource(a.store)], told))
        assert folder.manifest.model == kept.model
        folder.verify(layers[1])

    with_two(two, work)


@pytest.mark.embedded
def test_a_node_killed_while_it_cuts_leaves_nothing_after_its_next_start(root, data_dir, embedded):
    kept = with_shelf(root, lambda shelf: shelf.take_in(None, data_dir, Told()))
    child = subprocess.Popen(
        [sys.executable, "-m", "tests.integration.shelf_child", root, kept.model_sha256, "10,20"],
        cwd=CHECKOUT,
        stdout=subprocess.PIPE,
    )
    with child:
        assert child.stdout.readline() == b"cutting\n"
        workers = psutil.Process(child.pid).children(recursive=True)
        child.kill()
    assert scratch_of(root) != []

    async def work(shelf):
        assert shelf.kept() == (kept.model_sha256,)
        before = objects_of(shelf)
        _, alive = await asyncio.to_thread(psutil.wait_procs, workers, 30)
        assert alive == []
        assert scratch_of(root) == []
        assert list((root / "store" / "partial").iterdir()) == []
        layers = (LayerRange(0, 10), LayerRange(10, 20), LayerRange(20, 30))
        manifest = await shelf.split(kept.model_sha256, layers, Told())
        assert manifest not in before

    with_shelf(root, work)


def test_records_name_only_what_is_there(root, tiny):
    """A model whose file went while the node was off is forgotten at its start."""
    kept = with_shelf(root, lambda shelf: take(shelf, tiny))
    (root / "store" / "objects" / sha256_of((tiny / "config.json").read_bytes())).unlink()

    async def work(shelf):
        assert shelf.kept() == ()
        assert await take(shelf, tiny) == kept
        assert shelf.kept() == (kept.model_sha256,)
        assert msgspec.json.decode((root / "work" / "shelf.json").read_bytes())["models"]

    with_shelf(root, work)


# ---- a model goes


async def drop(shelf, model_sha256):
    return await shelf.drop(model_sha256, shelf.store.paths.root.parent)


def test_a_dropped_model_is_gone_with_its_shards_and_another_keeps_what_both_have(root, tiny):
    async def work(shelf):
        first, _ = await cut(shelf, tiny)
        (tiny / "tokenizer_config.json").write_text('{"eos_token": "</s>"}')
        second = await take(shelf, tiny)
        both = {line.model_sha256: line for line in await shelf.listed()}
        assert set(both) == {first.model_sha256, second.model_sha256}
        line = both[first.model_sha256]
        assert (line.name, line.num_layers, line.is_in_use) == ("tiny", 4, False)
        before = sum(path.stat().st_size for path in (root / "store/objects").iterdir())
        freed = await drop(shelf, first.model_sha256)
        after = sum(path.stat().st_size for path in (root / "store/objects").iterdir())
        assert freed == before - after > 0
        assert shelf.kept() == (second.model_sha256,)
        # What the two share is still whole: the second can be cut.
        assert await shelf.split(second.model_sha256, HALVES, Told())
        await drop(shelf, second.model_sha256)
        assert objects_of(shelf) == set()
        assert await drop(shelf, second.model_sha256) == 0
        assert (tiny / "openvino_model.bin").is_file()  # the person's own stays

    with_shelf(root, work)
    with_shelf(root, lambda shelf: assert_empty(shelf, root))


async def assert_empty(shelf, root):
    assert await shelf.listed() == ()
    assert not list((root / "store/objects").iterdir())


def test_what_daisy_converted_goes_along_and_what_a_person_linked_in_stays(root, large):
    async def work(shelf, own):
        kept = await take(shelf, own)
        await drop(shelf, kept.model_sha256)

    own = root / "models" / "gguf-1"
    own.parent.mkdir(parents=True)
    shutil.copytree(large, own)
    with_shelf(root, lambda shelf: work(shelf, own))
    assert not own.exists()
    elsewhere = root.parent / "elsewhere"
    shutil.copytree(large, elsewhere / "gguf-2")
    own.parent.rmdir()
    own.parent.symlink_to(elsewhere, target_is_directory=True)
    with_shelf(root, lambda shelf: work(shelf, elsewhere / "gguf-2"))
    assert (elsewhere / "gguf-2" / "openvino_model.bin").is_file()


def test_nothing_is_dropped_while_a_model_is_read_or_cut(root, tiny):
    async def work(shelf):
        kept = await take(shelf, tiny)
        begun = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            cutting = group.create_task(
                shelf.split(kept.model_sha256, HALVES, lambda *_: begun.set())
            )
            await begun.wait()
            with pytest.raises(ModelInUseError):
                await drop(shelf, kept.model_sha256)
        assert cutting.result()
        assert shelf.kept() == (kept.model_sha256,)

    with_shelf(root, work)
