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
    from engine.pool.adapters import RankedAdapters

_BATTERY_EVERY_S = 30.0  # asking costs milliseconds on some systems


@dataclass(slots=True)
class NodeFacts:
    """This PC.

    What is not asked of the system is set by whoever knows it, and told with the next report.

    Attributes:
        node_id: Its id.
        name: As its owner calls it.
        memory_cap_bytes: What its owner lends at most; None for no cap.
        devices: Names of what can run a stage.
        port: Where it listens, on each of its addresses; 0 before it does.
        layers: Of the stage it holds.
        model: Whose.
        epoch: Of the placement its stage belongs to; 0 for none.
        memory_lent_bytes: Taken by its stage.
        layer_ms: One token through one of its layers, as its stage measures it.
        kept_models: SHA-256 of models it has all files of.
        active_requests: That it answers or relays now.
        is_lending: Its owner lets it run models for the pool.
        link_kind: Of the best adapter in use; None where that isn't known.
    """

    node_id: NodeId
    name: str
    memory_cap_bytes: int | None
    devices: tuple[str, ...] = ("CPU",)
    port: int = 0
    layers: LayerRange | None = None
    model: str | None = None
    epoch: int = 0
    memory_lent_bytes: int = 0
    layer_ms: float | None = None
    kept_models: tuple[str, ...] = ()
    active_requests: int = 0
    is_lending: bool = True
    link_kind: str | None = None
    _started_s: float = 0.0
    _battery_at_s: float = 0.0
    _on_mains: bool = True

    def __post_init__(self) -> None:
        """Begin to count the uptime."""
        self._started_s = time.monotonic()

    def use_adapters(self, adapters: RankedAdapters) -> None:
        """Take note of which adapters are in use now.

        Args:
            adapters: The best first.
        """
        best = adapters.used[0].link if adapters.used else "unknown"
        self.link_kind = best if best in {"wired", "wireless"} else None

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
            port=self.port,
            kept_models=self.kept_models,
            epoch=self.epoch,
            layer_ms=self.layer_ms,
            link_kind=self.link_kind,
            on_battery=not self._is_on_mains(),
            active_requests=self.active_requests,
            is_lending=self.is_lending,
        )

    def preference(self) -> Preference:
        """Return how well this PC would serve as coordinator."""
        total = int(psutil.virtual_memory().total)
        lent = total if self.memory_cap_bytes is None else min(total, self.memory_cap_bytes)
        return Preference(
            uptime_step=uptime_step(time.monotonic() - self._started_s),
            on_mains=self._is_on_mains(),
            wired=self.link_kind == "wired",
            memory_step=memory_step(lent),
        )

    def is_on_battery(self) -> bool:
        """Return whether this PC isn't plugged in; asked of the system now and then only."""
        return not self._is_on_mains()

    def _is_on_mains(self) -> bool:
        now_s = time.monotonic()
        if now_s >= self._battery_at_s:
            self._battery_at_s = now_s + _BATTERY_EVERY_S
            battery = psutil.sensors_battery() if hasattr(psutil, "sensors_battery") else None
            self._on_mains = battery is None or bool(battery.power_plugged)
        return self._on_mains
