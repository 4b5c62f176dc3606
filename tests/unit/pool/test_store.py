"""The store on a real disk: what is whole, what is on its way, and what is damaged."""

import errno
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import msgspec
import pytest

import engine.pool.incoming
from engine.domain import LayerRange
from engine.errors import (
    ModelFileError,
    ModelNotFoundError,
    ShardCorruptError,
    StorageError,
    UsageError,
)
from engine.messages.chain import Placement, StagePlace
from engine.pipeline.shard_folder import open_shard_folder
from engine.pool.chunks import CHUNK_BYTES, ChunkList
from engine.pool.disk import StorePaths, bytes_below, link_or_copy
from engine.pool.shard_files import (
    files_for,
    import_folder,
    lay_out,
    stored_manifest,
    take_file,
    verify_file,
)
from engine.pool.store import ShardStore
from engine.splitter.manifest import FileEntry, sha256_of
from tests.unit.pool.files import chunked, make_shard_folder, pieces, random_bytes
from tests.unit.pool.test_chunks import HOSTILE_NAMES

DATA = random_bytes(2 * CHUNK_BYTES + 1000, 1)
CHUNKS = chunked(DATA)
NAME = CHUNKS.sha256
TINY_STORE = 4096  # marker and chunk lists of a few small files


def put(store, data):
    """Bring a file in, chunk by chunk."""
    chunks = chunked(data)
    for index in store.begin(chunks):
        store.write_chunk(chunks.sha256, index, pieces(data)[index])
    store.finish(chunks.sha256)
    return chunks.sha256


@pytest.fixture
def root(tmp_path):
    """Where the store is."""
    return tmp_path / "store"


@pytest.fixture
def store(root):
    """An empty store."""
    return ShardStore(root)


# ---- a file comes in


def test_a_file_comes_in_chunks_in_any_order_and_is_whole_at_the_end(store, root):
    """Not there before, there afterwards, under its hash."""
    assert store.begin(CHUNKS) == (0, 1, 2)
    for index in (2, 0, 1):
        assert not store.has(NAME)
        store.write_chunk(NAME, index, pieces(DATA)[index])
    assert store.missing_chunks(NAME) == ()
    assert store.finish(NAME) == root / "objects" / NAME
    assert (root / "objects" / NAME).read_bytes() == DATA
    assert list((root / "partial").iterdir()) == []
    assert store.chunk_list(NAME) == CHUNKS
    assert store.begin(CHUNKS) == ()
    assert store.finish(NAME) == store.object_path(NAME)
    assert store.missing_chunks(NAME) == ()


def test_an_empty_file_is_a_file(store):
    """Of no chunks."""
    name = put(store, b"")
    assert store.object_path(name).read_bytes() == b""


def test_s10_a_flipped_bit_is_refused_and_nothing_is_written(store):
    """Nor a chunk of another length, nor another chunk."""
    store.begin(CHUNKS)
    good = pieces(DATA)[1]
    for bad in (good[:-1], good + b"x", pieces(DATA)[0], bytes([good[0] ^ 128]) + good[1:], b""):
        with pytest.raises(ShardCorruptError, match="Chunk 1 of"):
            store.write_chunk(NAME, 1, bad)
    assert store.missing_chunks(NAME) == (0, 1, 2)
    store.write_chunk(NAME, 1, good)
    assert store.missing_chunks(NAME) == (0, 2)


def test_what_was_written_is_there_after_a_restart(store, root):
    """Only the rest is missing, and beginning again changes nothing."""
    store.begin(CHUNKS)
    store.write_chunk(NAME, 1, pieces(DATA)[1])
    again = ShardStore(root)
    assert again.notes == []
    assert again.missing_chunks(NAME) == (0, 2)
    assert again.begin(CHUNKS) == (0, 2)
    assert put(again, DATA) == NAME


