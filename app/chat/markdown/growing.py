"""A text that grows: only its end is read again, however long it is. Pure.

What can change no more is *sealed*: blocks before the last one, all but the last item of a long
list, the rows of a long table, the beginning of a very long paragraph. What is left, the *tail*,
stays a few thousand characters long, and is read anew whenever text comes. A block of code is not
read at all while it grows: its lines are looked at once, for its end.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from app.chat.markdown.items import Code

if TYPE_CHECKING:
    from collections.abc import Sequence

    from markdown_it.token import Token

    from app.chat.markdown.items import Item
    from app.chat.markdown.reading import Reader

LONG_TAIL = 1500  # characters; from here on a list, a table or a paragraph is sealed in parts
LONG_LINES = 30  # lines of it: short ones take as long to read as long ones
KEPT_OF_PARAGRAPH = 200  # at its end, where a word or an emphasis may not be complete yet
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})(.*)$")
_MAYBE_FENCE = re.compile(r" {0,3}(`+|~+)[^`]*$")
_WORD_START = re.compile(r"[^\W\d_]")


@dataclass(frozen=True, slots=True)
class Change:
    """What became of the items.

    Attributes:
        kept: So many at the beginning are as they were.
        items: What stands behind them now.
    """

    kept: int
    items: tuple[Item, ...]


@dataclass(slots=True)
class _OpenCode:
    """A block of code whose end has not come."""

    fence: str
    indent: int
    language: str
    text: str = ""


class GrowingText:
    """One text.

    Attributes:
        num_sealed: Items that can change no more.
    """

    def __init__(self, reader: Reader) -> None:
        """Begin empty.

        Args:
            reader: Of Markdown; may be shared.
        """
        self._reader = reader
        self._tail = ""
        self._looked_at = 0  # so much of the tail has been looked at for blocks that have ended
        self._code: _OpenCode | None = None
        self._shown: tuple[Item, ...] = ()  # the tail's items, as last told
        self.num_sealed = 0

    def feed(self, text: str) -> Change:
        """Take what came; return what changed.

        Args:
            text: Any piece, cut anywhere.
        """
        self._tail += text.replace("\r\n", "\n").replace("\r", "\n")
        sealed: list[Item] = []
        while self._seal(sealed):
            continue
        return self._told(sealed, self._tail_items())

    def finish(self) -> Change:
        """Say that nothing more comes; return what changed."""
        sealed: list[Item] = []
        if self._tail and not self._tail.endswith("\n"):
            self._tail += "\n"
        while self._seal(sealed):
            continue
        rest = self._tail_items()
        if self._code is not None and rest and isinstance(rest[0], Code):
            rest = [Code(rest[0].text, rest[0].language), *rest[1:]]
        return self._told(sealed, rest)

    def _told(self, sealed: Sequence[Item], tail: Sequence[Item]) -> Change:
        items = (*sealed, *tail)
        num_same = 0
        for old, new in zip(self._shown, items, strict=False):
            if old != new:
                break
            num_same += 1
        kept = self.num_sealed + num_same
        self.num_sealed += len(sealed)
        self._shown = tuple(tail)
        return Change(kept, items[num_same:])

    # ---- sealing ------------------------------------------------------------------------------

    def _seal(self, sealed: list[Item]) -> bool:
        """Seal what can be; return whether there may be more."""
        if self._code is not None:
            return self._seal_code(sealed, self._code)
        end = self._tail.rfind("\n") + 1
        if len(self._tail) - end > LONG_TAIL:  # a line that does not end
            if not end:
                return self._seal_paragraph(sealed)
            self._take(sealed, end)
            return True
        if end == self._looked_at:
            return False
        self._looked_at = end
        return self._seal_blocks(sealed, self._tail[:end])

    def _seal_blocks(self, sealed: list[Item], whole: str) -> bool:
        """Seal what stands before the last block; ``whole`` are the lines that are complete."""
        tokens = [t for t in self._reader.tokens(whole) if t.map is not None]
        blocks = [t for t in tokens if t.level == 0]
        if not blocks:
            if not whole.strip():
                self._drop(len(whole))
            return False
        last = blocks[-1]
        begin = _offset(whole, last.map[0]) if last.map else 0
        if begin and len(blocks) > 1:
            self._take(sealed, begin)
            return True
        if last.type == "fence":
            return self._open_code(begin)
        is_long = len(whole) > LONG_TAIL or whole.count("\n") > LONG_LINES
        return is_long and self._seal_part(sealed, tokens, last, whole)

    def _take(self, sealed: list[Item], end: int) -> None:
        sealed.extend(self._reader.items(self._tail[:end]))
        self._drop(end)

    def _drop(self, end: int) -> None:
        self._tail = self._tail[end:]
        self._looked_at = 0

    def _seal_part(
        self, sealed: list[Item], tokens: Sequence[Token], last: Token, whole: str
    ) -> bool:
        """Seal a part of a block that is long already."""
        if last.type in {"bullet_list_open", "ordered_list_open"}:
            items = [t for t in tokens if t.type == "list_item_open" and t.level == 1]
            begin = _offset(whole, items[-1].map[0]) if items and items[-1].map else 0
            if begin:
                self._take(sealed, begin)
                return True
        if last.type == "table_open" and last.map is not None:
            return self._seal_rows(sealed, whole, last.map[0])
        if last.type == "paragraph_open" and len(whole) > 2 * KEPT_OF_PARAGRAPH:
            return self._seal_paragraph(sealed)
        self._take(sealed, len(whole))  # a long quotation or item goes on as if it began
        return True

    def _seal_rows(self, sealed: list[Item], whole: str, first_line: int) -> bool:
        head_end = _offset(whole, first_line + 2)
        if whole.count("\n", head_end) < LONG_LINES // 2 and len(whole) < LONG_TAIL:
            return False
        sealed.extend(self._reader.items(whole))
        self._tail = whole[:head_end] + self._tail[len(whole) :]
        return False

    def _seal_paragraph(self, sealed: list[Item]) -> bool:
        """Seal the beginning of a paragraph, up to a word that can begin nothing else."""
        limit = len(self._tail) - KEPT_OF_PARAGRAPH
        end = limit
        for place in range(limit, max(limit - 500, 0), -1):
            if self._tail[place - 1] in " \n" and _WORD_START.match(self._tail[place]):
                end = place
                break
        self._take(sealed, end)
        return len(self._tail) > LONG_TAIL

    # ---- code ---------------------------------------------------------------------------------

    def _open_code(self, begin: int) -> bool:
        line_end = self._tail.index("\n", begin)
        opening = self._tail[begin:line_end]
        match = _FENCE.match(opening)
        if match is None:
            return False
        words = match[2].split()
        self._code = _OpenCode(
            fence=match[1],
            indent=len(opening) - len(opening.lstrip(" ")),
            language=words[0] if words else "",
        )
        self._drop(line_end + 1)
        return True

    def _seal_code(self, sealed: list[Item], code: _OpenCode) -> bool:
        """Take the lines that are whole into the block of code, up to its end."""
        end = self._tail.rfind("\n") + 1
        lines: list[str] = []
        taken = 0
        for line in self._tail[:end].splitlines(keepends=True):
            taken += len(line)
            if _closes(line, code.fence):
                self._drop(taken)
                code.text += "".join(lines)
                sealed.append(Code(code.text.removesuffix("\n"), code.language))
                self._code = None
                return True
            lines.append(_outdented(line, code.indent))
        code.text += "".join(lines)
        self._drop(end)
        return False

    # ---- the tail -----------------------------------------------------------------------------

    def _tail_items(self) -> list[Item]:
        if self._code is not None:
            rest = self._tail
            may_close = rest.strip() and not rest.strip().strip(self._code.fence[0])
            text = self._code.text + ("" if may_close else _outdented(rest, self._code.indent))
            return [Code(text.removesuffix("\n"), self._code.language, is_whole=False)]
        begin = self._tail.rfind("\n") + 1
        shown = self._tail
        if _MAYBE_FENCE.match(self._tail[begin:]):
            shown = self._tail[:begin]  # the first line of a block of code, half written
        return self._reader.items(shown)


def _offset(text: str, line: int) -> int:
    """Return where a line begins."""
    place = 0
    for _ in range(line):
        place = text.index("\n", place) + 1
    return place


def _closes(line: str, fence: str) -> bool:
    bare = line.rstrip()
    is_indented = len(bare) - len(bare.lstrip(" ")) > 3
    bare = bare.strip()
    return not is_indented and len(bare) >= len(fence) and not bare.strip(fence[0])


def _outdented(line: str, indent: int) -> str:
    spaces = len(line) - len(line.lstrip(" "))
    return line[min(spaces, indent) :]
