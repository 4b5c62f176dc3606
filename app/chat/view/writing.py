"""Items written into a document of Qt's, letter by letter: no HTML, nothing that loads."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from PySide6.QtCore import Qt
from PySide6.QtGui import (
    QBrush,
    QColor,
    QFont,
    QTextBlockFormat,
    QTextCharFormat,
    QTextCursor,
    QTextFormat,
    QTextFrameFormat,
    QTextLength,
    QTextListFormat,
    QTextTableFormat,
)

from app.chat.markdown.direction import direction_of_runs, has_right_to_left
from app.chat.markdown.items import Line, Rule
from app.safe_text import shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from PySide6.QtGui import QTextDocument, QTextList

    from app.chat.markdown.items import Item, Run, Table
    from app.look.look import Look
    from app.look.tokens import Step

QUOTED = QTextFormat.Property.UserProperty.value + 1  # how many quotations a block stands in
LONGEST_PIECE = 2000  # of a line without an end: laying one out takes a time that grows with it
# Ours, around code among letters that run the other way; never from the model, see ``shown``.
_ISOLATE, _END_ISOLATE = "\u2066", "\u2069"
_SAFE_LINK = re.compile(r"https?://[^\s]+", re.IGNORECASE)
_BARE_LINK = re.compile(r"https?://[^\s<>\"'`]+[^\s<>\"'`.,;:!?)\]}*_]", re.IGNORECASE)
_HEADINGS: dict[int, Step] = {1: "title", 2: "lead", 3: "body"}


class LineWriter:
    """Writes lines at the end of a document, and takes back the last ones."""

    def __init__(self, document: QTextDocument, look: Look) -> None:
        """Begin with an empty document.

        Args:
            document: Nobody else writes in it.
            look: Theme and sizes.
        """
        self._document = document
        self._look = look
        self._starts: list[int] = []  # where each item begins
        self._lists: list[tuple[QTextList, int | None]] = []  # by depth, with the last number
        self._below: list[bool] = []  # whether there is room below each item

    def truncate(self, num: int) -> None:
        """Take back all but the first items.

        Args:
            num: Items that stay.
        """
        if num >= len(self._starts):
            return
        cursor = QTextCursor(self._document)
        cursor.setPosition(self._starts[num])
        form = cursor.blockFormat() if num else QTextBlockFormat()
        cursor.movePosition(QTextCursor.MoveOperation.End, QTextCursor.MoveMode.KeepAnchor)
        cursor.removeSelectedText()
        cursor.setBlockFormat(form)  # a last line that is empty takes over that of the removed
        del self._starts[num:]
        del self._below[num:]
        self._lists.clear()

    def write(self, item: Item) -> None:
        """Write one item at the end.

        Args:
            item: A line or a rule.
        """
        cursor = QTextCursor(self._document)
        cursor.movePosition(QTextCursor.MoveOperation.End)
        self._starts.append(cursor.position())
        is_first = len(self._starts) == 1
        match item:
            case Line():
                self._write_line(cursor, item, is_first=is_first)
            case Rule():
                self._new_block(cursor, self._rule_format(), is_first=is_first)
                self._lists.clear()
                self._below.append(True)

    def _write_line(self, cursor: QTextCursor, line: Line, *, is_first: bool) -> None:
        look = self._look
        block = QTextBlockFormat()
        direction = direction_of_runs(line.runs)
        is_right = direction == "right-to-left"
        block.setLayoutDirection(
            Qt.LayoutDirection.RightToLeft if is_right else Qt.LayoutDirection.LeftToRight
        )
        block.setAlignment(Qt.AlignmentFlag.AlignLeft)  # leading: Qt turns it round itself
        block.setLineHeight(140, QTextBlockFormat.LineHeightTypes.ProportionalHeight.value)
        if not is_first and self._below[-1]:
            block.setTopMargin(look.space(4 if line.heading else 1 if line.marker else 2))
        if line.quoted:
            block.setProperty(QUOTED, line.quoted)
            block.setLeftMargin(look.space(4 * line.quoted))
        if line.depth and line.marker is None:
            block.setIndent(line.depth)
        self._new_block(cursor, block, is_first=is_first)
        self._mark(cursor, line)
        self._below.append(line.ends)
        plain = self._plain_format(line)
        cursor.setBlockCharFormat(plain)
        has_right = any(has_right_to_left(run.text) for run in line.runs)
        for run in line.runs:
            self._write_run(cursor, run, plain, isolates=has_right)

    @staticmethod
    def _new_block(cursor: QTextCursor, block: QTextBlockFormat, *, is_first: bool) -> None:
        if is_first:
            cursor.setBlockFormat(block)
        else:
            cursor.insertBlock(block, QTextCharFormat())
            current = cursor.currentList()
            if current is not None:
                current.remove(cursor.block())
                cursor.setBlockFormat(block)

    def _rule_format(self) -> QTextBlockFormat:
        block = QTextBlockFormat()
        block.setProperty(
            QTextFormat.Property.BlockTrailingHorizontalRulerWidth,
            QTextLength(QTextLength.Type.PercentageLength, 100),
        )
        block.setProperty(QTextFormat.Property.BackgroundBrush, QBrush(self._look.colour("line")))
        block.setTopMargin(self._look.space(2))
        return block

    # ---- lists --------------------------------------------------------------------------------

    def _mark(self, cursor: QTextCursor, line: Line) -> None:
        """Put a block into the list it belongs to, beginning one where there is none yet."""
        del self._lists[line.depth :]
        if line.marker is None:
            return
        number = line.marker.number
        if len(self._lists) == line.depth:
            last_list, last_number = self._lists[-1]
            if _follows(last_number, number):
                last_list.add(cursor.block())
                self._lists[-1] = (last_list, number)
                return
            self._lists.pop()
        form = QTextListFormat()
        form.setIndent(line.depth)
        form.setStyle(
            QTextListFormat.Style.ListDisc if number is None else QTextListFormat.Style.ListDecimal
        )
        if number is not None:
            form.setStart(number)
        made = cursor.createList(form)
        while len(self._lists) < line.depth:
            self._lists.append((made, number))

    # ---- letters ------------------------------------------------------------------------------

    def _plain_format(self, line: Line) -> QTextCharFormat:
        step = _HEADINGS.get(line.heading, "body") if line.heading else "body"
        form = char_format(self._look.font(step, bold=bool(line.heading)))
        form.setForeground(self._look.colour("quiet" if line.quoted else "ink"))
        return form

    def _write_run(
        self, cursor: QTextCursor, run: Run, plain: QTextCharFormat, *, isolates: bool
    ) -> None:
        write_run(cursor, run, plain, self._look, isolates=isolates)


def char_format(font: QFont) -> QTextCharFormat:
    """Return the format of letters of a font.

    Args:
        font: Which.
    """
    form = QTextCharFormat()
    form.setFont(font)
    return form


def write_run(
    cursor: QTextCursor, run: Run, plain: QTextCharFormat, look: Look, *, isolates: bool
) -> None:
    """Write letters where a cursor stands.

    Args:
        cursor: Moves on.
        run: What is written; made safe on the way.
        plain: How letters without a style of their own look.
        look: Theme and sizes.
        isolates: Letters of both directions meet here: code is kept apart.
    """
    form = QTextCharFormat(plain)
    if run.bold:
        form.setFontWeight(QFont.Weight.DemiBold)
    form.setFontItalic(run.italic)
    form.setFontStrikeOut(run.struck)
    text = shown(run.text)
    if run.code:
        form.setFontFamilies(look.font(fixed=True).families())
        form.setBackground(look.colour("code"))
        text = f"{_ISOLATE}{text}{_END_ISOLATE}" if isolates else text
    for piece, link in _linked(run, text):
        piece_form = form
        if link:
            piece_form = QTextCharFormat(form)
            piece_form.setAnchor(True)
            piece_form.setAnchorHref(link)
            piece_form.setForeground(look.colour("link"))
            piece_form.setFontUnderline(True)
        _insert(cursor, piece, piece_form)


def _insert(cursor: QTextCursor, text: str, form: QTextCharFormat) -> None:
    """Write letters, with a line end after so many: a line of Qt's must not be longer."""
    for begin in range(0, len(text), LONGEST_PIECE):
        if begin:
            cursor.insertBlock(cursor.blockFormat(), form)
        cursor.insertText(text[begin : begin + LONGEST_PIECE].replace("\n", " "), form)


