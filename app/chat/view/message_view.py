"""One message of a chat, with what can be done with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from PySide6.QtCore import QRectF, Qt, Signal
from PySide6.QtGui import QFontMetrics, QPainter

from app.bridge.problem import Problem
from app.chat.view.figures_line import figures_line, notes_of
from app.chat.view.fitted import Column, Fitted
from app.chat.view.markdown_view import MarkdownView
from app.chat.view.plain_view import PlainView
from app.chat.view.row import Buttons, Note
from app.look.tokens import CORNER_PX
from app.safe_text import one_line
from app.wording.problems import problem_words

if TYPE_CHECKING:
    from PySide6.QtGui import QPaintEvent
    from PySide6.QtWidgets import QWidget

    from app.chat.records import Message
    from app.chat.view.slices import Slices
    from app.look.look import Look
    from app.wording.wording import Wording

BUBBLE_SHARE = 0.8  # of the width, at most
SPOKEN_CHARACTERS = 400  # of a message, for a screen reader's overview
_MEASURED_CHARACTERS = 120  # a longer line fills the bubble


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """What every message view draws with."""

    look: Look
    wording: Wording
    slices: Slices


@dataclass(frozen=True, slots=True)
class Version:
    """Which of several versions of a message this is."""

    place: int = 1
    whole: int = 1


class MessageView(Column):
    """One message.

    Attributes:
        acted: Carries what was pressed, and the message's id.
        link_asked: Carries the address of a link that was clicked.
    """

    acted = Signal(str, str)
    link_asked = Signal(str)

    def __init__(self, message: Message, tools: Tools, parent: QWidget | None = None) -> None:
        """Take a message; a subclass draws it.

        Args:
            message: As it is now.
            tools: To draw with.
            parent: Owns it.
        """
        super().__init__(parent, tools.look.space(1))
        self.message = message
        self.version = Version()
        self.tools = tools
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)

    @property
    def message_id(self) -> str:
        """Of the message."""
        return self.message.message_id

    def set_version(self, version: Version) -> None:
        """Say which of several versions it is.

        Args:
            version: Its place among them.
        """
        self.version = version
        self.retell()

    def retell(self) -> None:
        """Say everything that is not the message's own text, anew."""

    def build(self) -> None:
        """Draw the text, or begin to."""

    def _speak(self, key: str) -> None:
        text = one_line(self.message.text, SPOKEN_CHARACTERS)
        self.setAccessibleName(self.tools.wording.text(key, text=text))

    def _act(self, name: str) -> None:
        self.acted.emit(name, self.message_id)

    def _version_buttons(self) -> list[tuple[str, str, str]]:
        if self.version.whole < 2:
            return []
        text = self.tools.wording.text
        of = text("chat.version_of", place=self.version.place, whole=self.version.whole)
        return [
            ("earlier", "earlier", text("chat.earlier_version")),
            ("", "", of),
            ("later", "later", text("chat.later_version")),
        ]


