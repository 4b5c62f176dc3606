"""Measure how often a draft model's guesses hold: by kind of prompt, for drafts of several lengths.

    python reproduction/draft_acceptance.py [--draft DIR] [--lengths 1 3] [--every N] [--verify N]

The drafter is the one that nodes run, in a process of its own; the text is the embedded model's
own greedy answers to 200 prompts (``held_out/answers.json``), which are replayed: as many tokens
as a draft has in common with what the model wrote are accepted, and one more is taken. With
``--verify`` the first N of those answers are written again by the unsplit model and compared.
How busy the PC is changes nothing here.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from engine.config import data_folder
from engine.domain import LayerRange, NodeId, SequenceId
from engine.messages.chain import Placement, StagePlace
from engine.models.embedded import embedded_model
from engine.models.tokenizer import load_tokenizer
from engine.models.unsplit import UnsplitModel
from engine.pipeline.draft_loading import DraftTarget, find_draft, load_draft_model
from engine.scheduler.drafting import DraftRequest
from engine.scheduler.suffix_drafter import SuffixDrafter

if TYPE_CHECKING:
    from engine.models.files import ModelFiles
    from engine.scheduler.drafting import Drafter

HELD_OUT = Path(__file__).parent / "held_out" / "answers.json"
VOCAB_SIZE = 49152
CONTEXT_TOKENS = 1024


@dataclass(slots=True)
class Tally:
    """What became of the drafts of some answers."""

    num_written: int = 0
    num_rounds: int = 0
    num_drafted: int = 0
    num_accepted: int = 0

    def add(self, other: Tally) -> None:
        """Add the counts of another."""
        self.num_written += other.num_written
        self.num_rounds += other.num_rounds
        self.num_drafted += other.num_drafted
        self.num_accepted += other.num_accepted

    @property
    def acceptance(self) -> float:
        """Accepted tokens of those drafted."""
        return self.num_accepted / self.num_drafted if self.num_drafted else 0.0

    @property
    def tokens_per_round(self) -> float:
        """Tokens a verification gives."""
        return self.num_written / self.num_rounds if self.num_rounds else 0.0


async def replay(
    drafter: Drafter, number: int, prompt_ids: list[int], answer: list[int], length: int
) -> Tally:
    """Replay one answer with drafts of one length.

    Args:
        drafter: Asked for each draft.
        number: Of the answer, as its sequence id.
        prompt_ids: Its prompt.
        answer: What the model wrote.
        length: Of each draft; shorter at the end of the answer only in what counts as written.
    """
    sequence_id, text = SequenceId(number), np.array(prompt_ids + answer, np.int32)
    tally, at = Tally(), 0
    while at < len(answer):
        request = DraftRequest(sequence_id, text[: len(prompt_ids) + at], length)
        (draft,) = await drafter.draft([request])
        wanted = answer[at:]
        num_held = 0
        while num_held < min(len(draft), len(wanted)) and draft[num_held] == wanted[num_held]:
            num_held += 1
        tally.add(Tally(min(num_held + 1, len(wanted)), 1, len(draft), num_held))
        at += num_held + 1
    await drafter.close(sequence_id)
    return tally


async def measure(drafter: Drafter, held_out: list[dict], length: int) -> dict[str, Tally]:
    """Replay all answers; return the counts by kind of prompt, and of all together."""
    by_kind: dict[str, Tally] = defaultdict(Tally)
    for number, entry in enumerate(held_out, 1):
        tally = await replay(drafter, number, entry["ids"], entry["answer"], length)
        by_kind[entry["kind"]].add(tally)
        by_kind["all"].add(tally)
    return dict(by_kind)


def verify(files: ModelFiles, held_out: list[dict]) -> None:
    """Write some answers again and compare."""
    model = UnsplitModel(files.xml, "exact")
    num_equal = sum(
        model.generate(entry["ids"], len(entry["answer"])).tokens == entry["answer"]
        for entry in held_out
    )
    print(f"{num_equal} of {len(held_out)} answers are what the unsplit model writes")


def show(name: str, tables: dict[int, dict[str, Tally]]) -> None:
    """Print acceptance and tokens per verification, a line for each kind."""
    print(f"\n{name}: accepted of drafted, tokens per verification")
    lengths = list(tables)
    print("kind".ljust(14) + "".join(f"K={length}".ljust(16) for length in lengths))
    for kind in tables[lengths[0]]:
        cells = [tables[length][kind] for length in lengths]
        print(
            kind.ljust(14)
            + "".join(f"{t.acceptance:.3f}, {t.tokens_per_round:.2f}".ljust(16) for t in cells)
        )


async def run(given: argparse.Namespace) -> None:
    """Measure the draft model and the drafter without a model."""
    held_out = json.loads(HELD_OUT.read_text(encoding="utf-8"))[:: given.every]
    files = embedded_model(given.data)
    if given.verify:
        verify(files, held_out[: given.verify])
    target = DraftTarget(load_tokenizer(files), VOCAB_SIZE)
    folder = given.draft or find_draft(target)
    place = StagePlace(
        node_id=NodeId("here"), address="", stage_index=0, layers=LayerRange(0, 30), mode="exact"
    )
    placement = Placement(
        epoch=1,
        manifest_sha256="",
        context_tokens=CONTEXT_TOKENS,
        max_sequences=1,
        stages=(place,),
    )
    model = await load_draft_model(folder, target, placement)
    tables, suffix_tables = {}, {}
    try:
        for length in given.lengths:
            tables[length] = await measure(model, held_out, length)
    finally:
        await model.end()
    for length in given.lengths:
        suffix_tables[length] = await measure(SuffixDrafter(), held_out, length)
    show(f"draft model {model.name}", tables)
    show("without a model", suffix_tables)
    if given.results:
        rows = {
            name: {
                f"K={length}": {
                    kind: [round(t.acceptance, 4), round(t.tokens_per_round, 4), t.num_written]
                    for kind, t in table.items()
                }
                for length, table in of.items()
            }
            for name, of in (("draft model", tables), ("without a model", suffix_tables))
        }
        given.results.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


def main() -> int:
    """Run as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    default = Path(os.environ.get("DAISY_TEST_DATA") or data_folder())
    parser.add_argument("--data", type=Path, default=default, help="Daisy's data folder")
    parser.add_argument("--draft", type=Path, help="a draft model; the one that comes with Daisy")
    parser.add_argument("--lengths", type=int, nargs="+", default=[1, 3])
    parser.add_argument("--every", type=int, default=1, help="replay each N-th answer only")
    parser.add_argument("--verify", type=int, default=0, help="write N of the answers again")
    parser.add_argument("--results", type=Path, help="a JSON file to write")
    asyncio.run(run(parser.parse_args()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
