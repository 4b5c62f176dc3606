"""Markdown read into items: HTML is text, a picture is its words, nothing is loaded. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from markdown_it import MarkdownIt

from app.chat.markdown.items import Code, Line, Marker, Rule, Run, Table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from markdown_it.token import Token

    from app.chat.markdown.items import Item

MAX_NESTING = 20  # lists in lists, quotations in quotations


def parser() -> MarkdownIt:
    """Return a reader of CommonMark with tables, without HTML.

    Definitions of references are not read either: they would be text that nobody sees.
    """
    rules = ["html_block", "html_inline", "reference"]
    options = {"html": False, "maxNesting": MAX_NESTING}
    return MarkdownIt("commonmark", options).enable(["table", "strikethrough"]).disable(rules)


@dataclass(slots=True)
class _List:
    number: int | None  # of the next item; None for dots
    is_pending: bool = False  # the next line is an item's first


class Reader:
    """Reads texts one after the other."""

    def __init__(self) -> None:
        """Begin."""
        self._parser = parser()

    def tokens(self, text: str) -> list[Token]:
        """Return a text's tokens, each block with the lines it takes.

        Args:
            text: Markdown.
        """
        return self._parser.parse(text)

    def items(self, text: str) -> list[Item]:
        """Return a text's items.

        Args:
            text: Markdown.
        """
        return _Walk().walk(self.tokens(text))


class _Walk:
    """One way through the tokens of a text."""

    def __init__(self) -> None:
        self._items: list[Item] = []
        self._lists: list[_List] = []
        self._quoted = 0
        self._heading = 0

    def walk(self, tokens: Sequence[Token]) -> list[Item]:
        place = 0
        while place < len(tokens):
            token = tokens[place]
            if token.type == "table_open":
                end = _end_of(tokens, place)
                self._items.append(_table(tokens[place:end]))
                place = end
                continue
            self._step(token)
            place += 1
        return self._items

    def _step(self, token: Token) -> None:
        match token.type:
            case "inline":
                self._paragraph(token)
            case "fence" | "code_block":
                self._code(token)
            case "hr":
                self._items.append(Rule())
            case "heading_open":
                self._heading = int(token.tag[1:])
            case "heading_close":
                self._heading = 0
            case "blockquote_open":
                self._quoted += 1
            case "blockquote_close":
                self._quoted -= 1
            case _:
                self._list_step(token)

    def _list_step(self, token: Token) -> None:
        match token.type:
            case "bullet_list_open":
                self._lists.append(_List(None))
            case "ordered_list_open":
                self._lists.append(_List(int(token.attrGet("start") or 1)))
                if token.attrGet("start") == 0:
                    self._lists[-1].number = 0
            case "bullet_list_close" | "ordered_list_close":
                self._lists.pop()
            case "list_item_open":
                self._lists[-1].is_pending = True
            case "list_item_close":
                if self._lists[-1].is_pending:  # an empty item is an item
                    self._line((), ends=True)

    def _paragraph(self, token: Token) -> None:
        lines = _lines(token.children or ())
        for number, runs in enumerate(lines, 1):
            self._line(runs, ends=number == len(lines))

    def _line(self, runs: tuple[Run, ...], *, ends: bool) -> None:
        marker = self._marker()
        self._items.append(
            Line(
                runs,
                heading=self._heading,
                depth=len(self._lists),
                marker=marker,
                quoted=self._quoted,
                ends=ends,
            )
        )

    def _marker(self) -> Marker | None:
        if not self._lists or not self._lists[-1].is_pending:
            return None
        own = self._lists[-1]
        own.is_pending = False
        marker = Marker(own.number)
        if own.number is not None:
            own.number += 1
        return marker

    def _code(self, token: Token) -> None:
        if self._lists and self._lists[-1].is_pending:
            self._line((), ends=False)
        words = token.info.split()
        language = words[0] if words else ""
        text = token.content.removesuffix("\n")
        self._items.append(Code(text, language, depth=len(self._lists)))


def _end_of(tokens: Sequence[Token], begin: int) -> int:
    level = tokens[begin].level
    place = begin + 1
    while place < len(tokens) and not (
        tokens[place].level == level and tokens[place].type == "table_close"
    ):
        place += 1
    return place + 1


def _table(tokens: Sequence[Token]) -> Table:
    rows: list[tuple[tuple[Run, ...], ...]] = []
    cells: list[tuple[Run, ...]] = []
    for token in tokens:
        if token.type == "tr_open":
            cells = []
        elif token.type == "inline":
            cells.append(tuple(run for line in _lines(token.children or ()) for run in line))
        elif token.type == "tr_close":
            rows.append(tuple(cells))
    width = max(map(len, rows), default=0)
    return Table(tuple(row + ((),) * (width - len(row)) for row in rows))


_STYLES: dict[str, dict[str, Any]] = {
    "strong_open": {"bold": True},
    "strong_close": {"bold": False},
    "em_open": {"italic": True},
    "em_close": {"italic": False},
    "s_open": {"struck": True},
    "s_close": {"struck": False},
    "link_close": {"link": ""},
}


def _lines(children: Sequence[Token]) -> list[tuple[Run, ...]]:
    """Return the lines of a paragraph, each by itself: a model means the line ends it writes."""
    lines: list[list[Run]] = [[]]
    style = Run("")
    for child in children:
        match child.type:
            case "softbreak" | "hardbreak":
                lines.append([])
            case "code_inline":
                _add(lines[-1], replace(style, text=child.content, code=True))
            case "image":
                _add(lines[-1], replace(style, text=_picture(child)))
            case "link_open":
                style = replace(style, link=str(child.attrGet("href") or ""))
            case kind if kind in _STYLES:
                style = replace(style, **_STYLES[kind])
            case _:
                _add(lines[-1], replace(style, text=child.content))
    return [tuple(line) for line in lines]


def _add(line: list[Run], run: Run) -> None:
    if not run.text:
        return
    if line and replace(line[-1], text="") == replace(run, text="") and not run.code:
        line[-1] = replace(run, text=line[-1].text + run.text)
    else:
        line.append(run)


def _picture(token: Token) -> str:
    """Return what stands for a picture: its words and its address, for it is never loaded."""
    return f"[{token.content}]({token.attrGet('src') or ''})"
