"""Renders from the code what docs/election.md says of it.

``python -m tests.unit.pool.election_document`` writes it anew.
"""

from __future__ import annotations

import re
from pathlib import Path

from engine.pool import election, heartbeat, membership, participant
from engine.pool.election import TRANSITIONS, State

DOCUMENT = Path(__file__).parents[3] / "docs" / "election.md"

TIMES: dict[str, tuple[float, str]] = {
    "HEARTBEAT_EVERY_S": (heartbeat.HEARTBEAT_EVERY_S, "between two heartbeats"),
    "TICK_EVERY_S": (participant.TICK_EVERY_S, "between two looks at the clock"),
    "SILENT_AFTER_S": (membership.SILENT_AFTER_S, "silence after which a heartbeat is missing"),
    "LEASE_S": (heartbeat.LEASE_S, "silence after which a node is offline"),
    "LISTEN_S": (election.LISTEN_S, "listening after a start or a sleep, before a claim"),
    "STAGGER_S": (election.STAGGER_S, "later for each node that is preferred"),
    "STAND_BACK_S": (election.STAND_BACK_S, "no claim after resigning or a failed write"),
    "CLONE_AFTER_S": (membership.CLONE_AFTER_S, "overlap of two starts that is no restart"),
    "STALL_S": (membership.STALL_S, "between two looks at the clock: we were stopped"),
    "STALL_COUNTS_S": (membership.STALL_COUNTS_S, "as much of such a pause counts on a lease"),
    "FORGET_AFTER_S": (membership.FORGET_AFTER_S, "an offline node is shown"),
    "FORGET_GONE_AFTER_S": (membership.FORGET_GONE_AFTER_S, "a node that said goodbye is shown"),
    "FORGET_WAY_AFTER_S": (membership.FORGET_WAY_AFTER_S, "an unused address is remembered"),
}


def state_diagram() -> str:
    """Render the table of transitions."""
    lines = [f"    [*] --> {State.LISTENING.value}"]
    lines += [
        f"    {before.value} --> {after.value}: {happened.value}"
        for (before, happened), after in TRANSITIONS.items()
    ]
    return "\n".join(["```mermaid", "stateDiagram-v2", *lines, "```"])


def time_table() -> str:
    """Render every time that matters."""
    rows = [f"| `{name}` | {seconds:g} | {what} |" for name, (seconds, what) in TIMES.items()]
    return "\n".join(["| name | seconds | of what |", "|---|---|---|", *rows])


PARTS = {"states": state_diagram, "times": time_table}


def marked(name: str) -> re.Pattern[str]:
    """Match one rendered part of the document, between its marks."""
    return re.compile(rf"(?<=<!-- rendered: {name} -->\n\n).*?(?=\n\n<!-- end -->)", re.DOTALL)


if __name__ == "__main__":
    text = DOCUMENT.read_text(encoding="utf-8")
    for part, render in PARTS.items():
        before, _, after = marked(part).sub("\0", text).partition("\0")
        text = f"{before}{render()}{after}"
    DOCUMENT.write_text(text, encoding="utf-8")
