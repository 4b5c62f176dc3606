"""A folder of shards appears whole, under the name it was given, or not at all."""

import errno
import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from engine.domain import LayerRange
from engine.errors import (
    InferenceError,
    ModelFileError,
    PlacementError,
    RequestCancelledError,
    StorageError,
    UnsupportedModelError,
    UsageError,
)
from engine.pipeline.shard_folder import open_shard_folder
from engine.splitter.manifest import decode_manifest
from engine.splitter.split import balanced_ranges, split_model
from engine.splitter.weights import WeightBytes
from tests.unit.splitter.cutting import CORE, MODELS, constants, xml_of
from tests.unit.splitter.splitting import opened, order, split

if TYPE_CHECKING:
    from engine.splitter.orders import Progress

CASES = json.loads(
    (Path(__file__).parents[2] / "vectors" / "cases" / "K28.json").read_text("utf-8")
)


def lengths(manifest):
    return [len(shard.layers) for shard in manifest.shards]


def nothing_beside(folder):
    """Nothing is left, not even hidden."""
    return list(folder.iterdir()) == []


# ---- what comes out --------------------------------------------------------------------------


def test_a_split_folder_holds_what_its_manifest_says(tmp_path):
    result = split(tmp_path / "out", num_stages=3)
    manifest = opened(tmp_path / "out")
    assert result.folder == str(tmp_path / "out")
    assert open_shard_folder(tmp_path / "out").manifest_sha256 == result.manifest_sha256
    assert len(manifest.shards) == 3
    assert manifest.model.num_layers == 4
    assert manifest.model.hidden_size == 64
    assert manifest.model.vocab_size == 512
    assert manifest.model.num_kv_heads == (2,) * 4
    assert manifest.model.head_size == manifest.model.value_head_size == (16,) * 4
    assert manifest.model.weight_precision == "f32"
    assert manifest.model.context_length == 512
    assert manifest.model.eos_token_ids == (2,)
    assert manifest.model.kv_bytes_per_token(2, LayerRange(0, 4)) == 4 * 2 * 32 * 2
    assert (tmp_path / "out" / "text" / "config.json").read_bytes() == (
        MODELS / "llama" / "config.json"
    ).read_bytes()


def test_the_weights_on_disk_are_the_sources(tmp_path):
    """f32 stays f32: nothing is rounded on the way."""
    split(tmp_path / "out", num_stages=2, has_golden=False)
    source = constants(CORE.read_model(xml_of("llama")))
    large = {key for key, data in source.items() if len(data) > 64}
    found = {}
    for shard in opened(tmp_path / "out").shards:
        found |= constants(CORE.read_model(tmp_path / "out" / shard.xml.path))
    assert large <= found.keys()
    assert all(found[key] == source[key] for key in large)


def test_longer_keys_than_values_are_told(tmp_path):
    split(tmp_path / "out", "deepseek-v2", has_golden=False)
    model = opened(tmp_path / "out").model
    assert (model.head_size, model.value_head_size) == ((24,) * 4, (16,) * 4)


@pytest.mark.parametrize(
    ("name", "window", "is_paged"),
    [("llama", None, True), ("mistral-window", 24, True), ("mpt", None, False)],
)
def test_each_shard_says_how_it_can_run(tmp_path, name, window, is_paged):
    split(tmp_path / "out", name, cuts=(2,), has_golden=False)
    for shard in opened(tmp_path / "out").shards:
        assert (shard.sliding_window, shard.can_be_paged) == (window, is_paged)
        assert is_paged == (shard.paged_refusal is None)


@pytest.mark.parametrize(("cuts", "expected"), [((), [4]), ((1,), [1, 3]), ((1, 2, 3), [1] * 4)])
def test_cuts_are_obeyed(tmp_path, cuts, expected):
    split(tmp_path / "out", cuts=cuts, has_golden=False)
    assert lengths(opened(tmp_path / "out")) == expected


def test_no_wish_is_one_shard(tmp_path):
    split(tmp_path / "out", has_golden=False)
    assert lengths(opened(tmp_path / "out")) == [4]