@pytest.mark.parametrize("damage", ["missing", "truncated", "longer", "bits too many"])
def test_a_damaged_bitmap_is_made_again_by_hashing(store, root, damage):
    """What is on the disk counts, not what was noted."""
    store.begin(CHUNKS)
    store.write_chunk(NAME, 2, pieces(DATA)[2])
    bitmap = root / "partial" / f"{NAME}.bitmap"
    if damage == "missing":
        bitmap.unlink()
    else:
        bitmap.write_bytes({"truncated": b"", "longer": b"\7\7", "bits too many": b"\xff"}[damage])
    again = ShardStore(root)
    assert again.missing_chunks(NAME) == (0, 1)
    assert ShardStore(root).missing_chunks(NAME) == (0, 1)


def test_a_chunk_the_disk_lost_is_found_before_the_file_is_whole(store, root):
    """As after a power failure: the bit is there, the bytes are not."""
    store.begin(CHUNKS)
    for index, piece in enumerate(pieces(DATA)):
        store.write_chunk(NAME, index, piece)
    with (root / "partial" / f"{NAME}.data").open("r+b") as file:
        file.seek(CHUNK_BYTES)
        file.write(bytes(1000))
    store = ShardStore(root)
    with pytest.raises(ShardCorruptError, match=r"1 chunks of .* lost"):
        store.finish(NAME)
    assert store.missing_chunks(NAME) == (1,)
    assert ShardStore(root).missing_chunks(NAME) == (1,)
    store.write_chunk(NAME, 1, pieces(DATA)[1])
    assert store.finish(NAME).read_bytes() == DATA


def test_s10_a_chunk_list_that_lies_is_found_out(store, root):
    """Every chunk as listed, and yet another file; nothing of it stays."""
    other = chunked(random_bytes(CHUNK_BYTES, 9))
    lie = ChunkList(1, NAME, other.num_bytes, other.digests)
    store.begin(lie)
    store.write_chunk(NAME, 0, random_bytes(CHUNK_BYTES, 9))
    with pytest.raises(ShardCorruptError, match="is that of another file"):
        store.finish(NAME)
    with pytest.raises(ModelNotFoundError):
        store.missing_chunks(NAME)
    assert ShardStore(root).notes == []


def test_another_list_keeps_the_chunks_that_agree(store):
    """The first list lies about the second chunk; the first chunk need not come again."""
    wrong = CHUNKS.digests[:32] + bytes(32) + CHUNKS.digests[64:]
    store.begin(msgspec.structs.replace(CHUNKS, digests=wrong))
    store.write_chunk(NAME, 0, pieces(DATA)[0])
    assert store.begin(CHUNKS) == (1, 2)


def test_a_chunk_that_comes_while_the_list_is_replaced_sets_no_bit(store, monkeypatch):
    """It was verified against the old list."""
    wrong = CHUNKS.digests[:32] + bytes(32) + CHUNKS.digests[64:]
    write_at = engine.pool.incoming.write_at

    def replace_list(path, offset, data):
        monkeypatch.undo()
        write_at(path, offset, data)
        store.begin(CHUNKS)

    store.begin(msgspec.structs.replace(CHUNKS, digests=wrong))
    monkeypatch.setattr(engine.pool.incoming, "write_at", replace_list)
    store.write_chunk(NAME, 2, pieces(DATA)[2])
    assert store.missing_chunks(NAME) == (0, 1)  # found by hashing when the list came
    assert ShardStore(store.paths.root).missing_chunks(NAME) == (0, 1)


def test_finishing_too_early_is_refused(store):
    """And so is what was never begun."""
    store.begin(CHUNKS)
    with pytest.raises(ShardCorruptError, match=r"3 chunks of .* are missing"):
        store.finish(NAME)
    nobody = "0" * 64
    for call in (store.finish, store.missing_chunks, store.chunk_list, store.object_path):
        with pytest.raises(ModelNotFoundError):
            call(nobody)
    with pytest.raises(ModelNotFoundError):
        store.write_chunk(nobody, 0, b"")