class _Bubble(Fitted):
    """A person's words on a ground of their own, on the right."""

    def __init__(self, tools: Tools, parent: Fitted) -> None:
        super().__init__(parent)
        self._look = tools.look
        self._ground = QRectF()
        self._longest = 0
        self.view = PlainView(tools.look, tools.wording, tools.slices, self)
        self.view.refit.connect(self.refit)

    def measure(self, text: str) -> None:
        metrics = QFontMetrics(self._look.font())
        lines = text[: 4 * _MEASURED_CHARACTERS].split("\n")
        widths = [metrics.horizontalAdvance(line[:_MEASURED_CHARACTERS]) for line in lines]
        self._longest = max(widths, default=0)

    def fit(self, width: int) -> int:
        pad_x, pad_y = self._look.space(3.5), self._look.space(2.5)
        most = int(width * BUBBLE_SHARE) - 2 * pad_x
        inner = max(1, min(most, self._longest + self._look.space(1)))
        height = self.view.fit(inner)
        # A line of text has its leading below it: as much less is wanted under the last one.
        below = pad_y - self._look.space(1.25)
        left = width - inner - 2 * pad_x
        self.view.setGeometry(left + pad_x, pad_y, inner, height)
        self._ground = QRectF(left, 0, inner + 2 * pad_x, height + pad_y + below)
        self.update()
        return height + pad_y + below

    def paintEvent(self, _event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(self._look.colour("raised"))
        corner = self._look.px(CORNER_PX) * 1.5
        painter.drawRoundedRect(self._ground, corner, corner)
        painter.end()


class UserView(MessageView):
    """What a person asked."""

    def __init__(self, message: Message, tools: Tools, parent: QWidget | None = None) -> None:
        """Begin.

        Args:
            message: A person's.
            tools: To draw with.
            parent: Owns it.
        """
        super().__init__(message, tools, parent)
        self._bubble = _Bubble(tools, self)
        self._bubble.view.link_asked.connect(self.link_asked)
        self._buttons = Buttons(tools.look, self, to_right=True)
        self._buttons.pressed.connect(self._on_pressed)
        self.append(self._bubble)
        self.append(self._buttons)

    @property
    def text_view(self) -> PlainView:
        """What shows the text."""
        return self._bubble.view

    def build(self) -> None:
        """Draw the text."""
        self._bubble.measure(self.message.text)
        self._bubble.view.set_text(self.message.text)
        self.retell()

    def retell(self) -> None:
        """Say everything that is not the message's own text, anew."""
        text = self.tools.wording.text
        buttons = self._version_buttons()
        folded = self._bubble.view.num_folded
        if folded:
            num = self.tools.wording.locale.toString(folded)
            buttons.insert(0, ("unfold", "", text("chat.show_more", num=num)))
        buttons.append(("copy", "copy", text("chat.copy")))
        buttons.append(("edit", "edit", text("chat.edit")))
        self._buttons.show_only(buttons)
        self._speak("chat.said_you")

    def _on_pressed(self, name: str) -> None:
        if name == "unfold":
            self._bubble.view.unfold()
            self.retell()
        else:
            self._act(name)


class _Trouble(Column):
    """What went wrong with an answer, what to do, and a button that does it."""

    pressed = Signal(str)

    def __init__(self, tools: Tools, parent: Fitted) -> None:
        super().__init__(parent, tools.look.space(1))
        self._tools = tools
        self._problem: Problem | None = None
        self._is_open = False
        self._what = Note(tools.look, self, "troubleWhat")
        self._advice = Note(tools.look, self)
        self._details = Note(tools.look, self)
        self._buttons = Buttons(tools.look, self)
        self._buttons.pressed.connect(self._on_pressed)
        for child in (self._what, self._advice, self._buttons, self._details):
            self.append(child)

    def show_problem(self, problem: Problem | None) -> None:
        self._problem = problem
        if problem is None:
            for note in (self._what, self._advice, self._details):
                note.say("")
            self._buttons.show_only([])
            return
        words = problem_words(problem, self._tools.wording)
        text = self._tools.wording.text
        self._what.say(words.what)
        self._advice.say(words.advice)
        self._details.say(words.details if self._is_open else "")
        buttons = [("retry", "", text("chat.retry"))]
        if problem.code == "placement":
            buttons.append(("models", "", text("chat.choose_model")))
        buttons.append(("details", "", text("chat.details")))
        self._buttons.show_only(buttons)

    def _on_pressed(self, name: str) -> None:
        if name == "details":
            self._is_open = not self._is_open
            self.show_problem(self._problem)
        else:
            self.pressed.emit(name)


class AnswerView(MessageView):
    """What the model answered."""

    def __init__(self, message: Message, tools: Tools, parent: QWidget | None = None) -> None:
        """Begin.

        Args:
            message: An answer, which may still grow.
            tools: To draw with.
            parent: Owns it.
        """
        super().__init__(message, tools, parent)
        look = tools.look
        self.is_live = False
        self.can_go_on = False
        self._text = MarkdownView(look, tools.wording, tools.slices, self)
        self._text.link_asked.connect(self.link_asked)
        self._progress = Note(look, self, "progress")
        self._notes = Note(look, self)
        self._trouble = _Trouble(tools, self)
        self._trouble.pressed.connect(self._act)
        self._figures = Note(look, self)
        self._buttons = Buttons(look, self)
        self._buttons.pressed.connect(self._act)
        rows = (self._text, self._notes, self._progress, self._trouble, self._figures)
        for child in (*rows, self._buttons):
            self.append(child)

    @property
    def text_view(self) -> MarkdownView:
        """What shows the text."""
        return self._text

    @property
    def progress(self) -> str:
        """What it says of how far it is."""
        return self._progress.text

    def build(self) -> None:
        """Begin to draw the text; long ones come a little at a time."""
        text = self.message.text
        if text:
            self.tools.slices.add(self, self._text.feeding(text, is_whole=not self.is_live))
        self.retell()

    def grow(self, text: str) -> None:
        """Add what came.

        Args:
            text: A few hundred characters.
        """
        self._text.feed(text)

    def finish(self, message: Message) -> None:
        """Say that nothing more comes.

        Args:
            message: As it ended.
        """
        self.message = message
        self.is_live = False
        self._text.finish()
        self._progress.say("")
        self.retell()

    def allow_going_on(self, *, can: bool) -> None:
        """Say whether it can go on where it was cut off.

        Args:
            can: Whether it can.
        """
        if can != self.can_go_on:
            self.can_go_on = can
            self.retell()

    def tell_progress(self, message: Message, sentence: str) -> None:
        """Say how far it is.

        Args:
            message: As it is now.
            sentence: Safe to show; empty while text comes.
        """
        was, self.message = self.message, message
        self._progress.say(sentence)
        if was.figures.pauses_s != message.figures.pauses_s or not self.is_live:
            self.retell()

    def retell(self) -> None:
        """Say everything that is not the message's own text, anew."""
        wording, figures = self.tools.wording, self.message.figures
        notes = notes_of(figures, wording)
        if self.message.state == "stopped" and not self.is_live:
            notes.append(wording.text("chat.stopped"))
        self._notes.say("\n".join(notes))
        problem = None
        if self.message.state == "failed" and not self.is_live:
            problem = Problem(figures.code, figures.what, figures.advice)
        self._trouble.show_problem(problem)
        self._figures.say("" if self.is_live else figures_line(figures, wording))
        self._buttons.show_only([] if self.is_live else self._actions())
        self._speak("chat.said_model")

    def _actions(self) -> list[tuple[str, str, str]]:
        text = self.tools.wording.text
        buttons = self._version_buttons()
        if self.message.text:
            buttons.append(("copy", "copy", text("chat.copy")))
        buttons.append(("again", "again", text("chat.again")))
        if self.can_go_on:
            buttons.append(("go_on", "go-on", text("chat.go_on")))
        return buttons
