"""Qt's own words, in menus of fields and in file dialogs, in the language that is chosen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QLibraryInfo, QObject, QTranslator

if TYPE_CHECKING:
    from PySide6.QtCore import QCoreApplication

    from app.wording.wording import Wording

_FILES = {"zh": "qtbase_zh_CN"}  # English is what Qt is written in


class QtWords(QObject):
    """Keeps Qt's words in the language of ours."""

    def __init__(self, application: QCoreApplication, wording: Wording) -> None:
        """Begin with the language of now.

        Args:
            application: Whose words they are.
            wording: Ours.
        """
        super().__init__(application)
        self._application = application
        self._wording = wording
        self._translator: QTranslator | None = None
        wording.changed.connect(self.follow)
        self.follow()

    def follow(self) -> None:
        """Take over the language that is chosen."""
        if self._translator is not None:
            self._application.removeTranslator(self._translator)
            self._translator = None
        name = _FILES.get(self._wording.language)
        if name is None:
            return
        translator = QTranslator(self)
        folder = QLibraryInfo.path(QLibraryInfo.LibraryPath.TranslationsPath)
        if translator.load(name, folder):
            self._application.installTranslator(translator)
            self._translator = translator
