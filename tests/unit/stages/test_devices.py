"""The devices of this PC."""

import subprocess
import sys

import msgspec
import psutil

from engine.stages.devices import DeviceDescription, available_devices


def test_the_cpu_is_always_there():
    (cpu,) = [device for device in available_devices() if device.name == "CPU"]
    assert cpu.full_name
    assert cpu.total_bytes == psutil.virtual_memory().total
    assert cpu.shares_memory
    assert cpu.kinds == ("paged", "stateful")
    assert "FP32" in cpu.capabilities


def test_a_process_of_its_own_says_the_same():
    """For a node that wants to survive a driver that does not."""
    command = [sys.executable, "-m", "engine.stages.devices"]
    said = subprocess.run(command, capture_output=True, check=True, timeout=60).stdout
    assert msgspec.json.decode(said, type=tuple[DeviceDescription, ...]) == available_devices()
