"""Widgets one below the other, each as high as it needs to be at the width it is given.

Qt's own layouts ask every widget anew whenever one of them grows; this one asks only that one.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, ClassVar

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QWidget

if TYPE_CHECKING:
    from collections.abc import Sequence

UNKNOWN_PX = 24  # of what was never fitted


class Fitted(QWidget):
    """A widget that knows how high it must be.

    Attributes:
        refit: It must be fitted again: it has become higher or lower.
        until_s: When a fit is to end, of the performance counter: what a column has not come to by
            then keeps its height for now, and the column is not ``is_fitted``.
        is_fitted: Whether the last fit came to its end.
    """

    refit = Signal()
    until_s: ClassVar[float] = math.inf
    is_fitted = True

    def fit(self, width: int) -> int:
        """Lay out for a width; return the height that takes.

        Args:
            width: In logical pixels.
        """
        self.setFixedWidth(width)
        return self.sizeHint().height()


class Column(Fitted):
    """Fitted widgets, one below the other."""

    def __init__(self, parent: QWidget | None = None, spacing: int = 0) -> None:
        """Begin empty.

        Args:
            parent: Owns it.
            spacing: Between two, in logical pixels.
        """
        super().__init__(parent)
        self._spacing = spacing
        self._children: list[Fitted] = []
        self._heights: dict[Fitted, int] = {}  # of those that are fitted to the width
        self._before: dict[Fitted, int] = {}  # of the others, when they were fitted last
        self._width = -1

    @property
    def items(self) -> Sequence[Fitted]:
        """What it holds, from the top."""
        return self._children

    def set_spacing(self, spacing: int) -> None:
        """Choose the room between two.

        Args:
            spacing: In logical pixels.
        """
        self._spacing = spacing
        self.refit.emit()

    def append(self, child: Fitted) -> None:
        """Add a widget at the bottom.

        Args:
            child: Becomes ours.
        """
        self.insert(len(self._children), child)

    def insert(self, place: int, child: Fitted) -> None:
        """Add a widget.

        Args:
            place: From the top; 0 is above all.
            child: Becomes ours.
        """
        child.setParent(self)
        self._children.insert(place, child)
        child.refit.connect(self._on_refit)
        child.show()
        self.refit.emit()

    def take(self, place: int) -> Fitted:
        """Remove a widget and return it; it is hidden and still ours to delete.

        Args:
            place: From the top.
        """
        child = self._children.pop(place)
        self._heights.pop(child, None)
        self._before.pop(child, None)
        child.refit.disconnect(self._on_refit)
        child.hide()
        self.refit.emit()
        return child

    def truncate(self, num: int) -> None:
        """Remove and delete what is below.

        Args:
            num: Widgets that stay.
        """
        while len(self._children) > num:
            self.take(len(self._children) - 1).deleteLater()

    def fit(self, width: int) -> int:
        """Lay out for a width; return the height that takes.

        Args:
            width: In logical pixels.
        """
        if width != self._width:
            self._width = width
            self._before.update(self._heights)
            self._heights.clear()
        self.is_fitted = True
        top = 0
        for child in self._children:
            height = self._fitted_height(child)
            child.setGeometry(0, top, width, height)
            top += height + (self._spacing if height else 0)
        return max(0, top - self._spacing) if self._children else 0

    def _fitted_height(self, child: Fitted) -> int:
        height = self._heights.get(child)
        if height is not None:
            return height
        if time.perf_counter() >= Fitted.until_s:
            self.is_fitted = False
            return self._before.get(child, UNKNOWN_PX)
        height = child.fit(self._width)
        if child.is_fitted:
            self._heights[child] = height
        else:
            self.is_fitted = False
            self._before[child] = height
        return height

    def _on_refit(self) -> None:
        child = self.sender()
        if isinstance(child, Fitted) and child in self._heights:
            self._before[child] = self._heights.pop(child)
        self.refit.emit()
