import itertools
import math
import time

import pytest
from PySide6.QtGui import QColor, QImage, QPainter
from PySide6.QtWidgets import QSystemTrayIcon

from app.bridge.node_process import NodeState
from app.look.tokens import DARK, LIGHT
from app.tray import tray as tray_module
from app.tray.icon import SIDES, tray_icon, tray_pixmap
from app.tray.state import TrayState
from app.tray.tray import Tray
from tests.app.pools import three_pcs
from tests.app.rooms import surroundings

HEARTS = ("idle", "serving", "answering", "transferring", "paused", "problem")
PETALS = ("ready", "ready", "present")


@pytest.fixture
def shared(tmp_path, owner):
    return surroundings(tmp_path, owner)


def on_panel(state, side, *, is_dark, in_colour):
    """Return an icon as it stands on a panel, in grey."""
    panel = QImage(side, side, QImage.Format.Format_RGB32)
    panel.fill(QColor((DARK if is_dark else LIGHT).paper))
    painter = QPainter(panel)
    painter.drawPixmap(0, 0, tray_pixmap(state, side, is_dark=is_dark, in_colour=in_colour))
    painter.end()
    grey = panel.convertToFormat(QImage.Format.Format_Grayscale8)
    return [grey.pixelColor(x, y).red() for y in range(side) for x in range(side)]


def difference(one, other):
    return sum(abs(a - b) > 60 for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("is_dark", [False, True])
def test_each_state_has_a_shape_of_its_own_at_22_pixels_in_one_colour(qapp, is_dark):
    drawn = {
        heart: on_panel(TrayState(PETALS, heart, ""), 22, is_dark=is_dark, in_colour=False)
        for heart in HEARTS
    }

    for one, other in itertools.combinations(HEARTS, 2):
        assert difference(drawn[one], drawn[other]) >= 6, (one, other)


@pytest.mark.parametrize("is_dark", [False, True])
def test_filled_outlined_and_missing_petals_differ_in_one_colour(qapp, is_dark):
    def drawn(kind):
        state = TrayState(("ready", kind, "ready"), "idle", "")
        return on_panel(state, 22, is_dark=is_dark, in_colour=False)

    for one, other in itertools.combinations(("ready", "present", "missing"), 2):
        assert difference(drawn(one), drawn(other)) >= 6, (one, other)


@pytest.mark.parametrize("count", range(1, 9))
def test_each_pc_is_a_petal_that_can_be_counted(qapp, count):
    image = tray_pixmap(TrayState(("ready",) * count, "idle", ""), 64, is_dark=False).toImage()
    centre, radius = 32, 7.5 / 22 * 64
    seen = []
    for step in range(720):
        angle = step / 720 * 2 * math.pi
        x, y = centre + radius * math.cos(angle), centre + radius * math.sin(angle)
        seen.append(image.pixelColor(int(x), int(y)).alpha() > 128)
    first = seen.index(False)
    runs = [list(run) for _, run in itertools.groupby(seen[first:] + seen[:first])]
    wide = [run for run in runs if run[0] and len(run) > 25]  # a dot, where nobody is, has 25

    assert len(wide) == count


def test_the_icon_has_every_size_a_panel_may_want(qapp):
    icon = tray_icon(TrayState(PETALS, "idle", ""), is_dark=True)

    assert sorted(size.width() for size in icon.availableSizes()) == list(SIDES)


def test_the_tooltip_and_the_icon_follow_the_pool_and_the_language(shared, qtbot):
    tray = Tray(shared, is_available=lambda: True)
    shared.node._state = NodeState.RUNNING
    shared.status._status = three_pcs()
    tray.begin()

    assert tray.icon.toolTip() == "2 PCs ready, Qwen3 14B, about 11 tok/s."
    shared.wording.choose("zh")
    assert tray.icon.toolTip() == "2 台电脑就绪，Qwen3 14B，约 11 词元/秒。"
    before = tray.icon.icon().pixmap(22, 22).toImage()
    shared.status._status = three_pcs("loading")
    shared.status.changed.emit(shared.status._status)
    assert tray.state.heart == "transferring"
    assert tray.icon.icon().pixmap(22, 22).toImage() != before
    tray.end()


def test_the_menu_leads_everywhere(shared, qtbot):
    tray = Tray(shared, is_available=lambda: True)
    went, quits = [], []
    shared.navigation.asked.connect(went.append)
    tray.quit_wanted.connect(lambda: quits.append(1))
    for name in ("chat", "pool", "models", "add_pc", "settings", "doctor", "quit"):
        assert tray.action(name).text()
        tray.action(name).trigger()

    assert went == ["chat", "pool", "models", "devices", "settings", "doctor"]
    assert quits == [1]


def test_a_click_on_the_icon_opens_the_window(shared, qtbot):
    tray = Tray(shared, is_available=lambda: True)
    with qtbot.waitSignal(tray.opened, timeout=500):
        tray.icon.activated.emit(QSystemTrayIcon.ActivationReason.Trigger)


def test_without_a_tray_it_looks_again_and_says_so_in_the_end(shared, qtbot, monkeypatch):
    monkeypatch.setattr(tray_module, "LOOK_AGAIN_MS", 10)
    monkeypatch.setattr(tray_module, "GIVE_UP_AFTER_S", 0.05)
    has_tray = []
    tray = Tray(shared, is_available=lambda: bool(has_tray))
    began_s = time.monotonic()
    with qtbot.waitSignal(tray.absent, timeout=2000):
        tray.begin()
    assert time.monotonic() - began_s >= 0.05
    assert tray.is_absent
    assert not tray.is_shown

    with qtbot.waitSignal(tray.appeared, timeout=2000):
        has_tray.append(1)  # somebody switched an extension on
    assert not tray.is_absent
    tray.end()


def test_a_tray_that_comes_late_is_used_without_a_word(shared, qtbot, monkeypatch):
    monkeypatch.setattr(tray_module, "LOOK_AGAIN_MS", 10)
    looks = iter([False, False, True])
    tray = Tray(shared, is_available=lambda: next(looks))
    absent = []
    tray.absent.connect(lambda: absent.append(1))
    with qtbot.waitSignal(tray.appeared, timeout=2000):
        tray.begin()

    assert absent == []
    tray.end()
