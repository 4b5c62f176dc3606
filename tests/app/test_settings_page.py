import msgspec
import pytest
from PySide6.QtCore import QPoint, QPointF, Qt
from PySide6.QtGui import QGuiApplication, QWheelEvent
from PySide6.QtWidgets import QSystemTrayIcon

from app.bridge.node_process import NodeProcess
from app.preferences import Choices, Preferences
from app.settings.autostart import DesktopAutostart
from app.settings.keys_card import KeysCard
from app.settings.page import SettingsPage
from tests.app.pools import DESK, GIB, node, pool, report
from tests.app.rooms import surroundings


@pytest.fixture
def shared(tmp_path, owner):
    return surroundings(tmp_path, owner)


@pytest.fixture
def switch(tmp_path):
    return DesktopAutostart(tmp_path / "autostart", ("daisy",))


@pytest.fixture
def page(shared, switch, qtbot):
    page = SettingsPage(shared, autostart=switch)
    qtbot.addWidget(page)
    page.resize(800, 900)
    page.show()
    page.shown()
    return page


def choose(field, value):
    index = field.findData(value)
    field.setCurrentIndex(index)
    field.activated.emit(index)


def kept(tmp_path):
    """Return what another start of the window would find."""
    return msgspec.json.decode((tmp_path / "app" / "choices.json").read_bytes(), type=Choices)


def test_the_language_is_switched_at_once_and_kept(page, shared, tmp_path):
    choose(page.language, "zh")

    assert shared.wording.language == "zh"
    assert page._labels["heading"].text() == "设置"
    assert page.theme.itemText(2) == "深色"
    assert kept(tmp_path).language == "zh"


def test_theme_and_size_are_switched_at_once_and_kept(page, shared, tmp_path):
    choose(page.theme, "dark")
    choose(page.scale, 150)

    assert shared.look.theme.is_dark
    assert shared.look.scale == 1.5
    assert (kept(tmp_path).theme, kept(tmp_path).scale_percent) == ("dark", 150)


def test_switches_can_be_clicked_and_used_by_keyboard(page, shared, qtbot, tmp_path):
    qtbot.mouseClick(page.motion, Qt.MouseButton.LeftButton)
    qtbot.keyClick(page.starts_node, Qt.Key.Key_Space)

    assert not kept(tmp_path).has_motion
    assert not kept(tmp_path).starts_node
    assert page.motion.accessibleName() or page.motion.text() == "Let things move"


def test_autostart_is_off_by_default_and_written_only_when_asked(page, switch, qtbot):
    assert not page.autostart.isChecked()
    assert not switch.is_on()
    page.autostart.click()
    assert switch.is_on()
    page.autostart.click()
    assert not switch.is_on()


def test_an_autostart_that_cannot_be_written_is_said_and_stays_off(shared, tmp_path, qtbot):
    (tmp_path / "blocked").write_text("", encoding="utf-8")
    page = SettingsPage(shared, autostart=DesktopAutostart(tmp_path / "blocked", ("daisy",)))
    qtbot.addWidget(page)
    page.autostart.click()

    assert not page.autostart.isChecked()
    assert page.trouble.text().startswith("That could not be changed")


def test_the_name_is_cleaned_and_no_longer_than_others_show(page, shared, tmp_path):
    page.pc_name.setText("  书房\u202e  的\u200b电脑 ")
    page.pc_name.editingFinished.emit()
    assert kept(tmp_path).pc_name == "书房 的电脑"
    page.pc_name.setText("电" * 60)
    page.pc_name.editingFinished.emit()
    assert len(kept(tmp_path).pc_name.encode()) <= 63


def test_memory_to_lend_is_kept_in_bytes_and_no_limit_is_none(page, tmp_path):
    page.is_limited.click()
    page.limit.setValue(6)
    assert kept(tmp_path).lend_bytes == 6 * GIB
    page.is_limited.click()
    assert kept(tmp_path).lend_bytes is None


def test_name_and_limit_are_what_the_next_node_is_started_with(page, shared):
    page.pc_name.setText("ATTIC")
    page.pc_name.editingFinished.emit()
    page.is_limited.click()
    page.limit.setValue(3)

    assert shared.node._options == ("--name=ATTIC", f"--memory={3 * GIB}")
    assert isinstance(shared.node, NodeProcess)


def test_a_choice_that_waits_for_the_next_start_says_so(page, shared):
    own = report(DESK, memory_cap_bytes=4 * GIB)
    shared.status.changed.emit(pool(node(DESK, own)))
    shared.preferences.choose(lend_bytes=4 * GIB)
    assert page._labels["now"].text() == "Now: DESK, lends 4.0 GiB."
    shared.preferences.choose(lend_bytes=6 * GIB)

    assert "waiting for the engine's next start" in page._labels["now"].text()
    assert page._labels["next_start"].text() == "Applies when the engine starts the next time."


def test_looking_at_the_page_chooses_nothing(page, shared, tmp_path):
    shared.wording.choose("zh")
    page.hidden()
    page.shown()

    assert not (tmp_path / "app" / "choices.json").exists()


def test_the_wheel_changes_nothing_unseen(page, qapp):
    before = page.scale.currentIndex()
    event = QWheelEvent(
        QPointF(5, 5),
        QPointF(5, 5),
        QPoint(0, -120),
        QPoint(0, -120),
        Qt.MouseButton.NoButton,
        Qt.KeyboardModifier.NoModifier,
        Qt.ScrollPhase.NoScrollPhase,
        False,
    )
    qapp.sendEvent(page.scale, event)

    assert page.scale.currentIndex() == before


def test_the_data_folder_is_shown_and_can_be_copied(page, tmp_path):
    page.copy_folder.click()

    assert page.folder.text() == str(tmp_path)
    assert QGuiApplication.clipboard().text() == str(tmp_path)


def test_a_choice_that_cannot_be_written_is_said_and_holds(tmp_path, shared, switch, qtbot, qapp):
    (tmp_path / "app").write_text("a file in the folder's place", encoding="utf-8")
    preferences = Preferences(tmp_path / "app" / "choices.json", qapp)
    page = SettingsPage(shared, autostart=switch)
    qtbot.addWidget(page)
    preferences.failed.connect(page._on_unwritten)
    preferences.choose(theme="dark")

    assert preferences.choices.theme == "dark"
    assert page.trouble.text().startswith("The choice holds until Daisy ends")


@pytest.mark.parametrize("has_tray", [True, False])
def test_a_desktop_without_a_tray_is_said(page, monkeypatch, has_tray):
    monkeypatch.setattr(QSystemTrayIcon, "isSystemTrayAvailable", lambda: has_tray)
    page.shown()

    assert page.no_tray.isVisible() is not has_tray
    assert "no tray icons" in page.no_tray.text()


def test_the_keys_are_listed_as_they_are(shared, qtbot):
    card = KeysCard(shared.look, shared.wording)
    qtbot.addWidget(card)
    what, keys = card.lines["new"]
    assert (what.text(), keys.text()) == ("New chat", "Ctrl+N")
    shared.wording.choose("zh")
    assert what.accessibleName() == "新对话: Ctrl+N"
