"""The devices of this PC that can hold a stage.

Asking loads every driver there is. A node that wants to survive a broken one asks in a process of
its own: ``python -m engine.stages.devices`` prints the same as JSON.
"""

from __future__ import annotations

import sys
from typing import Any

import msgspec
import openvino as ov
import psutil

from engine.domain import StageKind
from engine.stages.compilation import last_line

_MEMORY_PROPERTY = {"GPU": "GPU_DEVICE_TOTAL_MEM_SIZE", "NPU": "NPU_DEVICE_TOTAL_MEM_SIZE"}
_KINDS: dict[str, tuple[StageKind, ...]] = {
    "CPU": ("paged", "stateful"),
    "GPU": ("paged", "stateful"),
    "NPU": ("stateful",),
}


class DeviceDescription(msgspec.Struct, frozen=True, kw_only=True):
    """One device.

    The GPU and NPU values follow documentation and have not been seen on hardware.
    """

    name: str  # as OpenVINO calls it: "CPU", "GPU.0"
    full_name: str  # as the vendor does
    total_bytes: int | None  # of memory; None where the device does not say
    shares_memory: bool  # with the CPU: the bytes are the PC's own, and count once
    capabilities: tuple[str, ...]  # "FP32", "BF16", "INT8"
    kinds: tuple[StageKind, ...]  # of stages, the better one first


def available_devices() -> tuple[DeviceDescription, ...]:
    """Return the devices OpenVINO finds here, the CPU among them.

    A device that can't be asked is left out, and standard error says why.
    """
    core = ov.Core()
    found: list[DeviceDescription] = []
    for name in core.available_devices:
        family = name.partition(".")[0]
        if family not in _KINDS:
            continue
        try:
            found.append(_describe(core, name, family))
        except RuntimeError as exc:
            sys.stderr.write(f"{name} is left out: {last_line(exc)}\n")
    return tuple(found)


def _describe(core: ov.Core, name: str, family: str) -> DeviceDescription:
    shares = family != "GPU" or "INTEGRATED" in str(_property(core, name, "DEVICE_TYPE")).upper()
    return DeviceDescription(
        name=name,
        full_name=str(core.get_property(name, "FULL_DEVICE_NAME")),
        total_bytes=_total_bytes(core, name, family),
        shares_memory=shares,
        capabilities=tuple(core.get_property(name, "OPTIMIZATION_CAPABILITIES")),
        kinds=_KINDS[family],
    )


def _total_bytes(core: ov.Core, name: str, family: str) -> int | None:
    if family == "CPU":
        return int(psutil.virtual_memory().total)
    value = _property(core, name, _MEMORY_PROPERTY[family])
    return int(value) if value else None


def _property(core: ov.Core, name: str, key: str) -> Any:  # noqa: ANN401 - OpenVINO's own
    try:
        return core.get_property(name, key)
    except RuntimeError:
        return None  # older drivers do not know every property


if __name__ == "__main__":
    sys.stdout.write(msgspec.json.encode(available_devices()).decode() + "\n")