# ---- serving


def test_chunks_are_served_whole_or_on_their_way(store):
    """A chunk that is not there yet is not."""
    store.begin(CHUNKS)
    store.write_chunk(NAME, 1, pieces(DATA)[1])
    assert store.serve_chunk(NAME, 1) == pieces(DATA)[1]
    with pytest.raises(ModelNotFoundError, match=r"Chunk 0 .* not here yet"):
        store.serve_chunk(NAME, 0)
    with store.paths.data(NAME).open("r+b") as file:
        file.seek(CHUNK_BYTES)
        file.write(bytes(10))
    with pytest.raises(ModelNotFoundError, match=r"Chunk 1 .* not here yet"):
        store.serve_chunk(NAME, 1)
    store.write_chunk(NAME, 1, pieces(DATA)[1])
    put(store, DATA)
    assert [store.serve_chunk(NAME, i) for i in range(3)] == pieces(DATA)
    for index in (-1, 3, 2**70):
        with pytest.raises(UsageError):
            store.serve_chunk(NAME, index)


def test_a_file_that_changed_on_the_disk_is_never_served(store, root):
    """It is taken out, so that it is fetched again."""
    put(store, DATA)
    with (root / "objects" / NAME).open("r+b") as file:
        file.write(b"!")
    with pytest.raises(ShardCorruptError, match=r"Chunk 0 .* changed on the disk"):
        store.serve_chunk(NAME, 0)
    assert not store.has(NAME)
    assert put(store, DATA) == NAME


def test_a_file_that_nobody_touched_is_not_hashed_for_each_chunk(store, root, monkeypatch):
    """It was hashed when it came; after a restart each chunk is hashed again."""
    put(store, DATA)
    monkeypatch.setattr(ChunkList, "matches", lambda *_: False)
    assert store.serve_chunk(NAME, 0) == pieces(DATA)[0]
    with pytest.raises(ShardCorruptError):
        ShardStore(root).serve_chunk(NAME, 0)


def test_verifying_reads_all_of_it(store, root):
    """A whole file passes; a changed one is taken out."""
    put(store, DATA)
    verify_file(store, NAME)
    with (root / "objects" / NAME).open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"!")
    with pytest.raises(ShardCorruptError, match="changed on the disk"):
        verify_file(store, NAME)
    assert not store.has(NAME)


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_s14_no_name_leads_out_of_the_store(store, root, name):
    """Every call refuses it, and no file appears or is read."""
    before = sorted(root.rglob("*"))
    calls = [
        lambda: store.has(name),
        lambda: store.object_path(name),
        lambda: store.chunk_list(name),
        lambda: store.missing_chunks(name),
        lambda: store.serve_chunk(name, 0),
        lambda: store.begin(msgspec.structs.replace(CHUNKS, sha256=name)),
        lambda: store.write_chunk(name, 0, b""),
        lambda: store.finish(name),
        lambda: take_file(store, Path(__file__), name),
        lambda: store.pin(name),
        lambda: store.unpin(name),
        lambda: store.remove(name),
        lambda: lay_out(store, name),
    ]
    for call in calls:
        with pytest.raises(UsageError):
            call()
    assert sorted(root.rglob("*")) == before


def test_readers_and_a_writer_at_once(store):
    """Eight threads read a file chunk by chunk while it comes in and becomes whole."""
    store.begin(CHUNKS)
    store.write_chunk(NAME, 0, pieces(DATA)[0])
    stop = threading.Event()
    wrong = []

    def read():
        while not stop.is_set():
            if store.serve_chunk(NAME, 0) != pieces(DATA)[0]:
                wrong.append("chunk 0")

    def read_recording():
        try:
            read()
        except Exception as exc:  # noqa: BLE001 - told by the test
            wrong.append(exc)

    threads = [threading.Thread(target=read_recording) for _ in range(8)]
    for thread in threads:
        thread.start()
    put(store, DATA)
    time.sleep(0.05)
    stop.set()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert store.has(NAME)


