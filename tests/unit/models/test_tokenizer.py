"""Ids are the model's own, text comes back as it was written."""

import dataclasses
import json
import shutil
from datetime import UTC, datetime
from pathlib import Path

import openvino
import openvino_tokenizers
import pytest
import tokenizers
import transformers

from engine.errors import ModelFileError, TokenizerError, UsageError
from engine.models.chat_template import ChatTemplate
from engine.models.detokenizer import IncrementalDetokenizer
from engine.models.files import ModelFiles, open_folder
from engine.models.tokenizer import load_tokenizer

TESTS = Path(__file__).parents[2]
CASES = TESTS / "vectors" / "cases"
FIXTURE = TESTS / "fixtures" / "models" / "llama"


def _case(name):
    return json.loads((CASES / name).read_text(encoding="utf-8"))


@pytest.fixture
def own_folder(tmp_path):
    """Makes a model's folder with other files of the text side exchanged."""

    def make(tokenizer=None, config=None):
        folder = Path(shutil.copytree(FIXTURE, tmp_path / "own"))
        if tokenizer is not None:
            shutil.copyfile(CASES / tokenizer, folder / "tokenizer.json")
        if config is not None:
            (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
        return open_folder(folder)

    return make


@pytest.fixture
def k09(own_folder):
    config = {"bos_token": "<s>", "eos_token": {"content": "</s>", "special": True}}
    return own_folder("K09.tokenizer.json", config)


def _as_openvino(files: ModelFiles) -> ModelFiles:
    """The same folder with its tokenizer only as OpenVINO graphs."""
    special_tokens = {"bos_token": "<s>", "eos_token": "</s>"}
    hugging_face = transformers.PreTrainedTokenizerFast(
        tokenizer_file=str(files.tokenizer_json), **special_tokens
    )
    pair = openvino_tokenizers.convert_tokenizer(hugging_face, with_detokenizer=True)
    for model, name in zip(pair, ("openvino_tokenizer", "openvino_detokenizer"), strict=True):
        openvino.save_model(model, files.folder / f"{name}.xml")
    files.tokenizer_json.unlink()
    return open_folder(files.folder)


def _rendered_k09(tokenizer):
    template = (CASES / "K09.jinja").read_text(encoding="utf-8")
    return ChatTemplate({"default": template}, tokenizer.special_tokens).render(
        [{"role": "user", "content": "hello wor"}], now=datetime(2026, 11, 29, tzinfo=UTC)
    )


@pytest.mark.parametrize("kind", ["tokenizer.json", "openvino_tokenizer.xml"])
def test_a_chat_has_one_bos_and_a_raw_completion_keeps_the_tokenizers(kind, k09):
    expected = _case("K09.expected.json")["values"]
    tokenizer = load_tokenizer(k09 if kind == "tokenizer.json" else _as_openvino(k09))
    text = _rendered_k09(tokenizer)
    assert text == expected["text"]
    assert tokenizer.encode(text, add_special_tokens=False) == expected["right_ids"]
    completion = tokenizer.encode("hello", add_special_tokens=True)
    assert completion == expected["raw_completion_of_hello"] == [0, 261]


def test_both_kinds_of_tokenizer_agree(k09):
    json_kind = load_tokenizer(k09)
    graph_kind = load_tokenizer(_as_openvino(k09))
    for text in ("hello wor", "  ü 日本 🦙\n", "", "<s>x</s>"):
        ids = json_kind.encode(text, add_special_tokens=False)
        assert graph_kind.encode(text, add_special_tokens=False) == ids
        assert graph_kind.decode(ids) == json_kind.decode(ids)
    assert graph_kind.vocab_size == json_kind.vocab_size == 264
    assert graph_kind.special_tokens == json_kind.special_tokens
    for token_id in (0, 1, 5, 261, -1, 999_999):
        assert graph_kind.is_special(token_id) == json_kind.is_special(token_id)
    assert graph_kind.token_id("</s>") == json_kind.token_id("</s>") == 1
    assert graph_kind.token_id("none") is json_kind.token_id("none") is None
    assert graph_kind.byte_ids == json_kind.byte_ids == frozenset()


def test_a_cut_openvino_tokenizer_is_named_before_openvino_sees_it(k09):
    files = _as_openvino(k09)
    weights = files.folder / "openvino_detokenizer.bin"
    weights.write_bytes(weights.read_bytes()[:-1])
    with pytest.raises(ModelFileError, match=r"openvino_detokenizer.bin .* 1 are missing"):
        load_tokenizer(files)
    files.openvino_detokenizer.unlink()
    with pytest.raises(TokenizerError, match=r"no openvino_detokenizer.xml"):
        load_tokenizer(open_folder(files.folder))


def test_an_openvino_tokenizer_that_is_something_else_is_refused(k09):
    files = _as_openvino(k09)
    for part in ("xml", "bin"):
        shutil.copyfile(
            FIXTURE / f"openvino_model.{part}", files.folder / f"openvino_tokenizer.{part}"
        )
    with pytest.raises(TokenizerError, match="can't be loaded"):
        load_tokenizer(files)


def test_no_tokenizer_at_all_is_said(own_folder):
    with pytest.raises(TokenizerError, match=r"neither tokenizer.json nor openvino_tokenizer.xml"):
        load_tokenizer(own_folder())


@pytest.mark.parametrize("damage", ["", "{", "null", "[]", '{"model": 3}', "x" * 100])
def test_a_damaged_tokenizer_is_said(damage, own_folder):
    files = own_folder("K09.tokenizer.json")
    files.tokenizer_json.write_text(damage)
    with pytest.raises(TokenizerError, match=r"tokenizer.json of own is damaged"):
        load_tokenizer(files)


def test_a_tokenizer_cut_anywhere_is_damaged(own_folder):
    files = own_folder("K09.tokenizer.json")
    text = files.tokenizer_json.read_text(encoding="utf-8")
    for cut in range(0, len(text), 97):
        files.tokenizer_json.write_text(text[:cut], encoding="utf-8")
        with pytest.raises(TokenizerError):
            load_tokenizer(files)


@pytest.mark.parametrize(
    ("key", "value"),
    [("continuing_subword_prefix", "#####"), ("unk_token", "<no such token>")],
)
def test_what_the_library_panics_on_is_an_error_of_ours(key, value, own_folder):
    files = own_folder("K13.tokenizer.json")
    content = json.loads(files.tokenizer_json.read_text(encoding="utf-8"))
    content["model"] |= {key: value, "byte_fallback": False}
    files.tokenizer_json.write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(TokenizerError, match=r"tokenizer\.json (of own is|can't encode)"):
        load_tokenizer(files).encode("🦙", add_special_tokens=False)


def test_truncation_and_padding_of_a_tokenizer_file_are_switched_off(own_folder):
    files = own_folder("K09.tokenizer.json")
    inner = tokenizers.Tokenizer.from_file(str(CASES / "K09.tokenizer.json"))
    inner.enable_truncation(4)
    inner.enable_padding(length=4)
    inner.save(str(files.tokenizer_json))
    tokenizer = load_tokenizer(files)
    assert len(tokenizer.encode("x" * 50, add_special_tokens=False)) == 50
    assert len(tokenizer.encode("x", add_special_tokens=False)) == 1


def test_a_token_named_as_end_in_the_settings_is_a_control_token(own_folder):
    tokenizer = load_tokenizer(own_folder("K09.tokenizer.json", {"eos_token": "hello"}))
    assert tokenizer.is_special(261)
    assert tokenizer.decode([261, 262]) == " w"
    assert tokenizer.vocab_size == 264


def test_a_control_token_that_is_not_in_the_vocabulary_is_not_added(own_folder):
    tokenizer = load_tokenizer(own_folder("K09.tokenizer.json", {"pad_token": "<pad>"}))
    assert tokenizer.vocab_size == 264
    assert tokenizer.token_id("<pad>") is None


def test_ids_outside_the_vocabulary_decode_to_nothing(own_folder):
    tokenizer = load_tokenizer(own_folder("K09.tokenizer.json"))
    assert tokenizer.decode([261, 999_999, 262]) == "hello w"
    assert not tokenizer.is_special(999_999)


def test_half_a_character_in_a_text_is_refused(own_folder):
    tokenizer = load_tokenizer(own_folder("K09.tokenizer.json"))
    with pytest.raises(UsageError, match="half a character at position 2"):
        tokenizer.encode("ab\ud83d", add_special_tokens=False)


def test_every_turn_of_a_chat_has_the_ids_it_had_before(own_folder):
    tokenizer = load_tokenizer(own_folder("K13.tokenizer.json"))
    expected = _case("K13.expected.json")["second_turn"]["ids"]
    text = "Hello world"
    for _ in range(3):
        ids = tokenizer.encode(text, add_special_tokens=False)
        assert ids == expected
        text = tokenizer.decode(ids)


def test_byte_tokens_are_known(own_folder):
    tokenizer = load_tokenizer(own_folder("K13.tokenizer.json"))
    assert tokenizer.byte_ids == frozenset(range(3, 259))


@pytest.mark.embedded
def test_blanks_before_punctuation_stay_whatever_the_settings_say(embedded, tmp_path):
    case = _case("K12.expected.json")
    config = json.loads(embedded.tokenizer_config.read_text(encoding="utf-8"))
    config["clean_up_tokenization_spaces"] = True
    path = tmp_path / "tokenizer_config.json"
    path.write_text(json.dumps(config), encoding="utf-8")
    tokenizer = load_tokenizer(dataclasses.replace(embedded, tokenizer_config=path))
    assert tokenizer.encode(case["text"], add_special_tokens=False) == case["ids"]
    assert tokenizer.decode(case["ids"]) == case["right"]
    detokenizer = IncrementalDetokenizer(tokenizer.decode, (), tokenizer.byte_ids)
    streamed = "".join(detokenizer.push(token_id) for token_id in case["ids"])
    assert streamed + detokenizer.flush() == case["right"]
