"""One token on each device: the CPU's in milliseconds, and each failure in words."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys

import psutil
import pytest

from engine.config import TRIAL_MODEL
from engine.errors import StageError
from engine.pipeline import device_trial
from engine.pipeline.device_trial import Device, list_devices, try_devices
from engine.splitter.manifest import MANIFEST_NAME, decode_manifest

pytestmark = pytest.mark.processes


def run(coroutine):
    """Run it; nothing may be left running."""
    before = set(psutil.Process().children())
    result = asyncio.run(asyncio.wait_for(coroutine, 120))
    assert set(psutil.Process().children()) == before
    return result


def listing(monkeypatch, *devices):
    async def told():
        return devices

    monkeypatch.setattr(device_trial, "list_devices", told)


def test_the_cpu_computes_a_token_of_the_model_that_comes_with_daisy():
    tried = run(try_devices())
    (cpu,) = [one for one in tried if one.name == "CPU"]

    assert cpu.trouble is None
    assert cpu.token_ms is not None
    assert cpu.token_ms > 0
    assert cpu.load_s is not None
    assert cpu.full_name


def test_a_device_that_is_not_there_fails_in_words_and_the_next_one_is_tried(monkeypatch):
    listing(
        monkeypatch,
        Device("GPU.7", "A GPU", ("paged",)),
        Device("TPU", "Something", ()),
        Device("CPU", "A CPU", ("stateful",)),
    )
    gpu, other, cpu = run(try_devices())

    assert gpu.trouble is not None
    assert gpu.trouble.code == "compile"
    assert "GPU.7" in gpu.trouble.what
    assert other.trouble is not None
    assert cpu.trouble is None
    assert cpu.token_ms is not None


def test_a_device_that_computes_something_else_is_found_out(monkeypatch, tmp_path):
    model = shutil.copytree(TRIAL_MODEL, tmp_path / "trial")
    golden = next((model / "golden").iterdir())
    golden.write_bytes(
        bytes(byte ^ 0x80 if i % 4 == 3 else byte for i, byte in enumerate(golden.read_bytes()))
    )
    listing(monkeypatch, Device("CPU", "A CPU", ("paged",)))
    (cpu,) = run(try_devices(model))

    assert cpu.trouble is not None
    assert cpu.trouble.code == "golden_step"


def test_a_model_that_is_missing_is_said(monkeypatch, tmp_path):
    listing(monkeypatch, Device("CPU", "A CPU", ("paged",)))
    (cpu,) = run(try_devices(tmp_path))

    assert cpu.trouble is not None
    assert cpu.trouble.code == "model_not_found"


def test_a_driver_that_hangs_is_given_up(monkeypatch):
    monkeypatch.setattr(device_trial, "LIST_WITHIN_S", 0.01)
    with pytest.raises(StageError, match=r"within 0\.01 s"):
        run(list_devices())


def test_a_driver_that_ends_the_process_that_asks_is_told_by_its_last_words(monkeypatch, tmp_path):
    python = tmp_path / "python"
    python.write_text(f"#!{sys.executable}\nimport os\nos.write(2, b'bad driver')\nos.abort()\n")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    with pytest.raises(StageError, match="SIGABRT; its last words: bad driver"):
        run(list_devices())


def test_the_model_that_comes_with_daisy_is_whole():
    manifest = decode_manifest((TRIAL_MODEL / MANIFEST_NAME).read_bytes())
    files = {entry.path: entry.num_bytes for entry in manifest.files}

    assert {path: (TRIAL_MODEL / path).stat().st_size for path in files} == files
    assert sum(files.values()) < 500_000
    assert json.loads((TRIAL_MODEL / MANIFEST_NAME).read_bytes())["golden"] is not None
