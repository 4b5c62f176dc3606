"""The engine's sentences about a plan, said in the language that is chosen.

The engine speaks English. Where a sentence is one we know it is said again, with its numbers; one
that we do not know is shown as it came.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from app.safe_text import one_line

if TYPE_CHECKING:
    from app.wording.wording import Wording

_SIZE = r"([\d.]+ [GM]iB)"
_LONGEST = 2000

# Pattern, key in the pool's wording, and the names of its groups.
_KNOWN: tuple[tuple[re.Pattern[str], str, tuple[str, ...]], ...] = tuple(
    (re.compile(pattern), key, names)
    for pattern, key, names in (
        (r"It has room for these layers\.", "reason_room", ()),
        (r"It is not needed now; it can take over\.", "reason_standby", ()),
        (r"It can't be reached\.", "reason_unreached", ()),
        (r"Check that it is on and in the same network\.", "remedy_unreached", ()),
        (r"It has no device that can hold a stage\.", "reason_no_device", ()),
        (r"Update its drivers\.", "remedy_drivers", ()),
        (
            rf"It may give {_SIZE}, and the smallest stage of this model needs {_SIZE}\.",
            "reason_small",
            ("usable", "needed"),
        ),
        (rf"Raise its memory limit by {_SIZE}\.", "remedy_limit", ("missing",)),
        (rf"Close programs there that hold {_SIZE}\.", "remedy_programs", ("missing",)),
        (
            r"No PC holds the model alone; these are the fewest that do\.",
            "why_fewest",
            (),
        ),
        (r"One PC holds the model\.", "why_one", ()),
        (r"One PC would do, but these are faster\.", "why_faster", ()),
        (
            r"The first and the last stage stay on one PC; the fewest others hold the rest\.",
            "why_private",
            (),
        ),
        (r"The placement is as good as it was\.", "why_kept", ()),
    )
)


def in_words(wording: Wording, sentences: str) -> str:
    """Return one of the engine's texts in the language that is chosen.

    Args:
        wording: Of that language.
        sentences: As they came from the engine: one, or several after each other.
    """
    shown = one_line(sentences, _LONGEST)
    if wording.language == "en":
        return shown
    said = _said(wording, shown)
    return shown if said is None else said


def _said(wording: Wording, text: str) -> str | None:
    """Return all sentences said again; None if one of them is not known."""
    said = []
    while text:
        for pattern, key, names in _KNOWN:
            match = pattern.match(text)
            if match:
                values = dict(zip(names, match.groups(), strict=True))
                said.append(wording.text(f"pool.{key}", **values))
                text = text[match.end() :].lstrip()
                break
        else:
            return None
    return "".join(said)
