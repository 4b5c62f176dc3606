"""What the demo measures, and its last lines; pure."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from engine.cli.amounts import duration
from engine.cli.plan_table import NONE
from engine.cli.shown_text import table

if TYPE_CHECKING:
    from engine.cli.answering import Answer
    from engine.messages.control import Finished


@dataclass(slots=True)
class Figures:
    """All of it; times in seconds.

    Attributes:
        by_mdns: Whether the nodes found each other by themselves.
        discovery_s: From the last node's start until every node sees every other.
        election_s: From the same moment until all name one coordinator.
        load_s: From asking for the model until it is ready.
        phases_s: Of that, each phase of loading.
        ttft_s: Of each answer.
        tokens_per_s: Of each answer, after the first token; a pause counts.
        pauses_s: How long the second answer stood still.
        layers_before: Of each node, by its name.
        layers_after: Likewise, after the loss.
    """

    by_mdns: bool = True
    discovery_s: float = 0.0
    election_s: float = 0.0
    load_s: float = 0.0
    phases_s: dict[str, float] = field(default_factory=dict)
    ttft_s: list[float | None] = field(default_factory=list)
    tokens_per_s: list[float | None] = field(default_factory=list)
    pauses_s: list[float] = field(default_factory=list)
    layers_before: dict[str, str] = field(default_factory=dict)
    layers_after: dict[str, str] = field(default_factory=dict)

    def take_answers(self, first: Answer, second: Answer) -> None:
        """Take what the answers say of themselves.

        Args:
            first: Undisturbed; it has ended.
            second: In which a node was lost; it has ended.
        """
        ends = [answer.end for answer in (first, second) if answer.end is not None]
        self.ttft_s = [end.ttft_s for end in ends]
        self.tokens_per_s = [_rate(end) for end in ends]
        self.pauses_s = list(second.pauses_s)

    def as_event(self) -> dict[str, Any]:
        """Return everything as plain data."""
        return asdict(self)


def _rate(end: Finished) -> float | None:
    return (end.completion_tokens - 1) / end.decode_s if end.decode_s > 0 else None


def figure_lines(figures: Figures) -> list[str]:
    """Return the figures as a person is shown them.

    Args:
        figures: All measured.
    """
    how = "mDNS" if figures.by_mdns else "addresses that were told"
    phases = ", ".join(f"{name} {duration(s)}" for name, s in figures.phases_s.items())
    pauses = ", ".join(map(duration, figures.pauses_s)) or NONE
    rows = [
        ("all nodes see each other", duration(figures.discovery_s), f"by {how}"),
        ("coordinator agreed on", duration(figures.election_s), "since the last node started"),
        ("model ready", duration(figures.load_s), phases),
        ("time to first token", _both(figures.ttft_s, "s", 2), "of the two answers"),
        ("tokens per second", _both(figures.tokens_per_s, "", 1), "the pause counts"),
        ("pause when a node was killed", pauses, ""),
    ]
    nodes = [
        (name, before, figures.layers_after.get(name, "killed"))
        for name, before in figures.layers_before.items()
    ]
    return [
        "",
        *table(rows),
        "",
        *table([("node", "layers before", "layers after"), *nodes]),
    ]


def _both(values: list[float | None], unit: str, places: int) -> str:
    shown = [NONE if value is None else f"{value:.{places}f}" for value in values]
    return f"{', '.join(shown)} {unit}".strip()
