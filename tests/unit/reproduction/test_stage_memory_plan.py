from __future__ import annotations

import json
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest
from random_ir import PRESETS, build_folder
from stage_memory_plan import Seen, filling, row

from engine.pool.stage_memory import StageMemory, Workload

SCRIPT = Path(__file__).parents[3] / "reproduction" / "stage_memory_plan.py"


@pytest.mark.parametrize(
    ("num_users", "context", "chunk", "longest"),
    [(1, 1, 256, 512), (1, 512, 256, 512), (4, 600, 256, 512), (3, 257, 256, 512), (5, 9, 4, 4)],
)
def test_every_position_of_every_user_is_filled_once_and_in_order(
    num_users: int, context: int, chunk: int, longest: int
) -> None:
    filled: dict[int, int] = defaultdict(int)
    for steps in filling(num_users, context, chunk, longest):
        assert sum(step.num_tokens for step in steps) <= max(longest, num_users)
        for step in steps:
            assert step.past_len == filled[step.sequence_id]
            assert 1 <= step.num_tokens <= chunk
            filled[step.sequence_id] += step.num_tokens
            assert step.num_logits == int(filled[step.sequence_id] >= context)
    assert filled == dict.fromkeys(range(1, num_users + 1), context)


def test_the_last_token_is_all_users_at_once() -> None:
    assert [step.sequence_id for step in list(filling(3, 40, 16, 32))[-1]] == [1, 2, 3]


def seen(planned: StageMemory, own: int, mapped: int) -> Seen:
    return Seen(
        num_stages=2,
        stage_index=1,
        layers="3..7",
        workload=Workload(context_tokens=512, max_sequences=4, kv_precision="f32"),
        planned=planned,
        own_bytes=own,
        peak_own_bytes=own,
        mapped_bytes=mapped,
        load=1.0,
    )


def test_the_plan_is_compared_without_its_headroom() -> None:
    planned = StageMemory(weights_bytes=60_000_000, kv_bytes=50_000_000, headroom_bytes=22_000_000)
    one = seen(planned, own=40_000_000, mapped=60_000_000)
    assert one.resident_bytes == 100_000_000
    assert one.deviation_percent == pytest.approx(10.0)
    shown = row(one).split()
    assert shown[:7] == ["2", "of", "2", "3..7", "paged", "exact", "4"]
    assert "+10.0%" in shown


def test_a_real_stage_is_measured_and_leaves_no_shards(tmp_path: Path) -> None:
    build_folder(PRESETS["tiny"], tmp_path / "tiny", seed=0)
    command = [sys.executable, str(SCRIPT), str(tmp_path / "tiny"), "--contexts", "300"]
    command += ["--users", "2", "--force", "--scratch", str(tmp_path)]
    command += ["--results", str(tmp_path / "results")]
    subprocess.run(command, check=True, capture_output=True, text=True)
    (raw,) = (tmp_path / "results").iterdir()
    stages = json.loads(raw.read_text("utf-8"))["stages"]
    assert [stage["layers"] for stage in stages] == ["0..2", "3"]
    for stage in stages:
        resident = stage["own_bytes"] + stage["mapped_bytes"]
        assert 40_000_000 < resident < 500_000_000
        assert stage["peak_own_bytes"] >= stage["own_bytes"]
        assert stage["planned"]["kv_bytes"] > 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["results", "tiny"]
