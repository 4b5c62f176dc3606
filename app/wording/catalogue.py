"""The wording files: one folder a language, one file a place, one line a sentence. Pure.

A key is ``place.name``: ``chat.send`` is ``send`` in ``chat.json``. A value is a sentence with
``{fields}``, or, where the number ``n`` decides, one sentence for each plural form of the language.
"""

from __future__ import annotations

import string
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from engine.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

Sentence: TypeAlias = str | dict[str, str]

LANGUAGES = ("en", "zh")  # the first is shown where the system's is another one
PLURAL_FORMS = {"en": ("one", "other"), "zh": ("other",)}
_FORMATTER = string.Formatter()


def read_language(folder: Path) -> dict[str, Sentence]:
    """Return every sentence of a language by its key.

    Args:
        folder: Of the language.

    Raises:
        StorageError: A file can't be read.
    """
    sentences: dict[str, Sentence] = {}
    for file in sorted(folder.glob("*.json")):
        try:
            place = msgspec.json.decode(file.read_bytes(), type=dict[str, Sentence])
        except (OSError, msgspec.MsgspecError) as exc:
            raise StorageError(f"{file} can't be read: {exc}.", "Install Daisy again.") from exc
        sentences.update({f"{file.stem}.{name}": sentence for name, sentence in place.items()})
    return sentences


def filled(sentence: Sentence, language: str, values: Mapping[str, object]) -> str:
    """Return a sentence with its fields filled in.

    Args:
        sentence: As it stands in the file.
        language: Its language; decides the plural form.
        values: Of its fields; ``n`` is the number that decides.
    """
    if isinstance(sentence, dict):
        is_one = "one" in PLURAL_FORMS[language] and values.get("n") == 1
        sentence = sentence["one" if is_one else "other"]
    return _FORMATTER.vformat(sentence, (), values) if values else sentence


def fields_of(sentence: Sentence) -> set[str]:
    """Return the names of the fields a sentence has.

    Args:
        sentence: As it stands in the file.
    """
    texts = sentence.values() if isinstance(sentence, dict) else (sentence,)
    return {name for text in texts for _, name, _, _ in _FORMATTER.parse(text) if name is not None}
