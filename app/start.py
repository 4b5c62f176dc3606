"""Where the window's process begins: everything is made here, once, and joined."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtWidgets import QApplication

from app.bridge.answering import Answering
from app.bridge.loading import Loading
from app.bridge.node_process import NodeProcess
from app.bridge.status_feed import StatusFeed
from app.look.look import Look
from app.places import ICONS, WORDING, app_folder
from app.preferences import Preferences
from app.surroundings import Navigation, Surroundings
from app.window import Window
from app.wording.wording import Wording
from engine.config import data_folder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from PySide6.QtCore import QObject


def main(arguments: Sequence[str]) -> int:
    """Show the window until it is closed for good.

    Args:
        arguments: Of the command line.

    Returns:
        The exit status.
    """
    parser = argparse.ArgumentParser(prog="daisy", description="The window of Daisy.")
    parser.add_argument("--data", type=Path, metavar="DIR", default=data_folder())
    given = parser.parse_args(arguments)
    application = QApplication(sys.argv[:1])
    surroundings = build_surroundings(given.data.absolute(), application)
    window = Window(surroundings)
    window.show()
    return application.exec()


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
    loading = Loading(data_dir, parent)
    loading.last_source = choices.last_source
    loading.done.connect(lambda: preferences.choose(last_source=loading.last_source))
    node = NodeProcess(data_dir, parent)

    def use_choices() -> None:
        node.start_with(preferences.choices.pc_name, preferences.choices.lend_bytes)

    use_choices()
    preferences.changed.connect(use_choices)
    return Surroundings(
        data_dir=data_dir,
        preferences=preferences,
        look=look,
        wording=Wording(WORDING, choices.language, parent),
        node=node,
        status=StatusFeed(data_dir, parent),
        answering=Answering(data_dir, parent),
        loading=loading,
        navigation=Navigation(parent),
    )
