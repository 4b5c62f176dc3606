"""The list of a model's files: the same bytes for the same model, and nothing hostile gets in."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import ShardCorruptError
from engine.pool.chunks import CHUNK_BYTES, MAX_CHUNKS
from engine.pool.model_listing import (
    MAX_LISTING_BYTES,
    ModelListing,
    check_listing,
    decode_listing,
)
from engine.splitter.manifest import FileEntry, sha256_of
from tests.unit.pool.models import model

HASH = "a" * 64
TEXTS = ("config.json", "tokenizer.json", "additional_chat_templates/rag.jinja")


def entries(*paths):
    named = ("openvino_model.xml", "openvino_model.bin", *paths)
    return tuple(FileEntry(path, 10 + len(path), HASH) for path in named)


def listing(*paths, **changes):
    fields = {"format": 1, "model": model(4), "files": entries(*paths), "paged_refusal": None}
    return ModelListing(**(fields | changes))


def test_a_list_comes_back_as_it_was_and_its_hash_is_its_name():
    told = listing(*TEXTS, paged_refusal="3 of 4 attentions were recognised.")
    data = told.encoded()
    assert decode_listing(data) == told
    assert told.sha256 == sha256_of(data)
    assert decode_listing(data).encoded() == data
    assert not told.can_be_paged
    assert [entry.path for entry in told.text_files] == list(TEXTS)
    assert told.num_bytes == sum(entry.num_bytes for entry in told.files)


def test_another_name_or_file_is_another_model():
    told = listing(*TEXTS)
    other = msgspec.structs.replace(told.model, name="other")
    changed = FileEntry(told.files[2].path, told.files[2].num_bytes, "b" * 64)
    names = {
        told.sha256,
        msgspec.structs.replace(told, model=other).sha256,
        msgspec.structs.replace(told, files=(*told.files[:2], changed, *told.files[3:])).sha256,
    }
    assert len(names) == 3


@pytest.mark.parametrize(
    "path",
    [
        "../config.json",
        "/etc/passwd",
        "text\\config.json",
        "Config.json",
        "a/b/c/d.json",
        "con.json",
        "nul",
        "config.json:stream",
        "",
        "a//b",
        "ä.json",
        "x" * 201,
    ],
)
def test_a_name_that_not_every_pc_can_hold_is_refused(path):
    with pytest.raises(ShardCorruptError, match="names a file") as told:
        decode_listing(listing(path).encoded())
    assert told.value.advice == "Load the model again on the PC that has it."


@pytest.mark.parametrize(
    ("paths", "named"),
    [
        (("config.json", "config.json"), "config.json"),
        (("openvino_model.xml",), "openvino_model.xml"),
        (("a", "a/b.json"), "a"),
        (("a/b/c.json", "a/b"), "a/b"),
    ],
)
def test_two_files_in_one_place_are_refused(paths, named):
    with pytest.raises(ShardCorruptError, match=f"two files '{named}'"):
        decode_listing(listing(*paths).encoded())


def changed(change):
    told = json.loads(listing(*TEXTS).encoded())
    change(told)
    return json.dumps(told).encode()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda told: told.update(format=2), "format 2; this version reads 1"),
        (lambda told: told.update(more=1), "can't be read"),
        (lambda told: told["files"].pop(0), "does not begin with openvino_model.xml"),
        (lambda told: told["files"].reverse(), "does not begin with openvino_model.xml"),
        (lambda told: told.update(files=[]), "does not begin with"),
        (lambda told: told["files"][2].update(sha256="A" * 64), "names a file it may not"),
        (lambda told: told["files"][2].update(sha256="a" * 63), "names a file it may not"),
        (lambda told: told["files"][1].update(num_bytes=-1), "a size below 0"),
        (lambda told: told["files"][1].update(num_bytes=MAX_CHUNKS * CHUNK_BYTES + 1), "bytes."),
        (lambda told: told["model"].update(num_layers=5), "of 4 layers, and the model has 5"),
        (lambda told: told["model"].update(hidden_size=0), "a hidden_size of 0"),
        (lambda told: told["model"].update(eos_token_ids=[-1]), "a eos_token_ids of -1"),
        (
            lambda told: told["model"].update(
                num_layers=0, num_kv_heads=[], head_size=[], value_head_size=[], layer_bytes=[]
            ),
            "gives the model 0 layers",
        ),
    ],
)
def test_a_list_that_can_not_be_right_is_refused_with_the_reason(change, reason):
    with pytest.raises(ShardCorruptError, match=reason):
        decode_listing(changed(change))


def test_too_many_files_and_too_many_bytes_are_refused():
    with pytest.raises(ShardCorruptError, match="names 302 files"):
        decode_listing(listing(*(f"{n}.json" for n in range(300))).encoded())
    with pytest.raises(ShardCorruptError, match="more than any can be"):
        decode_listing(b" " * (MAX_LISTING_BYTES + 1))
    check_listing(listing(*(f"{n}.json" for n in range(254))))


@given(st.binary(max_size=300))
def test_junk_is_refused_and_nothing_else_happens(data):
    with pytest.raises(ShardCorruptError):
        decode_listing(data)


@given(st.data())
def test_a_list_with_a_changed_byte_is_refused_or_has_another_name(data):
    encoded = listing(*TEXTS).encoded()
    at = data.draw(st.integers(0, len(encoded) - 1))
    mask = data.draw(st.integers(1, 255))
    damaged = bytes([*encoded[:at], encoded[at] ^ mask, *encoded[at + 1 :]])
    try:
        told = decode_listing(damaged)
    except ShardCorruptError:
        return
    assert sha256_of(damaged) != sha256_of(encoded)
    check_listing(told)


def test_nesting_without_end_is_refused():
    with pytest.raises(ShardCorruptError, match="can't be read"):
        decode_listing(b'{"model":' + b"[" * 100_000)
