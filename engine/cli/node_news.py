"""What changed in a pool between two looks at it, as the owner of one of its PCs is told; pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from engine.cli.plan_table import NONE, short
from engine.cli.shown_text import printable
from engine.pool import sentences

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from engine.domain import NodeId
    from engine.messages.pool import NodeReport
    from engine.messages.pool_status import PoolStatus

_PRESENT = {"online", "silent"}  # a silent one is missed only once it is offline


@dataclass(frozen=True, slots=True)
class News:
    """One thing that changed.

    Attributes:
        event: What programs know it by.
        sentence: For people, printable.
        fields: For programs, plain data.
    """

    event: str
    sentence: str
    fields: Mapping[str, object] = field(default_factory=dict)


class NodeNews:
    """Compares each look at the pool with the one before."""

    def __init__(self) -> None:
        """Begin; nothing was seen, and nothing is told of what is usual at the start."""
        self._names: dict[NodeId, str] = {}  # of the PCs that are there
        self._coordinator: NodeId | None = None
        self._model: tuple[str | None, str] = (None, "unloaded")  # name and what it is
        self._layers: str | None = None
        self._is_unknown = False

    def see(self, status: PoolStatus) -> list[News]:
        """Return what has changed.

        Args:
            status: The newest.
        """
        return [
            *self._of_standing(status),
            *self._of_pcs(status),
            *self._of_coordinator(status),
            *self._of_model(status),
            *self._of_layers(status),
        ]

    def _of_standing(self, status: PoolStatus) -> Iterator[News]:
        note = sentences.sentence("unknown_there")
        was_unknown, self._is_unknown = self._is_unknown, note in status.notes
        if self._is_unknown and not was_unknown:
            yield News("unknown", note)

    def _of_pcs(self, status: PoolStatus) -> Iterator[News]:
        there = {
            node.node_id: f"{printable(node.report.name)} ({short(node.node_id)})"
            for node in status.nodes
            if not node.is_asked and node.report is not None and node.state in _PRESENT
        }
        for node_id, name in there.items():
            if node_id not in self._names:
                yield News("found", f"Found {name}.", {"node_id": node_id})
        states = {node.node_id: node.state for node in status.nodes}
        for node_id, name in self._names.items():
            if node_id not in there:
                has_ended = states.get(node_id) == "gone"
                how = "was ended" if has_ended else "can't be reached any more"
                yield News("lost", f"{name} {how}.", {"node_id": node_id, "has_ended": has_ended})
        self._names = there

    def _of_coordinator(self, status: PoolStatus) -> Iterator[News]:
        now = status.coordinator
        if now == self._coordinator:
            return
        self._coordinator = now
        if now is None:
            sentence = "There is no coordinator at present."
        elif any(node.node_id == now and node.is_asked for node in status.nodes):
            sentence = "This PC is the coordinator now."
        else:
            sentence = f"{self._names.get(now, short(now))} is the coordinator now."
        yield News("coordinator", sentence, {"node_id": now})

    def _of_model(self, status: PoolStatus) -> Iterator[News]:
        record = status.deployment
        wish = None if record is None else record.wish
        name = None if wish is None else printable(wish.model.name)
        phase = "unloaded" if record is None or wish is None else record.phase
        state = phase if phase in {"ready", "failed", "unloaded"} else "loading"
        if (name, state) == self._model:
            return
        self._model = (name, state)
        trouble = None if record is None else record.trouble
        why = "" if trouble is None else f": {printable(trouble.what)}"
        sentence = {
            "loading": f"The pool loads {name}.",
            "ready": f"{name} is ready.",
            "failed": f"{name} could not be loaded{why or '.'}",
            "unloaded": "The pool runs no model now.",
        }[state]
        yield News("model", sentence, {"model": name, "state": state})

    def _of_layers(self, status: PoolStatus) -> Iterator[News]:
        own: NodeReport | None = next((n.report for n in status.nodes if n.is_asked), None)
        layers = None if own is None or own.layers is None else str(own.layers)
        if layers == self._layers:
            return
        self._layers = layers
        if layers is None or own is None:
            yield News("layers", "This PC runs no layers now.", {"layers": NONE})
        else:
            of = f" of {printable(own.model)}" if own.model else ""
            yield News("layers", f"This PC runs layers {layers}{of} now.", {"layers": layers})
