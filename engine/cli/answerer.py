"""Who answers ``ask`` and ``chat``: the pool, through this PC's node, or this PC alone."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from engine.cli.arguments import data_dir, wants_own_chain
from engine.cli.chain_options import division, pool_options
from engine.cli.local_pool import open_local_pool
from engine.cli.own_node import connect_own_node, open_own_node
from engine.cli.preparation import shards_for
from engine.models.shown_path import shown_path

if TYPE_CHECKING:
    import argparse
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from engine.cli.local_pool import LocalPool
    from engine.cli.output import Output
    from engine.transport.link import Link

# Gives a connection for one request.
Connect: TypeAlias = "Callable[[], AbstractAsyncContextManager[Link]]"


@asynccontextmanager
async def open_answerer(given: argparse.Namespace, output: Output) -> AsyncIterator[Connect]:
    """Find or make who answers, and say who it is.

    Args:
        given: Parsed options of ``ask`` or ``chat``.
        output: Told.

    Yields:
        What gives a connection for each request.

    Fails as ``open_own_node`` does, or as ``shards_for`` and ``open_local_pool`` do.
    """
    is_own = wants_own_chain(given)
    if not is_own and await _runs_here(data_dir(given)):
        output.event("answered_by", who="pool")
        output.say("The pool answers, through the node of this PC.")
        yield partial(open_own_node, data_dir(given))
        return
    output.event("answered_by", who="this PC")
    if not is_own:
        output.say(
            "No node of Daisy runs on this PC, so it answers alone, with the embedded model. "
            f"(The data folder is {shown_path(data_dir(given))}. To ask a pool: daisy node, or "
            "--data DIR, if one runs with another folder.)"
        )
    async with _open_chain(given, output) as pool:
        yield partial(_head_of, pool)


async def _runs_here(data: Path) -> bool:
    connection = await connect_own_node(data)
    if connection is not None:
        await connection.close("It was only to see whether a node runs.")
    return connection is not None


@asynccontextmanager
async def _open_chain(given: argparse.Namespace, output: Output) -> AsyncIterator[LocalPool]:
    folder = await shards_for(given.model, division(given), data_dir(given), output)
    async with open_local_pool(
        folder,
        pool_options(given, folder),
        lambda done, total: output.progress("Loading stages", done, total),
    ) as pool:
        tell_stages(pool, output)
        yield pool


@asynccontextmanager
async def _head_of(pool: LocalPool) -> AsyncIterator[Link]:
    yield pool.head


def tell_stages(pool: LocalPool, output: Output) -> None:
    """Say what was loaded where.

    Args:
        pool: Loaded.
        output: Told.
    """
    for node, stage in zip(pool.nodes, pool.stages, strict=True):
        output.event("stage", node=node.name, address=node.address, **msgspec.to_builtins(stage))
        # The rest of what a stage says of itself is for programs.
        output.say(
            f"{node.name}: layers {stage.layers} on {stage.device}, {stage.kind}, {stage.mode}, "
            f"loaded in {stage.load_s:.1f} s"
        )
        for note in stage.notes:
            output.say(f"  note: {note}")