def test_two_writers_of_one_chunk_do_no_harm(store):
    """The same chunk twice, at once."""
    store.begin(CHUNKS)
    work = [(i, piece) for i, piece in enumerate(pieces(DATA))] * 2
    threads = [threading.Thread(target=store.write_chunk, args=(NAME, *job)) for job in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.finish(NAME).read_bytes() == DATA


# ---- room


def test_a_quota_is_kept_and_said_before_the_first_byte(root):
    """With the numbers; nothing is left behind."""
    store = ShardStore(root, quota_bytes=CHUNK_BYTES)
    before = sorted(root.rglob("*"))
    with pytest.raises(StorageError) as told:
        store.begin(CHUNKS)
    assert f"{len(DATA)} bytes are to come" in told.value.what
    assert f"may take {CHUNK_BYTES}" in told.value.what
    assert "Allow the store more space" in told.value.advice
    assert sorted(root.rglob("*")) == before


def test_room_is_made_by_what_was_unused_longest(root):
    """Not by what was used since, nor by what is pinned."""
    files = [random_bytes(100_000, seed) for seed in range(4)]
    store = ShardStore(root, quota_bytes=300_000 + TINY_STORE)
    names = []
    for data in files[:3]:
        names.append(put(store, data))
        time.sleep(0.01)
    store.pin(names[1])
    store.object_path(names[0])
    names.append(put(store, files[3]))
    assert [store.has(name) for name in names] == [True, True, False, True]
    store.unpin(names[1])
    put(store, random_bytes(100_000, 9))
    assert [store.has(name) for name in names] == [True, False, False, True]
    assert bytes_below(root) <= 300_000 + TINY_STORE


def test_nothing_is_taken_out_in_vain(root):
    """A file too large for the quota leaves the others alone."""
    store = ShardStore(root, quota_bytes=250_000)
    name = put(store, random_bytes(100_000))
    with pytest.raises(StorageError):
        store.begin(chunked(random_bytes(300_000, 2)))
    assert store.has(name)


def test_garbage_is_collected_until_there_is_enough(store):
    """And a file on its way stays."""
    names = []
    for seed in range(3):
        names.append(put(store, random_bytes(1000, seed)))
        time.sleep(0.01)
    store.begin(CHUNKS)
    assert store.collect_garbage(1500) == 2000
    assert [store.has(name) for name in names] == [False, False, True]
    assert store.collect_garbage(0) == 0
    assert store.collect_garbage(10**9) == 1000
    assert store.missing_chunks(NAME) == (0, 1, 2)


def test_a_disk_too_small_is_said_before_the_first_byte(root):
    """What other files on their way still need is not free."""
    free = shutil.disk_usage(root.parent).free
    store = ShardStore(root, spare_bytes=free)
    with pytest.raises(StorageError, match=rf"{len(DATA)} bytes are to come, .* disk of"):
        store.begin(CHUNKS)
    assert list((root / "partial").iterdir()) == []
    store = ShardStore(root, spare_bytes=free - len(DATA) - CHUNK_BYTES)
    store.begin(CHUNKS)
    with pytest.raises(StorageError, match="too few"):
        store.begin(chunked(random_bytes(3 * CHUNK_BYTES, 5)))


FULL_DISK = """
import sys, shutil
from pathlib import Path
from engine.errors import StorageError
from engine.pool.store import ShardStore
from tests.unit.pool.files import chunked, pieces, random_bytes
root = Path(sys.argv[1])
data = random_bytes(9_000_000)
store = ShardStore(root / "store", spare_bytes=0)
try:
    store.begin(chunked(random_bytes(20_000_000, 1)))
except StorageError as exc:
    print("early:", exc.what)
chunks = chunked(data)
store.begin(chunks)
store.write_chunk(chunks.sha256, 0, pieces(data)[0])
(root / "other").write_bytes(bytes(shutil.disk_usage(root).free - 100_000))
try:
    store.write_chunk(chunks.sha256, 1, pieces(data)[1])
except StorageError as exc:
    print("late:", exc.what)
print("missing:", store.missing_chunks(chunks.sha256))
(root / "other").unlink()
again = ShardStore(root / "store", spare_bytes=0)
print("missing:", again.missing_chunks(chunks.sha256))
for index in again.missing_chunks(chunks.sha256):
    again.write_chunk(chunks.sha256, index, pieces(data)[index])
print("whole:", again.finish(chunks.sha256).read_bytes() == data)
"""


def test_a_disk_that_fills_up_loses_nothing(tmp_path):
    """On a real file system of 16 MB: said early, said late, and gone on with afterwards."""
    unshare = shutil.which("unshare")
    if unshare is None:
        pytest.skip("unshare is not installed")
    script = f'mount -t tmpfs -o size=16m tmpfs {tmp_path} || exit 77; exec "$0" -c "$1" {tmp_path}'
    command = [unshare, "-rm", "sh", "-c", script, sys.executable, FULL_DISK]
    cwd = Path(__file__).parents[3]
    done = subprocess.run(command, capture_output=True, text=True, cwd=cwd, timeout=60, check=False)
    if done.returncode == 77 or "unshare failed" in done.stderr:
        pytest.skip(f"no file system can be mounted here: {done.stderr.strip()}")
    lines = done.stdout.splitlines()
    assert done.returncode == 0, done.stderr
    assert lines[0].startswith("early: 20000000 bytes are to come")
    assert lines[1].startswith("late: ")
    assert os.strerror(errno.ENOSPC) in lines[1]
    assert lines[2:] == ["missing: (1, 2)", "missing: (1, 2)", "whole: True"]


# ---- damage


def test_a_folder_that_is_no_store_is_set_aside_and_said(tmp_path):
    """Nothing in it is lost; a second time gets another name."""
    for number, damage in enumerate(("foreign", "old format", "a file in the way"), start=1):
        root = tmp_path / "store"
        if damage == "foreign":
            root.mkdir()
            (root / "diary.txt").write_text("mine")
        elif damage == "old format":
            (root / "format").write_bytes(b"daisy store 0\n")
        else:
            shutil.rmtree(root / "objects")
            (root / "objects").write_text("in the way")
        store = ShardStore(root)
        assert (tmp_path / f"store.damaged-{number}").is_dir()
        (note,) = store.notes
        assert f"store.damaged-{number}" in note
        assert (root / "objects" / put(store, b"works")).is_file()
        assert ShardStore(root).notes == []
    assert (tmp_path / "store.damaged-1" / "diary.txt").read_text() == "mine"


def test_a_file_in_place_of_the_store_is_set_aside(root):
    """The store gets its folder."""
    root.write_text("what is this")
    assert len(ShardStore(root).notes) == 1
    assert root.is_dir()


def test_what_a_killed_process_left_is_cleared_away(root):
    """A marker begun, a list without a file, a file without a list, a bitmap of a whole file."""
    root.mkdir()
    (root / "format.unfinished").write_bytes(b"dai")
    store = ShardStore(root)
    assert store.notes == []
    put(store, DATA)
    (root / "partial" / f"{NAME}.bitmap").write_bytes(b"\7")
    orphan = "1" * 64
    (root / "lists" / orphan).write_bytes(msgspec.structs.replace(CHUNKS, sha256=orphan).encoded())
    (root / "lists" / f"{orphan}.unfinished").write_bytes(b"x")
    (root / "objects" / ("2" * 64)).write_bytes(b"x")
    (root / "partial" / f"{'3' * 64}.data").write_bytes(b"x")
    again = ShardStore(root)
    assert again.notes == []
    left = {p.parent.name: p.name for p in root.glob("*/*")}
    assert left == {"lists": NAME, "objects": NAME}
    assert len(list(root.glob("*/*"))) == 2


@pytest.mark.parametrize("damage", ["list", "size"])
def test_a_damaged_file_is_taken_out_and_said(store, root, damage):
    """And comes again."""
    put(store, DATA)
    kept = put(store, b"kept")
    if damage == "list":
        (root / "lists" / NAME).write_bytes(b"junk")
    else:
        (root / "objects" / NAME).write_bytes(DATA[:-1])
    again = ShardStore(root)
    (note,) = again.notes
    assert NAME in note
    assert not again.has(NAME)
    assert again.has(kept)
    assert put(again, DATA) == NAME


def test_a_store_that_can_not_be_made_is_an_error_of_ours(tmp_path):
    """Not an OSError."""
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="can't be written"):
        ShardStore(tmp_path / "file" / "store")


