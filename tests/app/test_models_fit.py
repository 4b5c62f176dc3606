"""What the window says of what fits agrees with what the engine's planner finds."""

import pytest
from msgspec.structs import replace

from app.models.catalogue import read_catalogue
from app.models.fit import fit, usable_bytes
from app.places import RESOURCES
from engine.domain import ModelDescription
from engine.errors import InsufficientMemoryError, StorageError
from engine.pool.node_seen import facts_of
from engine.pool.placement import plan_placement
from engine.pool.stage_memory import Workload
from tests.app.pools import ATTIC, DESK, GIB, LAPTOP, OLD, node, pool, report

MODELS = read_catalogue(RESOURCES / "catalogue.json")
BY_ID = {model.model_id: model for model in MODELS}


def pcs(*free_gib, **fields):
    ids = (DESK, LAPTOP, ATTIC, OLD)
    return pool(
        *(
            node(
                node_id,
                report(node_id, memory_total_bytes=64 * GIB, memory_free_bytes=int(free * GIB)),
                **fields,
            )
            for node_id, free in zip(ids, free_gib, strict=False)
        )
    )


def described(model):
    """Return a catalogue's model as the engine would describe it once it is there."""
    return ModelDescription(
        name=model.name,
        architecture="x",
        num_layers=model.num_layers,
        hidden_size=model.hidden_size,
        num_kv_heads=(model.num_kv_heads,) * model.num_layers,
        head_size=(model.head_size,) * model.num_layers,
        value_head_size=(model.head_size,) * model.num_layers,
        vocab_size=model.vocab_size,
        context_length=model.context_tokens,
        weight_precision="u4",
        layer_bytes=(model.layer_bytes,) * model.num_layers,
        embedding_bytes=model.table_bytes,
        head_bytes=model.table_bytes,
        eos_token_ids=(0,),
    )


def planner_holds(model, status):
    facts = [facts_of(one.report) for one in status.nodes]
    try:
        plan = plan_placement(
            described(model), Workload(context_tokens=8192, max_sequences=4), facts
        )
    except InsufficientMemoryError:
        return None
    return len(plan.stages)


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.model_id)
@pytest.mark.parametrize(
    "free", [(9,), (30,), (9, 9), (14, 9, 5), (20, 20), (30, 12, 9, 4), (60, 60, 60)]
)
def test_it_fits_where_the_planner_finds_a_place(model, free):
    status = pcs(*free)
    found = fit(model, status)

    stages = planner_holds(model, status)
    assert (found.verdict != "short") == (stages is not None)
    if stages is not None:
        assert len(found.node_ids) == stages


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.model_id)
@pytest.mark.parametrize("free", [(2,), (9, 5), (14, 9, 5)])
def test_one_more_pc_of_the_size_it_is_short_by_is_enough_and_a_smaller_one_is_not(model, free):
    found = fit(model, pcs(*free))
    if found.verdict != "short":
        return
    missing = found.short_bytes / GIB + 0.5  # half a GiB is left alone on each PC

    assert planner_holds(model, pcs(*free, missing * 1.01)) is not None
    assert planner_holds(model, pcs(*free, missing * 0.97)) is None


def test_this_pc_comes_first_and_others_only_where_they_must():
    small = BY_ID["qwen3-4b"]

    assert fit(small, pcs(30, 60)).node_ids == (DESK,)
    assert fit(small, pcs(30, 60)).verdict == "here"
    assert fit(small, pcs(2, 30)).verdict == "pool"
    assert fit(small, pcs(2, 30)).node_ids == (LAPTOP,)


def test_nothing_is_said_before_the_pool_is_seen():
    assert fit(BY_ID["qwen3-4b"], None).verdict == "unknown"
    assert fit(BY_ID["qwen3-4b"], pool()).verdict == "unknown"


def test_pcs_that_are_away_or_have_no_device_lend_nothing():
    away = pcs(30, 30, state="offline")
    assert usable_bytes(away) == {}
    blind = pool(node(DESK, report(DESK, devices=())))
    assert usable_bytes(blind) == {}


def test_what_daisy_holds_already_counts_as_free_for_the_next_model():
    held = report(DESK, memory_free_bytes=2 * GIB, memory_lent_bytes=8 * GIB)

    assert usable_bytes(pool(node(DESK, held)))[DESK] == 10 * GIB - GIB // 2


def test_the_catalogue_is_what_was_published_in_the_order_of_size():
    sizes = [model.parameters for model in MODELS]

    assert sizes == sorted(sizes)
    assert [model.model_id for model in MODELS if model.is_embedded] == ["smollm2-135m"]
    for model in MODELS:
        assert model.source.startswith("https://")
        tables = model.vocab_size * model.hidden_size
        assert model.parameters > tables
        assert 0.4 < model.file_bytes / model.parameters < 0.8


def test_a_damaged_catalogue_is_said(tmp_path):
    (tmp_path / "catalogue.json").write_text('{"models": 3}', encoding="utf-8")

    with pytest.raises(StorageError, match="catalogue"):
        read_catalogue(tmp_path / "catalogue.json")


def test_a_pc_that_is_not_lent_has_no_room_for_anything_here_as_for_the_planner():
    status = pcs(16, 40)
    laptop = replace(status.nodes[1].report, is_lending=False)
    status = replace(status, nodes=(status.nodes[0], replace(status.nodes[1], report=laptop)))
    model = BY_ID["qwen3-14b"]

    assert usable_bytes(status)[LAPTOP] == 0
    assert fit(model, status).verdict == "short"
    assert planner_holds(model, status) is None
    assert planner_holds(model, pcs(16, 40)) is not None
