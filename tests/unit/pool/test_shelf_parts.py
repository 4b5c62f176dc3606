"""What a shelf is made of: paced reports, holds, records, and pulls of what belongs together."""

import asyncio
import os
from itertools import pairwise

import pytest

from engine.domain import LayerRange
from engine.errors import ShardCorruptError, StorageError
from engine.pool.chunks import CHUNK_BYTES, ChunkList
from engine.pool.holds import Holds
from engine.pool.paced_report import PacedReport
from engine.pool.pull import Pulls
from engine.pool.pull_files import FilesPull
from engine.pool.shelf_records import RECORDS_NAME, ShelfRecords, division_key, source_key
from engine.pool.shelf_scratch import clear_scratch, scratch_folder
from engine.pool.store import ShardStore
from engine.pool.store_threads import StoreThreads
from engine.splitter.manifest import FileEntry
from tests.unit.pool.files import Peer, chunked, pieces, random_bytes
from tests.unit.pool.shelves import StoreSource

# ---- paced reports


def test_a_report_goes_out_ten_times_a_second_with_the_first_and_the_last_word():
    told, now = [], 0.0
    paced = PacedReport(lambda *words: told.append((round(now, 3), *words)), lambda: now)
    for done in range(1001):
        paced("push", done, 1000, "bytes")
        now += 0.001
    assert told[0] == (0.0, "push", 0, 1000, "bytes")
    assert told[-1][1:] == ("push", 1000, 1000, "bytes")
    assert len(told) == 11
    assert all(later[0] - earlier[0] >= 0.099 for earlier, later in pairwise(told[:-1]))


def test_the_same_word_is_said_once_and_another_step_at_once():
    told = []
    paced = PacedReport(lambda *words: told.append(words), lambda: 5.0)
    paced("convert", 5, 5, "bytes")
    paced("convert", 5, 5, "bytes")
    paced("keep", 0, 0, "bytes")
    paced("keep", 1, 9, "bytes")
    assert told == [("convert", 5, 5, "bytes"), ("keep", 0, 0, "bytes")]


# ---- holds


@pytest.fixture
def store(tmp_path):
    return ShardStore(tmp_path / "store")


def put(store, seed, num_bytes=1000):
    data = random_bytes(num_bytes, seed)
    chunks = chunked(data)
    store.begin(chunks)
    for index, piece in enumerate(pieces(data)):
        store.write_chunk(chunks.sha256, index, piece)
    store.finish(chunks.sha256)
    return chunks.sha256


def there(store, *names):
    return [store.has(name) for name in names]


def test_a_file_that_two_hold_goes_when_both_have_let_go(store):
    a, b, c = (put(store, seed) for seed in "abc")
    holds = Holds(store)
    holds.add("model", (a, b))
    holds.add("shards", (b, c))
    holds.release("model")
    store.collect_garbage(10**9)
    assert there(store, a, b, c) == [False, True, True]
    holds.release("shards")
    holds.release("nobody")
    store.collect_garbage(10**9)
    assert there(store, b, c) == [False, False]


def test_what_failed_holds_what_it_held_before(store):
    a, b = put(store, "a"), put(store, "b")
    holds = Holds(store)
    holds.add("shards", (a,))

    def fail():
        with holds.trying("shards"):
            holds.add("shards", (b,))
            assert holds.names("shards") == {a, b}
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    store.collect_garbage(10**9)
    assert there(store, a, b) == [True, False]
    with holds.trying("shards"):
        holds.release("shards")
    assert "shards" not in holds


def test_all_but_what_runs_now_goes_and_what_is_being_tried_stays(store):
    a, b, c = (put(store, seed) for seed in "abc")
    holds = Holds(store)
    for holder, name in (("old", a), ("now", b), ("fetched", c)):
        holds.add(holder, (name,))
    with holds.trying("fetched"):
        holds.release_all_but(("now", "never heard of"))
        store.collect_garbage(10**9)
        assert there(store, a, b, c) == [False, True, True]
    holds.release_all_but(("now",))
    store.collect_garbage(10**9)
    assert there(store, b, c) == [True, False]


# ---- records


def test_a_record_outlives_its_process(tmp_path):
    records = ShelfRecords(tmp_path)
    records.keep_model("a" * 64, {"f" * 64: (5, 123)}, "source")
    records.keep_division("division", "5" * 64)
    again = ShelfRecords(tmp_path)
    assert again.models == ("a" * 64,)
    assert dict(again.signatures_of("a" * 64)) == {"f" * 64: (5, 123)}
    assert again.model_of("source") == "a" * 64
    assert again.manifest_of("division") == "5" * 64
    again.forget_all_but(())
    assert ShelfRecords(tmp_path).models == ()
    assert ShelfRecords(tmp_path).model_of("source") is None
    assert ShelfRecords(tmp_path).manifest_of("division") == "5" * 64


