"""What nodes say is known, every sentence of it: each is said in Chinese with its fields."""

import re

import pytest

from app.bridge.problem import Problem, problem_of
from app.places import WORDING
from app.wording.node_words import in_words
from app.wording.problems import problem_words
from app.wording.wording import Wording
from engine.domain import NodeId
from engine.errors import DaisyError, InsufficientMemoryError, _subclasses
from engine.pool.chain_choice import Wishes
from engine.pool.deployment_troubles import lost
from engine.pool.placement import plan_placement
from engine.pool.plan import NodeFacts
from engine.pool.sentences import SENTENCES, fields_of, sentence
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


@pytest.mark.parametrize("code", SENTENCES)
def test_every_sentence_of_a_node_is_said_in_both_languages_with_all_it_tells(code):
    fields = dict.fromkeys(fields_of(code), "⟨7⟩")
    for language in ("en", "zh"):
        told = Wording(WORDING, language).text(f"told.{code}", **fields)
        is_option = {"option"} & set(fields)  # a command line's; a window has none
        assert told.count("⟨7⟩") == len(fields) - len(is_option)
    left = re.sub(r"mDNS|Daisy", "", told)
    assert not re.search("[A-Za-z]", left), told


def test_a_model_without_a_place_is_explained_with_every_way_out():
    workload = Workload(context_tokens=8192, max_sequences=4)
    with pytest.raises(InsufficientMemoryError) as raised:
        plan_placement(model(), workload, [facts("DESK", 9, cap_gib=5), facts("OLD", 3)])
    error = raised.value
    wording = Wording(WORDING, "zh")
    words = problem_words(Problem(error.code, error.what, error.advice), wording)

    assert words.what.startswith("这个模型需要")
    assert words.advice.startswith("以下任意一种即可：")
    left = re.sub(r"GiB|MiB|DESK|OLD", "", words.what + words.advice)
    assert not re.search("[A-Za-z]", left), left
    assert words.details == f"{error.what} {error.advice}"


@pytest.mark.parametrize("kind", _subclasses(DaisyError))
def test_what_an_error_advises_is_said_in_chinese_also_within_a_plan(kind):
    said = in_words(Wording(WORDING, "zh"), f"{kind.default_advice()} Then restart Daisy there.")

    assert said.endswith("然后在那里重新启动 Daisy。")
    assert "restart" not in said


def test_a_trouble_names_the_pc_it_was_with():
    words = problem_words(problem_of(lost("DESK")), Wording(WORDING, "zh"))

    assert words.what == "无法再连接到 DESK。"


def test_a_strangers_versions_are_told_one_by_one():
    versions = ("note_version", "note_protocol")
    why = "; ".join(sentence(code, theirs="0.2", ours="0.1") for code in versions)
    said = in_words(Wording(WORDING, "zh"), sentence("stranger", pc="abcdef", why=why))

    assert said == (
        "abcdef 无法参与：它的 Daisy 版本是 0.2，本机是 0.1；它的协议版本是 0.2，本机是 0.1。"
    )


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
