"""Where an answer ends: by a token id, or by a text that is never shown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True, slots=True)
class StopResult:
    """What became of a piece of text.

    Attributes:
        text: What may be shown now.
        matched: The stop string that ended the answer; None while it goes on.
    """

    text: str
    matched: str | None


class StopStrings:
    """Watches the text of one answer for stop strings, across all borders of tokens.

    Text that may be the beginning of a stop string is held back. The match that is complete first
    ends the answer; of several complete at the same letter, the longest. Neither it nor what
    follows is ever returned.
    """

    def __init__(self, strings: Iterable[str]) -> None:
        """Begin an answer.

        Args:
            strings: The stop strings; empty ones are ignored, and so are repetitions.
        """
        longest_first = sorted({text for text in strings if text}, key=lambda it: (-len(it), it))
        self._matchers = [_Matcher(text) for text in longest_first]
        self._held = ""
        self._matched: str | None = None

    @property
    def matched(self) -> str | None:
        """The stop string that ended the answer; None while it goes on."""
        return self._matched

    def push(self, text: str) -> StopResult:
        """Take the next piece of text.

        Args:
            text: Any length, also empty.

        Returns:
            What may be shown, and whether the answer has ended.
        """
        if self._matched is not None:
            return StopResult("", self._matched)
        seen = self._held + text
        for index, letter in enumerate(text, start=len(self._held)):
            complete = [matcher.text for matcher in self._matchers if matcher.advance(letter)]
            if complete:
                self._matched = complete[0]
                self._held = ""
                return StopResult(seen[: index + 1 - len(complete[0])], complete[0])
        num_held = max((matcher.num_matching for matcher in self._matchers), default=0)
        self._held = seen[len(seen) - num_held :]
        return StopResult(seen[: len(seen) - num_held], None)

    def flush(self) -> str:
        """Return what was held back, when no more text comes."""
        held, self._held = self._held, ""
        return held


class _Matcher:
    """Finds one string in a stream of letters (Knuth, Morris and Pratt)."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.num_matching = 0  # letters at the end of the stream that begin the text
        self._borders = [0] * (len(text) + 1)  # of each beginning: its longest end that begins it
        border = 0
        for index in range(1, len(text)):
            while border and text[index] != text[border]:
                border = self._borders[border]
            border += text[index] == text[border]
            self._borders[index + 1] = border

    def advance(self, letter: str) -> bool:
        while self.num_matching and self.text[self.num_matching] != letter:
            self.num_matching = self._borders[self.num_matching]
        self.num_matching += self.text[self.num_matching] == letter
        return self.num_matching == len(self.text)
