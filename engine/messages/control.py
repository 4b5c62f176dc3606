"""Every control message, with its number.

Numbers never change their meaning and are never reused. An even number must be understood by
whoever receives it; an odd one may be ignored. ``docs/protocol.md`` says the same in prose and
changes in the same commit.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Literal

from engine.domain import NodeId
from engine.messages.chain import (
    BatchFailed,
    CloseSequence,
    OpenSequence,
    Placement,
    StageFailed,
    StageReady,
)
from engine.messages.doctor_control import DevicesTried, NetworkTried, TryDevices, TryNetwork
from engine.messages.message import Message
from engine.messages.own_pc_control import (
    AskLending,
    DropModel,
    LendingReport,
    ListModels,
    ModelsListed,
    SetLending,
    TellIdle,
)
from engine.messages.pool import Heartbeat, NodeReport
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
from engine.messages.pool_status import PoolStatus
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
    PcsListed,
    PoolsListed,
    RemovePc,
    RenamePc,
    RosterTold,
    WithdrawInvitation,
)
from engine.messages.stage_control import (
    KVUsageReport,
    LoadShard,
    ReportKVUsage,
    ShardLoaded,
    Shutdown,
)
from engine.sampling.parameters import SamplingParameters

PROTOCOL_VERSION = 1
SHARD_FORMAT = 1


# ---- any connection -------------------------------------------------------------------------


class Hello(Message, frozen=True):
    """First message in each direction; nothing else may precede it."""

    protocol_version: int
    product_version: str
    shard_format: int
    node_id: NodeId


class Goodbye(Message, frozen=True):
    """The sender is about to close on purpose."""

    reason: str


class Ping(Message, frozen=True):
    """Liveness; answered by ``Pong`` with the same number."""

    number: int


class Pong(Message, frozen=True):
    """The answer to ``Ping``."""

    number: int


class ErrorReport(Message, frozen=True):
    """An error of ours, told to the other side: class, and both sentences."""

    code: str
    what: str
    advice: str
    request_id: str | None = None


# ---- asker and head -------------------------------------------------------------------------


class Generate(Message, frozen=True):
    """Ask for an answer. Exactly one of ``messages`` and ``prompt`` is given."""

    request_id: str
    messages: tuple[dict[str, object], ...] | None = None  # as a chat template takes them
    prompt: str | None = None
    tools: tuple[dict[str, object], ...] | None = None
    max_tokens: int | None = None  # None: until the context is full
    stop: tuple[str, ...] = ()
    ignore_eos: bool = False
    sampling: SamplingParameters = SamplingParameters()
    seed_given: bool = False  # False: the head draws a seed
    committed_ids: tuple[int, ...] = ()  # of an answer that goes on: what the asker has already
    next_number: int = 0  # of its next ``TextDelta``
    asked_at: str | None = None  # ISO 8601, for templates that write the date; None: head's clock
    epoch: int = 0  # of the placement it is meant for; 0: whichever runs
    speculate: bool = True  # False: nobody guesses how the answer goes on
    reuse_prefix: bool = True  # whether caches are shared with earlier and later requests


class Accepted(Message, frozen=True):
    """The head took the request: the prompt is rendered and counted."""

    request_id: str
    prompt_tokens: int
    seed: int


class TextDelta(Message, frozen=True):
    """Text that will never be taken back, with the tokens counted since the last one."""

    request_id: str
    number: int  # counts up from 0: a stream can be resumed
    text: str
    token_ids: tuple[int, ...]


class Finished(Message, frozen=True):
    """The answer is complete."""

    request_id: str
    finish_reason: Literal["stop", "length", "cancelled"]
    prompt_tokens: int
    completion_tokens: int
    ttft_s: float | None
    decode_s: float  # first token delivered to last token delivered
    chain_compute_ms: float  # mean time the stages computed for one decode pass, all together
    cached_tokens: int = 0  # of the prompt, that were in the caches already
    drafted_tokens: int = 0  # that were guessed and sent to the stages
    accepted_tokens: int = 0  # of those, that became part of the answer


class AnswerInterrupted(Message, frozen=True):
    """A PC was lost; the answer waits until the others go on with it."""

    request_id: str
    what: str  # one sentence


class AnswerResumed(Message, frozen=True):
    """The answer goes on where it was."""

    request_id: str
    pause_s: float


class AnswerProgress(Message, frozen=True):
    """How far an answer is before its first text; said now and then, and only if it changes."""

    request_id: str
    queue_place: int  # from 1; 0: it has its turn
    wait_s: float | None  # until its turn, roughly; None where nobody knows
    num_read: int  # tokens of the prompt, and of an answer that goes on, that are computed


class Cancel(Message, frozen=True):
    """The asker wants no more of it."""

    request_id: str


# ---- between the nodes of a pool, and whoever asks about it -----------------------------------


class NodeHeartbeat(Message, frozen=True):
    """What a node says of itself once a second, and at once when it changes."""

    heartbeat: Heartbeat


class NodeReported(Message, frozen=True):
    """What a node is and has; goes to every node when a session opens, and every few seconds."""

    report: NodeReport


class NodeLeaves(Message, frozen=True):
    """The sender leaves the pool on purpose; whoever hears it need not wait for its lease."""

    incarnation: int


class AskPoolStatus(Message, frozen=True):
    """Ask how the pool looks from here; answered by ``PoolStatusReport``."""


class PoolStatusReport(Message, frozen=True):
    """The answer to ``AskPoolStatus``."""

    status: PoolStatus


class MessageType(IntEnum):
    """The number of each message on the wire; data frames begin at 0x100."""

    HELLO = 2
    GOODBYE = 3
    PING = 4
    PONG = 6
    ERROR_REPORT = 8
    PLACEMENT = 10
    STAGE_READY = 12
    STAGE_FAILED = 14
    BATCH_FAILED = 16
    OPEN_SEQUENCE = 20
    CLOSE_SEQUENCE = 22
    GENERATE = 30
    ACCEPTED = 32
    TEXT_DELTA = 34
    FINISHED = 36
    CANCEL = 38
    ANSWER_INTERRUPTED = 39
    ANSWER_RESUMED = 41
    ANSWER_PROGRESS = 43
    NODE_HEARTBEAT = 40
    NODE_REPORTED = 42
    ASK_POOL_STATUS = 44
    POOL_STATUS_REPORT = 46
    NODE_LEAVES = 48
    LOAD_SHARD = 60
    SHARD_LOADED = 62
    REPORT_KV_USAGE = 64
    KV_USAGE_REPORT = 66
    SHUTDOWN = 68
    LOAD_MODEL = 70
    UNLOAD_MODEL = 72
    DEPLOYMENT_REPORT = 74
    MAKE_WISH = 76
    DEPLOYMENT_CHANGED = 78
    DEPLOYMENT_KNOWN = 80
    KEEP_MODEL = 82
    SPLIT_MODEL = 84
    MODEL_SPLIT = 86
    WARM_UP = 88
    WARMED_UP = 90
    END_PLACEMENT = 92
    PROGRESS_REPORTED = 95
    ASK_CHUNK_LIST = 100
    ASK_CHUNKS_THERE = 102
    CHUNKS_THERE = 104
    ASK_CHUNK = 106
    OPEN_CONTROL = 110
    ROSTER_TOLD = 120
    INVITE = 122
    INVITED = 124
    LIST_POOLS = 126
    POOLS_LISTED = 128
    JOIN_POOL = 130
    JOINED = 132
    LIST_PCS = 134
    PCS_LISTED = 136
    RENAME_PC = 138
    REMOVE_PC = 140
    LEAVE_POOL = 142
    WITHDRAW_INVITATION = 144
    ASK_INVITATIONS = 146
    INVITATIONS_REPORT = 148
    TRY_NETWORK = 150
    NETWORK_TRIED = 152
    TRY_DEVICES = 154
    DEVICES_TRIED = 156
    SET_LENDING = 160
    TELL_IDLE = 162
    ASK_LENDING = 164
    LENDING_REPORT = 166
    LIST_MODELS = 168
    MODELS_LISTED = 170
    DROP_MODEL = 172
    MICRO_BATCH = 0x100
    SAMPLED_TOKENS = 0x102
    CHUNK_LIST = 0x104
    CHUNK = 0x106


CONTROL_TYPES: dict[MessageType, type[Message]] = {
    MessageType.HELLO: Hello,
    MessageType.GOODBYE: Goodbye,
    MessageType.PING: Ping,
    MessageType.PONG: Pong,
    MessageType.ERROR_REPORT: ErrorReport,
    MessageType.PLACEMENT: Placement,
    MessageType.STAGE_READY: StageReady,
    MessageType.STAGE_FAILED: StageFailed,
    MessageType.BATCH_FAILED: BatchFailed,
    MessageType.OPEN_SEQUENCE: OpenSequence,
    MessageType.CLOSE_SEQUENCE: CloseSequence,
    MessageType.GENERATE: Generate,
    MessageType.ACCEPTED: Accepted,
    MessageType.TEXT_DELTA: TextDelta,
    MessageType.FINISHED: Finished,
    MessageType.CANCEL: Cancel,
    MessageType.ANSWER_INTERRUPTED: AnswerInterrupted,
    MessageType.ANSWER_RESUMED: AnswerResumed,
    MessageType.ANSWER_PROGRESS: AnswerProgress,
    MessageType.NODE_HEARTBEAT: NodeHeartbeat,
    MessageType.NODE_REPORTED: NodeReported,
    MessageType.ASK_POOL_STATUS: AskPoolStatus,
    MessageType.POOL_STATUS_REPORT: PoolStatusReport,
    MessageType.NODE_LEAVES: NodeLeaves,
    MessageType.LOAD_SHARD: LoadShard,
    MessageType.SHARD_LOADED: ShardLoaded,
    MessageType.REPORT_KV_USAGE: ReportKVUsage,
    MessageType.KV_USAGE_REPORT: KVUsageReport,
    MessageType.SHUTDOWN: Shutdown,
    MessageType.LOAD_MODEL: LoadModel,
    MessageType.UNLOAD_MODEL: UnloadModel,
    MessageType.DEPLOYMENT_REPORT: DeploymentReport,
    MessageType.MAKE_WISH: MakeWish,
    MessageType.DEPLOYMENT_CHANGED: DeploymentChanged,
    MessageType.DEPLOYMENT_KNOWN: DeploymentKnown,
    MessageType.KEEP_MODEL: KeepModel,
    MessageType.SPLIT_MODEL: SplitModel,
    MessageType.MODEL_SPLIT: ModelSplit,
    MessageType.WARM_UP: WarmUp,
    MessageType.WARMED_UP: WarmedUp,
    MessageType.END_PLACEMENT: EndPlacement,
    MessageType.PROGRESS_REPORTED: ProgressReported,
    MessageType.ASK_CHUNK_LIST: AskChunkList,
    MessageType.ASK_CHUNKS_THERE: AskChunksThere,
    MessageType.CHUNKS_THERE: ChunksThere,
    MessageType.ASK_CHUNK: AskChunk,
    MessageType.OPEN_CONTROL: OpenControl,
    MessageType.ROSTER_TOLD: RosterTold,
    MessageType.INVITE: Invite,
    MessageType.INVITED: Invited,
    MessageType.LIST_POOLS: ListPools,
    MessageType.POOLS_LISTED: PoolsListed,
    MessageType.JOIN_POOL: JoinPool,
    MessageType.JOINED: Joined,
    MessageType.LIST_PCS: ListPcs,
    MessageType.PCS_LISTED: PcsListed,
    MessageType.RENAME_PC: RenamePc,
    MessageType.REMOVE_PC: RemovePc,
    MessageType.LEAVE_POOL: LeavePool,
    MessageType.WITHDRAW_INVITATION: WithdrawInvitation,
    MessageType.ASK_INVITATIONS: AskInvitations,
    MessageType.INVITATIONS_REPORT: InvitationsReport,
    MessageType.TRY_NETWORK: TryNetwork,
    MessageType.NETWORK_TRIED: NetworkTried,
    MessageType.TRY_DEVICES: TryDevices,
    MessageType.DEVICES_TRIED: DevicesTried,
    MessageType.SET_LENDING: SetLending,
    MessageType.TELL_IDLE: TellIdle,
    MessageType.ASK_LENDING: AskLending,
    MessageType.LENDING_REPORT: LendingReport,
    MessageType.LIST_MODELS: ListModels,
    MessageType.MODELS_LISTED: ModelsListed,
    MessageType.DROP_MODEL: DropModel,
}
