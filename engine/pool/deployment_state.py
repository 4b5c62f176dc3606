"""Where the coordinator's work stands, and the table of how that may change; pure data."""

from __future__ import annotations

from enum import Enum

import msgspec
from msgspec.structs import replace

from engine.domain import NodeId
from engine.errors import LocalProtocolError
from engine.messages.deployment import Deployment, Phase, StageShare, Wish
from engine.messages.pool import Term
from engine.pool.deployment_changes import Looked
from engine.pool.deployment_inputs import NodeSeen
from engine.pool.deployment_troubles import Ledger

KEPT_EPOCHS = 64  # late answers come to the last few
SETTLE_S = 0.5  # records are collected after taking office


class State(Enum):
    """Where the work stands."""

    OUT = "out of office"
    SETTLING = "settling"  # taking over: the nodes' records come in
    IDLE = "idle"  # nothing is to run
    PLANNING = "planning"  # waiting for the next attempt
    SPLITTING = "splitting"
    LOADING = "loading"
    WARMING = "warming"
    READY = "ready"
    FAILED = "failed"  # waiting for the pool to change


class Input(Enum):
    """What can happen to it."""

    TOOK_OFFICE = "took office"
    LEFT_OFFICE = "left office"
    NOTHING_FOUND = "nothing is to run"
    RUNNING_FOUND = "it runs already"
    UNFINISHED_FOUND = "it doesn't run yet"
    NEWER_KNOWN = "newer record known"
    WISHED = "something is wished"
    UNWISHED = "nothing is wished"
    PLANNED = "plan and files found"
    IMPOSSIBLE = "no plan or no files"
    CUT = "model cut"
    LOADED = "every stage loaded"
    WARMED = "token came round"
    TROUBLED = "trouble"
    GAVE_UP = "trouble too often"
    BROKEN = "chain broke"
    BETTER = "better plan found"
    CHANGED = "pool changed"
    WAITED = "long wait is over"


IN_OFFICE = tuple(state for state in State if state is not State.OUT)
AT_WORK = (State.SPLITTING, State.LOADING, State.WARMING)
HOLDING = (*AT_WORK, State.READY)  # there are stages, all their nodes there
DECIDED = tuple(state for state in IN_OFFICE if state is not State.SETTLING)

TRANSITIONS: dict[tuple[State, Input], State] = {
    **{(state, Input.TOOK_OFFICE): State.SETTLING for state in State},
    **{(state, Input.LEFT_OFFICE): State.OUT for state in State},
    (State.SETTLING, Input.NOTHING_FOUND): State.IDLE,
    (State.SETTLING, Input.RUNNING_FOUND): State.READY,
    (State.SETTLING, Input.UNFINISHED_FOUND): State.PLANNING,
    (State.IDLE, Input.NEWER_KNOWN): State.SETTLING,
    (State.READY, Input.NEWER_KNOWN): State.SETTLING,
    **{(state, Input.WISHED): State.PLANNING for state in DECIDED},
    **{(state, Input.UNWISHED): State.IDLE for state in DECIDED},
    (State.PLANNING, Input.PLANNED): State.SPLITTING,
    (State.PLANNING, Input.IMPOSSIBLE): State.FAILED,
    (State.SPLITTING, Input.CUT): State.LOADING,
    (State.LOADING, Input.LOADED): State.WARMING,
    (State.WARMING, Input.WARMED): State.READY,
    **{(state, Input.TROUBLED): State.PLANNING for state in AT_WORK},
    **{(state, Input.GAVE_UP): State.FAILED for state in AT_WORK},
    (State.READY, Input.BROKEN): State.PLANNING,
    (State.READY, Input.BETTER): State.PLANNING,
    (State.FAILED, Input.CHANGED): State.PLANNING,
    (State.FAILED, Input.WAITED): State.PLANNING,
}

