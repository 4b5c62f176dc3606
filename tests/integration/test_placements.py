"""A loaded stage goes from one placement to the next only if nothing of the last is left in it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import numpy as np
import pytest

from engine.cli.preparation import Division
from engine.domain import MicroBatch, NodeId, SequenceId, SequenceStep
from engine.messages.chain import OpenSequence, Placement, StagePlace
from engine.messages.codec import encode_control, encode_micro_batch
from engine.node.placements import Placements
from engine.sampling.parameters import SamplingParameters
from engine.transport.session import Liveness
from tests.integration.pool import shards

pytestmark = [pytest.mark.processes, pytest.mark.embedded, pytest.mark.together]

OWN = NodeId("pc-1")
TOKENS = 512
UNDER_WAY_S = 0.2  # a chunk of that length takes longer


@dataclass(frozen=True)
class NoEndpoint:
    """A chain of one connects to nobody."""

    liveness: Liveness = field(default_factory=Liveness)


@pytest.fixture(scope="module")
def folder(data_dir):
    return shards(None, Division(num_stages=1), data_dir)


def placement(folder, epoch: int, context_tokens: int = 2048) -> Placement:
    (shard,) = folder.manifest.shards
    place = StagePlace(node_id=OWN, address="ws://127.0.0.1:1", stage_index=0, layers=shard.layers)
    return Placement(
        epoch=epoch,
        manifest_sha256=folder.manifest_sha256,
        context_tokens=context_tokens,
        max_sequences=1,
        stages=(place,),
    )


async def begin_a_chunk(placements: Placements, epoch: int) -> None:
    opening = OpenSequence(
        epoch=epoch,
        sequence_id=SequenceId(1),
        num_prompt_tokens=TOKENS,
        sampling=SamplingParameters(),
    )
    steps = (SequenceStep(SequenceId(1), 0, TOKENS, 1),)
    batch = MicroBatch(0, epoch, steps, np.ones(TOKENS, np.int32), None)
    await placements.stage.server.accept(encode_control(opening))
    await placements.stage.server.accept(encode_micro_batch(batch))


def run(scenario) -> None:
    async def with_placements():
        async with asyncio.timeout(120), asyncio.TaskGroup() as group:
            placements = Placements(OWN, NoEndpoint(), group, None)
            await scenario(placements)
            await placements.end()
            assert not placements.is_loaded

    asyncio.run(with_placements())


def pid(placements: Placements) -> int:
    return placements.stage.loaded.process.pid


def test_the_same_shard_asked_for_again_goes_on_and_holds_no_sequence(folder):
    async def scenario(placements):
        await placements.load(placement(folder, 1), folder)
        first = pid(placements)
        await begin_a_chunk(placements, 1)
        await placements.load(placement(folder, 2), folder)
        assert pid(placements) == first
        usage = await placements.stage.loaded.process.usage()
        assert (usage.num_sequences, usage.used_blocks) == (0, 0)

    run(scenario)


def test_another_way_of_running_it_is_loaded_anew(folder):
    async def scenario(placements):
        await placements.load(placement(folder, 1), folder)
        first = pid(placements)
        await placements.load(placement(folder, 2, context_tokens=1024), folder)
        assert pid(placements) != first

    run(scenario)


def test_who_is_stopped_while_it_ends_the_last_one_leaves_no_half_ended_stage(folder):
    """A newer order stops an older one at any moment."""

    async def scenario(placements):
        await placements.load(placement(folder, 1), folder)
        await begin_a_chunk(placements, 1)
        async with asyncio.TaskGroup() as group:
            older = group.create_task(placements.load(placement(folder, 2), folder))
            await asyncio.sleep(UNDER_WAY_S)
            older.cancel()
        await placements.load(placement(folder, 3), folder)
        usage = await placements.stage.loaded.process.usage()
        assert (usage.num_sequences, usage.used_blocks) == (0, 0)
        assert placements.epoch == 3

    run(scenario)
