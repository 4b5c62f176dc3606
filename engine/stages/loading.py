"""Loading one shard, whichever way it is to run, and checking that it computes the right thing."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import msgspec
import openvino as ov

from engine.stages.golden import GoldenVectors, check_golden_error
from engine.stages.npu import NpuStage, load_npu
from engine.stages.paged import PagedStage, load_paged
from engine.stages.row_times import measure_row_times
from engine.stages.stateful import StatefulStage
from engine.stages.stateful_loading import load_stateful

if TYPE_CHECKING:
    from engine.messages.stage_control import GoldenStep, LoadShard
    from engine.stages.stage import Stage

ROW_TIMES_BUDGET_S = 1.5  # a large stage is not timed to the end: it may be needed at once


def load_stage(request: LoadShard) -> Stage:
    """Load a shard, count its fusions, run its golden step, and time rows where that is asked for.

    Args:
        request: What to load and how.

    Returns:
        The stage, ready for batches, its caches empty.

    Raises:
        ModelFileError: A file of the shard is missing or cut short.
        CompileError: The device can't run it, or a layer missed its fusion.
        GoldenStepError: The device computes something else.
    """
    core = ov.Core()
    began = time.monotonic()
    stage = _load(core, request)
    changes: dict[str, object] = {"load_s": time.monotonic() - began}
    if request.golden is not None:
        changes["golden_error"] = _golden_error(stage, request.golden)
    if request.times_rows and request.is_first:
        changes["row_times"] = measure_row_times(stage, time.perf_counter, ROW_TIMES_BUDGET_S)
    notes = stage.description.notes
    if isinstance(stage, StatefulStage) and stage.cuts_states:
        notes = (*notes, "rewinds cut the states")
    if request.hidden_precision == "int8" and not request.is_last:
        notes = (*notes, "hidden states are sent in int8: answers differ slightly")
    changes["notes"] = notes
    stage.description = msgspec.structs.replace(stage.description, **changes)
    return stage


def _load(core: ov.Core, request: LoadShard) -> PagedStage | StatefulStage | NpuStage:
    if request.kind == "paged":
        return load_paged(core, request)
    if request.device.startswith("NPU"):
        return load_npu(core, request)
    return load_stateful(core, request)


def _golden_error(stage: Stage, golden: GoldenStep) -> float:
    """Run the golden step, straight and after a rewind; return the larger error."""
    vectors = GoldenVectors(golden, stage)
    limit = golden.max_relative_error
    error = vectors.error()
    check_golden_error(error, limit, stage.description.device)
    rewound = vectors.error_after_rewind()
    if rewound > limit and isinstance(stage, StatefulStage) and not stage.cuts_states:
        # Positions are counted from the cache in a way its inputs do not show.
        stage.cuts_states = True
        vectors.error()
        rewound = vectors.error_after_rewind()
    check_golden_error(rewound, limit, stage.description.device)
    vectors.close()
    return max(error, rewound)
