"""The node's sentences, said in the language that is chosen.

A node speaks English. What it is known to say is said again, by its code and with its fields; a
sentence of a newer node's, which nobody here knows, is shown as it came.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from app.safe_text import one_line
from engine.errors import DaisyError
from engine.pool.sentences import recognised

if TYPE_CHECKING:
    from app.wording.wording import Wording

_LONGEST = 2000
_LISTS = frozenset({"ways", "why"})  # fields whose parts stand between semicolons


def in_words(wording: Wording, sentences: str) -> str:
    """Return one of the node's texts in the language that is chosen.

    Args:
        wording: Of that language.
        sentences: As they came from the node: one, or several after each other.
    """
    shown = one_line(sentences, _LONGEST)
    if wording.language == "en":
        return shown
    return _again(wording, shown)


def recognised_words(wording: Wording, sentences: str) -> str | None:
    """Return one of the node's texts in the words of the window; None if it isn't known.

    Args:
        wording: Of the language that is chosen.
        sentences: As they came from the node.
    """
    return _said(wording, one_line(sentences, _LONGEST))


def _again(wording: Wording, text: str) -> str:
    said = _said(wording, text)
    return text if said is None else said


def _said(wording: Wording, text: str) -> str | None:
    """Return all sentences said again; None if one of them is not known."""
    advised = _advice(wording, text)
    if advised is not None:
        return advised
    found = recognised(text)
    if found is None:
        return None
    gap = "" if wording.language == "zh" else " "
    return gap.join(
        wording.text(f"told.{code}", **{k: _field(wording, k, f) for k, f in fields.items()})
        for code, fields in found
    )


def _field(wording: Wording, name: str, value: str) -> str:
    """Return a field, which may be a sentence of the node's itself, or a list of them."""
    if name not in _LISTS:
        return _again(wording, value)
    between = wording.text("window.between_parts")
    return between.join(_again(wording, part) for part in value.split("; "))


def _advice(wording: Wording, text: str) -> str | None:
    """Return a text that begins with the advice of one of the engine's errors; None if not."""
    for code, advice in _ADVICES:
        if not text.startswith(advice):
            continue
        rest = text[len(advice) :].lstrip()
        said = _said(wording, rest) if rest else ""
        if said is not None:
            gap = " " if said and wording.language == "en" else ""
            return wording.text(f"errors.{code}.advice") + gap + said
    return None


def _advices() -> tuple[tuple[str, str], ...]:
    """Return what each of the engine's errors advises, by its code, the longest first."""
    kinds: list[type[DaisyError]] = [DaisyError]
    for kind in kinds:
        kinds.extend(kind.__subclasses__())
    pairs = {(kind.code, kind.default_advice()) for kind in kinds}
    return tuple(sorted(pairs, key=lambda pair: (-len(pair[1]), pair[0])))


_ADVICES = _advices()
