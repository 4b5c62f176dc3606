"""Kind, context length and the ids that end an answer, as the model's own files say."""

import dataclasses
import json
import shutil
from pathlib import Path

import pytest

from engine.errors import ModelFileError
from engine.models.files import open_folder
from engine.models.settings import read_settings

TESTS = Path(__file__).parents[2]
CASES = TESTS / "vectors" / "cases"
FIXTURE = TESTS / "fixtures" / "models" / "llama"
K16 = json.loads((CASES / "K16.json").read_text(encoding="utf-8"))
TURNS = "{% for m in messages %}<|start|>{{ m.content }}{{ END }}{% endfor %}"


@pytest.fixture
def own(tmp_path):
    """Makes a model's folder with other settings, and K09's tokenizer of 264 ids if asked."""

    def make(config=None, generation=None, *, tokenizer=None, template=None):
        folder = Path(shutil.copytree(FIXTURE, tmp_path / "own"))
        for name, content in (("config.json", config), ("generation_config.json", generation)):
            (folder / name).unlink()
            if content is not None:
                (folder / name).write_text(json.dumps(content), encoding="utf-8")
        if tokenizer is not None:
            shutil.copyfile(CASES / "K09.tokenizer.json", folder / "tokenizer.json")
            text = json.dumps(tokenizer)
            (folder / "tokenizer_config.json").write_text(text, encoding="utf-8")
        if template is not None:
            (folder / "chat_template.jinja").write_text(template, encoding="utf-8")
        return open_folder(folder)

    return make


def _stop_ids(row):
    listed = row["eos_token_id"]
    if "stop_ids" in row:
        return tuple(row["stop_ids"])
    return tuple(sorted({2, *(it for it in listed if 0 <= it < 49152)}))


@pytest.mark.embedded
@pytest.mark.parametrize("row", K16["rows"], ids=lambda row: str(row["eos_token_id"]))
def test_ends_are_the_union_of_generation_settings_and_tokenizer(row, embedded, tmp_path):
    path = tmp_path / "generation_config.json"
    ends = row["eos_token_id"]
    content = {} if ends == "(no such key)" else {"eos_token_id": ends}
    path.write_text(json.dumps(content))
    if ends == "(no such file)":
        path = None
    settings = read_settings(dataclasses.replace(embedded, generation_config=path))
    assert settings.eos_token_ids == _stop_ids(row)
    named = " ".join(settings.notes)
    assert ("-1" in named and "999999" in named) == ("note" in row)


@pytest.mark.embedded
def test_the_embedded_model_is_described(embedded):
    settings = read_settings(embedded)
    assert settings.model_type == "llama"
    assert settings.context_length == 8192
    assert settings.vocab_size == 49152
    assert settings.eos_token_ids == (2,)
    assert settings.notes == ()


def test_an_end_of_0_is_an_end(own):
    assert read_settings(own({"vocab_size": 9}, {"eos_token_id": 0})).eos_token_ids == (0,)


def test_the_settings_of_the_model_count_where_generation_has_none(own):
    files = own({"vocab_size": 9, "eos_token_id": [3, 4]}, {"eos_token_id": None})
    assert read_settings(files).eos_token_ids == (3, 4)


def test_the_settings_of_the_model_do_not_count_where_generation_has_an_end(own):
    files = own({"vocab_size": 9, "eos_token_id": 3}, {"eos_token_id": 7})
    assert read_settings(files).eos_token_ids == (7,)


@pytest.mark.parametrize("end", [True, "2", 2.0, {"id": 2}])
def test_ends_that_are_no_numbers_are_ignored_and_named(end, own):
    settings = read_settings(own({"vocab_size": 9}, {"eos_token_id": [1, end]}))
    assert settings.eos_token_ids == (1,)
    assert repr(end) in settings.notes[0]


def test_a_model_without_any_end_says_so(own):
    settings = read_settings(own({"vocab_size": 9}))
    assert settings.eos_token_ids == ()
    assert "greatest length" in settings.notes[0]


def test_the_tokenizers_end_counts_too(own):
    files = own({"vocab_size": 264}, {"eos_token_id": 7}, tokenizer={"eos_token": "</s>"})
    assert read_settings(files).eos_token_ids == (1, 7)


def test_the_token_a_template_writes_after_an_answer_is_an_end(own):
    template = TURNS.replace("{{ END }}", "</s>")
    files = own({"vocab_size": 264}, tokenizer={"bos_token": "<s>"}, template=template)
    assert read_settings(files).eos_token_ids == (1,)


@pytest.mark.parametrize("after", ["", "\n", "[end]"])
def test_a_template_that_ends_answers_by_text_adds_no_end(after, own):
    template = TURNS.replace("{{ END }}", after)
    files = own({"vocab_size": 264}, {"eos_token_id": 9}, tokenizer={}, template=template)
    assert read_settings(files).eos_token_ids == (9,)


@pytest.mark.parametrize("template", ["{% if %}", "{{ raise_exception('no') }}", "x"])
def test_a_template_that_fails_does_no_harm_to_the_settings(template, own):
    files = own({"vocab_size": 264}, {"eos_token_id": 9}, tokenizer={}, template=template)
    assert read_settings(files).eos_token_ids == (9,)


@pytest.mark.parametrize(
    ("config", "length"),
    [
        ({"max_position_embeddings": 4096}, 4096),
        ({"n_positions": 1024}, 1024),
        ({"max_seq_len": 2048}, 2048),
        ({"n_ctx": 99}, 99),
        ({"text_config": {"max_position_embeddings": 32}, "max_position_embeddings": None}, 32),
        ({"max_position_embeddings": 0, "n_positions": "7"}, None),
        ({"max_position_embeddings": True}, None),
        ({}, None),
    ],
)
def test_the_context_length_is_found_under_any_of_its_names(config, length, own):
    assert read_settings(own(config)).context_length == length


@pytest.mark.parametrize(
    ("config", "window"),
    [
        ({"sliding_window": 24}, 24),
        ({"sliding_window": 24, "use_sliding_window": False}, None),
        ({"sliding_window": 24, "layer_types": ["full_attention"]}, None),
        ({"sliding_window": 24, "layer_types": ["full_attention", "sliding_attention"]}, 24),
        ({"sliding_window": None}, None),
        ({}, None),
    ],
)
def test_a_sliding_window_counts_only_if_a_layer_uses_it(config, window, own):
    assert read_settings(own(config)).sliding_window == window


def test_a_folder_without_settings_is_of_an_unknown_kind(own):
    settings = read_settings(own())
    assert settings.model_type == "unknown"
    assert settings.vocab_size is None


@pytest.mark.parametrize("text", ["", "{", "[1]", '"x"', "[" * 100_000])
def test_damaged_settings_are_named(text, own):
    files = own({})
    files.config.write_text(text)
    with pytest.raises(ModelFileError, match=r"config\.json (is damaged|holds)"):
        read_settings(files)


def test_settings_are_utf8_whatever_is_in_them(own):
    files = own({"model_type": "模型", "vocab_size": 9})
    assert read_settings(files).model_type == "模型"
