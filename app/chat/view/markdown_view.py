"""An answer's text: Markdown that grows, or that was kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

from app.chat.markdown.growing import GrowingText
from app.chat.markdown.reading import Reader
from app.chat.view.items_view import ItemsView

if TYPE_CHECKING:
    from collections.abc import Iterator

    from app.chat.view.fitted import Fitted
    from app.chat.view.slices import Slices
    from app.look.look import Look
    from app.wording.wording import Wording

PIECE_CHARACTERS = 400  # of a kept text are read and drawn at a time


class MarkdownView(ItemsView):
    """One answer's text.

    Attributes:
        text: All of it, as the model wrote it.
    """

    def __init__(
        self, look: Look, wording: Wording, slices: Slices, parent: Fitted | None = None
    ) -> None:
        """Begin empty.

        Args:
            look: Theme and sizes.
            wording: Of buttons and menus.
            slices: Works off what takes long.
            parent: Owns it.
        """
        super().__init__(look, wording, slices, parent)
        self._reader = Reader()
        self._growing = GrowingText(self._reader)
        self.text = ""

    def feed(self, text: str) -> None:
        """Add what came.

        Args:
            text: A few hundred characters; longer ones should come by ``feeding``.
        """
        self.text += text
        change = self._growing.feed(text)
        self.set_items(change.kept, change.items)

    def feeding(self, text: str, *, is_whole: bool) -> Iterator[None]:
        """Add a long text a little at a time.

        Args:
            text: Any length.
            is_whole: Nothing more comes.

        Yields:
            After each piece.
        """
        for begin in range(0, len(text), PIECE_CHARACTERS):
            self.feed(text[begin : begin + PIECE_CHARACTERS])
            yield
        if is_whole:
            self.finish()

    def finish(self) -> None:
        """Say that nothing more comes."""
        change = self._growing.finish()
        self.set_items(change.kept, change.items)

    def reset(self) -> None:
        """Take everything back."""
        self._growing = GrowingText(self._reader)
        self.text = ""
        self.set_items(0, ())
