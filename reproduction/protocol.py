"""How figures are measured here: warmed up, interleaved, paired, as ratios, with raw data kept.

Arms are run A B B A, block after block, so that whatever the machine drifts by hits both alike.
Each run of one arm is paired with the run of the other beside it; a pair that was disturbed is
left out; what is reported is the median of the pairs' ratios with the smallest and the largest.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from machine import describe_machine
from process_usage import Usage, UsageMeter

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable, Mapping, Sequence

BLOCKS = 7
WARMUPS = 2
MAX_LOAD = 0.3
MAX_DISTURBED_SHARE = 0.05
RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True, slots=True)
class Slot:
    """One run's place: which arm, in which block, on the way there or back."""

    arm: str
    block: int
    is_way_back: bool


@dataclass(frozen=True, slots=True)
class Repetition:
    """One run of one arm.

    Attributes:
        slot: Its place.
        figures: What it measured.
        usage: What the processes used meanwhile.
    """

    slot: Slot
    figures: dict[str, float]
    usage: Usage


@dataclass(frozen=True, slots=True)
class Ratio:
    """One figure of one arm in relation to another's.

    Attributes:
        median: Of the pairs' ratios.
        smallest: Of them.
        largest: Of them.
        num_pairs: That were undisturbed.
        num_disturbed: That were left out.
    """

    median: float
    smallest: float
    largest: float
    num_pairs: int
    num_disturbed: int

    def __str__(self) -> str:
        shown = f"{self.median:.3f} ({self.smallest:.3f} to {self.largest:.3f})"
        left_out = f", {self.num_disturbed} disturbed left out" if self.num_disturbed else ""
        return f"{shown}, {self.num_pairs} pairs{left_out}"


class TooDisturbedError(Exception):
    """No pair is left to compare; says how many were disturbed."""


def interleaved(arms: Sequence[str], num_blocks: int) -> list[Slot]:
    """Return the order of the runs: in each block all arms, then all of them backwards.

    Args:
        arms: Two or more names.
        num_blocks: Blocks; each runs every arm twice.
    """
    return [
        Slot(arm, block, is_way_back)
        for block in range(num_blocks)
        for is_way_back in (False, True)
        for arm in (reversed(arms) if is_way_back else arms)
    ]


def run_arms(
    arms: Mapping[str, Callable[[], Mapping[str, float]]],
    processes: Mapping[str, int],
    num_blocks: int = BLOCKS,
    num_warmups: int = WARMUPS,
) -> list[Repetition]:
    """Measure arms against each other.

    Args:
        arms: Name to what runs it once and returns its figures.
        processes: Name to id of every process that computes, this one too if it does.
        num_blocks: Blocks; each runs every arm twice.
        num_warmups: Runs of each arm before that, whose figures are thrown away.
    """
    for _ in range(num_warmups):
        for measure in arms.values():
            measure()
    repetitions = []
    for slot in interleaved(list(arms), num_blocks):
        meter = UsageMeter(processes)
        figures = dict(arms[slot.arm]())
        repetitions.append(Repetition(slot, figures, meter.stop()))
    return repetitions


def paired_ratio(
    repetitions: Iterable[Repetition],
    figure: str,
    arm: str,
    reference: str,
    max_disturbed_share: float = MAX_DISTURBED_SHARE,
) -> Ratio:
    """Compare one arm with another.

    Args:
        repetitions: As ``run_arms`` gives them.
        figure: Which figure.
        arm: Whose figure is divided.
        reference: By whose.
        max_disturbed_share: See ``Usage.is_disturbed``; infinity keeps every pair.

    Raises:
        TooDisturbedError: Every pair was disturbed.
    """
    by_slot = {repetition.slot: repetition for repetition in repetitions}
    pairs = [
        (mine, by_slot[Slot(reference, slot.block, slot.is_way_back)])
        for slot, mine in by_slot.items()
        if slot.arm == arm
    ]
    quiet = [
        mine.figures[figure] / its.figures[figure]
        for mine, its in pairs
        if not mine.usage.is_disturbed(max_disturbed_share)
        and not its.usage.is_disturbed(max_disturbed_share)
    ]
    if not quiet:
        raise TooDisturbedError(
            f"All {len(pairs)} pairs of {arm} and {reference} were disturbed by other programs. "
            "Wait for a quieter time, or allow more with --max-disturbed."
        )
    num_disturbed = len(pairs) - len(quiet)
    return Ratio(statistics.median(quiet), min(quiet), max(quiet), len(quiet), num_disturbed)


def add_protocol_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options every measurement has.

    Args:
        parser: The script's.
    """
    group = parser.add_argument_group("protocol")
    group.add_argument("--blocks", type=int, default=BLOCKS, help="of A B B A")
    group.add_argument("--warmups", type=int, default=WARMUPS, help="runs of each arm before")
    group.add_argument("--max-load", type=float, default=MAX_LOAD, help="load average to start at")
    group.add_argument(
        "--max-disturbed",
        type=float,
        default=MAX_DISTURBED_SHARE,
        help="share of a run's time without a core that is let pass",
    )
    group.add_argument("--force", action="store_true", help="measure on a busy machine")
    group.add_argument("--results", type=Path, default=RESULTS, help="folder for the raw data")


def write_results(folder: Path, name: str, record: Mapping[str, object]) -> Path:
    """Keep everything that was measured, with what it was measured on.

    Args:
        folder: Made if there is none.
        name: Of the script.
        record: JSON; dataclasses are taken apart.

    Returns:
        The file.
    """
    folder.mkdir(parents=True, exist_ok=True)
    taken = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    path = folder / f"{name}-{taken}.json"
    whole = {"command": sys.argv, "taken": taken, "machine": describe_machine(), **record}
    path.write_text(json.dumps(whole, indent=1, default=asdict) + "\n", "utf-8")
    return path
