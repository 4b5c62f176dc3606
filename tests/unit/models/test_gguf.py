"""A GGUF is checked before anything else reads it, and converted into a whole model."""

import json
import os
import struct
import sys

import pytest

from engine.errors import (
    ModelFileError,
    RequestCancelledError,
    StorageError,
    TokenizerError,
    UnsupportedModelError,
)
from engine.models import gguf_cache
from engine.models.embedded import GGUF_SHA256
from engine.models.files import read_text
from engine.models.gguf_cache import converted, find_converted, sha256_of
from engine.models.gguf_header import read_gguf_header
from engine.models.gguf_support import check_supported
from engine.models.opening import open_model
from engine.models.settings import read_settings
from engine.models.tokenizer import load_tokenizer
from engine.models.unsplit import generate_greedy


def _left_behind(data_dir):
    return sorted(path.name for path in data_dir.rglob("*")) if data_dir.exists() else []


# ---- the header -----------------------------------------------------------------------------


def test_metadata_and_tensors_are_read(tiny_gguf):
    path = tiny_gguf.write()
    header = read_gguf_header(path)
    assert header.version == 3
    assert header.file_bytes == path.stat().st_size
    assert header.text("general.architecture") == "llama"
    assert header.integer("llama.block_count") == 2
    assert header.number("llama.rope.freq_base") == 10000.0
    assert header.array("tokenizer.ggml.tokens")[-1] == "Ġw"
    assert header.metadata["tokenizer.ggml.add_bos_token"] is False
    shapes = {tensor.name: (tensor.shape, tensor.type_name) for tensor in header.tensors}
    assert shapes["blk.1.ffn_down.weight"] == ((96, 64), "Q8_0")
    assert shapes["output_norm.weight"] == ((64,), "F32")


def test_values_of_another_type_are_as_if_missing(tiny_gguf):
    header = read_gguf_header(tiny_gguf.write())
    assert header.text("llama.block_count") is None
    assert header.integer("general.architecture") is None
    assert header.integer("tokenizer.ggml.add_bos_token") is None
    assert header.number("general.architecture") is None
    assert header.array("general.architecture") is None


def test_a_gguf_cut_anywhere_is_named_with_its_size(tiny_gguf, tmp_path):
    whole = tiny_gguf.write().read_bytes()
    cut_file = tmp_path / "cut.gguf"
    for size in [*range(0, len(whole), 997), len(whole) - 1]:
        cut_file.write_bytes(whole[:size])
        with pytest.raises(ModelFileError, match=rf"cut\.gguf .*{size}"):
            read_gguf_header(cut_file)


def test_a_gguf_one_byte_short_is_told_what_it_needs(tiny_gguf):
    path = tiny_gguf.write()
    size = path.stat().st_size
    header = read_gguf_header(path)
    end = max(tensor.offset + tensor.num_bytes for tensor in header.tensors)
    data_offset = size - -(-end // 32) * 32
    path.write_bytes(path.read_bytes()[: data_offset + end - 1])
    with pytest.raises(ModelFileError, match=f"needs {data_offset + end}: 1 are missing"):
        read_gguf_header(path)


def _header(*, magic=b"GGUF", version=3, num_tensors=0, num_pairs=0, rest=b""):
    return magic + struct.pack("<IQQ", version, num_tensors, num_pairs) + rest


def _string(text):
    return struct.pack("<Q", len(text)) + text


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"<html></html>" * 9, "not a GGUF file"),
        (_header(magic=b"FUGG"), "not a GGUF file"),
        (_header(num_tensors=2**63), "claims 9223372036854775808 tensors"),
        (_header(num_pairs=2**40), "metadata entries"),
        (_header(num_pairs=1, rest=struct.pack("<Q", 2**62)), "bytes of a string"),
        (_header(num_pairs=1, rest=_string(b"\xff")), "not UTF-8"),
        (_header(num_pairs=1, rest=_string(b"k") + struct.pack("<I", 99)), "kind 99"),
        (_header(num_pairs=1, rest=_string(b"k") + struct.pack("<IIQ", 9, 9, 1)), "kind 9"),
        (
            _header(num_pairs=1, rest=_string(b"k") + struct.pack("<IIQ", 9, 4, 2**60)),
            "elements of 'k'",
        ),
        (_header(num_tensors=1, rest=_string(b"t") + struct.pack("<I", 500)), "dimensions of 't'"),
        (
            _header(num_pairs=1, rest=_string(b"general.alignment") + struct.pack("<II", 4, 3)),
            "alignment is 3",
        ),
        (
            _header(
                num_tensors=1,
                rest=_string(b"t") + struct.pack("<IQQIQ", 2, 2**40, 2**40, 0, 2**60),
            ),
            "are missing",
        ),
    ],
)
def test_hostile_headers_are_refused_at_once(content, words, tmp_path):
    path = tmp_path / "bad.gguf"
    path.write_bytes(content)
    with pytest.raises(ModelFileError, match=words):
        read_gguf_header(path)


