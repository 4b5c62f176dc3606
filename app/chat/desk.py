"""The chat that is open: what a person does with it, and what becomes of that."""

from __future__ import annotations

import time
import uuid
from typing import TYPE_CHECKING

from msgspec.structs import replace
from PySide6.QtCore import QObject, Signal

from app.bridge.problem import Problem, problem_of
from app.chat.live import LiveTurn
from app.chat.records import Chat, Figures, Message
from app.chat.request import Measure
from app.chat.tree import MessageTree
from app.safe_text import one_line

if TYPE_CHECKING:
    from app.chat.records import Sampling
    from app.chat.shelf import Shelf
    from app.chat.store import ChatStore
    from app.chat.turns import Turns
    from engine.errors import StorageError

TITLE_CHARACTERS = 60  # of the first message name its chat
MAX_REQUEST_BYTES = 900_000  # a control message has 1 MiB; the rest is settings and token ids


class Desk(QObject):
    """One open chat.

    Attributes:
        opened: Another chat is open, or the same one anew.
        path_changed: The branch that is shown is another one.
        refused: Carries a message's text that was not sent, and the ``Problem``.

    Thread: the main one.
    """

    opened = Signal()
    path_changed = Signal()
    refused = Signal(str, object)

    def __init__(
        self, store: ChatStore, shelf: Shelf, turns: Turns, parent: QObject | None = None
    ) -> None:
        """Begin with a new chat.

        Args:
            store: Keeps chats.
            shelf: The list of them.
            turns: Sees answers to their ends.
            parent: Owns it.
        """
        super().__init__(parent)
        self._store = store
        self._shelf = shelf
        self._turns = turns
        self._is_new = True  # and in no list
        self.chat = _new_chat()
        self.tree = MessageTree()
        turns.ended.connect(self._on_ended)
        shelf.renamed.connect(self._on_renamed)
        shelf.deleted.connect(self._on_deleted)

    # ---- chats --------------------------------------------------------------------------------

    def begin(self) -> None:
        """Open a new chat; it is kept from its first message on."""
        if self._is_new and not len(self.tree):
            return
        self.chat, self.tree, self._is_new = _new_chat(), MessageTree(), True
        self.opened.emit()

    def open(self, chat_id: str) -> None:
        """Open a chat of the list.

        Args:
            chat_id: Of it.
        """
        if chat_id == self.chat.chat_id:
            return
        self._turns.save()
        self._store.do(lambda database: database.read_chat(chat_id), self._on_read)

    def _on_read(self, found: tuple[Chat, list[Message]] | None) -> None:
        if found is None:
            return
        chat, messages = found
        live = self._turns.live_in(chat.chat_id)
        if live is not None:
            messages = [live.answer if m.message_id == live.message_id else m for m in messages]
        self.chat, self._is_new = chat, False
        self.tree = MessageTree(messages, chat.leaf_id)
        self.opened.emit()

    def _on_renamed(self, chat_id: str, title: str) -> None:
        if chat_id == self.chat.chat_id:
            self.chat = replace(self.chat, title=title, is_titled=True)

    def _on_deleted(self, chat_id: str) -> None:
        live = self._turns.live_in(chat_id)
        if live is not None:
            self._turns.stop(live.message_id)
        if chat_id == self.chat.chat_id:
            self.chat, self.tree, self._is_new = _new_chat(), MessageTree(), True
            self.opened.emit()

    def set_prompt(self, system_prompt: str) -> None:
        """Say how the model should behave in this chat.

        Args:
            system_prompt: Empty for nothing.
        """
        self._put(replace(self.chat, system_prompt=system_prompt))

    def set_sampling(self, sampling: Sampling) -> None:
        """Say how this chat is answered.

        Args:
            sampling: From the next answer on.
        """
        self._put(replace(self.chat, sampling=sampling))

    def _put(self, chat: Chat) -> None:
        if chat == self.chat:
            return
        self.chat = chat
        if not self._is_new:
            self._store.do(lambda database: database.put_chat(chat))

    # ---- messages -----------------------------------------------------------------------------

    @property
    def live(self) -> LiveTurn | None:
        """The answer that runs in this chat."""
        return self._turns.live_in(self.chat.chat_id)

    def send(self, text: str) -> None:
        """Ask at the end of the branch that is shown.

        Args:
            text: Of the message.
        """
        self._ask(text, self.tree.leaf_id)

    def resend(self, message_id: str, text: str) -> None:
        """Ask otherwise: a new branch beside a message.

        Args:
            message_id: Of the earlier message.
            text: Of the new one.
        """
        message = self.tree.get(message_id)
        if message is not None:
            self._ask(text, message.parent_id)

    def answer_again(self, message_id: str) -> None:
        """Have a question answered anew: a new branch beside an answer.

        Args:
            message_id: Of the answer.
        """
        answer = self.tree.get(message_id)
        if answer is None or self.live is not None or answer.parent_id is None:
            return
        self._answer(answer.parent_id)

    def go_on(self, message_id: str) -> None:
        """Have an answer that was cut off go on where it was.

        Args:
            message_id: Of it.
        """
        answer = self.tree.get(message_id)
        if answer is None or self.live is not None or not self.can_go_on(answer):
            return
        figures = replace(answer.figures, code="", what="", advice="", finish_reason="")
        answer = replace(answer, state="growing", figures=figures)
        self.tree.replace(answer)
        self._store.do(lambda db: db.end_message(answer.message_id, "growing", figures))
        self._begin(answer)

    def can_go_on(self, answer: Message) -> bool:
        """Return whether an answer can go on: by the same model, with what it wrote.

        Args:
            answer: Which.
        """
        facts = self._turns.facts
        return (
            answer.state in {"stopped", "failed"}
            and bool(answer.token_ids)
            and answer.figures.seed is not None
            and answer.message_id == self.tree.leaf_id
            and (not facts.model_sha256 or facts.model_sha256 == answer.figures.model_sha256)
        )

    def retry(self, message_id: str) -> None:
        """Try a failed answer again: it goes on if it can, and else begins anew.

        Args:
            message_id: Of it.
        """
        answer = self.tree.get(message_id)
        if answer is None:
            return
        if self.can_go_on(answer):
            self.go_on(message_id)
        else:
            self.answer_again(message_id)

    def stop(self) -> None:
        """Want no more of the answer that runs."""
        live = self.live
        if live is not None:
            self._turns.stop(live.message_id)

    def choose_version(self, message_id: str, step: int) -> None:
        """Show another version of a message.

        Args:
            message_id: Of the one that is shown.
            step: -1 for the one before, 1 for the one after.
        """
        siblings = self.tree.siblings(message_id)
        place = siblings.index(message_id) + step
        if 0 <= place < len(siblings):
            self.tree.choose(siblings[place])
            self._put(replace(self.chat, leaf_id=self.tree.leaf_id))
            self.path_changed.emit()

    def _ask(self, text: str, parent_id: str | None) -> None:
        if self.live is not None or not text.strip():
            return
        if len(text.encode("utf-8", "replace")) > MAX_REQUEST_BYTES:
            self.refused.emit(text, Problem("request_too_big", "", ""))
            return
        now_s = time.time()
        message = Message(
            message_id=uuid.uuid4().hex,
            chat_id=self.chat.chat_id,
            parent_id=parent_id,
            role="user",
            text=text.encode("utf-8", "replace").decode(),  # half a surrogate can't be kept
            created_s=now_s,
        )
        title = self.chat.title or one_line(text, TITLE_CHARACTERS)
        before, before_leaf = self.chat, self.tree.leaf_id
        self.chat = replace(
            self.chat,
            title=title,
            leaf_id=message.message_id,
            created_s=self.chat.created_s or now_s,
            changed_s=now_s,
        )
        chat, tree = self.chat, self.tree
        tree.add(message)
        self._is_new = False
        self.path_changed.emit()

        def kept(_: None) -> None:
            self._shelf.changed.emit()
            self._answer_in(chat, tree, message.message_id)

        def lost(error: StorageError) -> None:
            if tree is self.tree:
                self.chat = before
                tree.take_back(message.message_id, before_leaf)
                self.path_changed.emit()
            self.refused.emit(text, problem_of(error))

        self._store.do(lambda database: database.add_message(chat, message), kept, lost)

    def _answer(self, question_id: str) -> None:
        self._answer_in(self.chat, self.tree, question_id)

    def _answer_in(self, chat: Chat, tree: MessageTree, question_id: str) -> None:
        """Begin an answer; the chat may not be the open one any more."""
        if tree is self.tree:
            chat = self.chat
        answer = Message(
            message_id=uuid.uuid4().hex,
            chat_id=chat.chat_id,
            parent_id=question_id,
            role="assistant",
            state="growing",
            created_s=time.time(),
            figures=Figures(),
        )
        tree.add(answer)
        chat = replace(chat, leaf_id=answer.message_id, changed_s=answer.created_s)
        if tree is self.tree:
            self.chat = chat
        self._store.do(lambda database: database.add_message(chat, answer))
        self._begin(answer, chat, tree)

    def _begin(
        self, answer: Message, chat: Chat | None = None, tree: MessageTree | None = None
    ) -> None:
        chat = self.chat if chat is None else chat
        tree = self.tree if tree is None else tree
        asked = tuple(tree.path_to(answer.parent_id))
        measure = Measure(asked, chat.system_prompt)
        turn = LiveTurn(chat, asked, answer, measure, began_s=time.monotonic())
        turn.num_before = len(answer.token_ids)
        self._turns.begin(turn)
        if tree is self.tree:
            self.path_changed.emit()

    def _on_ended(self, message_id: str, answer: Message) -> None:
        if self.tree.get(message_id) is not None:
            self.tree.replace(answer)


def _new_chat() -> Chat:
    return Chat(chat_id=uuid.uuid4().hex)
