"""Take a picture of each page and dialog, in both languages and themes, at 100 % and 200 %.

    python reproduction/screenshots.py FOLDER [--scale 1 --scale 2] [--scene chat] [--windows]

Drawn without a screen, with a pool and a chat that are made up: nothing runs. ``--windows`` draws
them in real windows of an X server of its own (Xvfb must be installed).
"""

from __future__ import annotations

import argparse
import itertools
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

from PySide6.QtCore import QElapsedTimer, QMargins, QPoint, QRect  # noqa: E402 - after what they need is set
from PySide6.QtGui import QColor, QPainter, QPixmap  # noqa: E402
from PySide6.QtWidgets import QApplication, QDialog, QWidget  # noqa: E402
from scenes import ShownNode, fill, ill, loading, ready  # noqa: E402

from app.chat.link_question import ask_to_open  # noqa: E402
from app.parts.column import Column  # noqa: E402
from app.start import Program, prepare  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable

SIZE = (1180, 780)
SETTLE_MS = 1200
SCREEN = "2600x1700x24"


class Stage(NamedTuple):
    """What a scene is set on."""

    program: Program
    node: ShownNode


class Scene(NamedTuple):
    """One picture.

    Attributes:
        name: Of its file, and of the scene.
        page: Which is shown.
        prepare: Brings it there; what it returns is drawn above the window.
    """

    name: str
    page: str
    prepare: Callable[[Stage], QWidget | None] | None = None


def _answered(stage: Stage) -> None:
    stage.program.about.answering.pace_changed.emit(11.2)


def _settings_of_chat(stage: Stage) -> None:
    stage.program.window.page("chat").settings.show()


def _empty_chat(stage: Stage) -> None:
    stage.program.window.page("chat").new_chat()


def _details(stage: Stage) -> None:
    pool = stage.program.window.page("pool")
    pool._on_chosen(stage.node.shown.nodes[1].node_id)  # noqa: SLF001 - as a click does


def _table(stage: Stage) -> None:
    pool = stage.program.window.page("pool")
    pool.details._put_away()  # noqa: SLF001
    pool._views[1].click()  # noqa: SLF001


def _plan(stage: Stage) -> None:
    stage.program.window.page("pool")._views[0].click()  # noqa: SLF001
    stage.node.shown = loading()
    stage.program.about.status.refresh()


def _load(stage: Stage) -> None:
    stage.node.shown = loading()
    stage.program.about.status.refresh()


def _code(stage: Stage) -> None:
    stage.node.shown = ready()
    stage.program.window.page("devices").invite.show_code.click()


def _findings(stage: Stage) -> None:
    stage.node.shown = ill()
    stage.program.about.status.refresh()
    stage.program.window.page("doctor").run.click()


def _end_of(name: str) -> Callable[[Stage], None]:
    def scroll(stage: Stage) -> None:
        bar = stage.program.window.page(name).findChild(Column).verticalScrollBar()
        bar.setValue(bar.maximum())

    return scroll


def _closing(stage: Stage) -> QWidget:
    return stage.program.window.ask_about_closing()


def _link(stage: Stage) -> QWidget | None:
    window = stage.program.window
    ask_to_open("https://example.org/daisy?petals=8", stage.program.about.wording, window)
    return QApplication.activeModalWidget()


def _tray_menu(stage: Stage) -> QWidget:
    menu = stage.program.tray.menu
    menu.popup(QPoint(0, 0))
    return menu


class How(NamedTuple):
    """What a picture is taken in."""

    language: str
    theme: str
    scale: float

    @property
    def name(self) -> str:
        """Of the file, behind the scene's."""
        return f"{self.language}-{self.theme}-{round(100 * self.scale)}"


SCENES = (
    Scene("chat", "chat", _answered),
    Scene("chat-settings", "chat", _settings_of_chat),
    Scene("pool", "pool"),
    Scene("pool-details", "pool", _details),
    Scene("pool-table", "pool", _table),
    Scene("pool-plan", "pool", _plan),
    Scene("models-loading", "models", _load),
    Scene("devices", "devices", _code),
    Scene("models", "models"),
    Scene("models-end", "models", _end_of("models")),
    Scene("settings", "settings"),
    Scene("settings-end", "settings", _end_of("settings")),
    Scene("doctor", "doctor", _findings),
    Scene("doctor-end", "doctor", _end_of("doctor")),
    Scene("chat-empty", "chat", _empty_chat),
    Scene("closing", "chat", _closing),
    Scene("link", "chat", _link),
    Scene("tray-menu", "chat", _tray_menu),
)


