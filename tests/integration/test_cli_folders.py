"""Models in folders of any name and layout, and settings beside them that count."""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path

import pytest

from engine.cli.preparation import Division
from engine.models.files import open_folder
from engine.models.settings import read_settings
from engine.models.tokenizer import load_tokenizer
from engine.models.unsplit import generate_greedy
from tests.integration.daisy import C_LOCALE, daisy, refused
from tests.integration.pool import shards

pytestmark = [pytest.mark.processes, pytest.mark.together]

CASES = Path(__file__).parents[1] / "vectors" / "cases"
FOLDERS = json.loads((CASES / "K28.json").read_text(encoding="utf-8"))["folders"]
K16 = json.loads((CASES / "K16.json").read_text(encoding="utf-8"))["rows"]
MONTHS = (
    *("January", "February", "March", "April", "May", "June", "July", "August"),
    *("September", "October", "November", "December"),
)
RAW = ("ask", "--raw", "hello", "--exact", "--max-tokens", 4, "--ignore-eos", "--json")


def named(parent, name):
    """A path of that name, whatever this process's locale makes of it."""
    return parent / os.fsdecode(name.encode())


@pytest.fixture(scope="module")
def expected(talking):
    """What the unsplit model writes after "hello", whose ids the case names."""
    k09 = json.loads((CASES / "K09.expected.json").read_text(encoding="utf-8"))["values"]
    ids = k09["raw_completion_of_hello"]
    assert ids == [0, 261]
    return generate_greedy(talking / "openvino_model.xml", ids, 4)


# ---- names (K28) and links (K29) ---------------------------------------------------------------


def test_a_model_in_a_folder_of_any_name_answers(talking, expected, tmp_path):
    def answer(name):
        model = Path(shutil.copytree(talking, named(tmp_path, name)))
        data = named(tmp_path, f"{name[:40]} data")
        return name, daisy(*RAW, "--stages", 1, "--model", model, data=data)

    assert len(FOLDERS) == 9
    with ThreadPoolExecutor(max_workers=2) as pool:  # each takes two seconds of a core
        for name, ended in pool.map(answer, FOLDERS):
            assert ended.status == 0, (name, ended.out)
            assert ended.token_ids == expected, name
            assert ended.one("accepted")["prompt_tokens"] == 2


def test_any_name_under_any_locale(talking, expected, tmp_path):
    name = "模型 fp16"
    model = Path(shutil.copytree(talking, named(tmp_path, name)))
    data, out = named(tmp_path, "数据"), named(tmp_path, "осколки")
    ended = daisy(*RAW, "--model", model, data=data, env=C_LOCALE)
    assert ended.status == 0, ended.out
    assert ended.token_ids == expected
    split = daisy("split", model, "--out", out, "--json", data=data, env=C_LOCALE)
    assert split.status == 0, split.out
    assert split.one("split")["folder"] == str(out)
    assert split.one("split")["model"]["name"] == name
    ended = daisy(*RAW, "--model", out, data=data, env=C_LOCALE)
    assert ended.token_ids == expected
    again = daisy("split", model, "--out", out, "--json", data=data, env=C_LOCALE)
    assert (again.status, again.one("error")["code"]) == (2, "usage")
    assert "осколки" in again.one("error")["what"]


def test_a_hub_cache_of_links_read_only(talking, expected, tmp_path):
    hub = tmp_path / "models--org--tiny"
    snapshot, blobs = hub / "snapshots" / "abc", hub / "blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    for number, file in enumerate(sorted(talking.iterdir())):
        shutil.copyfile(file, blobs / f"{number:04}")
        (snapshot / file.name).symlink_to(Path("../../blobs") / f"{number:04}")
    before = {p: p.read_bytes() for p in blobs.iterdir()}
    folders = [hub, hub / "snapshots", snapshot, blobs]
    for folder in folders:
        folder.chmod(stat.S_IRUSR | stat.S_IXUSR)
    try:
        ended = daisy(*RAW, "--model", snapshot, data=tmp_path / "data")
        assert ended.status == 0, ended.out
        assert ended.token_ids == expected
        split = daisy(
            "split", snapshot, "--out", tmp_path / "out", "--json", data=tmp_path / "data"
        )
        assert split.one("split")["model"]["name"] == "org/tiny"
        assert {p: p.read_bytes() for p in blobs.iterdir()} == before
    finally:
        for folder in folders:
            folder.chmod(0o755)
    (snapshot / "openvino_model.bin").resolve().unlink()
    broken = daisy("split", snapshot, "--out", tmp_path / "no", data=tmp_path / "data")
    refused(broken, 3, "openvino_model.bin is missing (link to ../../blobs/")
    assert not (tmp_path / "no").exists()


