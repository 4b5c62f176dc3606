"""What a page of the window is."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from PySide6.QtWidgets import QWidget

if TYPE_CHECKING:
    from app.surroundings import Surroundings


class Page(QWidget):
    """One place of the window, reached over the rail on its left.

    A subclass names its title and icon, builds itself in ``__init__`` and keeps itself up to date:
    it listens to ``wording.changed`` and ``look.changed``. Between ``hidden`` and ``shown`` nobody
    sees it, and it should cost nothing: no timers, no ``status.watch``.

    Attributes:
        title_key: Its title's key in the wording files.
        icon_name: Its icon's file in ``resources/icons``, without the ending.
    """

    title_key: ClassVar[str]
    icon_name: ClassVar[str]

    def __init__(self, surroundings: Surroundings, parent: QWidget | None = None) -> None:
        """Begin unseen.

        Args:
            surroundings: What pages share.
            parent: Owns it.
        """
        super().__init__(parent)
        self.surroundings = surroundings

    def shown(self) -> None:
        """Be told that people see it now."""

    def hidden(self) -> None:
        """Be told that they no longer do."""

    def closing(self) -> None:
        """Be told that the program ends: what must not be lost is put on disk now."""
