import pytest
from PySide6.QtCore import QMimeData, QPointF, Qt, QUrl
from PySide6.QtGui import QDesktopServices, QDropEvent
from PySide6.QtWidgets import QFileDialog

from app.bridge.problem import Problem
from app.models.page import ModelsPage
from engine.messages.pool_control import DeploymentReport
from tests.app.pools import DESK, LAPTOP, WISH_ID, deployment, node, pool, progress, three_pcs
from tests.app.rooms import surroundings


@pytest.fixture
def shared(tmp_path, owner):
    return surroundings(tmp_path, owner)


@pytest.fixture
def asked(shared, monkeypatch):
    """What was asked of the pool, in order."""
    told = []
    loading = shared.loading
    kind = type(loading)

    def load(_self, source, *_):
        told.append(("load", source))
        loading._asked = object()

    monkeypatch.setattr(kind, "load", load)
    monkeypatch.setattr(kind, "unload", lambda _self: told.append(("unload",)))
    monkeypatch.setattr(kind, "cancel", lambda _self: told.append(("cancel",)))
    return told


@pytest.fixture
def page(shared, asked, qtbot):
    page = ModelsPage(shared)
    qtbot.addWidget(page)
    page.resize(900, 900)
    page.show()
    shared.status.changed.emit(pool(node(DESK), node(LAPTOP)))
    return page


def row(page, model_id):
    return next(row for row in page.models if row.model.model_id == model_id)


def dropped(page, path):
    data = QMimeData()
    data.setUrls([QUrl.fromLocalFile(str(path))])
    where, none = QPointF(5, 5), Qt.KeyboardModifier.NoModifier
    page.dropEvent(
        QDropEvent(where, Qt.DropAction.CopyAction, data, Qt.MouseButton.LeftButton, none)
    )


def test_each_model_says_where_it_fits_or_by_how_much_not(page):
    assert "Fits on this PC" in row(page, "smollm2-135m").sentence
    assert "Fits on DESK + LAPTOP" in row(page, "mistral-7b-v03").sentence
    assert "GiB short" in row(page, "llama-33-70b").sentence
    assert "One more PC that can lend" in row(page, "llama-33-70b").sentence


def test_the_embedded_model_is_loaded_with_one_click(page, asked, qtbot):
    qtbot.mouseClick(row(page, "smollm2-135m")._button, Qt.MouseButton.LeftButton)

    assert asked == [("load", None)]
    assert page.loading.isVisible()


def test_other_models_lead_to_where_they_are(page, asked, monkeypatch):
    opened = []
    monkeypatch.setattr(QDesktopServices, "openUrl", lambda url: opened.append(url.toString()))
    row(page, "qwen3-8b")._button.click()

    assert opened == ["https://huggingface.co/Qwen/Qwen3-8B"]
    assert asked == []


def test_a_folder_or_a_gguf_can_be_dropped_and_anything_else_is_refused(page, asked, tmp_path):
    folder, gguf, other = tmp_path / "model", tmp_path / "m.GGUF", tmp_path / "m.zip"
    folder.mkdir()
    gguf.touch()
    other.touch()

    dropped(page, other)
    assert "neither a folder nor a GGUF" in page.notice.sentence
    assert asked == []
    dropped(page, folder)
    dropped(page, gguf)
    assert asked == [("load", str(folder)), ("load", str(gguf))]


def test_a_folder_can_be_chosen_in_a_dialog(page, asked, tmp_path):
    page._folder.click()
    (dialog,) = page.findChildren(QFileDialog)
    dialog.fileSelected.emit(str(tmp_path))
    dialog.reject()

    assert asked == [("load", str(tmp_path))]


def test_progress_names_the_phase_the_pcs_and_what_is_left(page, shared):
    page.load(None)
    steps = (
        progress(DESK, "push", 2_000_000_000, 4_000_000_000, rate_per_s=1e8),
        progress(LAPTOP, "compile", 7, 18, "layers", rate_per_s=1.0),
    )
    report = DeploymentReport(deployment=deployment("loading"), progress=steps, wish_id=WISH_ID)
    shared.loading.reported.emit(report)

    assert page.loading.phase_words == [
        "Read: done",
        "Cut: done",
        "Copy: now",
        "Prepare: to come",
        "Try: to come",
    ]
    assert page.loading.sentences == [
        "DESK fetches its part · 2.0 GB of 4.0 GB · 100 MB/s · 20 s left",
        "LAPTOP prepares its device · 7 of 18 layers · 1.0 a second · 11 s left",
    ]
    assert page.loading._heading.text() == "Loading Qwen3 14B"


def test_what_somebody_else_loads_is_shown_and_can_be_cancelled(page, shared, asked):
    shared.status.changed.emit(three_pcs("loading", progress=(progress(LAPTOP, "push", 10, 100),)))

    assert page.loading.isVisible()
    assert len(page.loading.sentences) == 1
    page.loading.cancelled.emit()
    assert asked == [("unload",)]


def test_cancel_ends_what_was_asked_here(page, asked):
    page.load("/models/a")
    page.loading.cancelled.emit()

    assert asked == [("load", "/models/a"), ("cancel",)]


@pytest.mark.parametrize(
    ("code", "place"), [("insufficient_memory", "devices"), ("compile", "doctor")]
)
def test_an_error_says_what_to_do_with_a_button_that_does_it(page, shared, code, place):
    went = []
    shared.navigation.asked.connect(went.append)
    shared.loading.failed.emit(Problem(code, "It needs 40 GiB.", "Add a PC."))

    assert page.notice.isVisible()
    assert "It needs 40 GiB." in page.notice._detail.text()
    page.notice._button.click()
    assert went == [place]


def test_an_error_that_may_pass_is_tried_again_with_the_same_model(page, shared, asked):
    page.load("/models/a")
    shared.loading._asked = None
    shared.loading.failed.emit(Problem("storage", "The disk is full.", "Free some space."))
    page.notice._button.click()

    assert asked == [("load", "/models/a"), ("load", "/models/a")]
    assert page.notice.isHidden()


def test_an_error_is_said_again_in_the_other_language(page, shared):
    shared.loading.failed.emit(Problem("storage", "The disk is full.", "Free some space."))
    before = page.notice.sentence
    shared.wording.choose("zh")

    assert page.notice.sentence != before
    assert not any("a" <= char <= "z" for char in page.notice.sentence)


def test_a_loaded_model_can_be_asked_and_unloaded(page, shared, asked):
    went = []
    shared.navigation.asked.connect(went.append)
    shared.status.changed.emit(three_pcs())

    assert page._running.text() == "Qwen3 14B is loaded on 2 PCs."
    page._unload.click()
    page._chat.click()
    assert asked == [("unload",)]
    assert went == ["chat"]


def test_without_the_node_nothing_can_be_loaded_and_it_says_so(page, shared):
    shared.status.silent.emit()

    assert "does not run" in page._room.text()
    assert not page._folder.isEnabled()
    assert not row(page, "smollm2-135m")._button.isEnabled()
    assert page._start.isVisible()


def test_hidden_it_costs_nothing(page, shared):
    page.shown()
    page.load(None)
    assert page._tick.isActive()
    page.hidden()

    assert not page._tick.isActive()
    assert not shared.status._watchers
