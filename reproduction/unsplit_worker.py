"""The unsplit model on one core, asked by lines: a number of tokens in, figures as JSON out."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict
from pathlib import Path

from engine.models.unsplit import UnsplitModel


def main(arguments: list[str]) -> int:
    """Serve until standard input ends.

    Args:
        arguments: The IR, the core, and the prompt's ids.

    Returns:
        The exit status.
    """
    xml, cpu, *prompt = arguments
    os.sched_setaffinity(0, {int(cpu)})
    model = UnsplitModel(Path(xml), "fast", 1)
    print(json.dumps({}), flush=True)
    for line in sys.stdin:
        run = asdict(model.generate([int(token) for token in prompt], int(line)))
        run.pop("tokens")
        print(json.dumps(run), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
