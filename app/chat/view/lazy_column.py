"""Many messages one below the other, of which only those in sight are laid out at once."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, NamedTuple

from app.chat.view.fitted import Column, Fitted

if TYPE_CHECKING:
    from collections.abc import Callable

    from PySide6.QtWidgets import QWidget

MESSAGE_PX = 60  # of one that was never laid out


class Anchor(NamedTuple):
    """What stays where it is while heights change.

    Attributes:
        child: A message in sight.
        offset: Of the sight's top below the message's top.
    """

    child: Fitted
    offset: int


class LazyColumn(Column):
    """Like a column, but what is out of sight is laid out when there is time."""

    def __init__(self, parent: QWidget | None = None, spacing: int = 0) -> None:
        """Begin empty.

        Args:
            parent: Owns it.
            spacing: Between two, in logical pixels.
        """
        super().__init__(parent, spacing)
        self._stale: set[Fitted] = set()

    def settle(self, width: int, top: int, bottom: int, until_s: float) -> bool:
        """Lay out what is in sight, and as much else as there is time for.

        Args:
            width: In logical pixels.
            top: Of what is in sight.
            bottom: Of what is in sight.
            until_s: When to stop; of the performance counter.

        Returns:
            Whether everything is laid out.
        """
        if width != self._width:
            self._width = width
            self._stale = set(self._children)
        Fitted.until_s = until_s
        self._fit_where(lambda begin, end: end >= top and begin <= bottom)
        self._fit_where(lambda _begin, _end: True)
        Fitted.until_s = math.inf
        self._place()
        return not self._stale

    @property
    def total_height(self) -> int:
        """Of everything, as far as it is known."""
        heights = sum(self._height(child) for child in self._children)
        return heights + self._spacing * max(0, len(self._children) - 1)

    def anchor_at(self, top: int) -> Anchor | None:
        """Return what is at the top of the sight.

        The first widget is no anchor: more is put between it and the others.

        Args:
            top: Of what is in sight.
        """
        for child in self._children[1:]:
            if child.y() + child.height() >= top:
                return Anchor(child, top - child.y())
        return None

    def insert(self, place: int, child: Fitted) -> None:
        """Add a widget.

        Args:
            place: From the top; 0 is above all.
            child: Becomes ours.
        """
        self._stale.add(child)
        super().insert(place, child)

    def take(self, place: int) -> Fitted:
        """Remove a widget and return it; it is hidden and still ours to delete.

        Args:
            place: From the top.
        """
        child = super().take(place)
        self._stale.discard(child)
        return child

    def _height(self, child: Fitted) -> int:
        return self._heights.get(child, MESSAGE_PX)

    def _fit_where(self, is_wanted: Callable[[int, int], bool]) -> None:
        begin = 0
        for child in self._children:
            end = begin + self._height(child)
            if child in self._stale and is_wanted(begin, end):
                if time.perf_counter() >= Fitted.until_s:
                    return
                self._heights[child] = child.fit(self._width)
                if child.is_fitted:
                    self._stale.discard(child)
                end = begin + self._heights[child]
            begin = end + self._spacing

    def _place(self) -> None:
        top = 0
        for child in self._children:
            height = self._height(child)
            child.setGeometry(0, top, self._width, height)
            top += height + self._spacing

    def _on_refit(self) -> None:
        child = self.sender()
        if child in self._children:
            self._stale.add(child)
        self.refit.emit()
