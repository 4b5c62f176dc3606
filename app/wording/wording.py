"""The words in the language that is chosen, switched while the window is open."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QLocale, QObject, Signal

from app.wording.catalogue import LANGUAGES, filled, read_language

if TYPE_CHECKING:
    from pathlib import Path

    from app.wording.catalogue import Sentence

SYSTEM = "system"  # the choice that follows the system's language


class Wording(QObject):
    """Gives sentences by key.

    Attributes:
        changed: The language is another one: whoever shows words sets them again.

    Thread: the main one.
    """

    changed = Signal()

    def __init__(self, folder: Path, choice: str = SYSTEM, parent: QObject | None = None) -> None:
        """Read both languages.

        Args:
            folder: With one folder for each language.
            choice: ``en``, ``zh`` or ``system``.
            parent: Owns it.
        """
        super().__init__(parent)
        self._sentences: dict[str, dict[str, Sentence]] = {
            language: read_language(folder / language) for language in LANGUAGES
        }
        self._language = language_of(choice)

    @property
    def language(self) -> str:
        """What is shown: ``en`` or ``zh``."""
        return self._language

    @property
    def locale(self) -> QLocale:
        """For numbers and dates in that language."""
        is_chinese = self._language == "zh"
        return QLocale(QLocale.Language.Chinese if is_chinese else QLocale.Language.English)

    def choose(self, choice: str) -> None:
        """Switch the language; everybody is told.

        Args:
            choice: ``en``, ``zh`` or ``system``.
        """
        language = language_of(choice)
        if language != self._language:
            self._language = language
            self.changed.emit()

    def text(self, key: str, **values: object) -> str:
        """Return a sentence.

        Args:
            key: ``place.name``.
            values: Of its fields; ``n`` decides the plural form.

        Raises:
            KeyError: There is none of that key, or a field has no value.
        """
        return filled(self._sentences[self._language][key], self._language, values)

    def has(self, key: str) -> bool:
        """Return whether there is a sentence of that key.

        Args:
            key: ``place.name``.
        """
        return key in self._sentences[self._language]


def language_of(choice: str) -> str:
    """Return the language a choice stands for.

    Args:
        choice: ``en``, ``zh`` or ``system``.
    """
    if choice in LANGUAGES:
        return choice
    is_chinese = QLocale.system().language() == QLocale.Language.Chinese
    return "zh" if is_chinese else LANGUAGES[0]
