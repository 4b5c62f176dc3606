"""A damaged IR is named before OpenVINO sees it: which file, its size, the size needed."""

import json
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from engine.errors import ModelFileError, UnsupportedModelError
from engine.models.ir_header import check_ir, check_language_model

TESTS = Path(__file__).parents[2]
MODEL = TESTS / "fixtures" / "models" / "llama"
K27 = json.loads((TESTS / "vectors" / "cases" / "K27.expected.json").read_text(encoding="utf-8"))
BIN_BYTES = (MODEL / "openvino_model.bin").stat().st_size
XML_BYTES = (MODEL / "openvino_model.xml").stat().st_size
HTML = b"<!DOCTYPE html>\n<html><head><title>Not found</title></head><body>404</body></html>\n"


@pytest.fixture
def ir(tmp_path):
    for name in ("openvino_model.xml", "openvino_model.bin"):
        shutil.copyfile(MODEL / name, tmp_path / name)
    return tmp_path / "openvino_model.xml", tmp_path / "openvino_model.bin"


def _cut(path, size):
    path.write_bytes(path.read_bytes()[:size])


def _edit(xml, pattern, replacement):
    text, count = re.subn(pattern, replacement, xml.read_text(encoding="utf-8"), count=1)
    assert count == 1
    xml.write_text(text, encoding="utf-8")


# What was done to the files; the words that must be in the sentence.
DAMAGES = {
    "xml of 0 bytes": (lambda xml, _: _cut(xml, 0), ["openvino_model.xml", "0 bytes"]),
    "xml cut in half": (
        lambda xml, _: _cut(xml, XML_BYTES // 2),
        ["openvino_model.xml", f"{XML_BYTES // 2} bytes", "ends in the middle"],
    ),
    "xml is an HTML page": (
        lambda xml, _: xml.write_bytes(HTML),
        ["openvino_model.xml", f"{len(HTML)} bytes", "HTML page"],
    ),
    "bin of 0 bytes": (
        lambda _, weights: _cut(weights, 0),
        ["openvino_model.bin", "is 0 bytes", str(BIN_BYTES)],
    ),
    "bin cut in half": (
        lambda _, weights: _cut(weights, BIN_BYTES // 2),
        ["openvino_model.bin", f"is {BIN_BYTES // 2} bytes", str(BIN_BYTES)],
    ),
    "bin one byte short": (
        lambda _, weights: _cut(weights, BIN_BYTES - 1),
        ["openvino_model.bin", f"is {BIN_BYTES - 1} bytes", f"needs {BIN_BYTES}", "1 are missing"],
    ),
    "bin missing or a dangling link": (
        lambda _, weights: weights.unlink(),
        ["openvino_model.bin is missing"],
    ),
    "offset 2^64-616 in the xml": (
        lambda xml, _: _edit(xml, r'offset="\d+"', f'offset="{2**64 - 616}"'),
        ["openvino_model.xml", "offset", str(2**64 - 616)],
    ),
    "size -1 in the xml": (
        lambda xml, _: _edit(xml, r'size="\d+"', 'size="-1"'),
        ["openvino_model.xml", "size", "-1"],
    ),
}


@pytest.mark.parametrize("case", [row[0] for row in K27["rows"] if row[0] in DAMAGES])
def test_s11_damage_is_named_with_file_and_sizes(case, ir):
    damage, words = DAMAGES[case]
    damage(*ir)
    before = sorted(ir[0].parent.iterdir())
    with pytest.raises(ModelFileError) as caught:
        check_ir(*ir)
    for word in words:
        assert word in caught.value.what
    assert sorted(ir[0].parent.iterdir()) == before


def test_every_damage_of_the_table_is_tested():
    rows = {row[0] for row in K27["rows"]}
    assert rows - set(DAMAGES) == {"bin 8 bytes too long", "bin of the right size, other content"}


def test_weights_that_are_too_long_are_said_and_do_no_harm(ir):
    with ir[1].open("ab") as file:
        file.write(bytes(8))
    (note,) = check_ir(*ir).notes
    assert str(BIN_BYTES + 8) in note
    assert str(BIN_BYTES) in note
    assert "8 are too many" in note


@pytest.mark.parametrize(
    ("attribute", "value"),
    [
        ("offset", "-1"),
        ("offset", "1e3"),
        ("offset", ""),
        ("offset", "0x10"),
        ("offset", "\u0663"),
        ("size", str(2**63)),
        ("size", "9" * 400),
        ("size", " 4"),
    ],
)
def test_s11_numbers_that_are_none_are_damage(attribute, value, ir):
    _edit(ir[0], rf'{attribute}="\d+"', f'{attribute}="{value}"')
    with pytest.raises(ModelFileError, match=r"openvino_model.xml is damaged"):
        check_ir(*ir)


@pytest.mark.parametrize("cut", range(0, 100, 7))
def test_an_xml_cut_anywhere_is_no_model(cut, ir):
    _cut(ir[0], XML_BYTES * cut // 100)
    with pytest.raises(ModelFileError, match=r"openvino_model.xml"):
        check_ir(*ir)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n", "Git LFS"),
        (bytes(5000), "zeros"),
        (b"<html><body>404</body></html>", "begins with <html>"),
        (b"{}", "line 1"),
        (b"\xff\xfe\x00", "openvino_model.xml"),
        (b'<!DOCTYPE net [<!ENTITY a "b">]><net>&a;</net>', "document type"),
        (b"<net>" + b"<a>" * 100 + b"</a>" * 100 + b"</net>", "nests more than"),
    ],
)
def test_other_files_under_the_name_are_named(content, words, ir):
    ir[0].write_bytes(content)
    with pytest.raises(ModelFileError, match=re.escape(words)):
        check_ir(*ir)


def test_s11_entities_are_never_expanded(ir):
    levels = "".join(f'<!ENTITY e{i} "{f"&e{i - 1};" * 10}">' for i in range(1, 12))
    ir[0].write_text(f'<!DOCTYPE net [<!ENTITY e0 "x">{levels}]><net>&e11;</net>')
    start = time.process_time()
    with pytest.raises(ModelFileError):
        check_ir(*ir)
    assert time.process_time() - start < 0.5


def test_every_fixture_is_whole():
    folders = sorted(path.parent for path in MODEL.parent.glob("*/openvino_model.xml"))
    assert len(folders) >= 20
    for folder in folders:
        header = check_ir(folder / "openvino_model.xml", folder / "openvino_model.bin")
        assert header.notes == ()
        assert header.needed_bytes == header.bin_bytes
        assert "logits" in header.outputs


def test_a_stateful_language_model_is_accepted(ir):
    header = check_ir(*ir)
    check_language_model(header, "llama")
    assert header.inputs == {"input_ids", "attention_mask", "position_ids", "beam_idx"}
    assert header.num_states == 8  # keys and values of four layers


def _without_states(text):
    return re.sub(r'type="(ReadValue|Assign)"', 'type="Other"', text)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda text: text.replace('"beam_idx"', '"past_key_values.0.key"'), "stateless"),
        (lambda text: text.replace('"input_ids"', '"pixel_values"'), "not a language model"),
        (lambda text: text.replace('"logits"', '"last_hidden_state"'), "no output named logits"),
        (_without_states, "keeps no state"),
    ],
)
def test_models_of_other_kinds_are_refused_with_the_reason(change, words, ir):
    ir[0].write_text(change(ir[0].read_text(encoding="utf-8")), encoding="utf-8")
    header = check_ir(*ir)
    with pytest.raises(UnsupportedModelError, match=words) as caught:
        check_language_model(header, "llama")
    assert caught.value.what.startswith("llama ")


