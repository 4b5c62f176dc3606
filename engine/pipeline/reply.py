"""One answer's text: ids in, text that will never be taken back out, and where it ends.

Pure: knows no clock, no connection and no scheduler.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engine.models.detokenizer import IncrementalDetokenizer
    from engine.models.stopping import StopStrings

FinishReason = Literal["stop", "length", "cancelled"]


class Reply:
    """The answer to one request, as far as it has come."""

    def __init__(
        self,
        detokenizer: IncrementalDetokenizer,
        stop_strings: StopStrings,
        stop_ids: frozenset[int],
        max_tokens: int,
    ) -> None:
        """Begin an answer.

        Args:
            detokenizer: Fresh.
            stop_strings: Fresh.
            stop_ids: Ids that end the answer and are not shown.
            max_tokens: Ids the answer may have, the one that ends it included.
        """
        self._detokenizer = detokenizer
        self._stop_strings = stop_strings
        self._stop_ids = stop_ids
        self._max_tokens = max_tokens
        self._text: list[str] = []
        self._ids: list[int] = []
        self.num_tokens = 0
        self.finish_reason: FinishReason | None = None

    def push(self, token_ids: Sequence[int]) -> None:
        """Take the next ids; those behind the end are ignored.

        Args:
            token_ids: In order.
        """
        for token_id in token_ids:
            if self.finish_reason is not None:
                return
            self._push(token_id)
            self._end_at_limit()

    def resume(self, committed_ids: Sequence[int]) -> None:
        """Take the ids of an answer that goes on; their text was given out and is not again.

        What they hold back, half a character or the beginning of a stop string, is held back
        still. More of them than the answer may have now end it.

        Args:
            committed_ids: From the answer's first; nothing was pushed yet.
        """
        if len(committed_ids) <= self._max_tokens:
            self.push(committed_ids)
            self.take()
            return
        for token_id in committed_ids:
            if self.finish_reason is None:
                self._push(token_id)
        self.take()
        self._end_at_limit()  # it had more room before, and nobody was given what was held back

    def _push(self, token_id: int) -> None:
        self.num_tokens += 1
        self._ids.append(token_id)
        if token_id in self._stop_ids:
            self._end("stop")
            return
        result = self._stop_strings.push(self._detokenizer.push(token_id))
        self._text.append(result.text)
        if result.matched is not None:
            self.finish_reason = "stop"

    def ends_at(self, token_ids: Sequence[int]) -> bool:
        """Whether these ids end the answer by themselves, whatever text they make.

        Args:
            token_ids: Not pushed yet.
        """
        return not self._stop_ids.isdisjoint(token_ids)

    def cancel(self) -> None:
        """End the answer where it is; what is already final is still given out."""
        if self.finish_reason is None:
            self.finish_reason = "cancelled"

    def _end_at_limit(self) -> None:
        if self.finish_reason is None and self.num_tokens >= self._max_tokens:
            self._end("length")

    def _end(self, reason: FinishReason) -> None:
        """End because no more ids come: half a character and half a stop string are text now."""
        self.finish_reason = reason
        result = self._stop_strings.push(self._detokenizer.flush())
        self._text.append(result.text)
        if result.matched is None:
            self._text.append(self._stop_strings.flush())
        else:
            self.finish_reason = "stop"

    def take(self) -> tuple[str, tuple[int, ...]]:
        """Return the text and the ids that have come since the last call."""
        text, ids = "".join(self._text), tuple(self._ids)
        self._text.clear()
        self._ids.clear()
        return text, ids
