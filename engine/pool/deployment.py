"""How the coordinator brings the pool from a wish to ready, and keeps it there.

One record says what is to run and how far it is; every node has a copy of it. This machine alone
changes it. It compares the record with the pool as it is seen, and orders what is missing, until
the two agree. So a new coordinator needs nothing but the newest record, and goes on.

Nothing here reads a clock, a socket or a random source: what happened, the time and the means to
draw an epoch come in as arguments; orders go out. ``docs/deployment.md`` has the table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from engine.errors import ShardCorruptError
from engine.messages.deployment import Deployment
from engine.pool.deployment_attempt import (
    looked_again,
    planned,
    splitter_troubled,
    troubled,
    without_lost,
    without_silent,
    without_stages,
)
from engine.pool.deployment_due import with_orders
from engine.pool.deployment_inputs import (
    Answer,
    Happened,
    Known,
    LeftOffice,
    PoolSeen,
    Progressed,
    SplitEnded,
    StageLoaded,
    StageTrouble,
    Ticked,
    TookOffice,
    WarmEnded,
    Wished,
)
from engine.pool.deployment_plan import is_whole
from engine.pool.deployment_state import (
    HOLDING,
    SETTLE_S,
    Coordination,
    Input,
    Keeping,
    State,
    Upkeep,
    Work,
    moved,
    remembered,
)
from engine.pool.deployment_troubles import (
    Ledger,
    away,
    cannot_cut,
    unlinked,
    without_restarted,
)
from engine.pool.deployment_upkeep import kept_up

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.domain import NodeId
    from engine.messages.deployment import Trouble
    from engine.pool.deployment_orders import Order

KEPT_WISHES = 16  # ids of wishes that are not obeyed twice


def begin(node_id: NodeId) -> Coordination:
    """Return the work of a node that is not in office.

    Args:
        node_id: This node's.
    """
    return Coordination(node_id=node_id)


def step(
    coordination: Coordination, happened: Happened, now_s: float, draw: Callable[[], int]
) -> tuple[Coordination, list[Order]]:
    """Return the work after something happened, and what is to be done, in this order.

    Args:
        coordination: As it was.
        happened: What happened.
        now_s: Monotonic; at least as late as at the step before.
        draw: A random number of 31 bits, for an epoch.
    """
    after = _taken(coordination, happened, now_s)
    if after.state is State.SETTLING:
        after = _settled(after, now_s)
    after = looked_again(after, now_s)
    after = _counted(after, now_s)
    after = without_silent(after, now_s)
    after = kept_up(after, now_s)
    if after.state is State.PLANNING and now_s >= after.until_s:
        after = planned(after, now_s, draw)
    return with_orders(coordination, after, now_s)


def _taken(coordination: Coordination, happened: Happened, now_s: float) -> Coordination:
    match happened:
        case TookOffice():
            return _took_office(coordination, happened, now_s)
        case LeftOffice():
            return _afresh(coordination)
        case PoolSeen():
            return _seen(coordination, happened, now_s)
        case _:
            return (
                coordination if coordination.term is None else _told(coordination, happened, now_s)
            )


def _told(
    coordination: Coordination,
    happened: Known | Wished | Progressed | Ticked | Answer,
    now_s: float,
) -> Coordination:
    match happened:
        case Known():
            return _known(coordination, happened.record, now_s)
        case Wished():
            return _wished(coordination, happened, now_s)
        case Progressed():
            return _progressed(coordination, happened, now_s)
        case Ticked():
            return coordination
        case _:
            is_to_this = happened.epoch == coordination.epoch
            return _answered(coordination, happened, now_s) if is_to_this else coordination


# ---- taking over -----------------------------------------------------------------------------


def _afresh(coordination: Coordination) -> Coordination:
    """Forget an office; who is there stays known, and which epochs may not be given out again."""
    anew = begin(coordination.node_id)
    return replace(anew, nodes=coordination.nodes, epochs=coordination.epochs)


def _took_office(coordination: Coordination, office: TookOffice, now_s: float) -> Coordination:
    record = office.record
    if record is not None and record.term > office.term:
        record = None
    is_own = record is not None and record.term == office.term
    return moved(
        _afresh(coordination),
        Input.TOOK_OFFICE,
        term=office.term,
        record=record,
        found=None if record is None else record.order,
        version=record.version if record is not None and is_own else 0,
        until_s=now_s + SETTLE_S,
    )


def _known(coordination: Coordination, record: Deployment, now_s: float) -> Coordination:
    """Take over a newer record, unless this office has decided something itself."""
    found, term = coordination.found, coordination.term
    if term is None or record.term >= term or (found is not None and record.order <= found):
        return coordination
    newer = replace(coordination, record=record, found=record.order)
    if coordination.state is State.SETTLING:
        return newer
    if coordination.has_decided:
        return coordination
    return moved(newer, Input.NEWER_KNOWN, until_s=now_s)


def _settled(coordination: Coordination, now_s: float) -> Coordination:
    """Go on from the newest record, once the nodes had time to tell theirs."""
    record, nodes = coordination.record, coordination.nodes
    if now_s < coordination.until_s or not nodes:
        return coordination
    epochs = remembered(coordination.epochs, coordination.epoch)
    is_cut = record is not None and record.manifest_sha256 is not None and is_whole(record)
    cuts = record.stages if record is not None and is_cut else ()
    settled = replace(coordination, tidied_s=now_s, epochs=epochs, cuts=cuts)
    if record is None or record.wish is None:
        blank = None if record is None else _unloaded(record)
        return moved(settled, Input.NOTHING_FOUND, record=blank)
    trouble = None
    if record.phase == "ready" and is_whole(record):
        trouble = _why_not_running(coordination, record)
        if trouble is None:
            return moved(
                settled,
                Input.RUNNING_FOUND,
                work=_work_of(coordination, now_s),
                upkeep=_upkeep_from(now_s),
            )
    return moved(
        settled, Input.UNFINISHED_FOUND, record=without_stages(record, trouble), until_s=now_s
    )


def _why_not_running(coordination: Coordination, record: Deployment) -> Trouble | None:
    """Return what keeps a placement that was ready from going on; None if it runs."""
    for node_id in coordination.chain:
        node = coordination.nodes.get(node_id)
        if node is None or not node.is_reachable or node.epoch != record.epoch:
            return away(coordination.name_of(node_id), node)
    return None


def _unloaded(record: Deployment) -> Deployment:
    return Deployment(term=record.term, version=record.version, phase="unloaded")


def _work_of(coordination: Coordination, now_s: float) -> Work:
    nodes = coordination.nodes
    return Work(
        incarnations={node_id: nodes[node_id].incarnation for node_id in coordination.chain},
        progress_s=now_s,
    )


def _upkeep_from(now_s: float) -> Upkeep:
    return Upkeep(ready_s=now_s, lines_s=now_s, replan_s=now_s)


# ---- what is wished, and who is there --------------------------------------------------------


def _wished(coordination: Coordination, wished: Wished, now_s: float) -> Coordination:
    current, term = coordination.wish, coordination.term
    if term is None or coordination.state is State.SETTLING:
        return coordination  # it is repeated
    is_current = current is not None and current.wish_id == wished.wish_id
    if is_current or wished.wish_id in coordination.wish_ids:
        return coordination
    is_unloaded = coordination.record is not None and current is None
    if wished.wish is None and is_unloaded:
        return coordination
    blank = Deployment(term=term, version=coordination.version, phase="unloaded")
    anew = replace(
        coordination,
        record=replace(blank, wish=wished.wish),
        wish_ids=(*coordination.wish_ids, wished.wish_id)[-KEPT_WISHES:],
        attempts=0,
        cannot_cut=frozenset(),
        cuts=(),
        ledger=Ledger(),
        keeping=Keeping(heard_s=coordination.keeping.heard_s),
        failure=None,
    )
    if wished.wish is None:
        return moved(anew, Input.UNWISHED)
    asker = coordination.nodes.get(wished.wish.asked_on)
    incarnation = None if asker is None else asker.incarnation
    return moved(anew, Input.WISHED, asker_incarnation=incarnation, until_s=now_s)


def _seen(coordination: Coordination, seen: PoolSeen, now_s: float) -> Coordination:
    nodes = {node.node_id: node for node in seen.nodes}
    after = replace(coordination, nodes=nodes, ledger=without_restarted(coordination.ledger, nodes))
    return without_lost(after, now_s) if after.state in HOLDING else after


# ---- what nodes answer -----------------------------------------------------------------------


def _answered(coordination: Coordination, answer: Answer, now_s: float) -> Coordination:
    """Take an answer of this epoch, if it is to what is under way now."""
    is_awaited = answer.node_id in coordination.awaited
    match coordination.state, answer:
        case State.SPLITTING, SplitEnded() if is_awaited:
            return _cut(coordination, answer, now_s)
        case State.LOADING, StageLoaded() if is_awaited:
            loaded = coordination.work.loaded | {answer.node_id}
            work = replace(coordination.work, loaded=loaded, progress_s=now_s)
            return replace(coordination, work=work)
        case State.WARMING, WarmEnded() if is_awaited:
            return _warmed(coordination, answer, now_s)
        case ((State.LOADING | State.WARMING | State.READY), StageTrouble()) if (
            answer.node_id in coordination.chain
        ):
            at_fault = answer.node_id if _is_at_fault(coordination, answer) else None
            trouble = answer.trouble
            if coordination.state is State.READY:
                trouble = unlinked(coordination.name_of(answer.node_id), trouble)
            return troubled(coordination, trouble, now_s, at_fault)
        case _:
            return coordination


def _is_at_fault(coordination: Coordination, answer: StageTrouble) -> bool:
    """Return whether a trouble is of that node's own: not if whoever has the shards is gone."""
    source = coordination.work.splitter
    is_source_there = source is None or source in coordination.reachable
    return is_source_there or answer.trouble.code != ShardCorruptError.code