# ---- folders of shards


@pytest.fixture
def folder(tmp_path):
    """A folder as ``daisy split`` makes it."""
    path = tmp_path / "模型 split"
    path.mkdir()
    make_shard_folder(path)
    return path


def placement(name, start, stop):
    place = StagePlace(node_id="a", address="wss", stage_index=0, layers=LayerRange(start, stop))
    whole = Placement(
        epoch=1, manifest_sha256=name, context_tokens=32, max_sequences=1, stages=(place,)
    )
    return whole, place


def test_a_folder_goes_in_and_comes_out_the_same(store, folder):
    """By links: it takes no room twice; and the pipeline opens it."""
    name = import_folder(store, folder)
    out = lay_out(store, name)
    for path in folder.rglob("*"):
        if path.is_file():
            twin = out / path.relative_to(folder)
            assert twin.read_bytes() == path.read_bytes()
            assert twin.samefile(path)
    opened = open_shard_folder(out)
    assert opened.manifest_sha256 == name
    assert opened.manifest == stored_manifest(store, name)
    order = opened.order(*placement(name, 2, 4))
    assert order.xml_path.startswith(str(out))
    assert order.golden is not None


def test_importing_again_reads_nothing_and_laying_out_again_changes_nothing(store, folder):
    """Even where the source is gone bad meanwhile: its content is in the store."""
    name = import_folder(store, folder)
    out = lay_out(store, name)
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*.bin")}
    assert import_folder(store, folder) == name
    assert lay_out(store, name) == out
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*.bin")} == before
    assert not list(out.rglob("*.unfinished"))


