"""A folder of shards, opened: what each stage is told to load, and what is found to be missing."""

import shutil
from pathlib import Path

import msgspec
import numpy as np
import pytest

from engine.domain import LayerRange
from engine.errors import ModelNotFoundError, ShardCorruptError, UnsupportedModelError, UsageError
from engine.messages.codec import decode, encode_control
from engine.pipeline.shard_folder import (
    MAX_EXACT_ERROR,
    MAX_FAST_ERROR,
    ShardFolder,
    open_shard_folder,
)
from engine.splitter.manifest import MANIFEST_NAME, MAX_MANIFEST_BYTES, sha256_of
from tests.unit.pipeline.scripted import placement
from tests.unit.splitter.splitting import split

RANGES = [LayerRange(0, 1), LayerRange(1, 3), LayerRange(3, 4)]


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """The fixture in three shards; not to be changed."""
    out = tmp_path_factory.mktemp("shards") / "out"
    split(out, "mistral-window", cuts=(1, 3))
    return open_shard_folder(out)


def order(folder, layers, **changes):
    placed = placement(context_tokens=100, max_sequences=3)
    place = msgspec.structs.replace(placed.stages[0], layers=layers, **changes)
    return folder.order(placed, place)


def test_a_folder_is_named_by_the_hash_of_its_manifest(shared):
    assert shared.manifest_sha256 == sha256_of((shared.path / MANIFEST_NAME).read_bytes())
    assert [shard.layers for shard in shared.manifest.shards] == RANGES
    assert (shared.text_folder / "config.json").is_file()


@pytest.mark.parametrize("layers", RANGES, ids=str)
def test_a_shard_as_it_was_written_is_taken(shared, layers):
    shared.verify(layers)


