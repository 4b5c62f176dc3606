"""Where the window's process begins: everything is made here, once, and joined."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
from ctypes.util import find_library
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Qt, QTimer
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QApplication

from app.bridge.answering import Answering
from app.bridge.idle import idle_source_of_this_pc
from app.bridge.lending import Lending
from app.bridge.loading import Loading
from app.bridge.node_process import NodeProcess
from app.bridge.status_feed import StatusFeed
from app.look.dress import Dress
from app.look.look import Look
from app.places import ICONS, WORDING, app_folder
from app.preferences import Preferences
from app.screen import why_no_screen
from app.single_instance import SingleInstance
from app.surroundings import Navigation, Surroundings
from app.tray.tray import Tray
from app.window import Window
from app.wording.qt_words import QtWords
from app.wording.wording import Wording
from engine.config import data_folder

if TYPE_CHECKING:
    from collections.abc import Sequence

NO_SCREEN = 2  # the exit status, as that of a command that can't be done here
PYTHON_TURN_MS = 200  # Python sees a signal only when it has a turn


def main(arguments: Sequence[str]) -> int:
    """Show the window until the program is ended.

    Args:
        arguments: Of the command line.

    Returns:
        The exit status.
    """
    parser = argparse.ArgumentParser(prog="daisy", description="The window of Daisy.")
    parser.add_argument("--data", type=Path, metavar="DIR", default=data_folder())
    parser.add_argument("--hidden", action="store_true", help="begin in the tray")
    given = parser.parse_args(arguments)
    logging.basicConfig(level=logging.WARNING, format="%(name)s: %(message)s")
    trouble = why_no_screen(sys.platform, os.environ, lambda name: bool(find_library(name)))
    if trouble is not None:
        choices = Preferences(app_folder(given.data.absolute()) / "choices.json").choices
        sys.stderr.write(f"{Wording(WORDING, choices.language).text(trouble)}\n")
        return NO_SCREEN
    prepare()
    application = QApplication(sys.argv[:1])
    application.setApplicationName("Daisy")
    application.setDesktopFileName("daisy")
    application.setQuitOnLastWindowClosed(False)
    instance = SingleInstance(app_folder(given.data.absolute()), application)
    if not instance.claim():
        return 0
    program = Program(application, given.data.absolute())
    instance.raise_asked.connect(program.window.bring)
    program.begin(is_hidden=given.hidden)
    status = application.exec()
    instance.release()
    return status


def prepare() -> None:
    """Say what Qt must know before there is an application."""
    rounding = Qt.HighDpiScaleFactorRoundingPolicy.PassThrough
    QGuiApplication.setHighDpiScaleFactorRoundingPolicy(rounding)
    # Qt's wheels have no plugin for fcitx; its daemon answers to ibus as well.
    if "fcitx" in os.environ.get("XMODIFIERS", "") and not os.environ.get("QT_IM_MODULE"):
        os.environ["QT_IM_MODULE"] = "ibus"


def build_surroundings(data_dir: Path, parent: QObject) -> Surroundings:
    """Make what pages share.

    Args:
        data_dir: Daisy's data folder.
        parent: Owns all of it.
    """
    preferences = Preferences(app_folder(data_dir) / "choices.json", parent)
    choices = preferences.choices
    look = Look(ICONS, parent)
    look.choose(choices.theme, choices.scale_percent / 100)
    wording = Wording(WORDING, choices.language, parent)
    look.speak(wording.language)
    wording.changed.connect(lambda: look.speak(wording.language))
    loading = Loading(data_dir, parent)
    loading.last_source = choices.last_source
    loading.done.connect(lambda: preferences.choose(last_source=loading.last_source))
    preferences.changed.connect(lambda: _follow(preferences, look, wording))
    node = NodeProcess(data_dir, parent)
    node.start_with(choices.pc_name, choices.lend_bytes)
    preferences.changed.connect(
        lambda: node.start_with(preferences.choices.pc_name, preferences.choices.lend_bytes)
    )
    return Surroundings(
        data_dir=data_dir,
        preferences=preferences,
        look=look,
        wording=wording,
        node=node,
        status=StatusFeed(data_dir, parent),
        answering=Answering(data_dir, parent),
        loading=loading,
        lending=Lending(data_dir, idle_source_of_this_pc(parent), parent),
        navigation=Navigation(parent),
    )


def _follow(preferences: Preferences, look: Look, wording: Wording) -> None:
    choices = preferences.choices
    look.choose(choices.theme, choices.scale_percent / 100)
    wording.choose(choices.language)


class Program(QObject):
    """Window, tray and bridge, from the first moment to the last.

    Attributes:
        about: What pages share.
        window: The window.
        tray: The icon in the tray.
    """

    def __init__(self, application: QApplication, data_dir: Path) -> None:
        """Make everything; nothing is shown and nothing connected before ``begin``.

        Args:
            application: Qt's.
            data_dir: Daisy's data folder.
        """
        super().__init__(application)
        self._application = application
        self.about = build_surroundings(data_dir, self)
        self._dress = Dress(application, self.about.look)
        self._qt_words = QtWords(application, self.about.wording)
        self.window = Window(self.about)
        self.tray = Tray(self.about, self)
        self.window.quit_asked.connect(self.quit)
        self.tray.quit_wanted.connect(self.quit)
        self.tray.opened.connect(self.window.bring)
        self.tray.appeared.connect(lambda: self._on_tray(has_tray=True))
        self.tray.absent.connect(lambda: self._on_tray(has_tray=False))
        self._turns = QTimer(self)
        self._turns.timeout.connect(lambda: None)

    def begin(self, *, is_hidden: bool) -> None:
        """Show what is to be shown, and connect.

        Args:
            is_hidden: Begin in the tray, if there is one.
        """
        self._quit_on_signals()
        self.about.node.watch(starts=self.about.preferences.choices.starts_node)
        self.about.answering.open()
        self.about.lending.watch()
        self.tray.begin()
        if not is_hidden:
            self.window.show()

    def quit(self) -> None:
        """End the program, and the node if it was started by a window."""
        self.window.hide()
        self.window.close_pages()
        self.about.node.stop()
        self._application.quit()

    def _on_tray(self, *, has_tray: bool) -> None:
        self.window.has_tray = has_tray
        if not has_tray and self.window.isHidden():
            self.window.show()  # never without a way back

    def _quit_on_signals(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: self._application.quit())
        self._turns.start(PYTHON_TURN_MS)
