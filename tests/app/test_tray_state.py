import pytest
from msgspec.structs import replace

from app.places import WORDING
from app.tray.state import MAX_PETALS, tray_state
from app.wording.wording import Wording
from engine.domain import NodeId
from tests.app.pools import (
    DESK,
    LAPTOP,
    OLD,
    deployment,
    loaded,
    node,
    pool,
    progress,
    three_pcs,
)


def told(state, language="en"):
    return Wording(WORDING, language).text(state.sentence, **state.values)


def test_a_ready_pool_is_idle_with_a_petal_for_each_pc():
    state = tray_state("running", three_pcs())

    assert state.heart == "idle"
    assert state.petals == ("ready", "ready", "present")
    assert told(state) == "2 PCs ready, Qwen3 14B, about 11 tok/s."


def test_pcs_that_are_away_leave_a_gap():
    status = three_pcs()
    desk, laptop, old = status.nodes
    status = replace(status, nodes=(desk, laptop, replace(old, state="offline")))

    assert tray_state("running", status).petals == ("ready", "ready", "missing")


def test_more_than_eight_are_drawn_as_eight_those_that_do_something_first():
    nodes = [node(NodeId(f"{n:02d}" * 10), is_asked=n == 0) for n in range(11)]
    holder = NodeId("10" * 10)
    nodes[10] = node(holder, loaded(holder, 0, 40))
    status = pool(*nodes, deployment=deployment(shares=((holder, 0, 40),)))

    petals = tray_state("running", status).petals

    assert len(petals) == MAX_PETALS
    assert petals[0] == "ready"


@pytest.mark.parametrize("node_state", ["absent", "failed", "refusing", "slow"])
def test_a_node_that_does_not_answer_is_a_problem_with_a_sentence_of_its_own(node_state):
    state = tray_state(node_state, None)

    assert state.heart == "problem"
    assert state.petals == ()
    assert told(state)


def test_a_dead_node_counts_more_than_what_it_said_last():
    assert tray_state("absent", three_pcs()).heart == "problem"


def test_while_it_starts_nothing_is_wrong():
    assert tray_state("starting", None).heart == "idle"
    assert tray_state("running", None).heart == "idle"


def test_an_answer_shows_its_rate_once_it_is_known():
    without = tray_state("running", three_pcs(), is_answering=True)
    with_rate = tray_state("running", three_pcs(), is_answering=True, tokens_per_s=9.64)

    assert without.heart == with_rate.heart == "answering"
    assert told(without) == "Answering with Qwen3 14B."
    assert told(with_rate) == "Answering with Qwen3 14B, 9.6 tok/s."


@pytest.mark.parametrize("phase", ["planning", "splitting", "loading", "warming"])
def test_a_loading_pool_is_transferring_and_says_what(phase):
    state = tray_state("running", three_pcs(phase))

    assert state.heart == "transferring"
    assert "Qwen3 14B" in told(state)


def test_a_model_on_its_way_before_there_is_a_record_is_transferring_too():
    step = progress(DESK, "convert", 5, 10, epoch=0, detail="model.gguf")

    state = tray_state("running", pool(node(DESK), progress=(step,)))

    assert state.heart == "transferring"
    assert told(state) == "Copying model.gguf."


def test_who_works_for_others_is_serving():
    desk = node(DESK, loaded(DESK, 0, 22, active_requests=1))
    laptop = node(LAPTOP, loaded(LAPTOP, 22, 40))
    status = pool(desk, laptop, deployment=deployment())

    assert tray_state("running", status).heart == "serving"
    assert tray_state("running", status, is_answering=True).heart == "answering"


def test_requests_of_another_pc_are_not_served_here():
    desk = node(DESK, loaded(DESK, 0, 22))
    laptop = node(LAPTOP, loaded(LAPTOP, 22, 40, active_requests=1))

    assert tray_state("running", pool(desk, laptop, deployment=deployment())).heart == "idle"


def test_paused_and_failed_are_told_before_what_goes_on():
    assert tray_state("running", three_pcs(), is_paused=True, is_answering=True).heart == "paused"
    failed = tray_state("running", three_pcs("failed"), is_answering=True)
    assert failed.heart == "problem"
    assert told(failed) == "Qwen3 14B could not be loaded."


def test_an_empty_pool_says_that_nothing_is_loaded():
    assert told(tray_state("running", pool(node(DESK)))) == "One PC, no model loaded."
    assert told(tray_state("running", pool(node(DESK), node(OLD)))) == "2 PCs, no model loaded."


@pytest.mark.parametrize("language", ["en", "zh"])
def test_every_state_has_its_sentence_in_both_languages(language):
    states = [
        tray_state(word, None) for word in ("absent", "failed", "refusing", "slow", "starting")
    ]
    phases = ("planning", "splitting", "loading", "warming", "ready", "failed")
    states += [tray_state("running", three_pcs(phase)) for phase in phases]
    for state in states:
        sentence = told(state, language)
        assert sentence
        assert "{" not in sentence
