"""The engine's sentences about a plan are all known: each is said in Chinese with its numbers."""

import pytest

from app.places import WORDING
from app.pool.reasons import in_words
from app.wording.wording import Wording
from engine.domain import NodeId
from engine.pool.chain_choice import Wishes
from engine.pool.placement import plan_placement
from engine.pool.plan import NodeFacts
from engine.pool.stage_memory import Workload
from tests.app.pools import GIB, model

SMALL = NodeId("small")


def facts(name, free_gib, *, cap_gib=None, devices=("CPU",), layer_ms=None):
    return NodeFacts(
        node_id=NodeId(name),
        name=name,
        total_bytes=64 * GIB,
        free_bytes=int(free_gib * GIB),
        cap_bytes=None if cap_gib is None else int(cap_gib * GIB),
        devices=devices,
        layer_ms=layer_ms,
    )


def sentences():
    """Return what the engine really says of some pools."""
    one = plan_placement(model(), Workload(context_tokens=2048), [facts("a", 60), facts("b", 40)])
    several = plan_placement(
        model(),
        Workload(context_tokens=2048),
        [
            facts("a", 14),
            facts("b", 14),
            facts("c", 0.3),
            facts("d", 9, cap_gib=0.2),
            facts("e", 14, devices=()),
        ],
    )
    private = plan_placement(
        model(),
        Workload(context_tokens=2048),
        [facts("a", 14), facts("b", 24)],
        Wishes(is_private=True, asker=NodeId("a")),
    )
    plans = (one, several, private)
    told = {plan.reason for plan in plans}
    for plan in plans:
        for row in plan.rows:
            told.add(f"{row.reason} {row.remedy}".strip())
    return sorted(told)


@pytest.mark.parametrize("sentence", sentences())
def test_every_sentence_of_the_planner_has_its_chinese(sentence):
    said = in_words(Wording(WORDING, "zh"), sentence)

    assert said != sentence
    assert not any("a" <= char.lower() <= "z" for char in said.replace("GiB", ""))
    for number in [part for part in sentence.split() if part[0].isdigit()]:
        assert number in said


def test_english_stays_as_the_engine_says_it():
    sentence = "It has room for these layers."

    assert in_words(Wording(WORDING, "en"), sentence) == sentence


def test_a_sentence_nobody_knows_is_shown_as_it_came():
    sentence = "It has room for these layers. And a new sentence."

    assert in_words(Wording(WORDING, "zh"), sentence) == sentence


def test_what_hides_or_turns_text_round_is_made_visible():
    said = in_words(Wording(WORDING, "en"), "It\u202eis\nhere")

    assert "\u202e" not in said
    assert "\n" not in said
