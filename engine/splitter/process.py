"""The processes a model is described and split in; imports no OpenVINO where they are started.

``python -m engine.splitter.process`` is the one it is split in.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import uuid
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from engine.splitter.orders import (
    SCRATCH_PREFIX,
    Described,
    DescribeOrder,
    Progress,
    SplitOrder,
    SplitResult,
)
from engine.worker import run_worker, serve_order

if TYPE_CHECKING:
    from collections.abc import Callable


async def describe_in_process(
    order: DescribeOrder, on_progress: Callable[[Progress], None]
) -> Described:
    """Describe a model in a process of its own, which may die of what it reads.

    Args:
        order: Which model.
        on_progress: Told of every step, on this loop.

    Raises:
        DaisyError: As ``describe_model`` does.
        ModelFileError: The process died.

    Cancellation: stops the work.
    """
    described: Described = await run_worker(
        "engine.splitter.describe", order, Progress | Described, on_progress
    )
    return described


async def split_in_process(
    order: SplitOrder, on_progress: Callable[[Progress], None]
) -> SplitResult:
    """Split a model in a process of its own, which may die of what it reads.

    Args:
        order: What to split and how.
        on_progress: Told of every step, on this loop.

    Raises:
        DaisyError: As ``split_model`` does.
        ModelFileError: The process died.

    Cancellation: stops the work; nothing is left behind.
    """
    # This process names the folder: the other may end where it can't clean up after itself.
    parent = Path(os.fsdecode(order.out.encode())).parent
    name = f"{SCRATCH_PREFIX}{uuid.uuid4().hex}"
    order = msgspec.structs.replace(order, scratch=str(Path(order.out).parent / name))
    try:
        result: SplitResult = await run_worker(
            "engine.splitter.process", order, Progress | SplitResult, on_progress
        )
    finally:
        remove = partial(shutil.rmtree, parent / name, ignore_errors=True)
        await asyncio.shield(asyncio.to_thread(remove))
    return result


if __name__ == "__main__":
    from engine.splitter.split import split_model

    sys.exit(serve_order(SplitOrder, split_model))
