"""The first and the last stage stay on one PC: the others compute, and are sent no token."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import numpy as np
import pytest

from engine.cli.preparation import Division
from engine.domain import MicroBatch, NodeId, SampledRow, SampledTokens, SequenceId
from engine.messages.chain import Placement, StagePlace
from engine.messages.codec import decode, encode_sampled_tokens
from engine.messages.control import Finished, Generate, TextDelta
from engine.node.placements import Placements
from engine.pool.chain_choice import Wishes
from engine.pool.placement import plan_placement
from engine.pool.plan import NodeFacts
from engine.pool.stage_memory import Workload
from engine.preparation import describe_order
from engine.splitter.process import describe_in_process
from engine.transport.session import Liveness
from tests.integration.namespaces import local_network
from tests.integration.pool import shards
from tests.integration.pool_hosts import start_pool

pytestmark = [pytest.mark.processes, pytest.mark.embedded, pytest.mark.together]

HOME, AWAY, STRANGER = NodeId("home"), NodeId("away"), NodeId("stranger")
PROMPT = "The lighthouse keeper of Quokka Bay"
NUM_TOKENS = 12
CONTEXT = 512
WITHIN_S = 120


@dataclass
class Link:
    """A connection of a chain, as far as a stage knows: what is sent arrives in order."""

    sender: NodeId
    to: Placements
    seen: list[bytes] = field(default_factory=list)
    frames: asyncio.Queue[bytes] = field(default_factory=asyncio.Queue)

    async def send(self, frame: bytes) -> None:
        self.seen.append(frame)
        await self.frames.put(frame)

    async def carry(self) -> None:
        while True:
            frame = await self.frames.get()
            stage = self.to.stage_after(self.sender)
            if stage is not None:  # else it comes late: its placement has ended
                await stage.accept(frame, self.nothing)

    async def nothing(self, frame: bytes) -> None:
        raise AssertionError(frame)

    async def receive(self) -> bytes:
        await asyncio.Event().wait()

    async def close(self, reason: str) -> None:
        pass


@dataclass
class Network:
    """Connects nodes of one process, each of which is asked for by its id."""

    group: asyncio.TaskGroup
    placements: dict[NodeId, Placements] = field(default_factory=dict)
    links: list[Link] = field(default_factory=list)
    carriers: list[asyncio.Task[None]] = field(default_factory=list)

    def node(self, node_id: NodeId) -> Placements:
        self.placements[node_id] = Placements(node_id, End(self, node_id), self.group, None)
        return self.placements[node_id]


@dataclass(frozen=True)
class End:
    """One node's."""

    network: Network
    own: NodeId
    liveness: Liveness = field(default_factory=Liveness)

    async def connect(self, _address: str, node_id: NodeId) -> Link:
        link = Link(self.own, self.network.placements[node_id])
        self.network.links.append(link)
        self.network.carriers.append(self.network.group.create_task(link.carry()))
        return link


def placement(folder, *nodes: NodeId, mode="exact", links="auto") -> Placement:
    stages = tuple(
        StagePlace(
            node_id=node,
            address="wss://127.0.0.1:1",
            stage_index=index,
            layers=shard.layers,
            mode=mode,
            num_threads=1,
            link_precision=links,
        )
        for index, (node, shard) in enumerate(zip(nodes, folder.manifest.shards, strict=True))
    )
    return Placement(
        epoch=5,
        manifest_sha256=folder.manifest_sha256,
        context_tokens=CONTEXT,
        max_sequences=1,
        stages=stages,
    )


@asynccontextmanager
async def running(placed: Placement, folder, *node_ids: NodeId):
    async with asyncio.timeout(WITHIN_S), asyncio.TaskGroup() as group:
        network = Network(group)
        nodes = [network.node(node_id) for node_id in node_ids]
        try:
            for node in nodes:
                await node.load(placed, folder)
            yield network, nodes[0]
        finally:
            for task in network.carriers:
                task.cancel()
            for node in nodes:
                await node.end()


async def answered(home: Placements) -> list[int]:
    ids: list[int] = []

    async def take(message: object) -> None:
        if isinstance(message, TextDelta):
            ids.extend(message.token_ids)
        elif isinstance(message, Finished):
            assert message.completion_tokens == NUM_TOKENS

    asked = Generate(request_id="r", prompt=PROMPT, max_tokens=NUM_TOKENS, ignore_eos=True)
    await home.head.answer(asked, take)
    return ids


