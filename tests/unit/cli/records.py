"""Records, reports and pools as a node would send them."""

from __future__ import annotations

from engine.domain import LayerRange, ModelDescription, NodeId
from engine.messages.deployment import (
    Deployment,
    NodeProgress,
    PlanLine,
    StageShare,
    Trouble,
    Wish,
)
from engine.messages.pool import NodeReport, Term
from engine.messages.pool_control import DeploymentReport
from engine.messages.pool_status import NodeStatus, PoolStatus

GIB = 1 << 30
KITCHEN, STUDY, LAPTOP = NodeId("aaaaaa1"), NodeId("bbbbbb2"), NodeId("cccccc3")
NAMES = {KITCHEN: "Kitchen", STUDY: "Study", LAPTOP: "Laptop"}
WISH_ID = "0123456789abcdef"
NO_ROOM = Trouble("insufficient_memory", "The model needs 9 bytes too many.", "Add a PC.")


def model(name="Small", num_layers=4, layer_bytes=100_000_000):
    return ModelDescription(
        name=name,
        architecture="llama",
        num_layers=num_layers,
        hidden_size=64,
        num_kv_heads=(2,) * num_layers,
        head_size=(16,) * num_layers,
        value_head_size=(16,) * num_layers,
        vocab_size=1000,
        context_length=512,
        weight_precision="u4",
        layer_bytes=(layer_bytes,) * num_layers,
        embedding_bytes=1_000_000,
        head_bytes=1_000_000,
        eos_token_ids=(2,),
    )


def wish(wish_id=WISH_ID, name="Small"):
    return Wish(
        wish_id=wish_id,
        asked_on=KITCHEN,
        model_sha256="ab" * 32,
        model=model(name),
        context_tokens=512,
        max_sequences=1,
    )


PLAN = (
    PlanLine(
        node_id=KITCHEN,
        name="Kitchen",
        role="stage",
        layers=LayerRange(0, 2),
        usable_bytes=6 * GIB,
        needed_bytes=4 * GIB,
        reason="It has room for these layers.",
        remedy="",
    ),
    PlanLine(
        node_id=STUDY,
        name="Study",
        role="stage",
        layers=LayerRange(2, 4),
        usable_bytes=12 * GIB,
        needed_bytes=4 * GIB,
        reason="It has room for these layers.",
        remedy="",
    ),
    PlanLine(
        node_id=LAPTOP,
        name="Laptop",
        role="left out",
        layers=None,
        usable_bytes=GIB // 2,
        needed_bytes=0,
        reason="It may give 0.5 GiB.",
        remedy="Raise its memory limit by 1.0 GiB.",
    ),
)
STAGES = (StageShare(KITCHEN, LayerRange(0, 2)), StageShare(STUDY, LayerRange(2, 4)))


def record(phase, *, version=1, epoch=7, trouble=None, has_plan=True, **fields):
    fields = {"wish": wish(), "reason": "These are the fewest that hold it.", **fields}
    return Deployment(
        term=Term(1, KITCHEN, 5),
        version=version,
        phase=phase,
        epoch=epoch,
        stages=STAGES if has_plan else (),
        plan=PLAN if has_plan else (),
        trouble=trouble,
        **fields,
    )


def nothing_to_run(version=9):
    return Deployment(term=Term(1, KITCHEN, 5), version=version, phase="unloaded")


def progress(node, step, done, total=100, unit="bytes", *, epoch=7, **fields):
    return NodeProgress(
        node_id=node, epoch=epoch, step=step, done=done, total=total, unit=unit, **fields
    )


def report(deployment=None, *steps, trouble=None, wish_id=WISH_ID):
    return DeploymentReport(deployment=deployment, progress=steps, trouble=trouble, wish_id=wish_id)


def node_report(node, **fields):
    return NodeReport(**{
        "node_id": node,
        "name": NAMES.get(node, "?"),
        "memory_total_bytes": 16 * GIB,
        "memory_free_bytes": 9 * GIB,
        "memory_cap_bytes": None,
        "memory_lent_bytes": 0,
        "devices": ("CPU",),
        "uptime_s": 100.0,
        "layers": None,
        "model": None,
        **fields,
    })


def node_status(node, *, own=None, **fields):
    return NodeStatus(**{
        "node_id": node,
        "is_asked": node == KITCHEN,
        "is_coordinator": node == STUDY,
        "state": "online",
        "hears_us": True,
        "heard_ago_s": 0.2,
        "addresses": ("192.0.2.1:7777",),
        "round_trip_ms": None if node == KITCHEN else 0.84,
        "hears": (),
        "report": node_report(node) if own is None else own,
        "notes": (),
        "memory_reserved_bytes": 2 * GIB,
        **fields,
    })


def pool_status(*nodes, **fields):
    return PoolStatus(**{
        "coordinator": STUDY,
        "term": "1/bbbbbb2",
        "coordinator_since_s": 200.0,
        "nodes": nodes or tuple(map(node_status, NAMES)),
        "notes": (),
        **fields,
    })
