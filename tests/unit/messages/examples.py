"""One example of every message; the golden bytes in tests/vectors/wire are of these."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from engine.domain import (
    KeptPrefix,
    KVUsage,
    LayerRange,
    MicroBatch,
    ModelDescription,
    NodeId,
    RowTime,
    SampledRow,
    SampledTokens,
    SequenceId,
    SequenceStep,
    StageDescription,
)
from engine.messages.chain import (
    BatchFailed,
    CloseSequence,
    OpenSequence,
    Placement,
    StageFailed,
    StagePlace,
    StageReady,
)
from engine.messages.chunk_frames import ChunkFrame, ChunkListFrame
from engine.messages.control import (
    Accepted,
    AnswerInterrupted,
    AnswerProgress,
    AnswerResumed,
    AskPoolStatus,
    Cancel,
    ErrorReport,
    Finished,
    Generate,
    Goodbye,
    Hello,
    MessageType,
    NodeHeartbeat,
    NodeLeaves,
    NodeReported,
    Ping,
    Pong,
    PoolStatusReport,
    TextDelta,
)
from engine.messages.deployment import (
    Deployment,
    NodeProgress,
    PlanLine,
    StageShare,
    Trouble,
    Wish,
)
from engine.messages.doctor_control import (
    AdapterTried,
    DevicesTried,
    DeviceTried,
    FirewallSeen,
    NetworkTried,
    TryDevices,
    TryNetwork,
)
from engine.messages.own_pc_control import (
    AskLending,
    DropModel,
    LendingReport,
    ListModels,
    ModelLine,
    ModelsListed,
    SetLending,
    TellIdle,
)
from engine.messages.pool import (
    Heartbeat,
    Neighbour,
    NodeReport,
    Preference,
    Stamp,
    Term,
    Versions,
)
from engine.messages.pool_control import (
    AskChunk,
    AskChunkList,
    AskChunksThere,
    ChunksThere,
    DeploymentChanged,
    DeploymentKnown,
    DeploymentReport,
    EndPlacement,
    KeepModel,
    LoadModel,
    MakeWish,
    ModelSplit,
    OpenControl,
    ProgressReported,
    SplitModel,
    UnloadModel,
    WarmedUp,
    WarmUp,
)
from engine.messages.pool_status import AdapterStatus, NodeStatus, PoolStatus
from engine.messages.roster_control import (
    AskInvitations,
    InvitationsReport,
    Invite,
    Invited,
    Joined,
    JoinPool,
    LeavePool,
    ListPcs,
    ListPools,
    PcLine,
    PcsListed,
    PoolNearby,
    PoolsListed,
    RemovePc,
    RenamePc,
    RosterTold,
    WithdrawInvitation,
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
    row_times=(RowTime(1, 0.015625), RowTime(4, 0.03125)),
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
    port=7420,
    kept_models=("cd" * 32,),
    epoch=3,
    layer_ms=1.25,
    link_kind="wired",
    active_requests=2,
    neighbours=(Neighbour(NodeId("b2"), "10.0.0.3:7420", 0.5),),
)

TERM = Term(3, NodeId("b2"), 5)
STAMP = Stamp(pool_id="home", term=TERM, sender=NodeId("b2"))
TROUBLE = Trouble(
    code="model_file", what="config.json is cut short.", advice="Copy the model again."
)
WISH = Wish(
    wish_id="w-1",
    asked_on=NodeId("a1"),
    model_sha256="cd" * 32,
    model=ModelDescription(
        name="SmolLM2",
        architecture="llama",
        num_layers=2,
        hidden_size=576,
        num_kv_heads=(3, 3),
        head_size=(64, 64),
        value_head_size=(64, 64),
        vocab_size=49152,
        context_length=8192,
        weight_precision="i8",
        layer_bytes=(3_540_000, 3_540_000),
        embedding_bytes=28_300_000,
        head_bytes=28_300_000,
        eos_token_ids=(0, 2),
    ),
    context_tokens=4096,
    max_sequences=4,
)
DEPLOYMENT = Deployment(
    term=TERM,
    version=4,
    phase="loading",
    wish=WISH,
    epoch=3,
    manifest_sha256="ab" * 32,
    stages=(StageShare(NodeId("a1"), LayerRange(0, 1)), StageShare(NodeId("b2"), LayerRange(1, 2))),
    plan=(
        PlanLine(
            node_id=NodeId("c3"),
            name="Attic PC",
            role="left out",
            layers=None,
            usable_bytes=1 << 20,
            needed_bytes=0,
            reason="It lends 1 MiB; the smallest stage needs 40 MiB.",
            remedy="Lend 39 MiB more.",
        ),
    ),
    reason="Two PCs are the fewest that hold it.",
)
PROGRESS = NodeProgress(
    node_id=NodeId("b2"),
    epoch=3,
    step="push",
    done=4 << 20,
    total=12 << 20,
    unit="bytes",
    rate_per_s=118e6,
    detail="SmolLM2",
)

CONTROL: dict[MessageType, Message] = {
    MessageType.HELLO: Hello(
        protocol_version=1,
        product_version="0.1.0",
        shard_format=1,
        node_id=NodeId("kitchen-7f3a"),
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
                address="wss://192.168.1.7:7300",
                stage_index=0,
                layers=LayerRange(0, 15),
            ),
            StagePlace(
                node_id=NodeId("study-09c1"),
                address="wss://192.168.1.9:7300",
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
        prefix=KeptPrefix(SequenceId(3), num_tokens=64),
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
        committed_ids=(100, 200),
        asked_at="2026-03-01T12:00:00+01:00",
        epoch=3,
        next_number=2,
        reuse_prefix=False,
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
        cached_tokens=8,
    ),
    MessageType.CANCEL: Cancel(request_id="r-1"),
    MessageType.ANSWER_INTERRUPTED: AnswerInterrupted(
        request_id="r-1", what="Study PC was lost; the others go on with the answer."
    ),
    MessageType.ANSWER_RESUMED: AnswerResumed(request_id="r-1", pause_s=5.5),
    MessageType.ANSWER_PROGRESS: AnswerProgress(
        request_id="r-1", queue_place=2, wait_s=7.5, num_read=0
    ),
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
            adapters=(
                AdapterStatus(name="eth0", addresses=("10.0.0.2",), is_used=True, link="wired"),
                AdapterStatus(
                    name="docker0",
                    addresses=("172.17.0.1",),
                    is_used=False,
                    reason="It belongs to containers.",
                ),
            ),
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
        times_rows=True,
    ),
    MessageType.SHARD_LOADED: ShardLoaded(description=DESCRIPTION),
    MessageType.REPORT_KV_USAGE: ReportKVUsage(),
    MessageType.KV_USAGE_REPORT: KVUsageReport(
        usage=KVUsage(used_blocks=3, free_blocks=125, used_bytes=3317760, num_sequences=1)
    ),
    MessageType.SHUTDOWN: Shutdown(),
    MessageType.LOAD_MODEL: LoadModel(source="/models/SmolLM2", context_tokens=4096),
    MessageType.UNLOAD_MODEL: UnloadModel(),
    MessageType.DEPLOYMENT_REPORT: DeploymentReport(
        deployment=DEPLOYMENT, progress=(PROGRESS,), wish_id="w-1"
    ),
    MessageType.MAKE_WISH: MakeWish(wish=WISH, wish_id="w-1"),
    MessageType.DEPLOYMENT_CHANGED: DeploymentChanged(stamp=STAMP, deployment=DEPLOYMENT),
    MessageType.DEPLOYMENT_KNOWN: DeploymentKnown(
        deployment=Deployment(
            term=TERM, version=5, phase="failed", wish=WISH, reason="It failed.", trouble=TROUBLE
        )
    ),
    MessageType.KEEP_MODEL: KeepModel(stamp=STAMP, model_sha256="cd" * 32),
    MessageType.SPLIT_MODEL: SplitModel(
        stamp=STAMP, epoch=3, wish=WISH, layers=(LayerRange(0, 1), LayerRange(1, 2))
    ),
    MessageType.MODEL_SPLIT: ModelSplit(epoch=3, manifest_sha256=None, trouble=TROUBLE),
    MessageType.WARM_UP: WarmUp(stamp=STAMP, epoch=3),
    MessageType.WARMED_UP: WarmedUp(epoch=3),
    MessageType.END_PLACEMENT: EndPlacement(stamp=STAMP, epoch=3),
    MessageType.PROGRESS_REPORTED: ProgressReported(progress=PROGRESS),
    MessageType.ASK_CHUNK_LIST: AskChunkList(name="ab" * 32),
    MessageType.ASK_CHUNKS_THERE: AskChunksThere(name="ab" * 32),
    MessageType.CHUNKS_THERE: ChunksThere(name="ab" * 32, bitmap=b"\x0b"),
    MessageType.OPEN_CONTROL: OpenControl(
        token="6f0c3d2a9be14d5f8a7c61e0b2d4f398",  # noqa: S106 - an example
        product_version="0.1.0",
    ),
    MessageType.ASK_CHUNK: AskChunk(name="ab" * 32, index=2, piece=3),
    MessageType.ROSTER_TOLD: RosterTold(roster=b"\x82 a roster"),
    MessageType.INVITE: Invite(is_link=True, role="member"),
    MessageType.INVITED: Invited(
        code="123456", link=None, within_s=120.0, addresses=("192.168.1.7:7300",)
    ),
    MessageType.LIST_POOLS: ListPools(),
    MessageType.POOLS_LISTED: PoolsListed(
        pools=(PoolNearby(name="Kitchen", address="192.168.1.7:7300"),)
    ),
    MessageType.JOIN_POOL: JoinPool(code="123456", address="192.168.1.7:7300"),
    MessageType.JOINED: Joined(pool_id="aaaabbbbccccddddeeee", host_name="Kitchen", num_pcs=2),
    MessageType.LIST_PCS: ListPcs(),
    MessageType.PCS_LISTED: PcsListed(
        pool_id="aaaabbbbccccddddeeee",
        pcs=(
            PcLine(
                node_id=NodeId("avcxgxositsxilzixcxl"),
                name="Kitchen",
                role="owner",
                is_own=True,
                is_online=True,
            ),
        ),
    ),
    MessageType.RENAME_PC: RenamePc(node_id=NodeId("avcxgxositsxilzixcxl"), name="Study"),
    MessageType.REMOVE_PC: RemovePc(node_id=NodeId("avcxgxositsxilzixcxl")),
    MessageType.LEAVE_POOL: LeavePool(),
    MessageType.SET_LENDING: SetLending(rule="idle", pause_s=3600.0, mains_only=True),
    MessageType.TELL_IDLE: TellIdle(is_idle=True),
    MessageType.ASK_LENDING: AskLending(),
    MessageType.LENDING_REPORT: LendingReport(
        rule="idle", is_lending=False, paused_for_s=1800.0, is_alone=False
    ),
    MessageType.LIST_MODELS: ListModels(),
    MessageType.MODELS_LISTED: ModelsListed(
        models=(
            ModelLine(
                model_sha256="ab" * 32,
                name="Qwen3 14B",
                num_layers=40,
                num_bytes=8_000_000_000,
                is_in_use=False,
            ),
        ),
        freed_bytes=7,
    ),
    MessageType.DROP_MODEL: DropModel(model_sha256="ab" * 32, is_everywhere=True),
    MessageType.WITHDRAW_INVITATION: WithdrawInvitation(is_link=True),
    MessageType.ASK_INVITATIONS: AskInvitations(),
    MessageType.INVITATIONS_REPORT: InvitationsReport(
        code_left_s=None, code_ended="used", num_links=1, let_in="Study"
    ),
    MessageType.TRY_NETWORK: TryNetwork(),
    MessageType.NETWORK_TRIED: NetworkTried(
        adapters=(
            AdapterTried(name="eth0", address="192.168.1.7", heard_ms=2.5),
            AdapterTried(name="wlan0", address="192.168.2.7", heard_ms=None),
        ),
        firewall=FirewallSeen(kind="ufw", is_on=True),
        port=7300,
    ),
    MessageType.TRY_DEVICES: TryDevices(),
    MessageType.DEVICES_TRIED: DevicesTried(
        devices=(
            DeviceTried(name="CPU", full_name="Some CPU", load_s=0.5, token_ms=1.25),
            DeviceTried(
                name="NPU",
                full_name="Some NPU",
                trouble=Trouble("compile", "NPU can't run it.", "Update its driver."),
            ),
        )
    ),
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

INT8_BATCH = MicroBatch(
    *(MICRO_BATCH.batch_id, MICRO_BATCH.epoch, MICRO_BATCH.steps, MICRO_BATCH.token_ids),
    hidden_states=np.array([[64, -127], [127, 0], [95, 127]], np.int8),
    row_scales=np.array([1 / 64, 1 / 256, 1 / 32], np.float32),
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

CHUNK = ChunkFrame("ab" * 32, index=2, piece=3, data=memoryview(bytes(range(5))))
CHUNK_LIST = ChunkListFrame("ab" * 32, data=memoryview(b"\x84 a list"))
