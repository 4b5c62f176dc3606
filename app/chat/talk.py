"""The open chat and what is seen of it, kept the same."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, QTimer, Signal
from PySide6.QtGui import QAccessible, QAccessibleEvent, QGuiApplication

from app.chat.progress_words import ProgressWords
from app.chat.request import ANSWER_SHARE, Measure
from app.chat.view.message_view import AnswerView, Version
from app.safe_text import without_unseen

if TYPE_CHECKING:
    from app.bridge.problem import Problem
    from app.chat.desk import Desk
    from app.chat.input.composer import Composer
    from app.chat.records import Message
    from app.chat.turns import Turns
    from app.chat.view.conversation_view import ConversationView
    from app.surroundings import Surroundings

PROGRESS_EVERY_MS = 500


class Talk(QObject):
    """Joins the desk, the conversation's view and the composer.

    Attributes:
        models_asked: A person wants to choose a model.
        refused: Carries the ``Problem`` for which a message was not sent.
    """

    models_asked = Signal()
    refused = Signal(object)

    def __init__(
        self,
        desk: Desk,
        turns: Turns,
        view: ConversationView,
        composer: Composer,
        surroundings: Surroundings,
        parent: QObject,
    ) -> None:
        """Join them.

        Args:
            desk: The open chat.
            turns: Answers under way.
            view: Shows the open chat.
            composer: Where people write.
            surroundings: What pages share.
            parent: Owns it.
        """
        super().__init__(parent)
        self._desk = desk
        self._turns = turns
        self._view = view
        self._composer = composer
        self._about = surroundings
        self._words = ProgressWords(surroundings.wording)
        self._edited_id: str | None = None
        self._draft = ""  # what was being written when an earlier message was taken up
        self._ticking = QTimer(self)
        self._ticking.setInterval(PROGRESS_EVERY_MS)
        self._ticking.timeout.connect(self._tell_progress)
        desk.opened.connect(self._on_opened)
        desk.path_changed.connect(self._show)
        desk.refused.connect(self._on_refused)
        turns.changed.connect(self._on_changed)
        turns.grew.connect(view.grow)
        turns.ended.connect(self._on_ended)
        view.acted.connect(self._on_acted)
        composer.send_asked.connect(self._on_send)
        composer.stop_asked.connect(desk.stop)
        composer.cancelled.connect(self.cancel_editing)
        surroundings.wording.changed.connect(self._on_wording)
        surroundings.look.changed.connect(view.redraw)
        surroundings.status.changed.connect(self._tell_room)

    @property
    def is_editing(self) -> bool:
        """Whether an earlier message is being edited."""
        return self._edited_id is not None

    def cancel_editing(self) -> None:
        """Leave an earlier message as it is; what was being written comes back."""
        if self._edited_id is not None:
            self._edited_id = None
            self._composer.editor.set_message(self._draft)
            self._composer.set_editing(False)

    # ---- the desk -----------------------------------------------------------------------------

    def _on_opened(self) -> None:
        self.cancel_editing()
        self._view.clear()
        self._show()

    def _show(self) -> None:
        tree, live = self._desk.tree, self._desk.live
        path = tree.path()
        versions: dict[str, Version] = {}
        for message in path:
            siblings = tree.siblings(message.message_id)
            if len(siblings) > 1:
                place = siblings.index(message.message_id) + 1
                versions[message.message_id] = Version(place, len(siblings))
        live_id = None if live is None else live.message_id
        self._view.show_path(path, versions, live_id)
        self._mark_going_on()
        self._composer.set_running(live is not None)
        if live is not None:
            self._view.follow()
            self._ticking.start()
            self._tell_progress()
        self._tell_room()

    def _mark_going_on(self) -> None:
        for view in self._view.views:
            message = self._desk.tree.get(view.message_id)
            if isinstance(view, AnswerView) and message is not None:
                view.allow_going_on(can=self._desk.can_go_on(message))

    def _on_refused(self, text: str, problem: Problem) -> None:
        if self._composer.editor.document().isEmpty():
            self._composer.editor.set_message(text)
        self.refused.emit(problem)

    # ---- answers ------------------------------------------------------------------------------

    def _on_changed(self, message_id: str) -> None:
        live = self._desk.live
        if live is not None and live.message_id == message_id:
            self._tell_progress()

    def _tell_progress(self) -> None:
        live = self._desk.live
        if live is None:
            self._ticking.stop()
            return
        about = self._about
        sentence = self._words.sentence(
            live, self._turns.facts, about.answering.state, about.node.state, time.monotonic()
        )
        self._view.tell_progress(live.answer, sentence)

    def _on_ended(self, message_id: str, answer: Message) -> None:
        if self._desk.tree.get(message_id) is None:
            return
        self._view.finish(answer)
        self._composer.set_running(self._desk.live is not None)
        self._mark_going_on()
        self._tell_room()
        view = self._view.view_of(message_id)
        if view is not None and QAccessible.isActive():
            event = QAccessibleEvent(view, QAccessible.Event.Alert)
            QAccessible.updateAccessibility(event)

    # ---- the composer -------------------------------------------------------------------------

    def _on_send(self, text: str) -> None:
        edited_id, self._edited_id = self._edited_id, None
        self._composer.editor.clear_message()
        if edited_id is None:
            self._desk.send(text)
        else:
            self._desk.resend(edited_id, text)
            self._composer.editor.set_message(self._draft)
            self._composer.set_editing(False)
        self._view.follow()

    def _tell_room(self) -> None:
        """Say how many tokens a message may have: what the system prompt leaves of the context."""
        context = self._turns.facts.context_tokens
        chat = self._desk.chat
        measure = Measure(self._desk.tree.path(), chat.system_prompt)
        room = context - context // ANSWER_SHARE - measure.tokens((), chat.system_prompt)
        self._composer.set_room(max(room, 1) if context else 0, measure.factor)

    # ---- messages -----------------------------------------------------------------------------

    def _on_acted(self, name: str, message_id: str) -> None:
        desk = self._desk
        match name:
            case "copy":
                message = desk.tree.get(message_id)
                if message is not None:
                    QGuiApplication.clipboard().setText(without_unseen(message.text))
            case "edit":
                self._edit(message_id)
            case "again":
                desk.answer_again(message_id)
            case "go_on":
                desk.go_on(message_id)
            case "retry":
                desk.retry(message_id)
            case "earlier":
                desk.choose_version(message_id, -1)
            case "later":
                desk.choose_version(message_id, 1)
            case "models":
                self.models_asked.emit()

    def _edit(self, message_id: str) -> None:
        message = self._desk.tree.get(message_id)
        if message is None or self._desk.live is not None:
            return
        editor = self._composer.editor
        if self._edited_id is None:
            self._draft = editor.message()
        self._edited_id = message_id
        editor.set_message(message.text)
        self._composer.set_editing(True)
        editor.setFocus()

    def _on_wording(self) -> None:
        self._view.redraw()
        self._tell_progress()
