"""What a coordinator orders is what was wished for, on every line of the placement."""

from __future__ import annotations

from engine.domain import LayerRange, NodeId
from engine.messages.codec import decode, encode_control
from engine.messages.deployment import Deployment, StageShare
from engine.messages.pool import Stamp
from engine.pool.coordination import placement_of
from tests.unit.pool.coordinator import term, wish


def test_every_line_of_a_placement_says_how_its_stage_runs_and_what_it_sends():
    record = Deployment(
        term=term(1),
        version=1,
        phase="loading",
        epoch=101,
        wish=wish(kind="stateful", link_precision="int8", max_sequences=3, speculate=False),
        manifest_sha256="ab" * 32,
        stages=tuple(
            StageShare(NodeId(name), LayerRange(start, start + 2))
            for name, start in (("a", 0), ("b", 2), ("c", 4))
        ),
    )
    stamp = Stamp(pool_id="home", term=term(1), sender=NodeId("a"))
    where = {"a": "wss://192.0.2.1:7420", "b": "wss://192.0.2.2:7420"}
    placed = placement_of(record, stamp, where.get)
    assert decode(encode_control(placed)) == placed
    assert (placed.epoch, placed.context_tokens, placed.max_sequences) == (101, 32, 3)
    assert placed.stamp == stamp
    assert not placed.speculate
    assert [place.address for place in placed.stages] == [*where.values(), ""]
    assert [(p.node_id, p.stage_index, p.layers.start) for p in placed.stages] == [
        ("a", 0, 0),
        ("b", 1, 2),
        ("c", 2, 4),
    ]
    for place in placed.stages:
        assert (place.kind, place.mode, place.link_precision) == ("stateful", "fast", "int8")