def test_s10_any_flipped_bit_is_found_and_the_file_named(shared, tmp_path):
    """Sizes say nothing of it, and a golden step may pass by."""
    shutil.copytree(shared.path, tmp_path / "copy")
    folder = open_shard_folder(tmp_path / "copy")
    rng = np.random.default_rng(7)
    for entry in (folder.manifest.shards[1].weights, folder.manifest.shards[1].xml):
        file = folder.path / entry.path
        whole = file.read_bytes()
        for _ in range(32):
            spoilt = bytearray(whole)
            bit = int(rng.integers(8 * len(whole)))
            spoilt[bit // 8] ^= 1 << bit % 8
            file.write_bytes(spoilt)
            with pytest.raises(ShardCorruptError, match="is not the file that was written"):
                folder.verify(RANGES[1])
        file.unlink()
        with pytest.raises(ShardCorruptError, match="can't be read"):
            folder.verify(RANGES[1])
        file.write_bytes(whole)
        folder.verify(RANGES[1])


@pytest.mark.parametrize("layers", RANGES, ids=str)
def test_a_stage_is_told_all_it_needs(shared, layers):
    request = order(shared, layers, device="GPU", num_threads=2, mode="exact", kind="stateful")
    assert decode(encode_control(request)) == request, "it must fit through a pipe"
    assert Path(request.xml_path).is_file()
    assert (request.layers, request.is_first, request.is_last) == (
        layers,
        layers.start == 0,
        layers.stop == 4,
    )
    assert (request.hidden_size, request.vocab_size) == (64, 512)
    assert (request.device, request.num_threads) == ("GPU", 2)
    assert (request.kind, request.mode) == ("stateful", "exact")
    assert (request.max_tokens, request.max_sequences) == (300, 3)
    assert request.sliding_window == 24
    assert request.hidden_precision == "f32"


def test_a_stage_is_told_what_to_send_its_hidden_states_in(shared):
    assert order(shared, RANGES[0]).hidden_precision == "f16"
    assert order(shared, RANGES[0], link_precision="int8").hidden_precision == "int8"
    with pytest.raises(UsageError, match="Exact mode"):
        order(shared, RANGES[0], mode="exact", link_precision="int8")


def test_golden_vectors_are_those_at_the_shards_ends(shared):
    first, middle, last = (order(shared, layers).golden for layers in RANGES)
    assert first.input_path is None
    assert Path(first.output_path).read_bytes() == Path(middle.input_path).read_bytes()
    assert Path(middle.output_path).read_bytes() == Path(last.input_path).read_bytes()
    assert Path(last.output_path).stat().st_size == 512 * 4
    assert len(first.token_ids) == 8


def test_the_bound_of_the_golden_step_depends_on_the_mode(shared):
    bounds = [order(shared, RANGES[0], mode=m).golden.max_relative_error for m in ("exact", "fast")]
    assert bounds == [MAX_EXACT_ERROR, MAX_FAST_ERROR]


def test_without_vectors_there_is_no_golden_step(shared):
    bare = msgspec.structs.replace(shared.manifest, golden=None)
    assert order(ShardFolder(shared.path, bare, ""), RANGES[1]).golden is None
    fewer = msgspec.structs.replace(shared.manifest.golden, boundaries=())
    few = msgspec.structs.replace(shared.manifest, golden=fewer)
    folder = ShardFolder(shared.path, few, "")
    assert [order(folder, layers).golden for layers in RANGES] == [None] * 3


@pytest.mark.parametrize("layers", [LayerRange(0, 2), LayerRange(1, 4), LayerRange(4, 5)], ids=str)
def test_layers_there_is_no_shard_of_are_named(shared, layers):
    with pytest.raises(ShardCorruptError, match=f"no shard of layers {layers}"):
        order(shared, layers)


def test_a_shard_that_cannot_be_paged_says_why(tmp_path):
    split(tmp_path / "out", "mpt", cuts=(2,), has_golden=False)
    folder = open_shard_folder(tmp_path / "out")
    with pytest.raises(UnsupportedModelError, match="bias to each attention head") as caught:
        order(folder, LayerRange(0, 2), kind="paged")
    assert "stateful" in caught.value.advice
    assert order(folder, LayerRange(0, 2), kind="stateful").kind == "stateful"


@pytest.mark.parametrize("suffix", [".xml", ".bin"])
@pytest.mark.parametrize("harm", ["gone", "short", "long", "a folder"])
def test_a_shard_with_other_files_is_refused_by_their_names(tmp_path, suffix, harm):
    split(tmp_path / "out", cuts=(2,), has_golden=False)
    file = (tmp_path / "out" / "layers-002-004" / "openvino_model.xml").with_suffix(suffix)
    data = file.read_bytes()
    file.unlink()
    match harm:
        case "short":
            file.write_bytes(data[:-1])
        case "long":
            file.write_bytes(data + b"\0")
        case "a folder":
            file.mkdir()
    folder = open_shard_folder(tmp_path / "out")
    with pytest.raises(ShardCorruptError, match=rf"openvino_model\{suffix}") as caught:
        order(folder, LayerRange(2, 4))
    if harm in {"short", "long"}:
        assert str(len(data)) in caught.value.what
    assert order(folder, LayerRange(0, 2)), "the other shard is whole"


@pytest.mark.parametrize("harm", ["no folder", "no manifest", "a folder"])
def test_a_folder_without_a_manifest_holds_no_shards(tmp_path, harm):
    path = tmp_path / "out"
    if harm != "no folder":
        path.mkdir()
    if harm == "a folder":
        (path / MANIFEST_NAME).mkdir()
    with pytest.raises(ModelNotFoundError, match="holds no shards") as caught:
        open_shard_folder(path)
    assert "daisy split" in caught.value.advice


@pytest.mark.parametrize("data", [b"", b"{}", b"\xff", b" " * (MAX_MANIFEST_BYTES + 5)])
def test_a_manifest_that_is_none_is_corrupt(tmp_path, data):
    (tmp_path / MANIFEST_NAME).write_bytes(data)
    with pytest.raises(ShardCorruptError):
        open_shard_folder(tmp_path)
