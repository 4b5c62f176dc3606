"""Bad input, of every kind: one sentence, one of advice, the documented status, nothing left."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import openvino as ov
import pytest
from openvino import opset13 as ops

from tests.integration.daisy import daisy, daisy_here, refused
from tests.unit.models.conftest import TinyGguf

pytestmark = [pytest.mark.processes, pytest.mark.together]

OBEYING_MODES = (
    "setpriv",
    "--bounding-set=-dac_override,-dac_read_search",
    "--inh-caps=-all",
)


@pytest.fixture
def model(talking, tmp_path):
    """A whole model to damage."""
    return Path(shutil.copytree(talking, tmp_path / "model"))


def contents(folder):
    return {p: (p.lstat().st_size, p.lstat().st_mtime_ns) for p in folder.rglob("*")}


def refuses(model, tmp_path, status, *words, prefix=()):
    """Split and ask both refuse it, in the same words, and leave everything as it was."""
    data, out = tmp_path / "data", tmp_path / "out"
    before = contents(tmp_path)
    split = daisy("split", model, "--out", out, data=data, prefix=prefix)
    refused(split, status, *words)
    as_json = daisy("ask", "hello", "--model", model, "--json", data=data, prefix=prefix)
    error = as_json.one("error")
    assert as_json.status == status
    assert split.err.splitlines()[-2] == f"Error: {error['what']}"
    assert not as_json.err
    after = contents(tmp_path)
    assert {path: after.get(path) for path in before if path != tmp_path} == before
    made = [path for path in after if path not in before]
    assert not [path for path in made if path.is_file()], made
    assert not out.exists()


# ---- files of an IR ----------------------------------------------------------------------------


def test_the_weights_are_missing(model, tmp_path):
    (model / "openvino_model.bin").unlink()
    refuses(model, tmp_path, 3, "openvino_model.bin is missing")


def test_the_weights_are_cut_short(model, tmp_path):
    weights = model / "openvino_model.bin"
    size = weights.stat().st_size
    with weights.open("r+b") as file:
        file.truncate(size // 2)
    refuses(model, tmp_path, 3, "openvino_model.bin", str(size // 2), str(size))


def test_the_xml_points_past_the_end_of_the_weights(model, tmp_path):
    xml = model / "openvino_model.xml"
    text = xml.read_text(encoding="utf-8")
    xml.write_text(re.sub(r'offset="\d+"', f'offset="{2**40}"', text, count=1), encoding="utf-8")
    refuses(model, tmp_path, 3, "openvino_model.bin", "missing")


def test_the_xml_is_cut_short(model, tmp_path):
    xml = model / "openvino_model.xml"
    xml.write_bytes(xml.read_bytes()[:5000])
    refuses(model, tmp_path, 3, "openvino_model.xml", "5000")


def built(folder, inputs, make):
    folder.mkdir()
    parameters = [ops.parameter(shape, kind, name=name) for name, kind, shape in inputs]
    for parameter in parameters:
        parameter.output(0).get_tensor().set_names({parameter.get_friendly_name()})
    result = make(*parameters)
    result.output(0).get_tensor().set_names({"logits"})
    ov.save_model(ov.Model([result], parameters, "m"), folder / "openvino_model.xml")
    return folder


def test_the_model_is_no_language_model(tmp_path):
    inputs = [("pixel_values", np.float32, [1, 3, 8, 8])]
    refuses(built(tmp_path / "m", inputs, ops.relu), tmp_path, 3, "language model")


def test_the_model_is_stateless(tmp_path):
    table = ops.constant(np.ones((16, 8), np.float32))
    inputs = [("input_ids", np.int64, [-1, -1]), ("attention_mask", np.int64, [-1, -1])]
    model = built(
        tmp_path / "m",
        inputs,
        lambda ids, _mask: ops.gather(table, ids, ops.constant(np.int64(0))),
    )
    refuses(model, tmp_path, 3, "state")


def test_there_is_no_model(tmp_path):
    refuses(tmp_path / "nowhere", tmp_path, 3, "nowhere")
    (tmp_path / "empty").mkdir()
    refuses(tmp_path / "empty", tmp_path, 3, "no openvino_model.xml")


def test_there_is_no_tokenizer(fixture_models, tmp_path):
    """It can be split; who would ask it is told what is missing."""
    ended = daisy("ask", "hi", "--model", fixture_models / "llama", data=tmp_path / "data")
    refused(keeping_errors(ended), 3, "tokenizer")


def keeping_errors(ended):
    lines = ended.err.splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith("Error: "))
    return type(ended)(ended.status, ended.out, "\n".join(lines[first:]), ended.seconds)


def test_there_is_no_chat_template(model, tmp_path):
    (model / "chat_template.jinja").unlink()
    data = tmp_path / "data"
    ended = daisy("ask", "hello", "--model", model, "--exact", data=data)
    refused(keeping_errors(ended), 3, "chat template")
    raw = daisy("ask", "--raw", "hello", "--model", model, "--exact", "--max-tokens", 2, data=data)
    assert raw.status == 0


# ---- GGUF --------------------------------------------------------------------------------------


def test_a_gguf_with_tensors_of_an_unknown_type(tmp_path):
    gguf = TinyGguf(tmp_path).write(replaced_tensors={"blk.0.attn_q.weight": "Q5_0"})
    refuses(gguf, tmp_path, 3, "tiny.gguf", "blk.0.attn_q.weight", "Q5_0")


def test_a_gguf_that_is_cut_short(tmp_path):
    gguf = TinyGguf(tmp_path).write()
    size = gguf.stat().st_size
    with gguf.open("r+b") as file:
        file.truncate(size - 1000)
    refuses(gguf, tmp_path, 3, "tiny.gguf", str(size - 1000))


def test_a_gguf_that_is_none(tmp_path):
    (tmp_path / "tiny.gguf").write_bytes(b"<html>" * 100)
    refuses(tmp_path / "tiny.gguf", tmp_path, 3, "tiny.gguf")


# ---- the system --------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    mount, unmount = shutil.which("mount"), shutil.which("umount")
    if mount is None or unmount is None:
        pytest.skip("nothing can be mounted here")
    command = [mount, "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(disk)]
    if subprocess.run(command, check=False, capture_output=True).returncode:
        pytest.skip("nothing may be mounted here")
    yield disk
    subprocess.run([unmount, str(disk)], check=True)


def test_the_disk_is_full(talking, small_disk, tmp_path):
    ended = daisy("split", talking, "--out", small_disk / "out", data=tmp_path / "data")
    refused(ended, 4, "free", "too few")
    ended = daisy("ask", "hello", "--model", talking, data=small_disk / "data")
    refused(ended, 4, "free", "too few")
    assert not [path for path in small_disk.rglob("*") if path.is_file()]


def obeys_modes():
    if os.name != "posix":
        return None
    if os.geteuid() != 0:
        return ()
    if shutil.which("setpriv") is None:
        return None
    probe = [*OBEYING_MODES, sys.executable, "-c", ""]
    return OBEYING_MODES if subprocess.run(probe, check=False).returncode == 0 else None


def test_files_that_may_not_be_read(model, tmp_path):
    prefix = obeys_modes()
    if prefix is None:
        pytest.skip("modes can't be made to count here")
    for name in ("openvino_model.bin", "tokenizer.json"):
        (model / name).chmod(0)
        refuses(model, tmp_path, 3, name, "can't be read", prefix=prefix)
        (model / name).chmod(0o644)


def test_a_folder_that_may_not_be_written(talking, tmp_path):
    prefix = obeys_modes()
    if prefix is None:
        pytest.skip("modes can't be made to count here")
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o500)
    data = tmp_path / "data"
    ended = daisy("split", talking, "--out", closed / "out", data=data, prefix=prefix)
    refused(ended, 4, "closed", "can't be written")
    ended = daisy("ask", "hello", "--model", talking, data=closed / "data", prefix=prefix)
    refused(ended, 4, "closed", "can't be written")
    assert not list(closed.iterdir())


def listen_above_a_free_port():
    """Listen on a port whose lower neighbour is free, below those the system gives away itself."""
    port = 20_000 + os.getpid() % 10_000
    while True:
        port += 1
        lower, taken = socket.socket(), socket.socket()
        try:
            lower.bind(("127.0.0.1", port - 1))
            taken.bind(("127.0.0.1", port))
            taken.listen()
        except OSError:
            taken.close()
        else:
            return taken
        finally:
            lower.close()


def test_a_port_that_is_taken(talking, own_data):
    with listen_above_a_free_port() as taken:
        port = taken.getsockname()[1]
        words = ("ask", "--raw", "hello", "--model", talking, "--stages", 2, "--port", port)
        ended = daisy(*words, data=own_data)
        refused(keeping_errors(ended), 7, str(port), "taken")
        # Also where it is not the first node's.
        ended = daisy(*words[:-1], port - 1, data=own_data)
        refused(keeping_errors(ended), 7, str(port), "taken")


# ---- words -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ((), "command"),
        (("sing",), "sing"),
        (("ask",), "question"),
        (("ask", "hi", "--bogus"), "--bogus"),
        (("ask", "hi", "--request", "x.json"), "--request"),
        (("ask", "hi", "--temperature", "warm"), "--temperature"),
        (("ask", "hi", "--temperature", "nan"), "temperature"),
        (("ask", "hi", "--temperature", "-1"), "temperature"),
        (("ask", "hi", "--max-tokens", "0"), "max_tokens"),
        (("ask", "hi", "--top-k", "-5"), "top_k"),
        (("ask", "hi", "--seed", "-1"), "seed"),
        (("ask", "hi", "--kind", "liquid"), "--kind"),
    ],
    ids=str,
)
def test_words_that_are_not_understood(words, named, tmp_path, capfd):
    ended = daisy_here(*words, data=tmp_path, capfd=capfd)
    refused(ended, 2)
    assert named.lower() in ended.err.splitlines()[0].lower()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("option", "value"),
    [("--context", "1"), ("--context", "513"), ("--threads", "0"), ("--port", "65536")],
)
def test_numbers_that_the_model_can_not_take(option, value, talking, own_data, capfd):
    words = ("ask", "--raw", "hello", "--model", talking, "--stages", 1, option, value)
    ended = daisy_here(*words, data=own_data, capfd=capfd)
    refused(keeping_errors(ended), 2, option, value)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"hello",
        b'{"messages": [',
        b"[]",
        b"\xff\xfe",
        b'{"prompt": "\\ud83d"}',
        b'{"prompt": 5}',
        b"{}",
        b'{"prompt": "a", "messages": []}',
        b'{"prompt": "a", "temperature": NaN}',
        b'{"prompt": "a", "n": 2}',
    ],
)
def test_a_request_that_is_none(body, tmp_path, capfd):
    file = tmp_path / "request.json"
    file.write_bytes(body)
    refused(daisy_here("ask", "--request", file, data=tmp_path / "data", capfd=capfd), 2)
    assert [p.name for p in tmp_path.iterdir()] == ["request.json"]


def test_a_request_file_that_is_not_there(tmp_path):
    ended = daisy("ask", "--request", tmp_path / "none.json", data=tmp_path / "data")
    refused(ended, 2, "none.json", "can't be read")


def test_a_request_through_standard_input(talking, own_data):
    body = json.dumps({"prompt": "hello", "max_tokens": 3, "ignore_eos": True}).encode()
    words = ("ask", "--request", "-", "--model", talking, "--exact", "--json")
    ended = daisy(*words, data=own_data, typed=body)
    assert ended.status == 0, ended.out
    assert len(ended.token_ids) == 3