def test_progress_only_grows(tmp_path):
    told: list[Progress] = []
    split_model(order(tmp_path / "out", num_stages=2), told.append, lambda: None)
    assert {p.phase for p in told} == {"analyse", "cut", "golden", "hash"}
    for phase in ("analyse", "cut", "golden"):
        done = [p.done for p in told if p.phase == phase]
        assert done == sorted(done)
        assert done[-1] == next(p.total for p in told if p.phase == phase)
    assert all(0 <= p.done <= p.total for p in told)


# ---- how to divide ----------------------------------------------------------------------------


def test_the_head_counts_as_work_of_the_last_stage():
    """Eight layers of 10 and a head of 40: the last stage gets fewer layers."""
    weights = WeightBytes((10,) * 8, embedding=40, head=40, precision="f16")
    assert [len(r) for r in balanced_ranges(weights, 2)] == [6, 2]
    assert [len(r) for r in balanced_ranges(weights, 1)] == [8]


def test_no_stage_is_left_without_layers_by_a_large_head():
    weights = WeightBytes((10,) * 4, embedding=0, head=10_000, precision="f16")
    assert all(len(r) >= 1 for r in balanced_ranges(weights, 4))
    assert len(balanced_ranges(weights, 4)) == 4


@pytest.mark.parametrize("num_stages", [-1, 5, 100])
def test_more_stages_than_layers_are_refused(tmp_path, num_stages):
    with pytest.raises(PlacementError, match=f"4 layers.*{num_stages} stages"):
        split(tmp_path / "out", num_stages=num_stages)
    assert nothing_beside(tmp_path)


@pytest.mark.parametrize("cuts", [(0,), (4,), (-1,), (2, 2), (3, 1), (1, 9), (10**30,)])
def test_cuts_that_do_not_fit_are_refused(tmp_path, cuts):
    with pytest.raises(UsageError, match="cut"):
        split(tmp_path / "out", cuts=cuts)
    assert nothing_beside(tmp_path)


# ---- everything or nothing ---------------------------------------------------------------------


class CancelAt:
    """Says stop at the n-th question, and counts how often it was asked."""

    def __init__(self, at):
        self.at = at
        self.count = 0

    def __call__(self):
        self.count += 1
        if self.count == self.at:
            raise RequestCancelledError("The work was stopped.")


def test_a_split_is_asked_often_whether_to_go_on(tmp_path):
    """Before each shard, each file's hash and each golden group."""
    never = CancelAt(None)
    split_model(order(tmp_path / "out", num_stages=2), lambda _: None, never)
    assert never.count >= 2 + 2 + len(opened(tmp_path / "out").files)


@pytest.mark.parametrize("at", [1, 2, 5, 8, 11])
def test_a_cancelled_split_leaves_nothing_behind(tmp_path, at):
    cancel = CancelAt(at)
    with pytest.raises(RequestCancelledError):
        split_model(order(tmp_path / "out", num_stages=2), lambda _: None, cancel)
    assert cancel.count == at
    assert nothing_beside(tmp_path)


def test_a_fault_of_ours_leaves_nothing_behind(tmp_path):
    def report(progress):
        if progress.phase == "golden":
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        split_model(order(tmp_path / "out"), report, lambda: None)
    assert nothing_beside(tmp_path)


@pytest.mark.parametrize("kind", ["folder", "empty folder", "file", "dangling link"])
def test_what_is_there_already_is_never_touched(tmp_path, kind):
    out = tmp_path / "out"
    if kind == "file":
        out.write_text("mine")
    elif kind == "dangling link":
        out.symlink_to(tmp_path / "gone")
    else:
        out.mkdir()
        if kind == "folder":
            (out / "mine").write_text("mine")
    with pytest.raises(UsageError, match="out exists already"):
        split(out)
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_a_folder_that_appears_meanwhile_is_not_replaced(tmp_path):
    def report(progress):
        if progress.phase == "cut":
            (tmp_path / "out").mkdir(exist_ok=True)
            (tmp_path / "out" / "mine").write_text("mine")

    with pytest.raises(StorageError):
        split_model(order(tmp_path / "out", has_golden=False), report, lambda: None)
    assert [p.name for p in tmp_path.rglob("*")] == ["out", "mine"]


def test_a_parent_that_is_a_file_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="file can't be written"):
        split(tmp_path / "file" / "out")
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("name", ["x" * 256, "模" * 86, "nul\0byte"])
def test_a_name_no_folder_can_have_is_refused_before_any_work(tmp_path, name):
    told = []
    with pytest.raises(StorageError, match="can't be made"):
        split_model(order(tmp_path / name), told.append, lambda: None)
    assert told == []
    assert nothing_beside(tmp_path)


