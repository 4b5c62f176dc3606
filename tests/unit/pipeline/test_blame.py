"""What an asker is told of a chain that broke: the PC's name, and no address."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from engine.domain import LayerRange, NodeId
from engine.errors import (
    DaisyError,
    InferenceError,
    PeerUnreachableError,
    PipelineBrokenError,
)
from engine.messages.deployment import Deployment, PlanLine, StageShare, Trouble
from engine.messages.pool import Term
from engine.pipeline.blame import blamed, why_interrupted


def line(node_id: str, name: str) -> PlanLine:
    return PlanLine(
        node_id=NodeId(node_id),
        name=name,
        role="stage",
        layers=None,
        usable_bytes=0,
        needed_bytes=0,
        reason="",
        remedy="",
    )


TRIED = Deployment(
    term=Term(1, NodeId("a"), 1),
    version=1,
    phase="ready",
    epoch=7,
    stages=(
        StageShare(NodeId("a"), LayerRange(0, 2)),
        StageShare(NodeId("g"), LayerRange(2, 4)),
    ),
    plan=(line("a", "Alpha"), line("g", "Gamma")),
)
RESET = PeerUnreachableError("ws://10.0.0.7:7420: The connection was lost.")
SECOND = PeerUnreachableError(blamed(1, RESET.what))
ANEW = PipelineBrokenError("The PCs were given other parts of the model, or none.")


def moved_on(code: str, what: str) -> Deployment:
    return replace(TRIED, version=2, epoch=0, stages=(), trouble=Trouble(code, what, "Look."))


@pytest.mark.parametrize(
    ("error", "present", "told"),
    [
        (SECOND, TRIED, "Gamma can't be reached."),
        (SECOND, None, "Gamma can't be reached."),
        (RESET, TRIED, "Alpha can't be reached."),  # the way to the head itself
        (SECOND, moved_on("peer_unreachable", "Gamma was ended."), "Gamma was ended."),
        (ANEW, moved_on("peer_unreachable", "Gamma was ended."), "Gamma was ended."),
        (ANEW, replace(TRIED, epoch=8), ANEW.what),
        (SECOND, moved_on("peer_unreachable", SECOND.what), "Gamma can't be reached."),
        (SECOND, moved_on("golden_step", "Something else."), "Gamma can't be reached."),
        (InferenceError(blamed(1, "A NaN came out.")), TRIED, "Gamma: A NaN came out."),
        (InferenceError("A NaN came out."), TRIED, "A NaN came out."),
    ],
)
def test_the_pc_is_named(error: DaisyError, present: Deployment | None, told: str) -> None:
    assert why_interrupted(error, TRIED, present) == told


def test_without_a_name_no_address_is_told_either() -> None:
    nameless = replace(TRIED, plan=())
    assert why_interrupted(SECOND, nameless, None) == (
        "A PC that held part of the model can't be reached."
    )
    far = PeerUnreachableError(blamed(9, RESET.what))
    assert "ws://" not in why_interrupted(far, TRIED, None)
