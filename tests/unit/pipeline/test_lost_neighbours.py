"""However a PC of the chain is lost, the head hears of it in time, and which one it was."""

import asyncio

import pytest

from tests.unit.pipeline.frames import opening, shown
from tests.unit.pipeline.websocket_chain import LIVENESS, run

IN_TIME_S = LIVENESS.dead_after_s + LIVENESS.ping_after_s + 2.0  # the last for a busy machine


async def used(chain):
    """Send something down the whole chain, as the probe before *ready* does."""
    await chain.nodes[0].server.accept(opening(1))
    await chain.nodes[2].process.came.wait()
    assert shown(chain.nodes[2].process.sent[0]) == "open 1"


def hears(chain, blamed):
    async def hear():
        async with asyncio.timeout(IN_TIME_S):
            failure = await chain.nodes[0].wait_for_failure()
        assert failure.stage_index in blamed
        assert failure.what.startswith(f"Stage {failure.stage_index}: ")
        assert failure.advice

    return hear()


@pytest.mark.parametrize("index", [1, 2])
def test_a_pc_whose_node_is_killed(index):
    """Its sockets are reset."""

    async def scenario(chain):
        await used(chain)
        chain.nodes[index].kill()
        await hears(chain, {index})

    run(scenario)


@pytest.mark.parametrize("index", [1, 2])
def test_a_pc_that_falls_silent(index):
    """Its cable is pulled, or it sleeps: no socket is closed, nothing comes any more."""

    async def scenario(chain):
        await used(chain)
        for ends, line in chain.lines.items():
            line.is_silent = index in ends
        # Of the two after the first, the first one is silent to both: it is the one that is lost.
        await hears(chain, {index})

    run(scenario)


@pytest.mark.parametrize("index", [0, 1, 2])
def test_a_stage_process_that_dies(index):
    async def scenario(chain):
        await used(chain)
        chain.nodes[index].process.die()
        await hears(chain, {index})
        assert chain.nodes[0].failures[0].code == "stage_process_died"

    run(scenario)


@pytest.mark.parametrize("how", ["cut", "silent"])
@pytest.mark.parametrize("ends", [(0, 1), (1, 2), (1, 0), (2, 0)])
def test_a_single_line(ends, how):
    """Both PCs live. Whoever can't reach the head any more says so up the chain."""

    async def scenario(chain):
        await used(chain)
        if how == "cut":
            chain.lines[ends].cut()
        else:
            chain.lines[ends].is_silent = True
        await hears(chain, {max(ends)})

    run(scenario)


def test_a_pc_that_can_reach_neither_the_next_nor_the_head():
    async def scenario(chain):
        await used(chain)
        chain.lines[1, 0].is_silent = chain.lines[1, 2].is_silent = True
        await hears(chain, {1, 2})

    run(scenario)


def test_a_chain_that_is_well_blames_nobody():
    async def scenario(chain):
        await used(chain)
        await asyncio.sleep(2 * LIVENESS.dead_after_s)
        assert chain.nodes[0].failures == []

    run(scenario)
