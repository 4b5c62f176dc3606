"""What hidden states in f16 or int8 change in a model's answers, and what making them costs.

    daisy split MODEL --cuts 10,20 --out SHARDS
    python reproduction/link_precision.py SHARDS [--mode fast] [--every 5] [--tokens 32]
    python reproduction/link_precision.py --costs

The stages run in this process. Answers of ``held_out/answers.json`` are fed whole, with hidden
states sent in f32, f16 and int8; at each place of an answer the logits are held against those of
f32 links, in the same mode or in the ``--reference``. Then as many tokens as are asked for are
written freely. With ``--costs`` the frames of one row and of a prefill chunk are made and taken
apart, the least of many runs, in microseconds. How busy the PC is changes nothing in the first,
and little in the second.
"""

from __future__ import annotations

import argparse
import json
import sys
import timeit
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from stage_costs import load_here

from engine.domain import MicroBatch, SequenceId, SequenceStep
from engine.messages.codec import decode, encode_micro_batch
from engine.messages.hidden_states import narrowed, widen_into
from engine.pipeline.shard_folder import open_shard_folder

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from engine.domain import HiddenPrecision
    from engine.stages.stage import Stage

HELD_OUT = Path(__file__).parent / "held_out" / "answers.json"
PRECISIONS: tuple[HiddenPrecision, ...] = ("f32", "f16", "int8")
SEQUENCE = SequenceId(1)
SHAPES = ((1, 896), (1, 4096), (1, 8192), (8, 4096), (512, 896), (256, 4096))


@dataclass(slots=True)
class Seen:
    """What one precision did to the logits, and to what was written."""

    squares: list[float] = field(default_factory=list)
    largest: list[float] = field(default_factory=list)
    num_equal: int = 0
    num_places: int = 0
    num_same_answers: int = 0
    num_same_tokens: int = 0
    num_answers: int = 0
    num_tokens: int = 0


class Chain:
    """Stages of one model, one after the other."""

    def __init__(self, folder: Path, mode: str) -> None:
        """Load them all."""
        shards = open_shard_folder(folder)
        count = len(shards.manifest.shards)
        self._stages: list[Stage] = [load_here(shards, i, mode=mode) for i in range(count)]
        self.largest_value = 0.0

    def run(
        self, ids: list[int], past_len: int, num_logits: int, precision: HiddenPrecision
    ) -> NDArray[np.float32]:
        """Run tokens of the one sequence; return logits ``[num_logits, vocab_size]``."""
        steps = (SequenceStep(SEQUENCE, past_len, len(ids), num_logits),)
        tokens = np.array(ids, np.int32)
        batch = MicroBatch(1, 1, steps, tokens)
        for stage in self._stages[:-1]:
            rows = stage.run(batch)
            self.largest_value = max(self.largest_value, float(np.abs(rows).max()))
            sent = MicroBatch(1, 1, steps, tokens, *narrowed(rows, precision))
            batch = decode(encode_micro_batch(sent))  # type: ignore[assignment]
        return self._stages[-1].run(batch).copy()

    def written(self, prompt: list[int], num_tokens: int, precision: HiddenPrecision) -> list[int]:
        """Answer greedily, for so many tokens."""
        fed, past_len, out = prompt, 0, []
        while len(out) < num_tokens:
            out.append(int(self.run(fed, past_len, 1, precision)[0].argmax()))
            past_len += len(fed)
            fed = out[-1:]
        return out


