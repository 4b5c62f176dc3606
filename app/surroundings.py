"""What the pages, the tray and the window share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Signal

if TYPE_CHECKING:
    from pathlib import Path

    from app.bridge.answering import Answering
    from app.bridge.lending import Lending
    from app.bridge.loading import Loading
    from app.bridge.node_process import NodeProcess
    from app.bridge.status_feed import StatusFeed
    from app.look.look import Look
    from app.preferences import Preferences
    from app.wording.wording import Wording


class Navigation(QObject):
    """Brings people from one page to another.

    Attributes:
        asked: Carries the page's name.
    """

    asked = Signal(str)

    def go(self, name: str) -> None:
        """Show a page, raising the window.

        Args:
            name: As ``app.pages`` has it.
        """
        self.asked.emit(name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """Made once, at the start.

    Attributes:
        data_dir: Daisy's data folder.
        preferences: What the person chose.
        look: Theme, sizes, icons.
        wording: Every word.
        node: The node's process on this PC.
        status: The pool, once a second while somebody watches.
        answering: Requests under way.
        loading: What the pool is asked to run.
        lending: When this PC lends itself.
        navigation: From page to page.
    """

    data_dir: Path
    preferences: Preferences
    look: Look
    wording: Wording
    node: NodeProcess
    status: StatusFeed
    answering: Answering
    loading: Loading
    lending: Lending
    navigation: Navigation