@pytest.mark.parametrize("version", [0, 1, 4, 0x03000000])
def test_other_versions_are_named(version, tmp_path):
    path = tmp_path / "old.gguf"
    path.write_bytes(_header(version=version))
    with pytest.raises(UnsupportedModelError, match=f"version {version}"):
        read_gguf_header(path)


# ---- what can be converted ------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["F32", "BF16", "Q5_0", "Q5_1"])
def test_a_tensor_type_that_cannot_be_read_is_named(kind, tiny_gguf):
    path = tiny_gguf.write(replaced_tensors={"blk.0.ffn_up.weight": kind})
    with pytest.raises(UnsupportedModelError, match=rf"blk\.0\.ffn_up\.weight as {kind}"):
        check_supported(read_gguf_header(path))


def test_an_unknown_tensor_type_is_named_by_its_number(tmp_path):
    tensor = _string(b"output.weight") + struct.pack("<IQQIQ", 2, 32, 32, 77, 0)
    pair = _string(b"general.architecture") + struct.pack("<I", 8) + _string(b"llama")
    path = tmp_path / "new.gguf"
    path.write_bytes(_header(num_tensors=1, num_pairs=1, rest=pair + tensor) + bytes(64))
    with pytest.raises(UnsupportedModelError, match=r"output\.weight as type 77"):
        check_supported(read_gguf_header(path))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"architecture": "gemma3"}, "'gemma3'"),
        ({"extra": {"llama.expert_count": 8}}, "mixture of experts"),
        ({"extra": {"llama.rope.scaling.type": "yarn"}}, "yarn"),
        ({"extra": {"split.count": 3}}, "one of 3 parts"),
    ],
)
def test_what_the_converter_would_do_wrong_is_refused(changes, words, tiny_gguf, tmp_path):
    with pytest.raises(UnsupportedModelError, match=words):
        converted(tiny_gguf.write(**changes), tmp_path / "data")
    assert _left_behind(tmp_path / "data") == []


# ---- the conversion -------------------------------------------------------------------------


def test_a_gguf_becomes_a_whole_model(tiny_gguf, tmp_path):
    path = tiny_gguf.write()
    before = path.read_bytes()
    steps = []
    files = open_model(path, tmp_path / "data", lambda progress: steps.append(progress.step))
    assert files.name == "tiny"
    settings = read_settings(files)
    assert (settings.model_type, settings.context_length) == ("llama", 128)
    assert settings.eos_token_ids == (0,)
    tokenizer = load_tokenizer(files)
    ids = tokenizer.encode("<|start|>hello w ü", add_special_tokens=True)
    assert ids[:3] == [1, 261, 262]
    assert tokenizer.decode(ids) == "hello w ü"
    assert len(generate_greedy(files.xml, ids, 4)) == 4
    assert list(dict.fromkeys(steps)) == ["hash", "tokenizer", "convert", "store"]
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]
    assert [path.name for path in (tmp_path / "data" / "models").iterdir()] == [files.folder.name]


def test_the_second_time_nothing_is_converted(tiny_gguf, tmp_path, monkeypatch):
    files = converted(tiny_gguf.write(), tmp_path)
    monkeypatch.setattr(gguf_cache, "_run_converter", None)  # would fail if it were called
    assert converted(tiny_gguf.write("other.gguf"), tmp_path).folder == files.folder