@pytest.fixture
def small_disk(tmp_path):
    """A disk of 80 MB of its own, and a way to mount it again.

    Yields:
        The folder it is mounted on.
    """
    disk = tmp_path / "disk"
    disk.mkdir()
    done = _run("mount", "-t", "tmpfs", "-o", "size=80m", "tmpfs", str(disk))
    if done.returncode:
        pytest.skip(f"no file system may be mounted here: {done.stderr.strip()}")
    yield disk
    assert _run("umount", str(disk)).returncode == 0


def _run(program, *arguments):
    found = shutil.which(program)
    if found is None:
        pytest.skip(f"there is no {program} here")
    return subprocess.run([found, *arguments], capture_output=True, text=True, check=False)


def make_read_only(disk):
    assert _run("mount", "-o", "remount,ro", str(disk)).returncode == 0


def fill(disk, left):
    """Take all but so many bytes of a disk."""
    stat = os.statvfs(disk)
    free = stat.f_bavail * stat.f_frsize
    with (disk / "filler").open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, free - left)


def test_too_little_space_is_told_before_anything_is_written(small_disk):
    fill(small_disk, 1_000_000)
    with pytest.raises(StorageError, match=r"need \d+ bytes.* too few"):
        split(small_disk / "out")
    assert [p.name for p in small_disk.iterdir()] == ["filler"]


@pytest.mark.parametrize(
    ("phase", "left"),
    [
        ("cut", 0),
        ("cut", 4096),
        ("cut", 380_000),
        ("cut", 450_000),
        ("cut", 620_000),
        ("golden", 0),
        ("golden", 4096),
    ],
)
def test_a_disk_that_fills_up_meanwhile_leaves_nothing_behind(small_disk, phase, left):
    """Whether weights, graph, golden vectors or text no longer fit."""

    def report(progress):
        if progress.phase == phase and not (small_disk / "filler").exists():
            fill(small_disk, left)

    text = (("tokenizer.json", str(MODELS / "llama" / "openvino_model.xml")),)
    with pytest.raises(StorageError):
        split_model(order(small_disk / "out", text_files=text), report, lambda: None)
    assert [p.name for p in small_disk.iterdir()] == ["filler"]


def test_a_read_only_disk_is_said_to_be_one(small_disk):
    make_read_only(small_disk)
    with pytest.raises(StorageError, match=os.strerror(errno.EROFS)):
        split(small_disk / "out")


@pytest.fixture(scope="module")
def plain_split(tmp_path_factory):
    out = tmp_path_factory.mktemp("plain") / "out"
    split(out, has_golden=False)
    return opened(out)


# ---- what goes in -------------------------------------------------------------------------------


def test_a_text_file_that_is_gone_is_named(tmp_path):
    texts = (("tokenizer.json", str(tmp_path / "gone.json")),)
    with pytest.raises(ModelFileError, match=r"gone\.json can't be read"):
        split(tmp_path / "out", text_files=texts)
    assert nothing_beside(tmp_path)


@pytest.mark.parametrize("name", ["../x.json", "A.json", "a b.json", "模.json"])
def test_a_text_file_may_not_be_carried_to_another_place(tmp_path, name):
    texts = ((name, str(MODELS / "llama" / "config.json")),)
    with pytest.raises(ModelFileError, match="can't be carried along"):
        split(tmp_path / "out", text_files=texts)
    assert nothing_beside(tmp_path)


def test_a_model_that_cannot_be_cut_leaves_nothing_behind(tmp_path):
    with pytest.raises(UnsupportedModelError, match="share their KV cache"):
        split(tmp_path / "out", "shared-kv-gemma3n")
    assert nothing_beside(tmp_path)


def test_a_model_with_values_that_are_not_finite_is_not_split(tmp_path):
    """Damaged weights are found by the golden run."""
    source = tmp_path / "source"
    source.mkdir()
    for file in (MODELS / "llama").iterdir():
        (source / file.name).write_bytes(file.read_bytes())
    sizes = re.findall(
        rb'offset="(\d+)" size="16384"', (source / "openvino_model.xml").read_bytes()
    )
    begin = int(sizes[0])  # of the first matrix of 64 x 64
    with (source / "openvino_model.bin").open("r+b") as weights:
        weights.seek(begin)
        weights.write(b"\xff" * 16384)
    out = tmp_path / "shards" / "out"
    with pytest.raises(InferenceError, match=r"Layers 0\.\.3.*not finite"):
        split(out, xml=str(source / "openvino_model.xml"))
    assert nothing_beside(out.parent)


