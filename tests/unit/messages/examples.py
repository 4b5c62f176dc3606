"""One example of every message; the golden bytes in tests/vectors/wire are of these."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from engine.domain import (
    KVUsage,
    LayerRange,
    MicroBatch,
    NodeId,
    SampledRow,
    SampledTokens,
    SequenceId,
    SequenceStep,
    StageDescription,
)
from engine.messages.control import (
    Accepted,
    AskPoolStatus,
    BatchFailed,
    Cancel,
    CloseSequence,
    ErrorReport,
    Finished,
    Generate,
    Goodbye,
    Hello,
    MessageType,
    NodeHeartbeat,
    NodeLeaves,
    NodeReported,
    OpenSequence,
    Ping,
    Placement,
    Pong,
    PoolStatusReport,
    StageFailed,
    StagePlace,
    StageReady,
    TextDelta,
)
from engine.messages.pool import (
    Heartbeat,
    NodeReport,
    NodeStatus,
    PoolStatus,
    Preference,
    Term,
    Versions,
)
from engine.messages.stage_control import (
    GoldenStep,
    KVUsageReport,
    LoadShard,
    ReportKVUsage,
    ShardLoaded,
    Shutdown,
)
from engine.sampling.parameters import SamplingParameters

if TYPE_CHECKING:
    from engine.messages.message import Message

DESCRIPTION = StageDescription(
    layers=LayerRange(0, 15),
    is_first=True,
    is_last=False,
    kind="paged",
    mode="fast",
    device="CPU",
    hidden_size=576,
    vocab_size=49152,
    num_fused_layers=15,
    block_tokens=32,
    num_blocks=128,
    block_bytes=1105920,
    load_s=1.5,
    golden_error=0.0009765625,
    notes=("precision f32",),
)

_REPORT = NodeReport(
    node_id=NodeId("a1"),
    name="Kitchen PC",
    memory_total_bytes=16 << 30,
    memory_free_bytes=8 << 30,
    memory_cap_bytes=None,
    memory_lent_bytes=0,
    devices=("CPU",),
    uptime_s=12.5,
    layers=LayerRange(0, 15),
    model="SmolLM2",
)

CONTROL: dict[MessageType, Message] = {
    MessageType.HELLO: Hello(
        protocol_version=1,
        product_version="0.1.0",
        shard_format=1,
        node_id=NodeId("kitchen-7f3a"),
        role="node",
    ),
    MessageType.GOODBYE: Goodbye(reason="This PC is stopping."),
    MessageType.PING: Ping(number=7),
    MessageType.PONG: Pong(number=7),
    MessageType.ERROR_REPORT: ErrorReport(
        code="kv_cache_full",
        what="The step needs 2 more KV blocks and 0 are free.",
        advice="Choose a shorter context.",
        request_id="r-1",
    ),
    MessageType.PLACEMENT: Placement(
        epoch=3,
        manifest_sha256="ab" * 32,
        context_tokens=4096,
        max_sequences=4,
        stages=(
            StagePlace(
                node_id=NodeId("kitchen-7f3a"),
                address="ws://192.168.1.7:7300",
                stage_index=0,
                layers=LayerRange(0, 15),
            ),
            StagePlace(
                node_id=NodeId("study-09c1"),
                address="ws://192.168.1.9:7300",
                stage_index=1,
                layers=LayerRange(15, 30),
                device="GPU",
                kind="stateful",
                mode="exact",
                num_threads=2,
            ),
        ),
    ),
    MessageType.STAGE_READY: StageReady(epoch=3, stage_index=0, description=DESCRIPTION),
    MessageType.STAGE_FAILED: StageFailed(
        epoch=3,
        stage_index=1,
        code="compile",
        what="The device GPU could not compile the shard.",
        advice="Try another device or precision.",
    ),
    MessageType.BATCH_FAILED: BatchFailed(
        epoch=3,
        batch_id=41,
        stage_index=1,
        sequence_ids=(SequenceId(5), SequenceId(6)),
        code="inference",
        what="A NaN came out of layer 20.",
        advice="Run it again.",
    ),
    MessageType.OPEN_SEQUENCE: OpenSequence(
        epoch=3,
        sequence_id=SequenceId(5),
        num_prompt_tokens=12,
        sampling=SamplingParameters(temperature=0.5, top_k=40, top_p=0.75, seed=2**64 - 1),
    ),
    MessageType.CLOSE_SEQUENCE: CloseSequence(epoch=3, sequence_id=SequenceId(5)),
    MessageType.GENERATE: Generate(
        request_id="r-1",
        messages=(
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": "Hallo, Jürgen 你好"}]},
        ),
        tools=({"type": "function", "function": {"name": "f", "parameters": {"a": [1, -2.5]}}},),
        max_tokens=64,
        stop=("\n\n",),
    ),
    MessageType.ACCEPTED: Accepted(request_id="r-1", prompt_tokens=12, seed=99),
    MessageType.TEXT_DELTA: TextDelta(request_id="r-1", number=0, text=" 你好", token_ids=(5, 6)),
    MessageType.FINISHED: Finished(
        request_id="r-1",
        finish_reason="stop",
        prompt_tokens=12,
        completion_tokens=2,
        ttft_s=0.25,
        decode_s=0.5,
        chain_compute_ms=1.5,
    ),
    MessageType.CANCEL: Cancel(request_id="r-1"),
    MessageType.NODE_HEARTBEAT: NodeHeartbeat(
        heartbeat=Heartbeat(
            node_id=NodeId("a1"),
            incarnation=2**64 - 1,
            number=7,
            term=Term(3, NodeId("b2"), 5),
            coordinator=NodeId("b2"),
            vouches=True,
            followers=0,
            hears=(NodeId("b2"),),
            preference=Preference(uptime_step=1, on_mains=True, wired=True, memory_step=5),
            versions=Versions(product="0.1.0", protocol=1, shard_format=1),
        )
    ),
    MessageType.NODE_REPORTED: NodeReported(report=_REPORT),
    MessageType.ASK_POOL_STATUS: AskPoolStatus(),
    MessageType.NODE_LEAVES: NodeLeaves(incarnation=5),
    MessageType.POOL_STATUS_REPORT: PoolStatusReport(
        status=PoolStatus(
            coordinator=NodeId("a1"),
            term="3/a1",
            coordinator_since_s=1.5,
            nodes=(
                NodeStatus(
                    node_id=NodeId("a1"),
                    is_asked=True,
                    is_coordinator=True,
                    state="online",
                    hears_us=True,
                    heard_ago_s=0.0,
                    addresses=("10.0.0.2:7420",),
                    round_trip_ms=None,
                    hears=(),
                    report=_REPORT,
                    notes=(),
                ),
            ),
            notes=("no network",),
        )
    ),
    MessageType.LOAD_SHARD: LoadShard(
        xml_path="store/stage_000.xml",
        layers=LayerRange(0, 15),
        is_first=True,
        is_last=False,
        hidden_size=576,
        vocab_size=49152,
        device="CPU",
        kind="paged",
        mode="exact",
        num_threads=None,
        max_tokens=4096,
        sliding_window=None,
        cache_dir=None,
        golden=GoldenStep(
            token_ids=(1, 2, 3),
            input_path=None,
            output_path="store/stage_000.golden",
            max_relative_error=0.0625,
        ),
    ),
    MessageType.SHARD_LOADED: ShardLoaded(description=DESCRIPTION),
    MessageType.REPORT_KV_USAGE: ReportKVUsage(),
    MessageType.KV_USAGE_REPORT: KVUsageReport(
        usage=KVUsage(used_blocks=3, free_blocks=125, used_bytes=3317760, num_sequences=1)
    ),
    MessageType.SHUTDOWN: Shutdown(),
}

MICRO_BATCH = MicroBatch(
    batch_id=41,
    epoch=3,
    steps=(
        SequenceStep(SequenceId(5), past_len=12, num_tokens=1, num_logits=1),
        SequenceStep(SequenceId(6), past_len=0, num_tokens=2, num_logits=0),
    ),
    token_ids=np.array([100, 200, 300], np.int32),
    hidden_states=np.array([[1.0, -2.0], [0.5, 0.0], [3.0, 4.0]], np.float32),
)

SAMPLED_TOKENS = SampledTokens(
    batch_id=41,
    epoch=3,
    rows=(
        SampledRow(SequenceId(5), first_position=13, token_ids=(7, 8)),
        SampledRow(SequenceId(6), first_position=2, token_ids=()),
    ),
)

COMPUTE_US = 1500  # of both data frames