def test_a_result_that_is_no_longer_whole_is_made_again(tiny_gguf, tmp_path):
    path = tiny_gguf.write()
    files = converted(path, tmp_path)
    digest = sha256_of(path)
    assert find_converted(digest, tmp_path) is not None
    files.bin.write_bytes(files.bin.read_bytes()[:-1])
    assert find_converted(digest, tmp_path) is None
    again = converted(path, tmp_path)
    assert again.folder == files.folder
    assert find_converted(digest, tmp_path) is not None
    assert len(list((tmp_path / "models").iterdir())) == 1
    again.tokenizer_json.write_bytes(again.tokenizer_json.read_bytes()[:-1])
    assert find_converted(digest, tmp_path) is None


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"files": 3}', "\xff"])
def test_a_damaged_record_means_convert_again(content, tiny_gguf, tmp_path):
    path = tiny_gguf.write()
    record = converted(path, tmp_path).folder / "conversion.json"
    record.write_text(content, encoding="latin-1")
    assert find_converted(sha256_of(path), tmp_path) is None


def test_named_templates_become_files(tiny_gguf, tmp_path):
    extra = {"tokenizer.chat_template.tool_use": "T", "tokenizer.chat_template.../x": "no"}
    files = converted(tiny_gguf.write(extra=extra), tmp_path)
    names = [name for name, _ in files.additional_chat_templates]
    assert names == ["tool_use"]
    assert read_text(files.chat_template).startswith("{% for m in messages %}")


def test_a_gguf_without_a_template_gets_none(tiny_gguf, tmp_path):
    assert converted(tiny_gguf.write(template=None), tmp_path).chat_template is None


def test_cancelling_leaves_nothing_behind(tiny_gguf, tmp_path):
    path = tiny_gguf.write()
    steps = []
    with pytest.raises(RequestCancelledError):
        converted(
            path, tmp_path / "data", lambda it: steps.append(it.step), lambda: "hash" in steps
        )
    assert _left_behind(tmp_path / "data") == ["models"]
    with pytest.raises(RequestCancelledError):
        converted(path, tmp_path / "data", cancelled=lambda: True)


def test_a_converter_that_dies_is_an_error_and_leaves_nothing(tiny_gguf, tmp_path, monkeypatch):
    crashing = tmp_path / "python-that-crashes"
    crashing.write_text("#!/bin/sh\nkill -SEGV $$\n")
    crashing.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(crashing))
    with pytest.raises(ModelFileError, match="was ended by SIGSEGV"):
        converted(tiny_gguf.write(), tmp_path / "data")
    assert _left_behind(tmp_path / "data") == ["models"]


def test_what_the_converter_finds_comes_back_with_its_class(tiny_gguf, tmp_path):
    with pytest.raises(TokenizerError, match="'no-such-rules', which are not known"):
        converted(tiny_gguf.write(pre="no-such-rules"), tmp_path / "data")
    assert _left_behind(tmp_path / "data") == ["models"]


def test_too_little_space_is_said_before_anything_is_written(tiny_gguf, tmp_path, monkeypatch):
    monkeypatch.setattr(gguf_cache, "_SPARE_BYTES", 2**60)
    with pytest.raises(StorageError, match=r"Converting tiny\.gguf needs \d+ bytes.*too few"):
        converted(tiny_gguf.write(), tmp_path / "data")
    assert _left_behind(tmp_path / "data") == []


def test_a_place_that_cannot_be_written_is_said(tiny_gguf, tmp_path):
    (tmp_path / "data").write_text("a file where the folder should be")
    with pytest.raises(StorageError, match="can't be written"):
        converted(tiny_gguf.write(), tmp_path / "data")


def test_what_a_killed_process_left_is_removed(tiny_gguf, tmp_path):
    leftover = tmp_path / "models" / ".unfinished-4194305-x"  # above the largest process id
    of_another = tmp_path / "models" / f".unfinished-{os.getppid()}-x"  # at work on it now
    for folder in (leftover, of_another):
        (folder / "model").mkdir(parents=True)
    converted(tiny_gguf.write(), tmp_path)
    assert not leftover.exists()
    assert of_another.exists()


def test_metadata_no_model_can_do_without_are_named(tiny_gguf, tmp_path):
    path = tiny_gguf.write(extra={})
    content = path.read_bytes().replace(b"llama.block_count", b"llama.block_cxunt")
    path.write_bytes(content)
    with pytest.raises(ModelFileError, match=r"no usable llama\.block_count"):
        converted(path, tmp_path)


@pytest.mark.embedded
def test_the_embedded_model_was_converted_from_the_right_bytes(embedded, data_dir):
    record = json.loads((embedded.folder / "conversion.json").read_text(encoding="utf-8"))
    assert record["source_sha256"] == GGUF_SHA256
    assert find_converted(GGUF_SHA256, data_dir).folder == embedded.folder