@pytest.mark.parametrize("name", CASES["folders"], ids=lambda n: ascii(n)[:20])
def test_any_folder_name_works_as_source_and_as_goal(tmp_path, name):
    """As a model's folder and as the folder of shards, and opened a second time."""
    source = tmp_path / "models" / name
    source.mkdir(parents=True)
    for file in (MODELS / "llama").iterdir():
        (source / file.name).symlink_to(file)
    out = tmp_path / "shards" / name
    asked = order(out, xml=str(source / "openvino_model.xml"), cuts=(2,), has_golden=False)
    split_model(msgspec.structs.replace(asked, name=name), lambda _: None, lambda: None)
    assert opened(out).model.name == name
    folder = open_shard_folder(out)
    assert folder.path.name == name
    assert [p.name for p in out.parent.iterdir()] == [name]


def test_a_models_name_is_kept_as_given_and_becomes_no_path(plain_split, tmp_path):
    """Only the manifest holds it: the files are called as those of any other model."""
    out = tmp_path / "out"
    asked = msgspec.structs.replace(order(out, has_golden=False), name="../../a:b\tNUL ")
    split_model(asked, lambda _: None, lambda: None)
    manifest = opened(out)
    assert manifest.model.name == asked.name
    assert [file.path for file in manifest.files] == [file.path for file in plain_split.files]


@pytest.mark.parametrize(
    "name", CASES["model_names_that_become_files"], ids=lambda n: ascii(n)[:20]
)
def test_a_manifest_keeps_any_name(plain_split, name):
    model = msgspec.structs.replace(plain_split.model, name=name)
    manifest = msgspec.structs.replace(plain_split, model=model)
    assert decode_manifest(manifest.encoded()) == manifest


@pytest.fixture
def hub_cache(tmp_path):
    """A model as the hub's cache lays it out: links to blobs, in folders nobody may write."""
    root = tmp_path / "models--org--tiny"
    blobs, snapshot = root / "blobs", root / "snapshots" / "abc"
    blobs.mkdir(parents=True)
    snapshot.mkdir(parents=True)
    for blob, file in (
        ("1111", "openvino_model.xml"),
        ("2222", "openvino_model.bin"),
        ("3333", "config.json"),
    ):
        (blobs / blob).write_bytes((MODELS / "llama" / file).read_bytes())
        (snapshot / file).symlink_to(f"../../blobs/{blob}")
    return root


def _split_cache(root, out):
    snapshot = root / "snapshots" / "abc"
    texts = (("config.json", str(snapshot / "config.json")),)
    return split(out, xml=str(snapshot / "openvino_model.xml"), text_files=texts, num_stages=2)


def test_a_hub_cache_of_links_is_split_and_left_as_it_was(tmp_path, hub_cache):
    before = {p: p.lstat().st_mtime_ns for p in hub_cache.rglob("*")}
    _split_cache(hub_cache, tmp_path / "out")
    manifest = opened(tmp_path / "out")
    assert len(manifest.shards) == 2
    assert not any(path.is_symlink() for path in (tmp_path / "out").rglob("*"))
    assert {p: p.lstat().st_mtime_ns for p in hub_cache.rglob("*")} == before


def test_a_hub_cache_on_a_read_only_disk_is_split(small_disk, hub_cache, tmp_path):
    shutil.copytree(hub_cache, small_disk / hub_cache.name, symlinks=True)
    make_read_only(small_disk)
    _split_cache(small_disk / hub_cache.name, tmp_path / "out")
    assert len(opened(tmp_path / "out").shards) == 2


def test_a_link_to_a_blob_that_is_gone_is_an_error_of_the_file(tmp_path, hub_cache):
    (hub_cache / "blobs" / "2222").unlink()
    with pytest.raises(ModelFileError, match=r"openvino_model"):
        _split_cache(hub_cache, tmp_path / "out")
    assert not (tmp_path / "out").exists()
