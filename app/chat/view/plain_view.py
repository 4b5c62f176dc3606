"""What a person wrote: as it was typed, long texts a piece at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from app.chat.markdown.items import Line, Run
from app.chat.view.items_view import ItemsView

if TYPE_CHECKING:
    from app.chat.view.fitted import Fitted
    from app.chat.view.slices import Slices
    from app.look.look import Look
    from app.wording.wording import Wording

FIRST_CHARACTERS, FIRST_LINES = 2000, 30  # of a text are shown; the rest when it is asked for
MORE_CHARACTERS, MORE_LINES = 12_000, 250
PIECE = 1000  # a longer line is drawn in pieces


class PlainView(ItemsView):
    """A text, from its beginning to where it has been unfolded."""

    def __init__(
        self, look: Look, wording: Wording, slices: Slices, parent: Fitted | None = None
    ) -> None:
        """Begin empty.

        Args:
            look: Theme and sizes.
            wording: Of menus.
            slices: Works off what takes long.
            parent: Owns it.
        """
        super().__init__(look, wording, slices, parent)
        self.set_spacing(0)
        self._text = ""
        self._end = 0

    @property
    def num_folded(self) -> int:
        """Characters that are not shown."""
        return len(self._text) - self._end

    def set_text(self, text: str) -> None:
        """Show the beginning of a text.

        Args:
            text: Any.
        """
        self._text, self._end = text.replace("\r\n", "\n").replace("\r", "\n"), 0
        self.set_items(0, ())
        self._unfold(FIRST_CHARACTERS, FIRST_LINES)

    def unfold(self) -> None:
        """Show more of it."""
        self._unfold(MORE_CHARACTERS, MORE_LINES)

    def _unfold(self, num_characters: int, num_lines: int) -> None:
        piece = self._text[self._end : self._end + num_characters]
        lines = piece.split("\n")
        if len(lines) > num_lines:
            piece = "\n".join(lines[:num_lines]) + "\n"
        elif len(lines) > 1 and self._end + len(piece) < len(self._text):
            piece = piece[: piece.rindex("\n") + 1]
        self._end += len(piece)
        shown = piece.removesuffix("\n") if self._end < len(self._text) else piece
        items = [
            Line((Run(line[begin : begin + PIECE]),), ends=False)
            for line in shown.split("\n")
            for begin in range(0, max(1, len(line)), PIECE)
        ]
        self.set_items(len(self.shown_items), items)
