"""A node whose head guesses as a file says; in all else ``python -m engine``.

The program has no switch for it: a drafter that knows the answer is of use to nobody but a
measurement. Where this stands in for the interpreter, it takes that one's command line.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from switched_guesses import SwitchedGuesses

from engine.__main__ import main as run_node
from engine.node import placements
from engine.pipeline.draft_desk import Guessing
from engine.pipeline.head import Head

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.messages.chain import Placement, StageFailed
    from engine.pipeline.chat_text import ChatText
    from engine.pipeline.head import Submit
    from engine.scheduler.row_costs import RowCosts

GUESSES = "DAISY_MEASURED_GUESSES"  # names the file
NODE = "engine"


def stand_in(folder: Path) -> Path:
    """Write a program that takes the interpreter's place and runs this file.

    Args:
        folder: For it.
    """
    program = folder / "python"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{Path(__file__)}" "$@"\n', "utf-8")
    program.chmod(0o700)
    return program


def main(arguments: list[str]) -> int:
    """Run a node.

    Args:
        arguments: As the interpreter is given them: ``... -m engine ...``.

    Returns:
        The exit status.
    """
    let_heads_guess()
    return run_node(arguments[arguments.index(NODE) + 1 :])


def let_heads_guess() -> None:
    """Let every head of this process guess as the file says, if it guesses at all."""
    path = Path(os.environ[GUESSES])

    def guessing_head(
        text: ChatText,
        placement: Placement,
        submit: Submit,
        on_broken: Callable[[StageFailed], None] | None = None,
        own: Guessing | None = None,
        row_costs: RowCosts | None = None,
    ) -> Head:
        if own is not None:
            switched = SwitchedGuesses(path, own)
            own = Guessing(switched, switched)
        return Head(text, placement, submit, on_broken, own, row_costs)

    placements.Head = guessing_head  # type: ignore[assignment,misc]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