PHASES: dict[State, Phase] = {
    State.IDLE: "unloaded",
    State.PLANNING: "planning",
    State.SPLITTING: "splitting",
    State.LOADING: "loading",
    State.WARMING: "warming",
    State.READY: "ready",
    State.FAILED: "failed",
}


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of the present epoch's placement. Times in seconds, on the caller's clock.

    Attributes:
        splitter: Who cuts the model, or has cut it; None for a placement that was found.
        incarnations: Of the nodes it needs, as they were when it was planned.
        loaded: Those whose stages are.
        heard_s: When each was last ordered or heard of; a node that isn't in it is to be ordered.
        progress_s: When any of them last got on.
    """

    splitter: NodeId | None = None
    incarnations: dict[NodeId, int] = {}
    loaded: frozenset[NodeId] = frozenset()
    heard_s: dict[NodeId, float] = {}
    progress_s: float = 0.0


class Upkeep(msgspec.Struct, frozen=True, kw_only=True):
    """What is looked after while the pool is ready; times as above.

    Attributes:
        ready_s: Since when it is.
        lines_s: When the plan's lines were last refreshed.
        replan_s: When a better plan was last looked for.
        amiss_s: Since when a stage's node has said that it doesn't run it; None if all say so.
    """

    ready_s: float = 0.0
    lines_s: float = 0.0
    replan_s: float = 0.0
    amiss_s: float | None = None


class Keeping(msgspec.Struct, frozen=True, kw_only=True):
    """Who was told to keep the model.

    Attributes:
        node_id: Who last; None for nobody.
        heard_s: When that was, or when it last got on with it; None for never.
        asked: Everyone who was told so in this turn.
    """

    node_id: NodeId | None = None
    heard_s: float | None = None
    asked: frozenset[NodeId] = frozenset()


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """What the pool was like when nothing more could be done, and when that was."""

    pool: dict[NodeId, Looked]
    at_s: float
    gave_up: bool  # attempts failed; otherwise there was no plan, or nobody with the files


class Coordination(msgspec.Struct, frozen=True, kw_only=True):
    """The coordinator's work; changed by ``step`` only. Times in seconds, on the caller's clock.

    Attributes:
        node_id: This node's.
        state: See ``TRANSITIONS``.
        nodes: As last seen, by id; kept out of office too.
        term: Of this office; None out of it.
        record: As published, or as found while settling.
        version: Of the last record published in this term; 0 for none.
        found: Order of the record that was taken over, as it was found.
        has_decided: Whether the record is of this office's making.
        until_s: SETTLING: when it is over. PLANNING: when the next attempt is due.
        wish_ids: Of the last wishes of this office; they are not obeyed twice.
        asker_incarnation: Of the node that wished: that start of it has the model's files.
        attempts: That failed since the last success.
        cannot_cut: Nodes that failed to cut the model in this attempt.
        epochs: Seen or given out last, also in earlier offices; never given out again.
        cuts: Who had which layers when the model was last cut for this wish; none before.
        work: In SPLITTING to READY.
        ledger: Who is left out, and whose stages failed.
        upkeep: In READY.
        keeping: Of this wish's model.
        failure: In FAILED.
        tidied_s: When stages that nobody needs were last told to end.
    """

    node_id: NodeId
    state: State = State.OUT
    nodes: dict[NodeId, NodeSeen] = {}
    term: Term | None = None
    record: Deployment | None = None
    version: int = 0
    found: tuple[Term, int] | None = None
    has_decided: bool = False
    until_s: float = 0.0
    wish_ids: tuple[str, ...] = ()
    asker_incarnation: int | None = None
    attempts: int = 0
    cannot_cut: frozenset[NodeId] = frozenset()
    epochs: tuple[int, ...] = ()
    cuts: tuple[StageShare, ...] = ()
    work: Work = Work()
    ledger: Ledger = Ledger()
    upkeep: Upkeep = Upkeep()
    keeping: Keeping = Keeping()
    failure: Failure | None = None
    tidied_s: float = 0.0

    @property
    def wish(self) -> Wish | None:
        """What is to run."""
        return None if self.record is None else self.record.wish

    @property
    def deployment(self) -> Deployment:
        """The record, in a state that has one.

        Raises:
            LocalProtocolError: There is none: a bug of ours.
        """
        if self.record is None:
            raise LocalProtocolError(f"A pool that is {self.state.value} has no record.")
        return self.record

    @property
    def wanted(self) -> Wish:
        """The wish, in a state that has one.

        Raises:
            LocalProtocolError: There is none: a bug of ours.
        """
        if self.wish is None:
            raise LocalProtocolError(f"A pool that is {self.state.value} has no wish.")
        return self.wish

    @property
    def epoch(self) -> int:
        """Of the placement that is being made or runs; 0 for none."""
        return 0 if self.record is None else self.record.epoch

    @property
    def reachable(self) -> tuple[NodeId, ...]:
        """Ids of those that can be given orders, in order."""
        return tuple(sorted(n.node_id for n in self.nodes.values() if n.is_reachable))

    @property
    def chain(self) -> tuple[NodeId, ...]:
        """The nodes that have a stage, each once, the head first."""
        stages = () if self.record is None else self.record.stages
        return tuple(dict.fromkeys(share.node_id for share in stages))

    @property
    def awaited(self) -> tuple[NodeId, ...]:
        """The nodes from which an answer is outstanding."""
        match self.state:
            case State.SPLITTING:
                return () if self.work.splitter is None else (self.work.splitter,)
            case State.LOADING:
                return tuple(node for node in self.chain if node not in self.work.loaded)
            case State.WARMING:
                return self.chain[:1]
            case _:
                return ()

    def name_of(self, node_id: NodeId) -> str:
        """Return what people call a node.

        Args:
            node_id: Whose name; known or not.
        """
        if node_id in self.nodes:
            return self.nodes[node_id].facts.name
        lines = () if self.record is None else self.record.plan
        return next((line.name for line in lines if line.node_id == node_id), node_id)


def remembered(epochs: tuple[int, ...], epoch: int) -> tuple[int, ...]:
    """Return the epochs that are not to be given out again, with one more.

    Args:
        epochs: As they were.
        epoch: The newest.
    """
    return (*epochs, epoch)[-KEPT_EPOCHS:]


def moved(coordination: Coordination, happened: Input, **changes: object) -> Coordination:
    """Return the work after a transition of the table; the record's phase follows it.

    Args:
        coordination: As it was.
        happened: What the table is asked for.
        changes: Of other fields, made along with it.

    Raises:
        LocalProtocolError: The pair is not in the table: a bug of ours.
    """
    state = TRANSITIONS.get((coordination.state, happened))
    if state is None:
        raise LocalProtocolError(
            f"'{happened.value}' can't happen to a pool that is {coordination.state.value}."
        )
    is_decision = state is State.PLANNING or happened is Input.UNWISHED
    after = replace(
        coordination, state=state, has_decided=coordination.has_decided or is_decision, **changes
    )
    if after.record is None or state not in PHASES:
        return after  # nothing was ever wished, or what was found is not ours to change yet
    return replace(after, record=replace(after.record, phase=PHASES[state]))
