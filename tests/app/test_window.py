import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import (
    QAbstractButton,
    QAbstractItemView,
    QApplication,
    QComboBox,
    QLineEdit,
    QMessageBox,
    QWidget,
)

from app.chat.view.highlight import _COLOURS
from app.look.dress import Dress
from app.look.tokens import DARK, LIGHT, Theme
from app.pages import PAGES, PageEntry
from app.window import Window
from tests.app.probe_page import ProbePage
from tests.app.rooms import surroundings

PROBES = [
    PageEntry("chat", "tests.app.probe_page:ChatProbe"),
    PageEntry("pool", "tests.app.probe_page:PoolProbe"),
    PageEntry("settings", "tests.app.probe_page:SettingsProbe"),
    PageEntry("doctor", "tests.app.probe_page:HiddenProbe", in_rail=False),
]


@pytest.fixture
def about(tmp_path, owner):
    return surroundings(tmp_path, owner)


@pytest.fixture
def window(about, qtbot):
    window = Window(about, PROBES)
    window.show()
    yield window
    window.hide()
    window.deleteLater()


def press(window, key, modifier=Qt.KeyboardModifier.ControlModifier):
    window.activateWindow()
    QTest.keyClick(window, key, modifier)


def test_pages_are_told_when_people_see_them(window):
    chat, pool = window.page("chat"), window.page("pool")
    assert chat.told == ["shown"]
    window.rail.button("pool").click()
    assert chat.told == ["shown", "hidden"]
    assert pool.told == ["shown"]
    window.hide()
    assert pool.told == ["shown", "hidden"]
    window.show()
    assert pool.told == ["shown", "hidden", "shown"]


def test_every_place_is_reached_by_keyboard_and_by_name(window, about):
    press(window, Qt.Key.Key_Comma)
    assert window.current == "settings"
    press(window, Qt.Key.Key_N)
    assert window.current == "chat"
    assert window.page("chat").told[-1] == "new_chat"
    about.navigation.go("doctor")
    assert window.current == "doctor"
    assert not any(window.rail.button(n).isChecked() for n in ("chat", "pool", "settings"))
    press(window, Qt.Key.Key_F)
    assert window.page("chat").told[-1] == "search"
    about.navigation.go("nowhere")
    assert window.current == "chat"


def test_the_page_shown_last_is_shown_again(window, about, qtbot):
    window.go("pool")
    again = Window(about, PROBES)
    assert again.current == "pool"
    again.deleteLater()


def test_places_have_names_in_the_language_of_now(window, about):
    about.wording.choose("zh")
    assert window.rail.button("chat").accessibleName() == "对话"
    assert window.windowTitle() == "对话 - Daisy"
    about.wording.choose("en")
    assert window.rail.button("chat").accessibleName() == "Chat"


# ---- closing -----------------------------------------------------------------------------------


def question(window):
    return window.findChild(QMessageBox)


def press_in(box, words):
    next(button for button in box.buttons() if button.text() == words).click()


def test_the_first_close_asks_and_the_answer_is_kept(window, about, qtbot):
    window.close()
    assert window.isVisible()
    box = question(window)
    assert box.defaultButton().text() == "Keep running"
    press_in(box, "Keep running")
    assert not window.isVisible()
    assert about.preferences.choices.on_close == "keep"

    window.show()
    window.close()
    assert not window.isVisible()


def test_quitting_is_asked_of_the_program_once_it_is_chosen(window, about, qtbot):
    with qtbot.waitSignal(window.quit_asked):
        window.close()
        press_in(question(window), "Quit")
    with qtbot.waitSignal(window.quit_asked):
        window.close()


def test_cancelling_leaves_everything_as_it_was(window, about):
    window.close()
    press_in(question(window), "Cancel")
    assert window.isVisible()
    assert about.preferences.choices.on_close == "ask"


@pytest.mark.parametrize("has_tray", [True, False])
def test_what_brings_the_window_back_is_said(window, has_tray):
    window.has_tray = has_tray
    words = window.ask_about_closing().informativeText()
    assert ("icon near the clock brings it back" in words) == has_tray
    assert ("start it again" in words) != has_tray


# ---- looks -------------------------------------------------------------------------------------


def test_theme_and_scale_are_switched_while_the_window_is_open(qapp, about, window):
    dress = Dress(qapp, about.look)
    about.preferences.choose(theme="dark", scale_percent=250)
    assert DARK.paper in qapp.styleSheet()
    assert about.look.px(4) == 10
    about.preferences.choose(theme="light", scale_percent=100)
    assert LIGHT.paper in qapp.styleSheet()
    dress.deleteLater()
    qapp.setStyleSheet("")


def luminance(colour):
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    bright, dim = sorted((luminance(one), luminance(other)), reverse=True)
    return (bright + 0.05) / (dim + 0.05)


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
def test_every_text_can_be_read(theme: Theme):
    for ground in (theme.paper, theme.surface, theme.raised, theme.code):
        for ink in (theme.ink, theme.quiet, theme.link, theme.alarm, theme.leaf):
            assert contrast(ink, ground) >= 4.5, (ink, ground)
    assert contrast(theme.on_heart, theme.heart) >= 4.5


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
def test_every_colour_of_code_can_be_read(theme):
    for light, dark in _COLOURS.values():
        assert contrast(dark if theme.is_dark else light, theme.code) >= 4.5


# ---- the real pages ----------------------------------------------------------------------------


def test_every_page_is_built_and_everything_that_can_be_pressed_has_a_name(about, qtbot):
    window = Window(about)
    window.show()
    nameless, unreached = [], []
    for entry in PAGES:
        about.navigation.go(entry.name)
        QApplication.processEvents()
        for widget in window.page(entry.name).findChildren(QWidget):
            if widget.focusPolicy() == Qt.FocusPolicy.NoFocus or not widget.isVisible():
                continue
            is_named = widget.accessibleName() or getattr(widget, "text", str)()
            if not is_named and widget.objectName() != "qt_spinbox_lineedit" and _is_ours(widget):
                nameless.append((entry.name, type(widget).__name__, widget.objectName()))
            if isinstance(widget, PRESSED) and not widget.focusPolicy() & Qt.FocusPolicy.TabFocus:
                unreached.append((entry.name, type(widget).__name__, is_named))
    window.close_pages()
    window.hide()
    window.deleteLater()
    assert nameless == []
    assert unreached == []


PRESSED = (QAbstractButton, QLineEdit, QComboBox, QAbstractItemView)


def _is_ours(widget):
    """Leave out what only scrolls: what is in it has names."""
    return type(widget).__name__ not in {"QScrollArea", "ConversationView", "QScrollBar"}


def test_probes_are_pages():
    assert issubclass(PROBES[0].page_class(), ProbePage)
