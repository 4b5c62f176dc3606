"""What this PC is and has, asked of the system: for reports, and for the election's preference."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psutil

from engine.messages.pool import NodeReport, Preference
from engine.pool.heartbeat import memory_step, uptime_step

if TYPE_CHECKING:
    from engine.domain import LayerRange, NodeId

_BATTERY_EVERY_S = 30.0  # asking costs milliseconds on some systems


@dataclass(slots=True)
class NodeFacts:
    """This PC.

    Attributes:
        node_id: Its id.
        name: As its owner calls it.
        memory_cap_bytes: What its owner lends at most; None for no cap.
        devices: Names of what can run a stage.
    """

    node_id: NodeId
    name: str
    memory_cap_bytes: int | None
    devices: tuple[str, ...] = ("CPU",)
    is_wired: bool = False
    layers: LayerRange | None = None
    model: str | None = None
    memory_lent_bytes: int = 0
    _started_s: float = 0.0
    _battery_at_s: float = 0.0
    _on_mains: bool = True

    def __post_init__(self) -> None:
        """Begin to count the uptime."""
        self._started_s = time.monotonic()

    def report(self) -> NodeReport:
        """Return what is told to every node."""
        memory = psutil.virtual_memory()
        return NodeReport(
            node_id=self.node_id,
            name=self.name,
            memory_total_bytes=int(memory.total),
            memory_free_bytes=int(memory.available),
            memory_cap_bytes=self.memory_cap_bytes,
            memory_lent_bytes=self.memory_lent_bytes,
            devices=self.devices,
            uptime_s=time.monotonic() - self._started_s,
            layers=self.layers,
            model=self.model,
        )

    def preference(self) -> Preference:
        """Return how well this PC would serve as coordinator."""
        now_s = time.monotonic()
        if now_s >= self._battery_at_s:
            self._battery_at_s = now_s + _BATTERY_EVERY_S
            battery = psutil.sensors_battery() if hasattr(psutil, "sensors_battery") else None
            self._on_mains = battery is None or bool(battery.power_plugged)
        total = int(psutil.virtual_memory().total)
        lent = total if self.memory_cap_bytes is None else min(total, self.memory_cap_bytes)
        return Preference(
            uptime_step=uptime_step(now_s - self._started_s),
            on_mains=self._on_mains,
            wired=self.is_wired,
            memory_step=memory_step(lent),
        )
