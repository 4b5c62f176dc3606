"""What the tray tells, from what is known of node and pool; pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from app.pool.ring import BUSY_PHASES, ring_of

if TYPE_CHECKING:
    from app.pool.ring import PcFacts, Ring
    from engine.messages.pool_status import PoolStatus

Heart = Literal["idle", "serving", "answering", "transferring", "paused", "problem"]
PetalKind = Literal["ready", "present", "missing"]
NodeWord = Literal["running", "starting", "absent", "slow", "refusing", "failed"]

MAX_PETALS = 8
_DEAD: frozenset[NodeWord] = frozenset({"absent", "failed", "refusing"})
_ORDER: dict[PetalKind, int] = {"ready": 0, "present": 1, "missing": 2}


@dataclass(frozen=True, slots=True)
class TrayState:
    """What icon and tooltip show.

    Attributes:
        petals: One a PC, up to eight; none before the pool was seen.
        heart: What goes on.
        sentence: Key of the tooltip's sentence.
        values: Of its fields.
    """

    petals: tuple[PetalKind, ...]
    heart: Heart
    sentence: str
    values: dict[str, object] = field(default_factory=dict)


def tray_state(
    node: NodeWord,
    status: PoolStatus | None,
    *,
    is_answering: bool = False,
    tokens_per_s: float | None = None,
    is_paused: bool = False,
) -> TrayState:
    """Return what the tray tells.

    Args:
        node: How this PC's node is.
        status: The pool as that node told it; None before, and while it is silent.
        is_answering: An answer for this PC's person is under way.
        tokens_per_s: Of that answer; None before it is known.
        is_paused: The person has paused lending.
    """
    if status is None or node in _DEAD:
        return _without_pool(node)
    ring = ring_of(status)
    petals = _petals(ring)
    if ring.phase == "failed":
        return TrayState(petals, "problem", "tray.tip_failed", {"model": ring.model_name})
    if is_paused:
        return TrayState(petals, "paused", "tray.tip_paused")
    if is_answering:
        return _answering(petals, ring, tokens_per_s)
    if ring.phase in BUSY_PHASES or _is_transferring(status):
        model = ring.model_name or _detail(status)
        return TrayState(petals, "transferring", _busy_sentence(ring, model), {"model": model})
    return _calm(petals, ring)


def _without_pool(node: NodeWord) -> TrayState:
    if node in _DEAD or node == "slow":
        return TrayState((), "problem", f"tray.tip_node_{node}")
    return TrayState((), "idle", "tray.tip_starting")


def _calm(petals: tuple[PetalKind, ...], ring: Ring) -> TrayState:
    """Return what is told while nothing of this person's is under way."""
    if not ring.is_running:
        here = sum(kind != "missing" for kind in petals)
        return TrayState(petals, "idle", "tray.tip_no_model", {"n": here})
    if any(pc.active_requests and pc.is_loaded for pc in ring.petals if pc.is_here):
        return TrayState(petals, "serving", "tray.tip_serving", {"model": ring.model_name})
    ready = sum(kind == "ready" for kind in petals)
    values: dict[str, object] = {"n": ready, "model": ring.model_name}
    if ring.forecast is None:
        return TrayState(petals, "idle", "tray.tip_ready", values)
    values["rate"] = _rate(ring.forecast)
    return TrayState(petals, "idle", "tray.tip_ready_rate", values)


def _answering(petals: tuple[PetalKind, ...], ring: Ring, tokens_per_s: float | None) -> TrayState:
    if tokens_per_s is None:
        return TrayState(petals, "answering", "tray.tip_answering", {"model": ring.model_name})
    values: dict[str, object] = {"model": ring.model_name, "rate": _rate(tokens_per_s)}
    return TrayState(petals, "answering", "tray.tip_answering_rate", values)


def _petals(ring: Ring) -> tuple[PetalKind, ...]:
    """Return a kind for each PC, in their order; of too many the ones that do most."""
    kinds = [_kind(pc) for pc in ring.pcs]
    if len(kinds) > MAX_PETALS:
        kinds = sorted(kinds, key=_ORDER.__getitem__)[:MAX_PETALS]
    return tuple(kinds)


def _kind(pc: PcFacts) -> PetalKind:
    if pc.state not in {"online", "silent"}:
        return "missing"
    return "ready" if pc.is_loaded else "present"


def _is_transferring(status: PoolStatus) -> bool:
    return any(0 <= step.done < step.total or step.total == 0 for step in status.progress)


def _detail(status: PoolStatus) -> str:
    return next((step.detail for step in status.progress if step.detail), "")


def _busy_sentence(ring: Ring, model: str) -> str:
    if ring.phase in BUSY_PHASES:
        return f"tray.tip_{ring.phase}"
    return "tray.tip_copying" if model else "tray.tip_copying_unnamed"


def _rate(tokens_per_s: float) -> str:
    return f"{tokens_per_s:.1f}" if tokens_per_s < 10 else f"{tokens_per_s:.0f}"
