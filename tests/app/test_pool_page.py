import time

import pytest
from msgspec.structs import replace
from PySide6.QtCore import QEvent, Qt
from PySide6.QtGui import QAccessible

from app.pool.page import PoolPage
from app.pool.petal_button import PetalButton
from engine.domain import NodeId
from engine.messages.control import Finished
from tests.app.pools import DESK, LAPTOP, OLD, loaded, node, pool, three_pcs, wish
from tests.app.rooms import surroundings


@pytest.fixture
def shared(tmp_path, owner):
    return surroundings(tmp_path, owner)


@pytest.fixture
def page(shared, qtbot):
    page = PoolPage(shared)
    qtbot.addWidget(page)
    page.resize(1100, 800)
    page.show()
    shared.status.changed.emit(three_pcs())
    return page


def petals(page):
    return {button.node_id: button for button in page.picture.findChildren(PetalButton)}


def visible_texts(widget):
    return [label.text() for label in widget.findChildren(type(widget._headline))]


def test_every_pc_can_be_reached_and_is_read_out_with_its_facts(page):
    told = {name: b.accessibleDescription() for name, b in petals(page).items()}

    assert set(told) == {DESK, LAPTOP, OLD}
    assert "layers 0\u201321" in told[DESK]
    assert "35.2 ms" in told[DESK]
    assert "coordinates the pool" in told[LAPTOP]
    assert "sets the pace" in told[LAPTOP]
    assert "on battery" in told[LAPTOP]
    assert "needs 1.4 GiB" in told[OLD]
    assert "Close programs" in told[OLD]


def test_a_screen_reader_finds_the_pcs_below_the_picture(page):
    interface = QAccessible.queryAccessibleInterface(page.picture)
    names = {
        interface.child(number).text(QAccessible.Text.Name)
        for number in range(interface.childCount())
    }

    assert {"DESK", "LAPTOP", "OLD-PC"} <= names


def test_arrows_walk_round_the_ring_and_enter_opens_the_details(page, qtbot):
    buttons = petals(page)
    page.window().activateWindow()
    buttons[DESK].setFocus()
    qtbot.keyClick(buttons[DESK], Qt.Key.Key_Right)
    assert buttons[LAPTOP].hasFocus()
    qtbot.keyClick(buttons[LAPTOP], Qt.Key.Key_Right)
    assert buttons[OLD].hasFocus()
    qtbot.keyClick(buttons[OLD], Qt.Key.Key_Right)
    assert buttons[DESK].hasFocus()
    qtbot.keyClick(buttons[DESK], Qt.Key.Key_Left)
    qtbot.keyClick(buttons[OLD], Qt.Key.Key_Return)

    assert page.details.isVisible()
    assert page.details.node_id == OLD
    assert any("needs 1.4 GiB" in value for _, value in page.details.told)


def test_a_click_opens_the_details_and_escape_closes_them(page, qtbot):
    qtbot.mouseClick(petals(page)[LAPTOP], Qt.MouseButton.LeftButton)
    told = dict(page.details.told)

    assert told["Layers"] == "22\u201339 of 40"
    assert told["To the next PC"] == "Wi-Fi · 0.80 ms"
    assert told["Power"] == "battery"
    qtbot.keyClick(page.details, Qt.Key.Key_Escape)
    assert not page.details.isVisible()


def test_details_close_by_themselves_when_their_pc_is_gone(page, shared):
    page._on_chosen(OLD)
    status = three_pcs()
    record = replace(status.deployment, plan=status.deployment.plan[:2])
    shared.status.changed.emit(replace(status, nodes=status.nodes[:2], deployment=record))

    assert page.details.isHidden()
    assert OLD not in petals(page)


def test_the_table_says_the_same_as_the_picture(page):
    model = page.table.facts
    rows = [
        [model.index(row, column).data() for column in range(model.columnCount())]
        for row in range(model.rowCount())
    ]

    assert rows[0][:4] == ["DESK", "ready", "CPU", "0\u201321"]
    assert rows[1][8] == "53.9"
    assert "sets the pace" in rows[1][10]
    assert rows[2][1] == "left out"
    assert "needs 1.4 GiB" in rows[2][10]
    for row, button in zip(range(3), (DESK, LAPTOP, OLD), strict=True):
        described = model.index(row, 0).data(Qt.ItemDataRole.AccessibleDescriptionRole)
        assert described == petals(page)[button].accessibleDescription()


def test_a_row_of_the_table_opens_the_same_details(page, qtbot):
    page._views[1].click()
    page.table.selectRow(1)
    page.table.activated.emit(page.table.facts.index(1, 0))

    assert page.details.node_id == LAPTOP


def test_the_light_goes_only_for_tokens_that_really_passed_while_people_look(page, shared):
    assert not page.picture._light.is_lit
    shared.answering.text_came.emit("r", "", 0)
    assert not page.picture._light.is_lit
    shared.answering.text_came.emit("r", "Hello", 1)
    assert page.picture._light.is_lit


