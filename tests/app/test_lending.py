"""When this PC lends itself: chosen in the tray and among the settings, kept by the node."""

import shutil
import subprocess

import pytest
from PySide6.QtCore import Qt

from app.bridge.idle import MutterIdle, WindowsIdle, XIdle, source_name
from app.bridge.lending import IDLE_AFTER_S, Lending
from app.settings.lending_card import LendingCard
from app.tray.lending import LendingMenu
from app.tray.tray import Tray
from tests.app.pools import three_pcs
from tests.app.rooms import surroundings

PATIENCE_MS = 15_000


class Watch:
    """A desktop that tells how long nobody was there; or doesn't."""

    def __init__(self, idle_s):
        self.idle_s = idle_s

    def look(self, told):
        told(self.idle_s)


@pytest.fixture
def wait(qtbot):
    return lambda condition: qtbot.waitUntil(lambda: bool(condition()), timeout=PATIENCE_MS)


@pytest.fixture
def shared(tmp_path, owner):
    return surroundings(tmp_path, owner)


@pytest.fixture
def lend(tmp_path, owner, wait):
    made = []

    def begin(idle_s=None):
        lending = Lending(tmp_path, Watch(idle_s), owner)
        lending._timer.setInterval(40)
        made.append(lending)
        lending.watch()
        return lending

    yield begin
    for lending in made:
        lending.unwatch()
        lending._questions._link.close()


def rules(menu):
    return {name: (a.isEnabled(), a.isChecked()) for name, a in menu.rules.items()}


def test_the_menu_shows_what_holds_and_changes_it(shared, lend, wait, start_node):
    node = start_node()
    lending = lend()
    menu = LendingMenu(shared.wording, lending)
    assert menu.told.text() == "Daisy's engine does not answer at the moment."
    assert not any(enabled for enabled, _ in rules(menu).values())
    wait(lambda: lending.report)

    assert rules(menu)["now"] == (True, True)
    assert menu.told.text() == "This PC is lent now."
    menu.rules["never"].trigger()
    wait(lambda: menu.told.text() == "This PC is not lent. Others go on without it.")
    assert rules(menu)["never"] == (True, True)
    (asked,) = node.asked_of_members()
    assert (asked["asked"], asked["rule"], asked["pause_s"]) == ("SetLending", "never", None)


def test_an_hours_pause_is_one_click_and_ended_by_another(shared, lend, wait, start_node):
    node = start_node()
    lending = lend()
    menu = LendingMenu(shared.wording, lending)
    wait(lambda: lending.report)
    menu.pause.trigger()
    wait(lambda: menu.told.text() == "Paused for 60 more minutes.")
    assert menu.pause.text() == "Lend again now"
    shared.wording.choose("zh")
    assert menu.told.text() == "已暂停，还有 60 分钟。"
    shared.wording.choose("en")
    menu.pause.trigger()
    wait(lambda: menu.told.text() == "This PC is lent now.")
    assert [told["pause_s"] for told in node.asked_of_members()] == [3600.0, 0.0]


def test_when_idle_is_offered_only_where_the_desktop_tells(shared, lend, wait, start_node):
    start_node()
    blind = lend(None)
    menu = LendingMenu(shared.wording, blind)
    wait(lambda: blind.report)
    assert rules(menu)["idle"] == (False, False)
    assert "does not tell whether somebody is here" in menu.rules["idle"].toolTip()


def test_the_node_is_told_who_is_here_again_and_again(shared, lend, wait, start_node):
    node = start_node()
    lending = lend(IDLE_AFTER_S - 1)
    menu = LendingMenu(shared.wording, lending)
    wait(lambda: lending.report and lending.can_see_idle)
    menu.rules["idle"].trigger()
    wait(lambda: menu.told.text() == "Somebody is here: this PC is not lent now.")
    wait(lambda: any(told["asked"] == "TellIdle" for told in node.asked_of_members()))
    lending._idle.idle_s = IDLE_AFTER_S
    wait(lambda: menu.told.text() == "Nobody is here: this PC is lent now.")
    told = [one["is_idle"] for one in node.asked_of_members() if one["asked"] == "TellIdle"]
    assert told[0] is False
    assert told[-1] is True


def test_a_pc_that_is_alone_is_told_that_nothing_is_lent(shared, lend, wait, start_node):
    start_node(is_alone=True)
    lending = lend()
    menu = LendingMenu(shared.wording, lending)
    wait(lambda: lending.report)
    menu.rules["never"].trigger()
    wait(lambda: rules(menu)["never"] == (True, True))
    assert menu.told.text() == "No other PC is in the pool: nothing is lent."
    assert not lending.is_held_back


def test_the_tray_shows_a_pause(shared, wait, start_node, qtbot):
    start_node()
    shared.node.watch(starts=False)
    tray = Tray(shared, is_available=lambda: True)
    tray.begin()
    shared.lending.watch()
    wait(lambda: shared.lending.report and shared.status.status)
    shared.status._status = three_pcs()
    tray.lending.pause.trigger()
    wait(lambda: tray.state.heart == "paused")
    assert tray.icon.toolTip() == "Lending is paused."
    tray.end()
    shared.lending.unwatch()
    for link in (shared.lending._questions._link, shared.node._link):
        link.close()


