"""Nothing is cut off: every word of every page has its room, in both languages and at every size.

Language, theme and size are switched while the window is open, as a person does.
"""

from __future__ import annotations

from itertools import cycle, product

import pytest
from PySide6.QtCore import QRect, QSize
from PySide6.QtWidgets import (
    QAbstractButton,
    QAbstractScrollArea,
    QAbstractSpinBox,
    QApplication,
    QCheckBox,
    QComboBox,
    QLabel,
    QWidget,
)

from app.chat.records import Chat, Message
from app.pages import PAGES
from app.start import build_surroundings
from app.window import Window
from engine.pool.findings import Tried
from tests.app.pools import DEVICES_TRIED, LAPTOP, NETWORK_TRIED, three_pcs

SIZE = QSize(1080, 720)
LANGUAGES, THEMES, SCALES = ("en", "zh"), ("light", "dark"), (1.0, 2.0, 2.5)
SLACK_PX = 1  # of a size that was rounded


@pytest.fixture
def window(tmp_path, qtbot, owner):
    about = build_surroundings(tmp_path, owner)
    about.preferences.choose(starts_node=False)
    window = Window(about)
    qtbot.addWidget(window)
    chat = window.page("chat")
    chat.store.do(put_a_chat)
    window.show()
    chat.desk.open("shown")
    qtbot.waitUntil(lambda: bool(len(chat.desk.tree)))
    chat.settings.show()
    pool = window.page("pool")
    pool._on_status(three_pcs())
    pool._on_chosen(LAPTOP)
    doctor = window.page("doctor")
    doctor.trials.tried = Tried(network=NETWORK_TRIED, devices=DEVICES_TRIED)
    yield window
    window.close_pages()


def put_a_chat(database):
    chat = Chat(chat_id="shown", title="About petals", leaf_id="a", changed_s=1.0)
    asked = Message(message_id="a", chat_id="shown", parent_id=None, role="user", text="Why?")
    database.put_chat(chat)
    database.add_message(chat, asked)


def choose(window, language, theme, scale):
    about = window._about
    about.preferences.choose(language=language, theme=theme, scale_percent=round(100 * scale))
    window.resize(SIZE * scale)


def settle(qtbot):
    for _ in range(4):  # what is laid out anew may change what it lies in
        QApplication.processEvents()
    qtbot.wait(30)


def words_of(widget):
    """What a widget says, if it is one that has to show all of it."""
    if isinstance(widget, QLabel | QAbstractButton):
        return widget.text()
    return widget.currentText() if isinstance(widget, QComboBox) else ""


def needed(widget) -> QSize:
    """The room a widget needs for what it says."""
    if isinstance(widget, QLabel) and widget.wordWrap():
        return QSize(widget.minimumSizeHint().width(), widget.heightForWidth(widget.width()))
    return widget.sizeHint()


def is_cut(widget) -> str:
    """Say how a widget is cut off; empty where it isn't."""
    need, have = needed(widget), widget.size()
    if have.width() + SLACK_PX < need.width() or have.height() + SLACK_PX < need.height():
        return f"has {have.width()}x{have.height()}, needs {need.width()}x{need.height()}"
    parent = widget.parentWidget()
    while parent is not None and not is_scrolled(parent):
        place = QRect(widget.mapTo(parent, widget.rect().topLeft()), widget.size())
        if not parent.rect().adjusted(-1, -1, 1, 1).contains(place):
            return f"stands out of {type(parent).__name__} {parent.objectName()}"
        parent = parent.parentWidget()
    return ""


def is_scrolled(widget) -> bool:
    """Whether what lies in a widget may be larger than what is seen of it."""
    return isinstance(widget.parentWidget(), QAbstractScrollArea)


def cut_off(page):
    found = []
    for widget in page.findChildren(QWidget):
        text = words_of(widget)
        if widget.isVisible() and text.strip():
            how = is_cut(widget)
            if how:
                found.append(f"{type(widget).__name__} {text[:60]!r} {how}")
    return found


@pytest.mark.parametrize("entry", PAGES, ids=lambda entry: entry.name)
def test_no_word_of_a_page_is_cut_off_at_any_size_in_any_language(window, qtbot, entry):
    window.go(entry.name)
    found = []
    for (scale, language), theme in zip(product(SCALES, LANGUAGES), cycle(THEMES), strict=False):
        choose(window, language, theme, scale)
        window._about.status.changed.emit(three_pcs())
        settle(qtbot)
        page = window.page(entry.name)
        found += [f"{language} {scale:g} {theme}: {told}" for told in cut_off(page)]

    assert not found, "\n".join(found)


def test_what_is_too_small_is_found(window, qtbot):
    window.go("settings")
    settle(qtbot)
    page = window.page("settings")
    some = next(w for w in page.findChildren(QCheckBox) if w.isVisible())
    some.setFixedWidth(some.sizeHint().width() // 2)
    settle(qtbot)

    assert any(some.text()[:60] in told for told in cut_off(page))


def test_a_field_for_a_number_shows_its_longest_words(window, qtbot):
    for scale, language in product(SCALES, LANGUAGES):
        choose(window, language, "light", scale)
        settle(qtbot)
        for box in window.page("chat").settings.findChildren(QAbstractSpinBox):
            line = box.lineEdit()
            margins = line.textMargins()
            room = line.width() - margins.left() - margins.right()
            assert line.fontMetrics().horizontalAdvance(box.text()) <= room, (language, box.text())