def test_nothing_moves_where_people_want_no_motion(page, shared):
    page.picture.animate(wanted=False)
    shared.answering.text_came.emit("r", "Hello", 1)

    assert not page.picture._light.is_lit
    assert not page.picture._frames.isActive()


def test_the_forecast_stands_beside_what_was_measured(page, shared):
    assert "About 11.1 tokens a second" in page._plan.text()
    finished = Finished(
        request_id="r",
        finish_reason="stop",
        prompt_tokens=9,
        completion_tokens=101,
        ttft_s=0.4,
        decode_s=10.0,
        chain_compute_ms=80.0,
    )
    shared.answering.finished.emit("r", finished)

    assert "measured 10.0 (+11 %)" in page._plan.text()


def test_links_that_change_answers_are_labelled(page, shared):
    status = three_pcs()
    assert "int8" not in page._plan.text()
    narrow = replace(status.deployment, wish=wish(link_precision="int8"))
    shared.status.changed.emit(replace(status, deployment=narrow))
    assert "Sent in int8 between PCs: answers differ slightly." in page._plan.text()


def test_a_plan_and_an_empty_pool_say_what_comes_next(page, shared):
    shared.status.changed.emit(three_pcs("loading"))
    assert page._headline.text() == "Loading Qwen3 14B"
    assert page.act.isHidden()
    shared.status.changed.emit(pool(node(DESK)))
    assert page._headline.text() == "One PC, and no model loaded yet"
    went = []
    shared.navigation.asked.connect(went.append)
    page.act.click()
    assert went == ["models"]


def test_a_node_that_is_away_is_said_and_can_be_started(page, shared, monkeypatch):
    started = []
    monkeypatch.setattr(type(shared.node), "start", lambda _: started.append(1))
    shared.status.silent.emit()

    assert "not running" in page._plan.text()
    page.act.click()
    assert started == [1]


def test_the_language_is_switched_while_everything_stays(page, shared):
    page._on_chosen(LAPTOP)
    shared.wording.choose("zh")
    shared.status.changed.emit(three_pcs())

    assert page._headline.text() == "Qwen3 14B 已就绪"
    assert page.details.node_id == LAPTOP
    assert "最慢一环" in petals(page)[LAPTOP].accessibleDescription()
    assert page.table.facts.headerData(0, Qt.Orientation.Horizontal) == "电脑"


def test_a_name_is_shown_as_text_whatever_is_in_it(page, shared):
    evil = "<img src=file:///etc/passwd>\u202egnp"
    shared.status.changed.emit(pool(node(DESK, loaded(DESK, 0, 40, name=evil))))
    button = petals(page)[DESK]

    assert "&lt;img" in button.toolTip()
    assert "\u202e" not in button.toolTip()
    assert "\u202e" not in page.table.facts.index(0, 0).data()


def test_histories_are_kept_while_nobody_looks_and_one_line_a_pc(page, shared):
    page.hide()
    for _ in range(5):
        shared.status.changed.emit(three_pcs())

    assert set(page.stages.histories) == {DESK, LAPTOP}
    assert len(page.stages.histories[DESK]) == 6
    shared.status.changed.emit(pool(node(DESK)))
    assert set(page.stages.histories) == {DESK}


def test_sixteen_pcs_on_a_large_screen_are_painted_in_one_frame(page, shared):
    nodes = [node(NodeId(f"{n:02d}" * 10), is_asked=n == 0) for n in range(16)]
    page.resize(3840, 2160)
    shared.status.changed.emit(pool(*nodes))
    page.grab()
    began_s = time.thread_time()  # what it costs, not what the machine does beside it
    page.picture.repaint()

    assert time.thread_time() - began_s < 0.1
    assert len(petals(page)) == 16


def test_hidden_it_asks_the_node_for_nothing(page, shared):
    page.shown()
    assert "pool page" in shared.status._watchers
    page.hidden()
    assert not shared.status._watchers
    assert not page.picture._frames.isActive()


def test_it_is_painted_at_any_size(page, qapp):
    for size in ((300, 300), (520, 400), (900, 700)):
        page.picture.resize(*size)
        qapp.sendEvent(page.picture, QEvent(QEvent.Type.UpdateRequest))
        assert not page.picture.grab().isNull()


def test_the_light_is_painted_where_it_is_and_nothing_beside_it_anew(page, shared):
    picture = page.picture
    shared.answering.text_came.emit("r", "Hello", 1)
    picture._on_frame()
    first = picture._lit

    assert not first.isEmpty()
    assert first.width() * first.height() < 0.5 * picture.width() * picture.height()
    picture._light.stop()
    picture._on_frame()
    assert picture._lit.isEmpty()
    assert not picture._frames.isActive()