def test_one_shard_needs_no_others_weights(store, folder):
    """The first has the text files, the last the logits; each the golden vectors at its ends."""
    name = import_folder(store, folder)
    manifest = stored_manifest(store, name)
    first = {entry.path for entry in files_for(manifest, LayerRange(0, 2))}
    last = {entry.path for entry in files_for(manifest, LayerRange(2, 4))}
    assert first == {
        "layers-000-002/openvino_model.xml",
        "layers-000-002/openvino_model.bin",
        "text/tokenizer.json",
        "golden/after-002.f32",
    }
    assert last == {
        "layers-002-004/openvino_model.xml",
        "layers-002-004/openvino_model.bin",
        "golden/after-002.f32",
        "golden/after-004.f32",
    }
    out = lay_out(store, name, LayerRange(2, 4))
    assert not (out / "layers-000-002").exists()
    open_shard_folder(out).order(*placement(name, 2, 4))
    with pytest.raises(ShardCorruptError, match="no shard of layers 1"):
        files_for(manifest, LayerRange(1, 2))
    without = msgspec.structs.replace(manifest, golden=None)
    assert len(files_for(without, LayerRange(2, 4))) == 2


def test_where_links_are_impossible_files_are_copied(store, folder, monkeypatch):
    """As on FAT, or over two volumes."""

    def refuse(self, target):
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    monkeypatch.setattr(Path, "hardlink_to", refuse)
    name = import_folder(store, folder)
    out = lay_out(store, name)
    weights = "layers-000-002/openvino_model.bin"
    assert (out / weights).read_bytes() == (folder / weights).read_bytes()
    assert not (out / weights).samefile(folder / weights)
    inode = (out / weights).stat().st_ino
    lay_out(store, name)
    assert (out / weights).stat().st_ino == inode
    open_shard_folder(out).order(*placement(name, 0, 2))


