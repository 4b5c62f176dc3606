"""When this PC lends itself, among the settings: the way to it where there is no tray."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtWidgets import QHBoxLayout, QWidget

from app.parts.action import Action
from app.parts.card import Card
from app.parts.fields import Choice, Switch
from app.parts.text import Text
from app.tray.lending_words import HOUR_S, lending_sentence
from app.wording.problems import problem_words

if TYPE_CHECKING:
    from app.bridge.lending import Lending
    from app.bridge.problem import Problem
    from app.look.look import Look
    from app.wording.wording import Wording

_RULES = ("now", "idle", "never")


class LendingCard(Card):
    """The rule, a pause, and what holds now."""

    def __init__(
        self, look: Look, wording: Wording, lending: Lending, parent: QWidget | None = None
    ) -> None:
        """Build it.

        Args:
            look: Followed.
            wording: Words.
            lending: Asked and followed.
            parent: Owns it.
        """
        super().__init__(look, parent)
        self._wording = wording
        self._lending = lending
        self._label = Text(look)
        self.rule = Choice(look)
        self._label.setBuddy(self.rule)
        self.mains = Switch(look)
        self.pause = Action(look)
        self.told = Text(look, "small", "quiet")
        self.idle_unknown = Text(look, "small", "quiet")
        self.trouble = Text(look, colour="alarm")
        self.trouble.hide()
        first = QHBoxLayout()
        first.addWidget(self._label, 1)
        first.addWidget(self.rule, 1)
        second = QHBoxLayout()
        second.addWidget(self.told, 1)
        second.addWidget(self.pause)
        self.rows.addLayout(first)
        self.rows.addWidget(self.idle_unknown)
        self.rows.addWidget(self.mains)
        self.rows.addLayout(second)
        self.rows.addWidget(self.trouble)
        self.rule.activated.connect(self._on_rule)
        self.mains.clicked.connect(lambda on: lending.lend_on_battery(on=not on))
        self.pause.clicked.connect(self._on_pause)
        lending.changed.connect(self._say)
        lending.failed.connect(self._on_failed)
        wording.changed.connect(self._say)
        look.changed.connect(self._dress_fields)
        self._dress_fields()
        self._say()

    def _dress_fields(self) -> None:
        for field in (self.rule, self.mains):
            field.setFont(self._look.font("body"))

    def _on_rule(self) -> None:
        self.trouble.hide()
        self._lending.choose(self.rule.currentData())

    def _on_pause(self) -> None:
        self.trouble.hide()
        report = self._lending.report
        is_paused = report is not None and report.paused_for_s is not None
        self._lending.pause(0.0 if is_paused else HOUR_S)

    def _on_failed(self, problem: Problem) -> None:
        words = problem_words(problem, self._wording)
        self.trouble.setText(f"{words.what} {words.advice}")
        self.trouble.show()

    def _say(self) -> None:
        say, report = self._wording.text, self._lending.report
        self._label.setText(say("settings.lend_rule"))
        self.rule.setAccessibleName(say("settings.lend_rule"))
        self._fill()
        for index in range(self.rule.count()):
            self.rule.setItemText(index, say(f"tray.lend_{self.rule.itemData(index)}"))
        self.rule.setEnabled(report is not None)
        self.pause.setEnabled(report is not None)
        self.mains.setText(say("settings.mains_only"))
        self.mains.setEnabled(report is not None)
        self.mains.setChecked(report is not None and report.mains_only)
        is_paused = report is not None and report.paused_for_s is not None
        self.pause.say(say("tray.resume" if is_paused else "tray.pause_hour"))
        self.told.setText(lending_sentence(self._lending, self._wording))
        self.idle_unknown.setText(say("tray.idle_unknown"))
        self.idle_unknown.setVisible(not self._lending.can_see_idle)

    def _fill(self) -> None:
        """Offer the rules that can be kept, and show the one that holds."""
        report = self._lending.report
        held = None if report is None else report.rule
        offered = [
            rule
            for rule in _RULES
            if rule != "idle" or self._lending.can_see_idle or held == "idle"
        ]
        if offered != [self.rule.itemData(index) for index in range(self.rule.count())]:
            self.rule.clear()
            for rule in offered:
                self.rule.addItem("", rule)
        if held is not None:
            self.rule.setCurrentIndex(offered.index(held))
