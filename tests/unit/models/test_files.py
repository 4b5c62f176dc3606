"""What a model's folder holds, and what is said of what it lacks."""

import os
import shutil
from pathlib import Path

import pytest

from engine.errors import ModelFileError, ModelNotFoundError, UnsupportedModelError
from engine.models.files import open_folder, read_text, shown_name
from engine.models.opening import open_model

FIXTURE = Path(__file__).parents[2] / "fixtures" / "models" / "llama"


@pytest.fixture
def folder(tmp_path):
    return Path(shutil.copytree(FIXTURE, tmp_path / "tiny"))


@pytest.fixture
def hub(tmp_path):
    """A hub's cache: files are links to blobs named by their hash."""
    model = tmp_path / "models--tests--tiny"
    snapshot = model / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (model / "blobs").mkdir()
    for name, blob in (("openvino_model.xml", "1111"), ("openvino_model.bin", "2222")):
        shutil.copyfile(FIXTURE / name, model / "blobs" / blob)
        (snapshot / name).symlink_to(Path("..", "..", "blobs", blob))
    shutil.copyfile(FIXTURE / "config.json", snapshot / "config.json")
    return snapshot


def _contents(folder):
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_a_folder_with_an_ir_is_opened(folder):
    files = open_folder(folder)
    assert files.name == "tiny"
    assert files.xml == folder / "openvino_model.xml"
    assert files.bin == folder / "openvino_model.bin"
    assert files.config == folder / "config.json"
    assert files.tokenizer_json is None
    assert files.additional_chat_templates == ()


def test_the_xml_itself_opens_its_folder(folder):
    assert open_folder(folder / "openvino_model.xml") == open_folder(folder)


def test_links_of_a_hub_cache_are_opened_beside_the_link(hub, tmp_path):
    before = _contents(hub.parents[1])
    files = open_model(hub, tmp_path / "data")
    assert files.name == "tests/tiny"
    assert files.bin == hub / "openvino_model.bin"
    assert files.bin.read_bytes() == (FIXTURE / "openvino_model.bin").read_bytes()
    assert _contents(hub.parents[1]) == before


def test_a_link_that_leads_nowhere_is_named_with_where_it_leads(hub):
    (hub.parents[1] / "blobs" / "2222").unlink()
    with pytest.raises(ModelFileError) as caught:
        open_folder(hub)
    assert "openvino_model.bin is missing (link to ../../blobs/2222)" in caught.value.what


def test_a_dangling_xml_is_named_too_and_not_taken_for_no_model(hub):
    (hub.parents[1] / "blobs" / "1111").unlink()
    with pytest.raises(ModelFileError, match=r"openvino_model.xml is missing \(link to"):
        open_folder(hub)


def test_a_dangling_optional_file_is_not_silently_left_out(folder):
    (folder / "tokenizer.json").symlink_to("../blobs/3333")
    with pytest.raises(ModelFileError, match=r"tokenizer.json is missing \(link to ../blobs/3333"):
        open_folder(folder)


def test_a_link_out_of_the_folder_works(folder, tmp_path):
    (folder / "openvino_model.bin").rename(tmp_path / "elsewhere")
    (folder / "openvino_model.bin").symlink_to(tmp_path / "elsewhere")
    assert open_model(folder, tmp_path / "data").bin == folder / "openvino_model.bin"


def test_a_read_only_folder_works_and_nothing_is_written_beside_it(folder, tmp_path):
    for path in (*folder.iterdir(), folder):
        path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        open_model(folder, tmp_path / "data")
    finally:
        folder.chmod(0o755)
    assert not (tmp_path / "data").exists()


def test_an_xml_without_weights_says_so(folder):
    (folder / "openvino_model.bin").unlink()
    with pytest.raises(ModelFileError, match=r"openvino_model.bin is missing from"):
        open_folder(folder)


def test_weights_without_an_xml_say_so(folder):
    (folder / "openvino_model.xml").unlink()
    with pytest.raises(ModelFileError, match=r"openvino_model.xml is missing from"):
        open_folder(folder)


@pytest.mark.parametrize(
    ("names", "error", "words"),
    [
        ([], ModelNotFoundError, "no openvino_model.xml"),
        (["readme.txt"], ModelNotFoundError, "no openvino_model.xml"),
        (["model.safetensors", "config.json"], UnsupportedModelError, "model.safetensors"),
        (["pytorch_model.bin"], UnsupportedModelError, "pytorch_model.bin"),
        (["openvino_language_model.xml"], UnsupportedModelError, "several parts"),
    ],
)
def test_folders_with_something_else_are_named(names, error, words, tmp_path):
    for name in names:
        (tmp_path / name).touch()
    with pytest.raises(error, match=words):
        open_folder(tmp_path)


def test_paths_that_are_no_model_are_named(tmp_path):
    with pytest.raises(ModelNotFoundError, match="nowhere"):
        open_model(tmp_path / "nowhere", tmp_path)
    (tmp_path / "notes.txt").touch()
    with pytest.raises(ModelNotFoundError, match="neither"):
        open_model(tmp_path / "notes.txt", tmp_path)
    with pytest.raises(ModelFileError, match=r"missing.gguf is missing"):
        open_model(tmp_path / "missing.gguf", tmp_path)


def test_a_folder_in_the_weights_place_is_no_file(folder):
    (folder / "openvino_model.bin").unlink()
    (folder / "openvino_model.bin").mkdir()
    with pytest.raises(ModelFileError, match="is not a file"):
        open_folder(folder)


def test_of_several_ggufs_one_must_be_named(tmp_path):
    for name in ("a.gguf", "b.GGUF"):
        (tmp_path / name).touch()
    with pytest.raises(ModelNotFoundError, match=r"a.gguf, b.GGUF"):
        open_model(tmp_path, tmp_path / "data")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_says_so(folder):
    (folder / "openvino_model.xml").chmod(0)
    with pytest.raises(ModelFileError, match="Permission denied"):
        open_folder(folder)


def test_additional_templates_are_found_by_name(folder):
    extra = folder / "additional_chat_templates"
    extra.mkdir()
    for name in ("tool_use.jinja", "rag.jinja", "notes.txt"):
        (extra / name).touch()
    found = open_folder(folder).additional_chat_templates
    assert found == (("rag", extra / "rag.jinja"), ("tool_use", extra / "tool_use.jinja"))


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/hub/models--org--name/snapshots/abc", "org/name"),
        ("/hub/models--name/snapshots/abc", "name"),
        ("/somewhere/模型 fp16", "模型 fp16"),
        ("/somewhere/snapshots/abc", "abc"),
        ("/", "model"),
    ],
)
def test_a_model_is_shown_by_its_folders_name(path, name):
    assert shown_name(Path(path)) == name


def test_text_is_utf8_with_or_without_a_mark(tmp_path):
    path = tmp_path / "config.json"
    path.write_bytes(b"\xef\xbb\xbf" + "ü日本\r\n".encode())
    assert read_text(path) == "ü日本\r\n"
    path.write_bytes(b"\xfc")
    with pytest.raises(ModelFileError, match=r"config.json is not UTF-8 text: byte 0"):
        read_text(path)
