"""Pools as a node would tell of them."""

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
from engine.messages.doctor_control import (
    AdapterTried,
    DevicesTried,
    DeviceTried,
    FirewallSeen,
    NetworkTried,
)
from engine.messages.pool import Neighbour, NodeReport, Term
from engine.messages.pool_status import AdapterStatus, NodeStatus, PoolStatus

GIB = 1024**3
DESK, LAPTOP, ATTIC, OLD = (NodeId(letter * 20) for letter in "abcd")
NAMES = {DESK: "DESK", LAPTOP: "LAPTOP", ATTIC: "书房的电脑", OLD: "OLD-PC"}
EPOCH = 77
WISH_ID = "wish"
NETWORK_TRIED = NetworkTried(
    adapters=(AdapterTried(name="eth0", address="192.0.2.97", heard_ms=None),),
    firewall=FirewallSeen(kind="ufw", is_on=True),
    port=7420,
)
DEVICES_TRIED = DevicesTried(
    devices=(
        DeviceTried(name="CPU", full_name="Intel Core Ultra 7", load_s=0.5, token_ms=1.5),
        DeviceTried(
            name="NPU",
            full_name="Intel AI Boost",
            trouble=Trouble("compile", "NPU can't compile it.", "Update its driver."),
        ),
    )
)


def model(num_layers=40, *, name="Qwen3 14B", layer_bytes=180_000_000, head_bytes=800_000_000):
    return ModelDescription(
        name=name,
        architecture="qwen3",
        num_layers=num_layers,
        hidden_size=5120,
        num_kv_heads=(8,) * num_layers,
        head_size=(128,) * num_layers,
        value_head_size=(128,) * num_layers,
        vocab_size=151_936,
        context_length=32_768,
        weight_precision="u4",
        layer_bytes=(layer_bytes,) * num_layers,
        embedding_bytes=head_bytes,
        head_bytes=head_bytes,
        eos_token_ids=(1,),
    )


def wish(**fields):
    return Wish(**{
        "wish_id": WISH_ID,
        "asked_on": DESK,
        "model_sha256": "e" * 64,
        "model": model(),
        "context_tokens": 8192,
        "max_sequences": 4,
        **fields,
    })


def report(node_id, **fields):
    return NodeReport(**{
        "node_id": node_id,
        "name": NAMES.get(node_id, f"PC {node_id[:3]}"),
        "memory_total_bytes": 16 * GIB,
        "memory_free_bytes": 9 * GIB,
        "memory_cap_bytes": None,
        "memory_lent_bytes": 0,
        "devices": ("CPU",),
        "uptime_s": 100.0,
        "layers": None,
        "model": None,
        "link_kind": "wired",
        **fields,
    })


def node(node_id, own=None, **fields):
    return NodeStatus(**{
        "node_id": node_id,
        "is_asked": node_id == DESK,
        "is_coordinator": node_id == LAPTOP,
        "state": "online",
        "hears_us": True,
        "heard_ago_s": 0.2,
        "addresses": (f"192.0.2.{ord(node_id[0]) % 250}:7420",),
        "round_trip_ms": None,
        "hears": (),
        "report": report(node_id) if own is None else own,
        "notes": (),
        "memory_reserved_bytes": GIB // 2,
        **fields,
    })


def pool(*nodes, **fields):
    return PoolStatus(**{
        "coordinator": LAPTOP,
        "term": "1/bbbbbb",
        "coordinator_since_s": 200.0,
        "nodes": nodes,
        "notes": (),
        "adapters": (
            AdapterStatus(name="eth0", addresses=("192.0.2.97",), is_used=True, link="wired"),
            AdapterStatus(
                name="docker0",
                addresses=("172.17.0.1",),
                is_used=False,
                reason="It belongs to containers.",
            ),
        ),
        **fields,
    })


def hearing_all(*nodes):
    """Return nodes that all hear each other."""
    ids = [one.node_id for one in nodes]
    return tuple(
        type(one)(**{
            **{name: getattr(one, name) for name in one.__struct_fields__},
            "hears": tuple(other for other in ids if other != one.node_id),
        })
        for one in nodes
    )


def line(node_id, role="stage", layers=None, **fields):
    return PlanLine(**{
        "node_id": node_id,
        "name": NAMES.get(node_id, ""),
        "role": role,
        "layers": layers,
        "usable_bytes": 8 * GIB,
        "needed_bytes": 6 * GIB if layers else 0,
        "reason": "It has room for these layers.",
        "remedy": "",
        **fields,
    })


def deployment(phase="ready", shares=((DESK, 0, 22), (LAPTOP, 22, 40)), **fields):
    stages = tuple(StageShare(node_id, LayerRange(a, b)) for node_id, a, b in shares)
    return Deployment(**{
        "term": Term(1, LAPTOP, 5),
        "version": 3,
        "phase": phase,
        "wish": wish(),
        "epoch": EPOCH,
        "manifest_sha256": "f" * 64,
        "stages": stages,
        "plan": tuple(line(share.node_id, layers=share.layers) for share in stages),
        "reason": "No PC holds the model alone; these are the fewest that do.",
        **fields,
    })


def loaded(node_id, start, stop, layer_ms=1.6, **fields):
    """Return the report of a PC that holds layers."""
    return report(
        node_id,
        layers=LayerRange(start, stop),
        model="Qwen3 14B",
        epoch=EPOCH,
        layer_ms=layer_ms,
        memory_lent_bytes=5 * GIB,
        memory_free_bytes=5 * GIB,
        **fields,
    )


def three_pcs(phase="ready", **fields):
    """Return a pool of two that answer, and one too small."""
    desk = node(
        DESK,
        loaded(DESK, 0, 22, neighbours=(Neighbour(LAPTOP, "192.0.2.98:7420", 0.8),)),
    )
    laptop = node(
        LAPTOP,
        loaded(LAPTOP, 22, 40, 2.4, link_kind="wireless", on_battery=True),
        round_trip_ms=0.8,
    )
    old = node(OLD, report(OLD, memory_total_bytes=4 * GIB, memory_free_bytes=GIB))
    record = deployment(phase)
    left_out = line(
        OLD,
        "left out",
        usable_bytes=GIB // 2,
        reason="It may give 0.5 GiB, and the smallest stage of this model needs 1.4 GiB.",
        remedy="Close programs there that hold 0.9 GiB.",
    )
    record = type(record)(**{
        **{name: getattr(record, name) for name in record.__struct_fields__},
        "plan": (*record.plan, left_out),
    })
    nodes = hearing_all(desk, laptop, old)
    return pool(*nodes, deployment=record, **fields)


def progress(node_id, step, done, total=100, unit="bytes", *, epoch=EPOCH, **fields):
    return NodeProgress(
        node_id=node_id, epoch=epoch, step=step, done=done, total=total, unit=unit, **fields
    )


def trouble(code="storage", what="The disk of DESK is full.", advice="Free 4 GB there."):
    return Trouble(code, what, advice)
