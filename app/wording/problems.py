"""What went wrong, in the language that is chosen: by codes and fields, not by its English."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from app.safe_text import shown
from app.wording.node_words import recognised_words

if TYPE_CHECKING:
    from app.bridge.problem import Problem
    from app.wording.wording import Wording

_NUMBERS = re.compile(r"\d+")
_OTHER = "internal"
_TOO_LONG = "context_length_exceeded"
_GUESSED = "pairing_guessed"


class Words(NamedTuple):
    """What a person reads.

    Attributes:
        what: What happened.
        advice: What to do about it.
        details: The engine's own sentences, for who wants to know.
    """

    what: str
    advice: str
    details: str


def problem_words(problem: Problem, wording: Wording) -> Words:
    """Return what to say of a problem.

    Args:
        problem: As the bridge told it.
        wording: In the language that is chosen.
    """
    code = problem.code if wording.has(f"errors.{problem.code}") else _OTHER
    details = shown(f"{problem.what} {problem.advice}".strip())
    values = _numbers_of(problem, wording) if code == _TOO_LONG else {}
    if code == _TOO_LONG and not values:
        return Words(shown(problem.what), wording.text(f"errors.{code}.advice"), details)
    # What the node says of this very case tells more than what is true of all of its kind.
    what = recognised_words(wording, problem.what) if problem.what else None
    advice = recognised_words(wording, problem.advice) if problem.advice else None
    return Words(
        what or wording.text(f"errors.{code}", **values),
        advice or _advice_of(code, problem, wording),
        details,
    )


def _advice_of(code: str, problem: Problem, wording: Wording) -> str:
    if code != _GUESSED:
        return wording.text(f"errors.{code}.advice")
    wait = _NUMBERS.search(problem.advice)
    if wait is None:
        return wording.text("errors.pairing.advice")
    return wording.text(f"errors.{code}.advice", n=int(wait.group()))


def _numbers_of(problem: Problem, wording: Wording) -> dict[str, object]:
    """Return the three numbers of a prompt that is too long; none where the sentence has others."""
    numbers = [int(digits) for digits in _NUMBERS.findall(problem.what)]
    if len(numbers) != 3:
        return {}
    prompt, context, excess = (wording.locale.toString(number) for number in numbers)
    return {"n": numbers[2], "prompt": prompt, "context": context, "excess": excess}