def test_a_link_out_of_the_folder_is_followed(talking, expected, tmp_path):
    model = tmp_path / "model"
    model.mkdir()
    for file in talking.iterdir():
        (model / file.name).symlink_to(file)
    ended = daisy(*RAW, "--model", model, data=tmp_path / "data")
    assert (ended.status, ended.token_ids) == (0, expected)


def test_a_model_that_changed_is_split_anew(talking, tmp_path):
    # Shards made before are used again only for the very same files.
    model = Path(shutil.copytree(talking, tmp_path / "model"))
    division, data = Division(num_stages=2), tmp_path / "data"
    first, second = shards(model, division, data), shards(model, division, data)
    assert first.path == second.path
    settings = model / "generation_config.json"
    settings.write_text('{"eos_token_id": 5}', encoding="utf-8")
    third = shards(model, division, data)
    assert third.path != first.path
    assert 5 in third.manifest.model.eos_token_ids
    assert 5 not in first.manifest.model.eos_token_ids
    assert shards(model, Division(cuts=(1,)), data).path not in {first.path, third.path}


# ---- own files beside the embedded model (K02, K16) ----------------------------------------------


def own_folder(embedded, folder):
    """The embedded model as an imported folder; its weights are links."""
    folder.mkdir()
    for file in embedded.folder.iterdir():
        if file.name.startswith("openvino_"):
            (folder / file.name).symlink_to(file.absolute())
        elif file.is_file():
            shutil.copyfile(file, folder / file.name)
    return folder


def with_ends(embedded, folder, row):
    own_folder(embedded, folder)
    file = folder / "generation_config.json"
    ends = row["eos_token_id"]
    if ends == "(no such file)":
        file.unlink()
    else:
        content = {} if ends == "(no such key)" else {"eos_token_id": ends}
        file.write_text(json.dumps(content), encoding="utf-8")
    return folder


@pytest.mark.embedded
@pytest.mark.parametrize("number", range(len(K16)))
def test_ends_are_the_union_of_all_that_name_them(number, embedded, tmp_path):
    row = K16[number]
    settings = read_settings(open_folder(with_ends(embedded, tmp_path / "m", row)))
    right = row.get("stop_ids") or [i for i in row["eos_token_id"] if 0 <= i < 49152]
    assert list(settings.eos_token_ids) == right


@pytest.mark.embedded
@pytest.mark.parametrize("number", [0, 1])
def test_an_answer_ends_at_every_one_of_them(number, embedded, tmp_path):
    """One of each kind: a list, and 0."""
    row = K16[number]
    model = with_ends(embedded, tmp_path / "m", row)
    asked = ["--raw", "The capital of France is", "--max-tokens", 40]
    if "raw" not in row["request"]:
        asked = ["What is the capital of France?"]
    words = ("ask", *asked, "--exact", "--stages", 1, "--model", model, "--json")
    ended = daisy(*words, data=tmp_path / "data")
    assert ended.status == 0, ended.out
    assert (ended.text, ended.one("finished")["finish_reason"]) == (row["text"], "stop")
    assert ended.token_ids == row.get("tokens", [504, 3575, 282, 4649, 314, 7042, 30, 2])


@pytest.mark.embedded
def test_a_template_with_dates_under_any_locale(embedded, cases, tmp_path):
    model = own_folder(embedded, tmp_path / "m")
    shutil.copyfile(cases / "K02.jinja", model / "chat_template.jinja")
    messages = json.loads((cases / "K02.json").read_text(encoding="utf-8"))
    file = tmp_path / "request.json"
    body = {"messages": messages, "max_tokens": 8, "ignore_eos": True}
    file.write_text(json.dumps(body), encoding="utf-8")
    expected = json.loads((cases / "K02.expected.json").read_text(encoding="utf-8"))["values"]
    (text,) = (value for key, value in expected.items() if key.startswith("text"))
    runs = []
    for env in ({"LC_ALL": "de_DE.UTF-8", "LANGUAGE": "zh_CN"}, C_LOCALE):
        now = datetime.now().astimezone()
        words = ("ask", "--exact", "--stages", 1, "--model", model, "--json", "--request", file)
        runs.append(daisy(*words, data=tmp_path / "data", env=env))
        assert now.date() == datetime.now().astimezone().date()  # no midnight in between
        assert runs[-1].status == 0, runs[-1].out
    today = f"Today is {now.day:02} {MONTHS[now.month - 1]} {now.year}."
    right, count = re.subn(r"Today is [^.]*\.", today, text)
    assert count == 1
    prompt = load_tokenizer(embedded).encode(right, add_special_tokens=False)
    tokens = generate_greedy(embedded.xml, prompt, 8)
    for run in runs:
        assert run.one("accepted")["prompt_tokens"] == len(prompt)
        assert run.token_ids == tokens