def test_removing_a_file_removes_its_links(store, folder):
    """Or the room would not be free."""
    name = import_folder(store, folder)
    out = lay_out(store, name)
    manifest = stored_manifest(store, name)
    weights = manifest.shards[0].weights
    store.remove(weights.sha256)
    assert not (out / weights.path).exists()
    assert (folder / weights.path).exists()
    with pytest.raises(ModelNotFoundError):
        lay_out(store, name)
    assert import_folder(store, folder) == name
    assert (lay_out(store, name) / weights.path).samefile(folder / weights.path)


def test_removing_what_is_not_there_does_nothing(store, root):
    """Whole, on its way, or never heard of."""
    store.remove("0" * 64)
    store.begin(CHUNKS)
    store.remove(NAME)
    assert list(root.glob("*/*")) == []


def test_a_folder_that_is_not_what_its_manifest_says_is_refused(store, folder):
    """A byte changed, a file missing, no manifest, junk."""
    name = "layers-000-002/openvino_model.bin"
    data = (folder / name).read_bytes()
    (folder / name).write_bytes(b"!" + data[1:])
    with pytest.raises(ShardCorruptError, match=r"openvino_model.bin is not the file"):
        import_folder(store, folder)
    (folder / name).unlink()
    with pytest.raises(ShardCorruptError, match=r"openvino_model.bin is missing"):
        import_folder(store, folder)
    (folder / "manifest.json").write_text("{}")
    with pytest.raises(ShardCorruptError, match="can't be read"):
        import_folder(store, folder)
    (folder / "manifest.json").unlink()
    with pytest.raises(ModelFileError, match=r"manifest.json can't be read"):
        import_folder(store, folder)


@pytest.mark.parametrize("path", ["manifest.json", "text/con", "aux.json", "text/tokenizer.json"])
def test_a_manifest_that_names_what_no_pc_could_hold_is_refused(store, folder, path):
    """Reserved names, the manifest's own, or one name for two files."""
    manifest = make_shard_folder(folder)
    data = random_bytes(300, "text/tokenizer.json")
    bad = msgspec.structs.replace(
        manifest, text_files=(*manifest.text_files, FileEntry(path, 300, sha256_of(data)))
    ).encoded()
    import_folder(store, folder)
    name = put(store, bad)
    with pytest.raises(ShardCorruptError, match="The manifest names"):
        lay_out(store, name)
    assert not (store.paths.folders / name).exists()


def test_a_quota_counts_for_imports_too(tmp_path, folder):
    """Before the file is linked."""
    store = ShardStore(tmp_path / "store", quota_bytes=10_000)
    with pytest.raises(StorageError, match="20000 bytes"):
        import_folder(store, folder)


def test_importing_ends_a_pull_of_the_same_file(store, tmp_path):
    """What was on its way is not needed any more."""
    store.begin(CHUNKS)
    (tmp_path / "file").write_bytes(DATA)
    assert take_file(store, tmp_path / "file", NAME)
    assert not take_file(store, tmp_path / "file", NAME)
    assert store.missing_chunks(NAME) == ()
    assert list((store.paths.root / "partial").iterdir()) == []


def test_a_source_that_is_gone_is_an_error_of_ours(tmp_path):
    """Not an OSError."""
    with pytest.raises(ModelFileError, match="gone is missing"):
        link_or_copy(tmp_path / "gone", tmp_path / "target")
    assert not StorePaths(tmp_path / "nowhere").is_damaged()
