"""Turn token ids into text while they arrive, never showing what may still change.

Two kinds of tokenizer spread a character over several tokens. In a byte-level one, decoding shows
an unfinished character as one U+FFFD at the end of the text, so that one is held back. In a
SentencePiece one with byte fallback, a run of byte tokens is decoded as a whole: one wrong byte
turns all of it into U+FFFD, so a run is held back until it ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence, Set

REPLACEMENT = "\ufffd"
MAX_OPEN_BYTES = 48  # of a run of byte tokens; then its whole characters are let go
_KEPT_TOKENS = 8  # decoded again with every new one, because tokens change their neighbours
_TRIM_TOKENS = 24


class IncrementalDetokenizer:
    """The text of one sequence.

    All that ``push`` returned, and then ``flush``, is the decoded text of all ids, provided that no
    run of byte tokens is longer than ``MAX_OPEN_BYTES``. A longer one counts as several.

    The work per token doesn't grow with the sequence.
    """

    def __init__(
        self,
        decode: Callable[[Sequence[int]], str],
        context: Sequence[int] = (),
        byte_ids: Set[int] = frozenset(),
    ) -> None:
        """Begin a sequence.

        Args:
            decode: The tokenizer's decoding of any ids; control tokens give no text.
            context: For raw completion the prompt's ids: their text is not returned, but the
                first token's leading space is kept. Empty for an answer in a chat.
            byte_ids: Ids of tokens that stand for one byte each.
        """
        self._decode = decode
        self._byte_ids = byte_ids
        end = len(context)
        while end > 0 and context[end - 1] in byte_ids:
            end -= 1  # a run of bytes in the answer is not one with the prompt's
        self._window = list(context[max(0, end - _KEPT_TOKENS) : end])
        self._text = decode(self._window)
        self._num_sent = len(self._text)
        self._num_open_bytes = 0

    def push(self, token_id: int) -> str:
        """Take the next id.

        Args:
            token_id: The id.

        Returns:
            The text that is now final; often empty.
        """
        is_byte = token_id in self._byte_ids
        if is_byte and self._num_open_bytes < MAX_OPEN_BYTES:
            self._window.append(token_id)
            self._num_open_bytes += 1
            return ""
        if is_byte:
            return self._break_run() + self.push(token_id)
        return self._push_text(token_id)

    def flush(self) -> str:
        """Return the rest, when no more ids come: half a character is U+FFFD."""
        self._text = self._decode(self._window)
        rest = self._text[self._num_sent :]
        self._num_sent = len(self._text)
        self._num_open_bytes = 0
        return rest

    def _push_text(self, token_id: int) -> str:
        before = self._decode(self._window) if self._num_open_bytes else self._text
        text = self._decode([*self._window, token_id])
        # A control token leaves the text as it is, but so does a further byte of an unfinished
        # character, or a single space at the beginning: two of those do show.
        if text == before and not self._decode([token_id, token_id]):
            return ""
        self._window.append(token_id)
        self._num_open_bytes = 0
        final = self._send(text, len(text) - text.endswith(REPLACEMENT))
        if len(self._window) >= _TRIM_TOKENS:
            self._trim()
        return final

    def _send(self, text: str, end: int) -> str:
        final = text[self._num_sent : end]
        self._text = text
        self._num_sent = max(self._num_sent, end)
        return final

    def _break_run(self) -> str:
        """Let go the whole characters of a run that is too long, and begin another."""
        start = len(self._window) - self._num_open_bytes
        rest = 0
        text = self._decode(self._window)
        for rest in range(4):
            text = self._decode(self._window[: len(self._window) - rest])
            if not text.endswith(REPLACEMENT):
                break
        else:
            rest = 0
            text = self._decode(self._window)
        final = self._send(text, len(text))
        before = self._window[max(0, start - _KEPT_TOKENS) : start]
        self._text = self._decode(before)
        self._num_sent = len(self._text)
        self._window = before + self._window[len(self._window) - rest :]
        self._num_open_bytes = rest
        return final

    def _trim(self) -> None:
        # Every token kept has a byte of its own or more, so that the last character, be it whole
        # or not, is read the same without what came before; only the first may be read otherwise.
        num_held = len(self._text) - self._num_sent
        self._window = self._window[-_KEPT_TOKENS:]
        self._text = self._decode(self._window)
        self._num_sent = len(self._text) - num_held