@pytest.mark.parametrize(
    "damage",
    [
        b"",
        b"{",
        b'{"format":9}',
        b"\xff\xfe",
        b'{"models":{"a":1}}',
        b'{"models":{"../../x":{"../y":[1,2]}}}',
        b'{"sources":{"x":"../y"}}',
    ],
)
def test_a_damaged_record_is_begun_anew_and_said(tmp_path, damage):
    (tmp_path / RECORDS_NAME).write_bytes(damage)
    records = ShelfRecords(tmp_path)
    assert len(records.notes) == 1
    assert "can't be read" in records.notes[0]
    records.keep_model("a" * 64, {"f" * 64: (1, 2)})
    assert ShelfRecords(tmp_path).notes == []


def test_a_record_does_not_grow_for_ever(tmp_path):
    records = ShelfRecords(tmp_path)
    for number in range(300):
        records.keep_division(str(number), "5" * 64)
    again = ShelfRecords(tmp_path)
    assert again.manifest_of("43") is None
    assert again.manifest_of("44") == "5" * 64


def test_the_key_of_a_source_changes_with_what_belongs_to_a_model_and_nothing_else(tmp_path):
    folder = tmp_path / "model"
    (folder / "additional_chat_templates").mkdir(parents=True)
    for name in ("openvino_model.xml", "config.json", "additional_chat_templates/rag.jinja"):
        (folder / name).write_text(name)
    key = source_key(folder)
    (folder / "README.md").write_text("read me")
    (folder / "deeper").mkdir()
    assert source_key(folder) == key
    seen = {key, source_key(folder / "openvino_model.xml")}
    os.utime(folder / "config.json", ns=(1, 1))
    seen.add(source_key(folder))
    (folder / "additional_chat_templates/rag.jinja").write_text("another")
    seen.add(source_key(folder))
    (folder / "tokenizer.json").write_text("{}")
    seen.add(source_key(folder))
    assert len(seen) == 5


def test_a_source_that_can_not_be_looked_at_has_no_key(tmp_path):
    assert source_key(tmp_path / ("x" * 300)) is None
    assert source_key(tmp_path / "missing.gguf") is None


def test_a_division_is_named_by_model_and_cuts():
    halves = (LayerRange(0, 2), LayerRange(2, 4))
    others = (LayerRange(0, 1), LayerRange(1, 4))
    keys = {division_key("a", halves), division_key("b", halves), division_key("a", others)}
    assert len(keys) == 3
    assert division_key("a", halves) == division_key("a", halves)


# ---- scratch


def test_scratch_is_gone_afterwards_also_when_the_work_fails(tmp_path):
    async def work():
        async with scratch_folder(tmp_path) as folder:
            (folder / "file").write_text("x")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        asyncio.run(work())
    assert list(tmp_path.iterdir()) == []