def main() -> int:
    """Take the pictures.

    Returns:
        The exit status.
    """
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--scale", type=float, action="append")
    parser.add_argument("--scene", action="append", choices=[scene.name for scene in SCENES])
    parser.add_argument("--windows", action="store_true", help="real ones, under Xvfb")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    scales = given.scale or [1.0, 2.0]
    wanted = given.scene or [scene.name for scene in SCENES]
    if given.windows:
        return _under_xvfb([word for word in sys.argv[1:] if word != "--windows"])
    prepare()
    application = QApplication(sys.argv[:1])
    for how in itertools.product(("en", "zh"), ("light", "dark"), scales):
        take(application, given.folder, How(*how), wanted)
    return 0


def _again(words: list[str]) -> int:
    return subprocess.run([sys.executable, __file__, *words], check=False).returncode


def _under_xvfb(words: list[str]) -> int:
    """Run this script again with an X server of its own."""
    reading, writing = os.pipe()
    command = ["Xvfb", "-displayfd", str(writing), "-screen", "0", SCREEN, "-nolisten", "tcp"]
    with subprocess.Popen(command, pass_fds=(writing,), stderr=subprocess.DEVNULL) as server:
        try:
            os.close(writing)
            number = os.read(reading, 16).decode().strip()
            os.environ.update(DISPLAY=f":{number}", QT_QPA_PLATFORM="xcb")
            return _again(words)
        finally:
            server.terminate()


def take(application: QApplication, folder: Path, how: How, wanted: list[str]) -> None:
    """Take the pictures of one language, theme and size.

    Args:
        application: Qt's.
        folder: Where pictures go.
        how: Which.
        wanted: Scenes by name.
    """
    with tempfile.TemporaryDirectory() as data:
        node = ShownNode(Path(data))
        program = Program(application, Path(data))
        about, window = program.about, program.window
        about.preferences.choose(
            language=how.language,
            theme=how.theme,
            scale_percent=round(100 * how.scale),
            starts_node=False,
        )
        about.node.watch(starts=False)
        window.resize(*(round(side * how.scale) for side in SIZE))
        window.show()
        chat = window.page("chat")
        chat.store.do(lambda database: fill(database, how.language))
        chat.list.refresh()
        chat.desk.open("shown")
        for scene in SCENES:
            chat.settings.hide()
            if scene.name in wanted:
                file = folder / f"{scene.name}-{how.name}.png"
                _shoot(application, Stage(program, node), scene, file)
        about.node.stop()
        window.hide()
        window.close_pages()
        window.deleteLater()
        program.deleteLater()
        _settle(application)
        node.end()


def _shoot(application: QApplication, stage: Stage, scene: Scene, file: Path) -> None:
    window = stage.program.window
    window.go(scene.page)
    _settle(application)
    above = scene.prepare(stage) if scene.prepare is not None else None
    _settle(application)
    picture = window.grab()
    if above is not None:
        _draw_above(picture, above, window)
        above.close()
    picture.save(str(file))
    print(file.name, flush=True)


def _draw_above(picture: QPixmap, above: QWidget, window: QWidget) -> None:
    """Draw a dialog or menu in the middle of the window's picture, what is behind it in shade."""
    drawn = above.grab()
    place = QRect(window.rect().center() - above.rect().center(), above.size())
    frame = QMargins(12, 12, 12, 12) if isinstance(above, QDialog) else QMargins()
    painter = QPainter(picture)
    painter.fillRect(window.rect(), QColor(0, 0, 0, 70))
    painter.fillRect(place.marginsAdded(frame), above.palette().color(above.backgroundRole()))
    painter.drawPixmap(place.topLeft(), drawn)
    painter.end()


def _settle(application: QApplication) -> None:
    clock = QElapsedTimer()
    clock.start()
    while clock.elapsed() < SETTLE_MS:
        application.processEvents()


if __name__ == "__main__":
    sys.exit(main())
