"""The models on this PC's disk: listed, and deleted after a question, here or everywhere."""

import pytest
from msgspec.structs import replace
from PySide6.QtCore import Qt

from app.models import kept_card
from app.models.kept_card import KeptCard
from engine.messages.own_pc_control import ModelLine
from tests.app.pools import ATTIC, DESK, LAPTOP, node, pool
from tests.app.rooms import surroundings

PATIENCE_MS = 15_000
RUNNING, OTHER = "ab" * 32, "cd" * 32
MODELS = (
    ModelLine(
        model_sha256=RUNNING, name="Qwen3 14B", num_layers=40, num_bytes=8_400_000_000,
        is_in_use=True,
    ),
    ModelLine(
        model_sha256=OTHER, name="Small\u202e", num_layers=30, num_bytes=98_000_000,
        is_in_use=False,
    ),
)  # fmt: skip


@pytest.fixture
def wait(qtbot):
    return lambda condition: qtbot.waitUntil(lambda: bool(condition()), timeout=PATIENCE_MS)


@pytest.fixture
def open_card(tmp_path, owner, qtbot, start_node, wait, monkeypatch):
    monkeypatch.setattr(kept_card, "LOOK_EVERY_MS", 40)
    cards = []

    def opened(**script):
        child = start_node(models=MODELS, **script)
        shared = surroundings(tmp_path, owner)
        card = KeptCard(shared.look, shared.wording, tmp_path)
        cards.append(card)
        qtbot.addWidget(card)
        card.resize(700, 500)
        card.watch()
        wait(card.isVisible)
        return card, child, shared

    yield opened
    for card in cards:
        card.unwatch()
        card._questions._link.close()


def test_what_is_kept_is_shown_with_its_size_and_what_runs_cannot_be_deleted(open_card):
    card, _, _ = open_card()

    assert card.kept[RUNNING].facts.text() == "8.4 GB · 40 layers · loaded"
    assert not card.kept[RUNNING].drop.isEnabled()
    assert card.kept[OTHER].facts.text() == "98.0 MB · 30 layers"
    assert card.kept[OTHER].name.text() == "Small⟦U+202E⟧"
    assert card.kept[OTHER].drop.accessibleName() == "Delete Small⟦U+202E⟧"


def test_a_model_is_deleted_by_key_only_after_a_question(open_card, qtbot, wait):
    card, child, _ = open_card()
    row = card.kept[OTHER]
    qtbot.keyClick(row.drop, Qt.Key.Key_Space)
    assert row.question.isVisible()
    wait(row.keep.hasFocus)
    assert not row.everywhere.isVisible()  # nobody else keeps it
    qtbot.keyClick(row.keep, Qt.Key.Key_Escape)
    assert not row.question.isVisible()
    assert child.asked_of_members() == []
    qtbot.keyClick(row.drop, Qt.Key.Key_Space)
    qtbot.wait(120)  # the list comes again meanwhile, and the question stays
    qtbot.keyClick(row.here, Qt.Key.Key_Space)
    wait(lambda: OTHER not in card.kept)

    (asked,) = child.asked_of_members()
    assert asked == {"asked": "DropModel", "model_sha256": OTHER, "is_everywhere": False}
    assert card.told.text() == "98.0 MB are free again on this PC."


def test_everywhere_is_offered_with_how_many_pcs_that_is(open_card, wait):
    card, child, shared = open_card()
    laptop, attic = node(LAPTOP), node(ATTIC)
    keeps = {"kept_models": (OTHER,)}
    laptop = replace(laptop, report=replace(laptop.report, **keeps))
    attic = replace(attic, report=replace(attic.report, **keeps))
    card.see(pool(node(DESK), laptop, attic))
    row = card.kept[OTHER]
    assert row.facts.text() == "98.0 MB · 30 layers · 2 other PCs keep it too"
    row.drop.click()
    assert row.everywhere.text() == "Delete on all 3 PCs"
    shared.wording.choose("zh")
    assert row.everywhere.text() == "在全部 3 台电脑上删除"
    row.everywhere.click()
    wait(lambda: OTHER not in card.kept)
    assert child.asked_of_members()[0]["is_everywhere"] is True


def test_a_refusal_is_said_and_the_model_stays(open_card, wait):
    trouble = {"code": "model_in_use", "what": "Busy.", "advice": "Wait."}
    card, _, _ = open_card(own_pc_trouble={"DropModel": trouble})
    card.kept[OTHER].drop.click()
    card.kept[OTHER].here.click()
    wait(card.told.isVisible)

    assert card.told.text().startswith("That model is loaded, or is being read")
    assert OTHER in card.kept
    card.unwatch()
    assert not card.told.isVisible()


def test_a_model_that_is_loaded_meanwhile_is_no_longer_asked_about(open_card, wait):
    card, child, _ = open_card()
    card.kept[OTHER].drop.click()
    child.own_pc.models[1] = replace(child.own_pc.models[1], is_in_use=True)
    wait(lambda: not card.kept[OTHER].question.isVisible())
    assert not card.kept[OTHER].drop.isEnabled()