def test_a_node_that_leaves_is_no_longer_believed(lend, wait, start_node, monkeypatch):
    monkeypatch.setattr("app.bridge.lending.ANSWER_WITHIN_MS", 2000)
    node = start_node(in_process=True)
    lending = lend()
    wait(lambda: lending.report)
    node.kill()
    wait(lambda: lending.report is None)


# ---- among the settings ------------------------------------------------------------------------


def test_the_settings_offer_the_same_by_keyboard(shared, lend, wait, start_node, qtbot):
    node = start_node()
    lending = lend(0.0)
    card = LendingCard(shared.look, shared.wording, lending)
    qtbot.addWidget(card)
    card.show()
    wait(lambda: lending.report)
    assert [card.rule.itemText(i) for i in range(3)] == ["Now", "When it is idle", "Never"]
    card.rule.setFocus()
    qtbot.keyClick(card.rule, Qt.Key.Key_End)
    wait(lambda: card.told.text() == "This PC is not lent. Others go on without it.")
    assert node.own_pc.rule == "never"
    qtbot.keyClick(card.pause, Qt.Key.Key_Space)
    wait(lambda: "Paused" in card.told.text())
    assert node.own_pc.paused_s == 3600.0


def test_a_pc_on_its_battery_is_kept_back_by_one_switch(shared, lend, wait, start_node, qtbot):
    node = start_node()
    lending = lend()
    card = LendingCard(shared.look, shared.wording, lending)
    qtbot.addWidget(card)
    card.show()
    wait(lambda: lending.report)
    assert not card.mains.isChecked()
    qtbot.keyClick(card.mains, Qt.Key.Key_Space)
    wait(lambda: node.own_pc.mains_only and card.mains.isChecked())
    node.own_pc.on_battery = True
    wait(lambda: card.told.text() == "This PC runs on its battery and is not lent now.")
    assert lending.is_held_back
    qtbot.keyClick(card.mains, Qt.Key.Key_Space)
    wait(lambda: card.told.text() == "This PC is lent now.")


def test_what_cant_be_kept_is_not_offered_and_a_refusal_is_said(
    shared, lend, wait, start_node, qtbot
):
    trouble = {"code": "storage", "what": "Full.", "advice": "Free some."}
    start_node(own_pc_trouble={"SetLending": trouble})
    lending = lend(None)
    card = LendingCard(shared.look, shared.wording, lending)
    qtbot.addWidget(card)
    card.show()
    wait(lambda: lending.report)
    assert [card.rule.itemData(i) for i in range(card.rule.count())] == ["now", "never"]
    assert card.idle_unknown.isVisible()
    card.rule.setCurrentIndex(1)
    card.rule.activated.emit(1)
    wait(card.trouble.isVisible)
    assert card.trouble.text().startswith("Files could not be written.")
    wait(lambda: lending.report and card.rule.currentData() == "now")  # what holds, not the wish


# ---- who tells ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("platform", "environment", "name"),
    [
        ("win32", {}, "windows"),
        ("linux", {"XDG_CURRENT_DESKTOP": "ubuntu:GNOME", "WAYLAND_DISPLAY": "w"}, "mutter"),
        ("linux", {"XDG_CURRENT_DESKTOP": "XFCE", "DISPLAY": ":0"}, "x"),
        ("linux", {"XDG_CURRENT_DESKTOP": "KDE", "DISPLAY": ":0", "WAYLAND_DISPLAY": "w"}, None),
        ("linux", {}, None),
    ],
)
def test_who_tells_depends_on_the_desktop(platform, environment, name):
    assert source_name(platform, environment) == name


def test_the_x_server_tells_how_long_nobody_was_there(monkeypatch, wait):
    program = shutil.which("Xvfb")
    if program is None:
        pytest.skip("there is no Xvfb")
    server = subprocess.Popen(
        [program, "-displayfd", "1", "-screen", "0", "64x64x8"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    try:
        number = server.stdout.readline().decode().strip()
        monkeypatch.setenv("DISPLAY", f":{number}")
        told = []
        source = XIdle()
        source.look(told.append)
        if told == [None]:
            pytest.skip("the X server has no screen saver extension")
        wait(lambda: source.look(told.append) or told[-1] > told[0])
        assert 0 <= told[0] < 600
    finally:
        server.kill()
        server.wait()
        server.stdout.close()


def test_where_nobody_tells_nothing_is_known(monkeypatch, owner, wait):
    told = []
    monkeypatch.setenv("DISPLAY", ":9876")
    XIdle().look(told.append)
    WindowsIdle().look(told.append)
    MutterIdle(owner).look(told.append)
    wait(lambda: len(told) == 3)
    assert told == [None, None, None]