def test_scratch_of_a_killed_process_is_cleared_and_nothing_else(tmp_path):
    (tmp_path / "scratch-1/model").mkdir(parents=True)
    (tmp_path / "scratch-1/model/file").write_text("x")
    (tmp_path / "scratch-2").mkdir()
    (tmp_path / RECORDS_NAME).write_text("{}")
    clear_scratch(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [RECORDS_NAME]


# ---- pulls


def pulled(store, work, deadline_s=10.0):
    async def run():
        async with StoreThreads() as threads:
            await work(FilesPull(store, threads, Pulls(store, threads, deadline_s)))

    asyncio.run(run())


def entry(data):
    return FileEntry("path", len(data), chunked(data).sha256)


def test_a_small_file_that_is_said_to_be_large_is_refused_before_any_of_it_comes(store):
    data = random_bytes(5000, 1)
    name = chunked(data).sha256
    peer, liar = Peer("a", data), Peer("b", data)
    huge = CHUNK_BYTES * 1000
    liar.lists[name] = ChunkList(1, name, huge, bytes(1000 * 32)).encoded()
    with pytest.raises(ShardCorruptError, match="a: it has 5000 bytes, 4999 are"):
        pulled(store, lambda pull: pull.pull_small(name, [peer], 4999))
    with pytest.raises(ShardCorruptError, match=f"b: it has {huge} bytes"):
        pulled(store, lambda pull: pull.pull_small(name, [liar], 5000))
    assert peer.asked == liar.asked == []
    pulled(store, lambda pull: pull.pull_small(name, [liar, peer], 5000))
    assert store.has(name)


def test_a_small_file_that_changed_on_the_disk_is_fetched_anew(store):
    data = random_bytes(5000, 1)
    name = chunked(data).sha256
    pulled(store, lambda pull: pull.pull_small(name, [Peer("a", data)], 5000))
    store.object_path(name).write_bytes(random_bytes(5000, 2))
    pulled(store, lambda pull: pull.pull_small(name, [Peer("a", data)], 5000))
    assert store.object_path(name).read_bytes() == data


def test_a_large_file_of_the_store_is_no_small_one(store):
    name = put(store, "a", 6000)
    with pytest.raises(ShardCorruptError, match="6000 bytes, and 5000 are the most"):
        pulled(store, lambda pull: pull.pull_small(name, [], 5000))
    assert store.has(name)


def test_small_files_come_first_and_progress_is_that_of_all(store, tmp_path):
    sizes = (CHUNK_BYTES * 2 + 1, 10, 3000, CHUNK_BYTES)
    other = ShardStore(tmp_path / "other")
    names = [put(other, size, size) for size in sizes]
    entries = [FileEntry("path", *both) for both in zip(sizes, names, strict=True)]
    source, told = StoreSource(other), []
    pulled(
        store,
        lambda pull: pull.pull([*entries, entries[1]], [source], lambda *x: told.append(x)),
    )
    first_asked = list(dict.fromkeys(name for name, _ in source.asked))
    assert first_asked[3] == names[0]
    assert set(first_asked[:3]) == set(names[1:])
    assert {total for _, total in told} == {sum(sizes)}
    done = [amount for amount, _ in told]
    assert done == sorted(done)
    assert done[-1] == sum(sizes)
    assert all(store.has(name) for name in names)


def test_a_second_pull_asks_nobody(store):
    data = random_bytes(3 * CHUNK_BYTES, 1)
    pulled(store, lambda pull: pull.pull([entry(data)], [Peer("a", data)], lambda *_: None))
    told = []
    pulled(store, lambda pull: pull.pull([entry(data)], [], lambda *x: told.append(x)))
    assert told == [(len(data), len(data))]


def test_room_for_all_files_is_asked_before_the_first_byte_of_any(tmp_path):
    store = ShardStore(tmp_path / "small", quota_bytes=CHUNK_BYTES)
    datas = [random_bytes(n, n) for n in (10, CHUNK_BYTES - 100_000, 3_000_000)]
    peer = Peer("a", *datas)
    with pytest.raises(StorageError, match=r"\d+ bytes are to come, .* too few"):
        pulled(store, lambda pull: pull.pull(map(entry, datas), [peer], lambda *_: None))
    assert peer.asked == []


def test_what_was_begun_is_not_counted_twice(tmp_path):
    data = random_bytes(3 * CHUNK_BYTES, 1)
    store = ShardStore(tmp_path / "small", quota_bytes=len(data) + 10_000)
    chunks = chunked(data)
    store.begin(chunks)
    store.write_chunk(chunks.sha256, 1, pieces(data)[1])
    peer = Peer("a", data)
    pulled(store, lambda pull: pull.pull([entry(data)], [peer], lambda *_: None))
    assert sorted(peer.asked) == [0, 2]


def test_a_file_of_another_size_or_a_small_changed_one_is_fetched_anew(store):
    small, large = random_bytes(3000, 1), random_bytes(5 * CHUNK_BYTES, 2)
    peer = Peer("a", small, large)
    entries = [entry(small), entry(large)]
    pulled(store, lambda pull: pull.pull(entries, [peer], lambda *_: None))
    store.object_path(entries[0].sha256).write_bytes(random_bytes(3000, 3))
    with store.object_path(entries[1].sha256).open("r+b") as file:
        file.truncate(100)
    pulled(store, lambda pull: pull.pull(entries, [peer], lambda *_: None))
    assert store.object_path(entries[0].sha256).read_bytes() == small
    assert store.object_path(entries[1].sha256).read_bytes() == large


# ---- threads


def test_a_long_call_is_stopped_and_one_that_waits_is_not_begun():
    begun, ended = [], []

    async def run():
        async with StoreThreads(1) as threads:
            running = asyncio.Event()
            loop = asyncio.get_running_loop()

            def long(check):
                begun.append("long")
                loop.call_soon_threadsafe(running.set)
                try:
                    while True:
                        check()
                finally:
                    ended.append("long")

            first = asyncio.ensure_future(threads.call_stoppable(long))  # noqa: TID251
            await running.wait()
            second = asyncio.ensure_future(  # noqa: TID251
                threads.call_stoppable(lambda _: begun.append("second"))
            )
            await asyncio.sleep(0)
            second.cancel()
            await asyncio.wait([second])
            first.cancel()
            await asyncio.wait([first])
            assert ended == ["long"]
            assert first.cancelled()
            assert second.cancelled()
            assert await threads.call_stoppable(lambda _: 5) == 5

    asyncio.run(run())
    assert begun == ["long"]
