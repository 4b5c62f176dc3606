"""What a pool is compared with: the unsplit model on one core, each way in a process of its own.

| | who | how |
|---|---|---|
| U1 | one user, plain | a plain OpenVINO loop over the stateful IR: the denominator |
| U2 | one user with a drafter | as U4, one user |
| U3 | the same users, batched | one paged stage with every layer, the pool's own scheduler |
| U4 | the same users, batched, with a drafter | as U3, frames of drafts |
| 2 x U1 | a user on each of two cores, plain | U1 twice, at the same time: what the cores give |
| P | a peer | llama.cpp over RPC; not run yet, and the tables say so |

U3 is not openvino-genai's continuous batching: that chooses the cache's precision and its batches
by itself, so that a ratio to it would compare two schedulers and not a split.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from answer_figures import Answer, figures_of

if TYPE_CHECKING:
    from collections.abc import Sequence

WORKER = Path(__file__).parent / "unsplit_worker.py"
PEER_PROGRAMS = ("llama-server", "rpc-server")


class UnsplitEndedError(Exception):
    """The unsplit model's process has ended."""


class Unsplit:
    """The unsplit model in a process pinned to one core.

    Attributes:
        processes: Name to its id.
    """

    def __init__(self, kind: str, path: Path, mode: str = "fast", core: int = 0) -> None:
        """Load it.

        Args:
            kind: ``stateful`` for U1, ``batched`` for U3, ``guessed`` for U2 and U4.
            path: The IR, or the folder of one shard.
            mode: Fast or exact.
            core: Number of its core.
        """
        command = [sys.executable, str(WORKER), kind, mode, str(path), str(core)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        on_core = f" on core {core}" if core else ""
        self.processes = {f"unsplit {kind}{on_core}": self._process.pid}
        self._read()

    def answers(
        self,
        prompts: Sequence[Sequence[int]],
        num_tokens: int,
        guesses: Path | None = None,
    ) -> list[Answer]:
        """Answer each prompt with so many tokens.

        Args:
            prompts: Token ids.
            num_tokens: Of each answer.
            guesses: A file of ``measured_guesses``, for U2 and U4; None for U1 and U3.

        Raises:
            UnsplitEndedError: The process has ended.
        """
        if self._process.stdin is None:
            raise UnsplitEndedError("The unsplit model has no standard input.")
        asked: dict[str, object] = {"prompts": list(map(list, prompts)), "num_tokens": num_tokens}
        if guesses is not None:
            asked["guesses"] = str(guesses)
        try:
            self._process.stdin.write(json.dumps(asked) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError as exc:
            raise UnsplitEndedError("The unsplit model's process has ended.") from exc
        return [Answer(**answer) for answer in self._read()]

    def measure(
        self,
        prompts: Sequence[Sequence[int]],
        num_tokens: int,
        guesses: Path | None = None,
    ) -> dict[str, float]:
        """Answer, and say what it took.

        Args:
            prompts: Token ids.
            num_tokens: Of each answer, two or more.
            guesses: As ``answers`` takes them.
        """
        return figures_of(self.answers(prompts, num_tokens, guesses))

    def close(self) -> None:
        """End it."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait()

    def _read(self) -> list[dict[str, object]]:
        line = self._process.stdout.readline() if self._process.stdout is not None else ""
        if not line:
            raise UnsplitEndedError(
                "The unsplit model's process has ended; see what it said above."
            )
        return list(json.loads(line))


def measure_each(
    models: Sequence[Unsplit], prompts: Sequence[Sequence[int]], num_tokens: int
) -> dict[str, float]:
    """Let each model answer a user of its own, all at the same time; say what it took together.

    Args:
        models: On a core each.
        prompts: One for each model.
        num_tokens: Of each answer.
    """
    with ThreadPoolExecutor(len(models)) as pool:
        answers = pool.map(lambda m, p: m.answers([p], num_tokens), models, prompts)
    return figures_of([answer for (answer,) in answers])


def why_no_peer() -> str:
    """Return why there is no peer in the tables."""
    missing = [name for name in PEER_PROGRAMS if shutil.which(name) is None]
    if missing:
        return f"P is left out: {' and '.join(missing)} of llama.cpp can't be found on this PC."
    return "P is left out: llama.cpp is on this PC, and no script here runs it yet."
