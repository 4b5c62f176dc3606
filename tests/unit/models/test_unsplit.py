"""The reference: the unsplit model, greedy, by plain OpenVINO."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from engine.errors import CompileError, ModelFileError, UnsupportedModelError, UsageError
from engine.models.tokenizer import load_tokenizer
from engine.models.unsplit import UnsplitModel, generate_greedy

TESTS = Path(__file__).parents[2]
CASES = TESTS / "vectors" / "cases"
XML = TESTS / "fixtures" / "models" / "llama" / "openvino_model.xml"
PROMPT = [5, 17, 300, 42, 7]


def _case(name):
    return json.loads((CASES / name).read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def exact(embedded):
    return UnsplitModel(embedded.xml)


def _program(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "engine.models.unsplit", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
    )


def test_step_by_step_and_all_at_once_agree():
    model = UnsplitModel(XML)
    tokens = model.generate(PROMPT, 12).tokens
    logits = model.logits([*PROMPT, *tokens[:-1]])
    assert logits.shape == (16, 512)
    assert logits.dtype == np.float32
    assert np.argmax(logits[len(PROMPT) - 1 :], axis=-1).tolist() == tokens


def test_every_run_begins_afresh():
    model = UnsplitModel(XML)
    first = model.generate(PROMPT, 8).tokens
    model.generate([1, 2, 3], 5)
    assert model.generate(PROMPT, 8).tokens == first == generate_greedy(XML, PROMPT, 8)


def test_times_are_measured():
    run = UnsplitModel(XML, num_threads=1).generate(PROMPT, 5)
    assert run.ttft_s > 0
    assert run.tokens_per_s > 0
    assert UnsplitModel(XML, "fast", 2).generate(PROMPT, 1).tokens_per_s == 0


@pytest.mark.parametrize(("prompt", "num_tokens"), [([], 1), ([1], 0)])
def test_nothing_to_read_or_to_write_is_refused(prompt, num_tokens):
    with pytest.raises(UsageError):
        generate_greedy(XML, prompt, num_tokens)


def test_a_cut_model_is_refused_before_openvino_sees_it(tmp_path):
    xml = tmp_path / "openvino_model.xml"
    xml.write_bytes(XML.read_bytes())
    (tmp_path / "openvino_model.bin").write_bytes(XML.with_suffix(".bin").read_bytes()[:-1])
    with pytest.raises(ModelFileError, match="1 are missing"):
        UnsplitModel(xml)


def test_what_openvino_refuses_is_a_compile_error(tmp_path):
    text = XML.read_text(encoding="utf-8").replace('type="MatMul"', 'type="NoSuchOperation"')
    xml = tmp_path / "openvino_model.xml"
    xml.write_text(text, encoding="utf-8")
    (tmp_path / "openvino_model.bin").write_bytes(XML.with_suffix(".bin").read_bytes())
    with pytest.raises(CompileError, match=r"openvino_model\.xml can't be compiled"):
        UnsplitModel(xml)


def test_as_a_program_it_prints_one_object():
    ended = _program(XML, 6, *PROMPT, "--threads", 1)
    assert ended.returncode == 0, ended.stderr
    run = json.loads(ended.stdout)
    assert run["tokens"] == generate_greedy(XML, PROMPT, 6, num_threads=1)
    assert run["ttft_s"] > 0
    assert run["tokens_per_s"] > 0


def test_as_a_program_it_says_what_is_wrong(tmp_path):
    ended = _program(tmp_path / "openvino_model.xml", 6, *PROMPT)
    assert ended.returncode == ModelFileError.exit_code
    assert "openvino_model.xml is missing" in ended.stderr
    assert ended.stdout == ""


def test_a_model_of_another_kind_is_refused(tmp_path):
    text = XML.read_text(encoding="utf-8").replace('"logits"', '"scores"')
    (tmp_path / "openvino_model.xml").write_text(text, encoding="utf-8")
    (tmp_path / "openvino_model.bin").write_bytes(XML.with_suffix(".bin").read_bytes())
    with pytest.raises(UnsupportedModelError):
        UnsplitModel(tmp_path / "openvino_model.xml")


@pytest.mark.embedded
@pytest.mark.parametrize("name", ["K03.expected.json", "K05.expected.json"])
def test_exact_replies_of_the_embedded_model(name, embedded, exact):
    case = _case(name)
    values, reply = case["values"], case["exact_mode_reply"]
    prompt = values.get("right_ids") or values["embedded_template_ids"]
    run = exact.generate(prompt, len(reply["tokens"]))
    assert run.tokens == reply["tokens"]
    assert load_tokenizer(embedded).decode(run.tokens) == reply["text"]


@pytest.mark.embedded
def test_an_exact_raw_completion_of_the_embedded_model(embedded, exact):
    case = _case("K16.expected.json")["values"]["eos [2, 198]"]
    tokenizer = load_tokenizer(embedded)
    prompt = tokenizer.encode("The capital of France is", add_special_tokens=True)
    run = exact.generate(prompt, len(case["tokens"]))
    assert run.tokens == case["tokens"]
    assert tokenizer.decode(run.tokens) == case["text"]