def test_a_stateless_model_is_told_how_to_become_a_stateful_one(ir):
    text = ir[0].read_text(encoding="utf-8").replace('"beam_idx"', '"past_key_values.0.key"')
    ir[0].write_text(text, encoding="utf-8")
    with pytest.raises(UnsupportedModelError) as caught:
        check_language_model(check_ir(*ir), "llama")
    assert "optimum-cli export openvino" in caught.value.advice


def test_a_state_that_is_only_read_is_damage(ir):
    _edit(ir[0], r'type="Assign"', 'type="Other"')
    with pytest.raises(ModelFileError, match="read or written, but not both"):
        check_ir(*ir)


def test_files_of_2023_that_name_no_outputs_are_understood(ir):
    _edit(ir[0], r' output_names="logits"', "")
    _edit(ir[0], r'(<port id="2" precision="FP32")>', r'\1 names="logits">')
    check_language_model(check_ir(*ir), "llama")


def test_inputs_inside_the_body_of_a_loop_are_not_the_models(ir):
    body = (
        '<layer id="9999" name="loop" type="Loop" version="opset5"><body><layers>'
        '<layer id="0" name="past_key_values.0.key" type="Parameter" version="opset1"/>'
        '<layer id="1" name="c" type="Const" version="opset1">'
        f'<data offset="{BIN_BYTES}" size="4"/></layer></layers></body></layer></layers>'
    )
    _edit(ir[0], "</layers>", body)
    with pytest.raises(ModelFileError, match=f"needs {BIN_BYTES + 4}"):
        check_ir(*ir)
    with ir[1].open("ab") as file:
        file.write(bytes(4))
    check_language_model(check_ir(*ir), "llama")


def test_a_large_xml_is_checked_fast_and_without_much_memory(tmp_path):
    layer = (
        '<layer id="{0}" name="layers.{0}.weight" type="Const" version="opset1"><data '
        'element_type="f16" shape="64, 64" offset="{1}" size="8192"/><output><port id="0" '
        'precision="FP16"><dim>64</dim><dim>64</dim></port></output></layer>\n'
    )
    num_layers = 45_000  # 10 MB
    xml, weights = tmp_path / "openvino_model.xml", tmp_path / "openvino_model.bin"
    with xml.open("w", encoding="utf-8") as file:
        file.write('<?xml version="1.0"?><net name="big" version="11"><layers>')
        file.writelines(layer.format(i, i * 8192) for i in range(num_layers))
        file.write("</layers></net>")
    with weights.open("wb") as file:
        file.truncate(num_layers * 8192)
    assert xml.stat().st_size > 9_000_000
    program = (
        "import resource, sys, time; from pathlib import Path;"
        "from engine.models.ir_header import check_ir;"
        "peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss;"
        "before, start = peak(), time.process_time();"
        f"header = check_ir(Path({str(xml)!r}), Path({str(weights)!r}));"
        "print(header.needed_bytes, time.process_time() - start, peak() - before)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    needed, seconds, kilobytes = ended.stdout.split()
    assert int(needed) == num_layers * 8192
    assert float(seconds) < 2.0
    assert int(kilobytes) < 8 * 1024
