"""What went wrong, as the bridge tells it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine.errors import DaisyError
    from engine.messages.control import ErrorReport
    from engine.messages.deployment import Trouble


@dataclass(frozen=True, slots=True)
class Problem:
    """An error of ours, as a page shows it.

    Attributes:
        code: The class's stable slug: the words shown are chosen by it.
        what: The node's own sentence, shown as detail.
        advice: The node's own advice.
    """

    code: str
    what: str
    advice: str


def problem_of(error: DaisyError | ErrorReport | Trouble) -> Problem:
    """Return an error as a page shows it.

    Args:
        error: Raised here, or told by the node.
    """
    return Problem(error.code, error.what, error.advice)