def compare(
    chain: Chain, reference: Chain, held_out: list[dict], num_tokens: int
) -> dict[HiddenPrecision, Seen]:
    """Feed and write every answer in each precision, and hold it against f32 of another chain."""
    seen: dict[HiddenPrecision, Seen] = {precision: Seen() for precision in PRECISIONS}
    for entry in held_out:
        prompt, answer = entry["ids"], entry["answer"]
        ids = [*prompt, *answer[:-1]]
        plain = reference.run(ids, 0, len(answer), "f32")
        first = reference.written(prompt, num_tokens, "f32") if num_tokens else []
        for precision, its in seen.items():
            logits = chain.run(ids, 0, len(answer), precision)
            off = np.abs(logits - plain)
            its.squares += np.square(off).mean(axis=1).tolist()
            its.largest += off.max(axis=1).tolist()
            its.num_equal += int((logits.argmax(axis=1) == plain.argmax(axis=1)).sum())
            its.num_places += len(answer)
            if num_tokens:
                written = chain.written(prompt, num_tokens, precision)
                same = [a == b for a, b in zip(written, first, strict=True)]
                its.num_same_tokens += same.index(False) if False in same else len(same)
                its.num_same_answers += all(same)
                its.num_answers += 1
                its.num_tokens += num_tokens
    return seen


def show(seen: dict[HiddenPrecision, Seen]) -> None:
    """Print a line of JSON for each precision."""
    for precision, its in seen.items():
        line: dict[str, object] = {
            "precision": precision,
            "rms of logits": float(np.sqrt(np.mean(its.squares))),
            "largest, median place": float(np.median(its.largest)),
            "largest, 99 of 100 places": float(np.quantile(its.largest, 0.99)),
            "largest of all": max(its.largest),
            "greedy token equal": f"{its.num_equal}/{its.num_places}",
        }
        if its.num_answers:
            line["answers equal"] = f"{its.num_same_answers}/{its.num_answers}"
            line["tokens before the first difference"] = f"{its.num_same_tokens}/{its.num_tokens}"
        print(json.dumps(line))


def show_costs() -> None:
    """Print what a frame costs at both ends, a line of JSON for each shape."""
    random = np.random.default_rng(0)
    for num_rows, width in SHAPES:
        rows = (3 * random.standard_normal((num_rows, width))).astype(np.float32)
        steps = (SequenceStep(SEQUENCE, 7, num_rows, 1),)
        line: dict[str, object] = {"rows": num_rows, "width": width}
        for precision in PRECISIONS:
            made, taken, num_bytes = costs_us(rows, steps, precision)
            line[precision] = {"make": made, "take": taken, "bytes": num_bytes}
        print(json.dumps(line))


def costs_us(
    rows: NDArray[np.float32], steps: tuple[SequenceStep, ...], precision: HiddenPrecision
) -> tuple[float, float, int]:
    """Return microseconds to make a frame and to take it apart, and its bytes."""
    ids = np.zeros(len(rows), np.int32)
    room = np.empty_like(rows)

    def make() -> bytes:
        return encode_micro_batch(MicroBatch(1, 1, steps, ids, *narrowed(rows, precision)))

    frame = make()

    def take() -> None:
        widen_into(decode(frame), room)  # type: ignore[arg-type]

    number, repeat = (20, 600) if len(rows) < 10 else (1, 120)
    made, taken = (
        round(1e6 * min(timeit.repeat(work, number=number, repeat=repeat)) / number, 1)
        for work in (make, take)
    )
    return made, taken, len(frame)


def main() -> int:
    """Measure what the command line says.

    Returns:
        The exit status.
    """
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("shards", type=Path, nargs="?", help="as daisy split made them")
    parser.add_argument("--mode", choices=["exact", "fast"], default="exact")
    parser.add_argument("--reference", choices=["exact", "fast"], help="--mode if left out")
    parser.add_argument("--every", type=int, default=5, help="of the answers, one in so many")
    parser.add_argument("--tokens", type=int, default=32, help="written freely; 0 for none")
    parser.add_argument("--costs", action="store_true", help="of frames, without a model")
    given = parser.parse_args()
    if given.costs:
        show_costs()
        return 0
    if given.shards is None:
        parser.error("name a folder of shards, or give --costs")
    chain = Chain(given.shards, given.mode)
    held_out = json.loads(HELD_OUT.read_text(encoding="utf-8"))[:: given.every]
    other = given.reference not in {None, given.mode}
    reference = Chain(given.shards, given.reference) if other else chain
    seen = compare(chain, reference, held_out, given.tokens)
    show(seen)
    print(json.dumps({"largest value sent": chain.largest_value}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