def test_s24_the_others_compute_the_same_answer_and_see_no_token_of_it(data_dir):
    whole = shards(None, Division(num_stages=1), data_dir)
    parts = shards(None, Division(num_stages=3), data_dir)

    async def alone() -> list[int]:
        async with running(placement(whole, HOME), whole, HOME) as (_, home):
            return await answered(home)

    async def apart():
        placed = placement(parts, HOME, AWAY, HOME)
        async with running(placed, parts, HOME, AWAY) as (network, home):
            assert [stage.place.stage_index for stage in home.stages] == [0, 2]
            assert home.memory_bytes() > 0
            ids = await answered(home)
            # A member that is no part of the chain is not listened to, nor one in the wrong place.
            assert home.stage_after(STRANGER) is None
            assert home.stage_after(HOME) is None
            assert network.placements[AWAY].stage_after(STRANGER) is None
            pids = loaded_pids(home)
            await home.end(for_good=False)
            assert home.is_loaded
            await home.load(placed, parts)
            assert loaded_pids(home) == pids, "what is loaded goes on"
            return ids, [link for link in network.links if link.to is network.placements[AWAY]]

    expected = asyncio.run(alone())
    ids, to_away = asyncio.run(apart())
    assert ids == expected
    batches = [b for link in to_away for b in map(decode, link.seen) if isinstance(b, MicroBatch)]
    assert len(batches) >= NUM_TOKENS
    assert not any(batch.token_ids.any() for batch in batches)
    assert all(np.abs(batch.hidden_states).max() > 0 for batch in batches)


@pytest.mark.parametrize(("links", "dtype"), [("auto", np.float16), ("int8", np.int8)])
def test_s24_hidden_states_in_fewer_bytes_go_round_as_well(data_dir, links, dtype):
    parts = shards(None, Division(num_stages=3), data_dir)

    async def scenario():
        placed = placement(parts, HOME, AWAY, HOME, mode="fast", links=links)
        async with running(placed, parts, HOME, AWAY) as (network, home):
            notes = [stage.loaded.description.notes for stage in home.stages]
            return await answered(home), notes, [decode(f) for n in network.links for f in n.seen]

    ids, notes, seen = asyncio.run(scenario())
    assert len(ids) == NUM_TOKENS
    batches = [each for each in seen if isinstance(each, MicroBatch)]
    assert len(batches) >= 2 * NUM_TOKENS, "to the PC in between and back"
    assert {batch.hidden_states.dtype for batch in batches} == {np.dtype(dtype)}
    assert [any("int8" in note for note in of) for of in notes] == [links == "int8", False]


def loaded_pids(home: Placements) -> list[int]:
    return [stage.loaded.process.pid for stage in home.stages]


def test_s24_tokens_that_another_member_says_were_sampled_count_for_nothing(data_dir):
    folder = shards(None, Division(num_stages=1), data_dir)

    async def scenario():
        async with running(placement(folder, HOME), folder, HOME) as (_, home):
            heard = []
            home.head.on_sampled = lambda tokens, frame: heard.append(tokens)
            forged = SampledTokens(0, 5, (SampledRow(SequenceId(1), 3, (7,)),))
            frame = encode_sampled_tokens(forged)
            home.on_sampled(forged, frame, STRANGER)
            dropped = SampledTokens(0, 5, (SampledRow(SequenceId(1), 3, ()),))
            home.on_sampled(dropped, encode_sampled_tokens(dropped), STRANGER)
            assert heard == []
            home.on_sampled(forged, frame, HOME)
            assert heard == [forged]
            await home.end()
            home.on_sampled(forged, frame, HOME)
            assert heard == [forged]

    asyncio.run(scenario())


def cap_for_private(model) -> int:
    """The most a PC may lend, in whole MiB, for another one to be needed as well."""
    workload = Workload(context_tokens=CONTEXT, max_sequences=1, kv_precision="f32")

    def num_stages(cap: int) -> int:
        pcs = [
            NodeFacts(node_id=n, name="", total_bytes=1 << 40, free_bytes=1 << 40, cap_bytes=c)
            for n, c in ((HOME, cap), (AWAY, None))
        ]
        return len(plan_placement(model, workload, pcs, Wishes(HOME, is_private=True)).stages)

    return next(n << 20 for n in range(4096, 0, -1) if num_stages(n << 20) == 3)


def test_daisy_load_private_over_two_pcs(tmp_path, embedded):
    described = asyncio.run(describe_in_process(describe_order(embedded), lambda _: None))
    cap = str(cap_for_private(described.model))
    options = ("--context", CONTEXT, "--users", 1, "--exact", "--link-precision", "f32")
    ask = (PROMPT, "--max-tokens", NUM_TOKENS, "--ignore-eos")
    with local_network(2) as network:
        pool = start_pool(network.hosts, tmp_path, lambda i: () if i else ("--memory", cap))
        home, away = pool.nodes
        try:
            pool.agreed()
            record = pool.load(home, embedded.folder, *options, "--private")
            ends = [home.node_id, away.node_id, home.node_id]
            assert [stage["node_id"] for stage in record["stages"]] == ends
            line = next(one for one in record["plan"] if one["node_id"] == home.node_id)
            assert line["last_layers"] is not None
            assert record["wish"]["is_private"]
            assert record["wish"]["link_precision"] == "f32"
            private = [pool.ask(node, *ask).finish() for node in pool.nodes]
            assert private[0] == private[1]
            assert len(private[0]) == NUM_TOKENS
        finally:
            pool.close()
