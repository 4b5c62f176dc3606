"""A node finds itself in a placement once, or at both ends of it."""

from __future__ import annotations

import pytest

from engine.domain import LayerRange, NodeId
from engine.errors import PlacementError
from engine.messages.chain import Placement, StagePlace, own_places


def placement(nodes, indexes=None):
    return Placement(
        epoch=3,
        manifest_sha256="0" * 64,
        context_tokens=8,
        max_sequences=1,
        stages=tuple(
            StagePlace(node_id=NodeId(n), address="", stage_index=i, layers=LayerRange(i, i + 1))
            for i, n in zip(indexes or range(len(nodes)), nodes, strict=True)
        ),
    )


@pytest.mark.parametrize(
    ("nodes", "indexes"), [("a", [0]), ("ba", [1]), ("aba", [0, 2]), ("abca", [0, 3])]
)
def test_a_node_has_one_stage_or_the_first_and_the_last(nodes, indexes):
    assert [place.stage_index for place in own_places(placement(nodes), NodeId("a"))] == indexes


@pytest.mark.parametrize("nodes", ["aa", "aab", "baa", "baab", "ababa", "aaa", "bacab"])
def test_any_other_division_with_two_stages_is_refused(nodes):
    with pytest.raises(PlacementError, match=r"gives this PC [23] stages"):
        own_places(placement(nodes), NodeId("a"))


def test_a_placement_without_the_node_is_none_of_its_business():
    with pytest.raises(PlacementError, match="not part"):
        own_places(placement("bc"), NodeId("a"))


def test_stages_out_of_order_are_refused():
    with pytest.raises(PlacementError, match="in order"):
        own_places(placement("ab", [1, 0]), NodeId("a"))
