"""The models on this PC's disk, and how to get rid of them: here, or on every PC that is there."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from PySide6.QtCore import QTimer
from PySide6.QtWidgets import QVBoxLayout

from app.bridge.questions import Questions
from app.models.kept_row import KeptRow
from app.parts.amounts import file_size
from app.parts.card import Card
from app.parts.text import Text
from app.wording.problems import problem_words
from engine.messages.own_pc_control import DropModel, ListModels, ModelsListed

if TYPE_CHECKING:
    from pathlib import Path

    from PySide6.QtWidgets import QWidget

    from app.bridge.problem import Problem
    from app.look.look import Look
    from app.wording.wording import Wording
    from engine.messages.own_pc_control import ModelLine
    from engine.messages.pool_status import PoolStatus

LOOK_EVERY_MS = 3000


class KeptCard(Card):
    """The list; hidden while nothing is kept."""

    def __init__(
        self, look: Look, wording: Wording, data_dir: Path, parent: QWidget | None = None
    ) -> None:
        """Begin with nothing known.

        Args:
            look: Followed.
            wording: Words.
            data_dir: Daisy's data folder, which the node has.
            parent: Owns it.
        """
        super().__init__(look, parent)
        self._look = look
        self._wording = wording
        self._questions = Questions(data_dir, self)
        self._others: Counter[str] = Counter()
        self._models: tuple[ModelLine, ...] = ()
        self._freed_bytes: int | None = None
        self._problem: Problem | None = None
        self.kept: dict[str, KeptRow] = {}
        self._heading = Text(look, "lead", bold=True)
        self._hint = Text(look, "small", "quiet")
        self.told = Text(look, "small")
        self._list = QVBoxLayout()
        for part in (self._heading, self._hint):
            self.rows.addWidget(part)
        self.rows.addLayout(self._list)
        self.rows.addWidget(self.told)
        self._timer = QTimer(self, interval=LOOK_EVERY_MS)
        self._timer.timeout.connect(self._look_again)
        wording.changed.connect(self._say)
        self._say()

    def watch(self) -> None:
        """Look what is kept, from now on."""
        self._timer.start()
        self._look_again()

    def unwatch(self) -> None:
        """Look no longer; what was told about the last model that went is over."""
        self._timer.stop()
        self._freed_bytes = self._problem = None
        self._say()

    def see(self, status: PoolStatus) -> None:
        """Take note of who else keeps what.

        Args:
            status: The pool as it is now.
        """
        others = Counter(
            name
            for node in status.nodes
            if node.report is not None and not node.is_asked
            for name in set(node.report.kept_models)
        )
        if others != self._others:
            self._others = others
            self._say()

    def _look_again(self) -> None:
        if not self._questions.num_waiting:
            self._questions.ask(ListModels(), ModelsListed, self._on_listed, lambda _: None)

    def _on_listed(self, listed: ModelsListed) -> None:
        self._models = listed.models
        for name in set(self.kept) - {model.model_sha256 for model in listed.models}:
            row = self.kept.pop(name)
            self._list.removeWidget(row)
            row.deleteLater()
        for model in listed.models:
            if model.model_sha256 not in self.kept:
                self._add(model)
        self._say()

    def _add(self, model: ModelLine) -> None:
        row = KeptRow(self._look, self._wording, model)
        row.dropped.connect(lambda everywhere: self._drop(model.model_sha256, everywhere))
        self.kept[model.model_sha256] = row
        self._list.addWidget(row)

    def _drop(self, model_sha256: str, is_everywhere: bool) -> None:
        self._freed_bytes = self._problem = None
        message = DropModel(model_sha256=model_sha256, is_everywhere=is_everywhere)
        self._questions.ask(message, ModelsListed, self._on_dropped, self._on_refused)
        self._say()

    def _on_dropped(self, listed: ModelsListed) -> None:
        self._freed_bytes = listed.freed_bytes
        self._on_listed(listed)

    def _on_refused(self, problem: Problem) -> None:
        self._problem = problem
        self._say()

    def _say(self) -> None:
        say = self._wording.text
        self._heading.setText(say("models.kept_heading"))
        self._hint.setText(say("models.kept_hint"))
        for model in self._models:
            row = self.kept[model.model_sha256]
            row.show_model(model, self._others[model.model_sha256])
        told = ""
        if self._problem is not None:
            words = problem_words(self._problem, self._wording)
            told = f"{words.what} {words.advice}"
        elif self._freed_bytes is not None:
            told = say("models.freed", size=file_size(self._freed_bytes))
        self.told.setText(told)
        self.told.setVisible(bool(told))
        self.setVisible(bool(self._models) or bool(told))
