"""The demo's memory limit divides any model between two, and its figures say everything."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.cli.answering import Answer
from engine.cli.demo_figures import Figures, figure_lines
from engine.cli.demo_memory import memory_cap
from engine.domain import LayerRange
from engine.errors import PlacementError
from engine.messages.control import Finished
from engine.pool.placement import plan_placement
from engine.pool.plan import NodeFacts
from engine.pool.stage_memory import Workload, stage_memory
from tests.unit.cli.records import GIB, KITCHEN, LAPTOP, STUDY, model

EXACT = Workload(context_tokens=256, kv_precision="f32")


@given(st.integers(2, 40), st.integers(1, 300_000_000))
def test_one_node_can_not_hold_the_model_and_any_two_can(num_layers, layer_bytes):
    """So the pool divides it, and can do so again when one of three is lost."""
    whole = model(num_layers=num_layers, layer_bytes=layer_bytes)
    cap = memory_cap(whole, EXACT)
    assert cap < stage_memory(whole, EXACT, LayerRange(0, num_layers)).total_bytes
    for pair in ((KITCHEN, STUDY), (STUDY, LAPTOP), (KITCHEN, STUDY, LAPTOP)):
        nodes = [
            NodeFacts(node_id=n, name=n, total_bytes=64 * GIB, free_bytes=60 * GIB, cap_bytes=cap)
            for n in pair
        ]
        assert len(plan_placement(whole, EXACT, nodes).stages) == 2


def test_a_model_of_one_layer_is_refused():
    with pytest.raises(PlacementError, match="Small has one layer"):
        memory_cap(model(num_layers=1), EXACT)


def ended(tokens, decode_s, pauses_s=()):
    end = Finished(
        request_id="x",
        finish_reason="length",
        prompt_tokens=5,
        completion_tokens=tokens,
        ttft_s=0.123,
        decode_s=decode_s,
        chain_compute_ms=1.0,
    )
    return Answer(pauses_s=list(pauses_s), end=end)


def test_the_figures_are_said_one_by_one():
    figures = Figures(
        discovery_s=1.2,
        election_s=3.4,
        load_s=20.0,
        phases_s={"split": 4.0, "push": 1.5},
        layers_before={"Kitchen": "0..14", "Study": "15..29", "Laptop": "-"},
        layers_after={"Kitchen": "0..14", "Laptop": "15..29"},
    )
    figures.take_answers(ended(11, 2.0), ended(11, 8.0, [3.2]))
    assert figure_lines(figures) == [
        "",
        "all nodes see each other      1.2 s         by mDNS",
        "coordinator agreed on         3.4 s         since the last node started",
        "model ready                   20 s          split 4.0 s, push 1.5 s",
        "time to first token           0.12, 0.12 s  of the two answers",
        "tokens per second             5.0, 1.2      the pause counts",
        "pause when a node was killed  3.2 s",
        "",
        "node     layers before  layers after",
        "Kitchen  0..14          0..14",
        "Study    15..29         killed",
        "Laptop   -              15..29",
    ]
    event = figures.as_event()
    assert event["pauses_s"] == [3.2]
    assert event["tokens_per_s"] == [5.0, 1.25]


def test_an_answer_of_one_token_has_no_rate():
    figures = Figures()
    figures.take_answers(ended(1, 0.0), ended(1, 0.0))
    assert figures.tokens_per_s == [None, None]
    assert "-, -" in "\n".join(figure_lines(figures))