def _cut(coordination: Coordination, answer: SplitEnded, now_s: float) -> Coordination:
    if answer.manifest_sha256 is None:
        trouble = answer.trouble or cannot_cut(coordination.name_of(answer.node_id))
        return splitter_troubled(coordination, trouble, now_s)
    return moved(
        coordination,
        Input.CUT,
        record=replace(coordination.deployment, manifest_sha256=answer.manifest_sha256),
        cannot_cut=frozenset(),
        cuts=coordination.deployment.stages,
        work=replace(_work_of(coordination, now_s), splitter=answer.node_id),
    )


def _counted(coordination: Coordination, now_s: float) -> Coordination:
    """Go on when every stage is loaded: its node has answered, or says of itself that it is."""
    if coordination.state is not State.LOADING:
        return coordination
    nodes, epoch = coordination.nodes, coordination.epoch
    say_so = {node_id for node_id in coordination.chain if nodes[node_id].epoch == epoch}
    loaded = coordination.work.loaded | say_so
    work = replace(coordination.work, loaded=loaded)
    if loaded < set(coordination.chain):
        return replace(coordination, work=work)
    return moved(coordination, Input.LOADED, work=replace(work, heard_s={}, progress_s=now_s))


def _warmed(coordination: Coordination, answer: WarmEnded, now_s: float) -> Coordination:
    if answer.trouble is not None:
        # It doesn't say whose stage was at fault; the head tells that apart, where it knows.
        return troubled(coordination, answer.trouble, now_s)
    return moved(
        coordination,
        Input.WARMED,
        record=replace(coordination.deployment, trouble=None),
        attempts=0,
        upkeep=_upkeep_from(now_s),
    )


def _progressed(coordination: Coordination, progress: Progressed, now_s: float) -> Coordination:
    node_id, work, keeping = progress.node_id, coordination.work, coordination.keeping
    if progress.epoch == 0 and node_id == keeping.node_id:
        return replace(coordination, keeping=replace(keeping, heard_s=now_s))
    if progress.epoch == 0 or progress.epoch != coordination.epoch:
        return coordination
    if node_id not in work.incarnations:
        return coordination
    heard_s = work.heard_s | {node_id: now_s} if node_id in work.heard_s else work.heard_s
    return replace(coordination, work=replace(work, heard_s=heard_s, progress_s=now_s))
