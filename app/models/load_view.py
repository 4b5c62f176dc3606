"""A loading model as a person sees it: the five phases, a bar for each PC, what is left, cancel."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QGridLayout, QHBoxLayout, QWidget

from app.models.load_progress import PHASES
from app.parts.action import Action
from app.parts.amounts import file_size, time_text
from app.parts.bar import Bar
from app.parts.card import Card
from app.parts.text import Text
from app.safe_text import one_line

if TYPE_CHECKING:
    from collections.abc import Mapping

    from app.look.look import Look
    from app.models.load_progress import LoadPicture, PcProgress
    from app.wording.wording import Wording

_SIGNS = {"done": "\u2713", "now": "\u25b6", "ahead": "\u25cb"}  # tick, triangle, ring
_PREPARE = PHASES.index("compile")


class LoadView(Card):
    """One loading.

    Attributes:
        cancelled: It is no longer wanted.
    """

    cancelled = Signal()

    def __init__(self, look: Look, wording: Wording, parent: QWidget | None = None) -> None:
        """Begin hidden.

        Args:
            look: Followed.
            wording: Words.
            parent: Owns it.
        """
        super().__init__(look, parent)
        self._look = look
        self._wording = wording
        self._heading = Text(look, "lead", bold=True)
        self._phases = [Text(look, "small").one_line() for _ in PHASES]
        self._hint = Text(look, "small", "quiet")
        self._foot = Text(look, "small", "quiet")
        self._cancel = Action(look)
        self._cancel.clicked.connect(self.cancelled)
        self._rows: list[_PcRow] = []
        self._grid = QGridLayout()
        self._grid.setColumnStretch(1, 1)
        phases = QHBoxLayout()
        for label in self._phases:
            phases.addWidget(label)
        phases.addStretch(1)
        foot = QHBoxLayout()
        foot.addWidget(self._foot, 1)
        foot.addWidget(self._cancel)
        self.rows.addWidget(self._heading)
        for row in (phases, self._grid):
            self.rows.addLayout(row)
        self.rows.addWidget(self._hint)
        self.rows.addLayout(foot)
        self.hide()

    @property
    def sentences(self) -> list[str]:
        """What is told of each PC."""
        return [row.sentence for row in self._rows if row.is_used]

    @property
    def phase_words(self) -> list[str]:
        """What is told of each phase."""
        return [label.accessibleName() for label in self._phases]

    def show_picture(
        self, picture: LoadPicture, model: str, names: Mapping[str, str], *, can_cancel: bool
    ) -> None:
        """Show how far it is.

        Args:
            picture: How far.
            model: Its name; empty before it is known.
            names: Of the PCs, by id.
            can_cancel: It was asked for here, or belongs to everybody.
        """
        say = self._wording.text
        shown = one_line(model, 60)
        heading = (
            say("models.loading_heading", model=shown) if shown else say("models.loading_some")
        )
        self._heading.setText(heading)
        for label, phase, mark in zip(self._phases, PHASES, picture.phases, strict=True):
            name = say(f"models.phase_{phase}")
            label.setText(f"{_SIGNS[mark]} {name}")
            label.setAccessibleName(say(f"models.phase_{mark}", phase=name))
            label.be("ink" if mark == "now" else "quiet")
        is_preparing = picture.phases[_PREPARE] == "now"
        self._hint.setText(say("models.first_time"))
        self._hint.setVisible(is_preparing)
        self._show_rows(picture.pcs, names)
        foot = [say("models.taken", time=time_text(self._wording, picture.taken_s))]
        if picture.left_s is not None:
            foot.append(say("models.left", time=time_text(self._wording, picture.left_s)))
        self._foot.setText(" · ".join(foot))
        self._cancel.say(say("models.cancel"), say("models.cancel_hint"))
        self._cancel.setVisible(can_cancel)

    def _show_rows(self, pcs: tuple[PcProgress, ...], names: Mapping[str, str]) -> None:
        while len(self._rows) < len(pcs):
            self._rows.append(_PcRow(self._look, self._wording, self._grid, len(self._rows)))
        for number, row in enumerate(self._rows):
            if number < len(pcs):
                pc = pcs[number]
                row.show_pc(pc, one_line(names.get(pc.node_id) or pc.node_id[:6], 40))
            else:
                row.clear()


class _PcRow:
    """One PC's line: name, bar, and what it does at which rate."""

    def __init__(self, look: Look, wording: Wording, grid: QGridLayout, number: int) -> None:
        self._wording = wording
        self._name = Text(look, "small", bold=True).one_line()
        self._bar = Bar(look)
        self._words = Text(look, "small", "quiet").one_line()
        self.is_used = False
        self.sentence = ""
        for column, widget in enumerate((self._name, self._bar, self._words)):
            grid.addWidget(widget, number, column, Qt.AlignmentFlag.AlignVCenter)

    def show_pc(self, pc: PcProgress, name: str) -> None:
        """Show one PC.

        Args:
            pc: How far it is.
            name: Of it, on one line.
        """
        say = self._wording.text
        self.is_used = True
        self._name.setText(name)
        self._bar.show_share(1.0 if pc.is_done else pc.share)
        step = say(f"models.step_{pc.step}")
        words = [say("models.step_done")] if pc.is_done else [step, *self._figures(pc)]
        self._words.setText(" · ".join(words))
        percent = None if pc.share is None else round(100 * pc.share)
        key = "models.bar_name_open" if percent is None else "models.bar_name"
        values = {} if percent is None else {"percent": percent}
        self._bar.setAccessibleName(say(key, pc=name, step=step, **values))
        self.sentence = f"{name} {self._words.text()}"
        self._set_visible(shown=True)

    def clear(self) -> None:
        """Show nothing."""
        self.is_used = False
        self._set_visible(shown=False)

    def _set_visible(self, *, shown: bool) -> None:
        for widget in (self._name, self._bar, self._words):
            widget.setVisible(shown)

    def _figures(self, pc: PcProgress) -> list[str]:
        say = self._wording.text
        if pc.unit == "steps" and pc.total <= 1:
            return []
        told = [self._amount(pc)]
        if pc.rate_per_s is not None and pc.unit == "bytes":
            told.append(say("models.rate_bytes", amount=file_size(pc.rate_per_s)))
        elif pc.rate_per_s is not None:
            told.append(say("models.rate_other", number=f"{pc.rate_per_s:.1f}"))
        if pc.left_s is not None:
            told.append(say("models.left", time=time_text(self._wording, pc.left_s)))
        return told

    def _amount(self, pc: PcProgress) -> str:
        say = self._wording.text
        done, total = (
            (file_size(pc.done), file_size(pc.total))
            if pc.unit == "bytes"
            else (str(pc.done), say(f"models.{pc.unit}", number=pc.total))
        )
        return say("models.of", done=done, total=total) if pc.total > 0 else done
