"""A cut or foreign file is named with both sizes before OpenVINO sees it."""

import re
import shutil

import pytest

from engine.errors import ModelFileError
from engine.stages.ir_files import check_ir_files
from tests.unit.stages.running import MODELS

SOURCE = MODELS / "llama" / "openvino_model.xml"


@pytest.fixture
def ir(tmp_path):
    for name in ("openvino_model.xml", "openvino_model.bin"):
        shutil.copy(SOURCE.parent / name, tmp_path / name)
    return tmp_path / "openvino_model.xml"


def test_a_whole_ir_needs_what_it_has(ir):
    assert check_ir_files(ir) == ir.with_suffix(".bin").stat().st_size


def test_longer_weights_than_needed_are_accepted(ir):
    """OpenVINO runs them."""
    with ir.with_suffix(".bin").open("ab") as file:
        file.write(bytes(8))
    check_ir_files(ir)


@pytest.mark.parametrize("size", [0, 1000, -1])
def test_short_weights_are_named_with_both_sizes(ir, size):
    weights = ir.with_suffix(".bin")
    whole = weights.read_bytes()
    weights.write_bytes(whole[:size])
    has, needed = len(whole[:size]), len(whole)
    with pytest.raises(ModelFileError, match=rf"\.bin has {has} bytes; .* needs {needed}"):
        check_ir_files(ir)


def test_missing_weights_are_told_from_a_dangling_link(ir, tmp_path):
    weights = ir.with_suffix(".bin")
    weights.unlink()
    with pytest.raises(ModelFileError, match=r"\.bin is missing"):
        check_ir_files(ir)
    weights.symlink_to(tmp_path / "blob")
    with pytest.raises(ModelFileError, match=r"\.bin is a link to a file that is not there"):
        check_ir_files(ir)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (b"", "is empty"),
        (b"<!DOCTYPE html><html><body>404</body></html>", "is not an OpenVINO IR"),
        (SOURCE.read_bytes()[:100_000], "ends in the middle, after 100000 bytes"),
    ],
    ids=["empty", "html", "half"],
)
def test_an_xml_that_is_none_is_named(ir, text, sentence):
    ir.write_bytes(text)
    with pytest.raises(ModelFileError, match=sentence):
        check_ir_files(ir)


@pytest.mark.parametrize(
    ("pattern", "value"),
    [(rb'offset="\d+" size="(\d+)"', b"-1"), (rb'offset="(\d+)" size', b"18446744073709551000")],
)
def test_a_place_no_file_has_is_named(ir, pattern, value):
    """A size of -1, and an offset near 2**64."""
    text = ir.read_bytes()
    found = re.search(pattern, text)
    ir.write_bytes(text[: found.start(1)] + value + text[found.end(1) :])
    with pytest.raises(ModelFileError, match="which no file has"):
        check_ir_files(ir)