def _linked(run: Run, text: str) -> Iterable[tuple[str, str]]:
    """Yield the pieces of a run, with where each leads: nowhere but to the web, and seen."""
    if run.link:
        if _SAFE_LINK.fullmatch(run.link):
            yield text, run.link
        else:
            yield f"{text} ({shown(run.link)})", ""
        return
    end = 0
    if not run.code:
        for match in _BARE_LINK.finditer(text):
            yield text[end : match.start()], ""
            yield match[0], match[0]
            end = match.end()
    yield text[end:], ""


def _follows(last: int | None, number: int | None) -> bool:
    if last is None or number is None:
        return last is number
    return number == last + 1


def write_table(document: QTextDocument, table: Table, look: Look) -> None:
    """Write a table as the whole of a document.

    Args:
        document: Empty.
        table: Which.
        look: Theme and sizes.
    """
    cursor = QTextCursor(document)
    _make_low(cursor)
    form = QTextTableFormat()
    form.setBorder(1)
    form.setBorderStyle(QTextFrameFormat.BorderStyle.BorderStyle_Solid)
    form.setBorderBrush(QBrush(QColor(look.theme.line)))
    form.setBorderCollapse(True)
    form.setCellPadding(look.space(1.5))
    form.setCellSpacing(0)
    made = cursor.insertTable(len(table.rows), max(1, len(table.rows[0])), form)
    for number, row in enumerate(table.rows):
        for place, runs in enumerate(row):
            _write_cell(made.cellAt(number, place).firstCursorPosition(), runs, look, number == 0)
    cursor.movePosition(QTextCursor.MoveOperation.End)
    _make_low(cursor)


def _write_cell(cursor: QTextCursor, runs: Sequence[Run], look: Look, is_head: bool) -> None:
    block = QTextBlockFormat()
    is_right = direction_of_runs(runs) == "right-to-left"
    block.setLayoutDirection(
        Qt.LayoutDirection.RightToLeft if is_right else Qt.LayoutDirection.LeftToRight
    )
    cursor.setBlockFormat(block)
    plain = char_format(look.font(bold=is_head))
    plain.setForeground(look.colour("ink"))
    isolates = any(has_right_to_left(run.text) for run in runs)
    for run in runs:
        write_run(cursor, run, plain, look, isolates=isolates)


def _make_low(cursor: QTextCursor) -> None:
    """Make a block that only stands there because Qt wants one as good as invisible."""
    font = QFont()
    font.setPixelSize(1)
    cursor.setBlockCharFormat(char_format(font))
    block = QTextBlockFormat()
    block.setLineHeight(1, QTextBlockFormat.LineHeightTypes.FixedHeight.value)
    cursor.setBlockFormat(block)
