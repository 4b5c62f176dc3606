"""The locale changes nothing: not names, not text, not what a model says."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from engine.errors import ModelNotFoundError
from engine.models.files import open_folder, shown_name
from engine.models.opening import open_model
from engine.models.settings import read_settings
from engine.models.shown_path import shown_path
from engine.models.template_files import load_chat_template
from engine.models.tokenizer import load_tokenizer
from engine.models.unsplit import generate_greedy

TESTS = Path(__file__).parents[2]
CASES = TESTS / "vectors" / "cases"
FIXTURE = TESTS / "fixtures" / "models" / "llama"
C_LOCALE = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
FOLDERS = json.loads((CASES / "K28.json").read_text(encoding="utf-8"))["folders"]


def _named(parent, name):
    """A path of that name, whatever this process's locale makes of it."""
    return parent / os.fsdecode(name.encode())


@pytest.fixture(scope="module")
def expected():
    return generate_greedy(FIXTURE / "openvino_model.xml", [5, 17, 300], 3)


@pytest.mark.parametrize("name", FOLDERS)
def test_a_model_in_any_folder_opens_and_runs(name, tmp_path, expected):
    folder = Path(shutil.copytree(FIXTURE, _named(tmp_path, name)))
    shutil.copyfile(CASES / "K09.tokenizer.json", folder / "tokenizer.json")
    shutil.copyfile(CASES / "K02.jinja", folder / "chat_template.jinja")
    files = open_model(folder, _named(tmp_path, "数据"))
    assert files.name == name
    assert load_tokenizer(files).encode("hello", add_special_tokens=True) == [0, 261]
    load_chat_template(files)
    assert read_settings(files).context_length == 512
    assert generate_greedy(files.xml, [5, 17, 300], 3) == expected


@pytest.mark.parametrize("name", ["模型 fp16", "тест №1 🙂"])
def test_a_gguf_in_any_folder_is_converted_into_any_folder(name, tiny_gguf, tmp_path):
    gguf = tiny_gguf.write()
    folder = _named(tmp_path, name)
    folder.mkdir()
    moved = gguf.rename(_named(folder, "модель.gguf"))
    files = open_model(moved, folder / "data")
    assert files.name == "модель"
    assert load_tokenizer(files).decode([261, 262]) == "hello w"
    assert len(generate_greedy(files.xml, [1, 261], 2)) == 2


def test_paths_are_shown_alike_in_every_locale(tmp_path):
    path = _named(tmp_path, "模型")
    assert shown_path(path).endswith("/模型")
    assert shown_name(path) == "模型"
    path.mkdir()
    assert shown_path(tmp_path / os.fsdecode(b"\xff")).endswith("/\ufffd")
    with pytest.raises(ModelNotFoundError, match="模型"):
        open_folder(path)


@pytest.mark.skipif(os.environ.get("LC_ALL") == "C", reason="this is the inner run")
def test_everything_holds_in_the_c_locale_too():
    modules = ("test_locale", "test_chat_template", "test_tokenizer", "test_settings", "test_names")
    ended = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"),
            *("-m", "not embedded"),
            *(str(Path(__file__).with_name(f"{module}.py")) for module in modules),
        ],
        env={**os.environ, **C_LOCALE},
        cwd=TESTS.parent,
        capture_output=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout.decode(errors="replace")[-3000:]
