"""Renders from the code what docs/deployment.md says of it.

``python -m tests.unit.pool.deployment_document`` writes it anew.
"""

from __future__ import annotations

import re
from pathlib import Path

from engine.pool import (
    deployment_attempt,
    deployment_due,
    deployment_state,
    deployment_upkeep,
)
from engine.pool.deployment_state import IN_OFFICE, TRANSITIONS, Input, State
from engine.pool.deployment_troubles import LASTING, MAX_STRIKES

DOCUMENT = Path(__file__).parents[3] / "docs" / "deployment.md"

TIMES: dict[str, tuple[float, str]] = {
    "SETTLE_S": (deployment_state.SETTLE_S, "after taking office, in which records come in"),
    "PLAN_EVERY_S": (deployment_attempt.PLAN_EVERY_S, "at least, between two plans that fail"),
    "PLAN_AGAIN_S": (deployment_attempt.PLAN_AGAIN_S, "without a plan, before a look anyway"),
    "SPLIT_DEADLINE_S": (
        deployment_attempt.DEADLINES_S[State.SPLITTING],
        "without progress, while the model is cut",
    ),
    "LOAD_DEADLINE_S": (
        deployment_attempt.DEADLINES_S[State.LOADING],
        "without progress, while stages are loaded",
    ),
    "WARM_DEADLINE_S": (
        deployment_attempt.DEADLINES_S[State.WARMING],
        "until the first token is round",
    ),
    "TRY_AGAIN_S": (
        deployment_attempt.TRY_AGAIN_S,
        "after giving up, before one more attempt on an unchanged pool",
    ),
    "REPEAT_S": (deployment_due.REPEAT_S, "silence of a node before its order is repeated"),
    "TIDY_EVERY_S": (
        deployment_due.TIDY_EVERY_S,
        "between two orders to end what no record knows",
    ),
    "AMISS_S": (
        deployment_upkeep.AMISS_S,
        "a node may say that it doesn't run its stage, before it is believed",
    ),
    "STEADY_S": (deployment_upkeep.STEADY_S, "ready, after which earlier strikes are forgiven"),
    "LINES_EVERY_S": (deployment_upkeep.LINES_EVERY_S, "at least, between two looks at the lines"),
    "REPLAN_EVERY_S": (
        deployment_upkeep.REPLAN_EVERY_S,
        "at least, between two looks for a better plan",
    ),
    "KEEP_EVERY_S": (deployment_upkeep.KEEP_EVERY_S, "at least, between two orders to keep"),
}


def transition_table() -> str:
    """Render the states and what can happen in each."""
    states = list(IN_OFFICE)
    inputs = [one for one in Input if one not in {Input.TOOK_OFFICE, Input.LEFT_OFFICE}]
    head = ["", *(state.value for state in states)]
    rows = [[happened.value, *(_cell(state, happened) for state in states)] for happened in inputs]
    lines = [f"| {' | '.join(row)} |" for row in (head, *rows)]
    return "\n".join([lines[0], "|---" * len(head) + "|", *lines[1:]])


def _cell(state: State, happened: Input) -> str:
    after = TRANSITIONS.get((state, happened))
    return "" if after is None else after.value


def time_table() -> str:
    """Render every time that matters."""
    rows = [f"| `{name}` | {seconds:g} | {what} |" for name, (seconds, what) in TIMES.items()]
    return "\n".join(["| name | seconds | of what |", "|---|---|---|", *rows])


def trouble_table() -> str:
    """Render what a trouble of a stage means for its node."""
    waits = ", ".join(f"{seconds:g}" for seconds in deployment_attempt.BACK_OFF_S)
    lasting = ", ".join(f"`{code}`" for code in sorted(LASTING))
    return "\n".join([
        "| trouble | what follows for the node |",
        "|---|---|",
        f"| {lasting} | left out at once |",
        "| of the connection (`transport` and its kinds, `pipeline_broken`) | nothing |",
        f"| any other | left out after {MAX_STRIKES} of them |",
        "",
        f"Attempts are {deployment_attempt.MAX_ATTEMPTS}, and the waits before them "
        f"{waits} seconds.",
    ])


PARTS = {"states": transition_table, "troubles": trouble_table, "times": time_table}


def marked(name: str) -> re.Pattern[str]:
    """Match one rendered part of the document, between its marks."""
    return re.compile(rf"(?<=<!-- rendered: {name} -->\n\n).*?(?=\n\n<!-- end -->)", re.DOTALL)


if __name__ == "__main__":
    text = DOCUMENT.read_text(encoding="utf-8")
    for part, render in PARTS.items():
        before, _, after = marked(part).sub("\0", text).partition("\0")
        text = f"{before}{render()}{after}"
    DOCUMENT.write_text(text, encoding="utf-8")
