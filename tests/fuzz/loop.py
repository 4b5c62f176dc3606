"""Run parsers on mutated inputs, as often as is asked: ``python -m tests.fuzz.loop``.

    python -m tests.fuzz.loop --executions 1000000              every parser
    python -m tests.fuzz.loop --grow 20000 roster pairing       first look for new inputs to keep

Ends with 1 and keeps the input in ``tests/fuzz/failures`` if a parser raises what it has not
declared, takes seconds for one input, or needs memory without bound.
"""

from __future__ import annotations

import argparse
import hashlib
import random
import sys
import time
import traceback
from pathlib import Path

from tests.fuzz.mutation import mutated
from tests.fuzz.targets import CORPUS, TARGETS, Target, execute, kept

FAILURES = Path(__file__).parent / "failures"
MAX_GROWTH_BYTES = 200 << 20
MAX_S = 2.0  # for one input, of this process's own time
MAX_KEPT = 150
MAX_KEPT_BYTES = 2048
WARM_UP = 2000
ENGINE = str(Path(__file__).parents[2] / "engine")
EXECUTIONS_OF = {"pairing_machine": 0.003}  # the arithmetic of one takes 50 ms


def main(arguments: list[str]) -> int:
    """Run; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.loop")
    parser.add_argument("targets", nargs="*", default=list(TARGETS), metavar="TARGET")
    parser.add_argument("--executions", type=int, default=0, help="of each parser")
    parser.add_argument("--grow", type=int, default=0, help="executions that look for new lines")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args(arguments)
    return max(
        _fuzz(TARGETS[name], given.executions, given.grow, given.seed) for name in given.targets
    )


def _fuzz(target: Target, executions: int, grow: int, seed: int) -> int:
    draw = random.Random(f"{target.name} {seed}")  # noqa: S311 - so that a run can be repeated
    corpus = list(dict.fromkeys([*target.seeds(), *kept(target)]))
    share = EXECUTIONS_OF.get(target.name, 1)
    if grow and not _grow(target, corpus, int(grow * min(1, share * 10)), draw):
        return 1
    if not executions:
        return 0
    began_s, accepted = time.monotonic(), 0
    executions = max(1, int(executions * share))
    peak = before = 0
    for number in range(executions):
        if number == min(WARM_UP, executions // 2):
            before = _limit_memory()
        data = mutated(draw, corpus, target.form, target.max_bytes)
        try:
            accepted += _timed(target, data)
        except BaseException:  # noqa: BLE001 - a panic in a library is one
            _keep_failure(target, data)
            traceback.print_exc()
            return 1
    peak = _peak_bytes()
    rate = executions / (time.monotonic() - began_s)
    print(  # noqa: T201
        f"{target.name:<16} {executions:>9} executions, {accepted:>7} accepted, corpus "
        f"{len(corpus):>3}, {rate:>7.0f}/s, grew {(peak - before) / (1 << 20):.0f} MiB",
        flush=True,
    )
    return int(peak - before > MAX_GROWTH_BYTES)


def _timed(target: Target, data: bytes) -> bool:
    began_s = time.process_time()
    accepted = execute(target, data)
    took_s = time.process_time() - began_s
    if took_s > MAX_S:
        raise TimeoutError(f"one input of {len(data)} bytes took {took_s:.1f} s")
    return accepted


# ---- the corpus ----------------------------------------------------------------------------------


def _grow(target: Target, corpus: list[bytes], executions: int, draw: random.Random) -> bool:
    """Keep each input that reaches a line of the engine which none before it had."""
    seen: set[tuple[str, int, int]] = set()
    for data in corpus:
        seen |= _lines(target, data)
    new: list[bytes] = []
    for _ in range(executions):
        if len(corpus) >= MAX_KEPT:
            break
        data = mutated(draw, corpus, target.form, target.max_bytes)
        try:
            lines = _lines(target, data)
        except BaseException:  # noqa: BLE001 - a panic in a library is one
            _keep_failure(target, data)
            traceback.print_exc()
            return False
        if not lines <= seen and len(data) <= MAX_KEPT_BYTES:
            seen |= lines
            corpus.append(data)
            new.append(data)
    if new:
        CORPUS.mkdir(exist_ok=True)
        with (CORPUS / f"{target.name}.txt").open("a", encoding="ascii") as file:
            file.writelines(f"{data.hex()}\n" for data in new)
    print(f"{target.name:<16} kept {len(new)} new inputs, {len(seen)} steps", flush=True)  # noqa: T201
    return True


def _lines(target: Target, data: bytes) -> set[tuple[str, int, int]]:
    """Return the steps from line to line that an input takes through the engine."""
    steps: set[tuple[str, int, int]] = set()
    last: dict[int, int] = {}

    def step(frame, event, _argument):
        if not frame.f_code.co_filename.startswith(ENGINE):
            return None
        if event == "line":
            key = id(frame)
            steps.add((frame.f_code.co_filename, last.get(key, 0), frame.f_lineno))
            last[key] = frame.f_lineno
        return step

    sys.settrace(step)
    try:
        execute(target, data)
    finally:
        sys.settrace(None)
    return steps


def _keep_failure(target: Target, data: bytes) -> None:
    FAILURES.mkdir(exist_ok=True)
    name = f"{target.name}-{hashlib.sha256(data).hexdigest()[:12]}.bin"
    (FAILURES / name).write_bytes(data)
    print(f"{target.name}: tests/fuzz/failures/{name}", file=sys.stderr)  # noqa: T201


# ---- memory --------------------------------------------------------------------------------------


def _limit_memory() -> int:
    """Let this process have no more address space than it has and the growth; return its peak."""
    if sys.platform != "linux":
        return _peak_bytes()
    import resource  # noqa: PLC0415 - there is none elsewhere

    size = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    limit = size * resource.getpagesize() + MAX_GROWTH_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, resource.getrlimit(resource.RLIMIT_AS)[1]))
    return _peak_bytes()


def _peak_bytes() -> int:
    if sys.platform == "win32":
        return 0
    import resource  # noqa: PLC0415 - there is none elsewhere

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
