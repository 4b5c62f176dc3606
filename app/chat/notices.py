"""What is to be said above a conversation: of the node, of the chats' file, of what was done."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QObject

from app.bridge.node_process import NodeState
from app.bridge.problem import problem_of
from app.chat.progress_words import node_sentence
from app.safe_text import one_line
from app.wording.problems import problem_words

if TYPE_CHECKING:
    from app.bridge.problem import Problem
    from app.chat.panes.banner import Banner
    from app.chat.records import Chat
    from app.chat.shelf import Shelf
    from app.chat.store import ChatStore
    from app.surroundings import Surroundings
    from engine.errors import StorageError

UNDO_FOR_MS = 12_000
TITLE_CHARACTERS = 40
_STARTABLE = {NodeState.ABSENT, NodeState.FAILED}


class Notices(QObject):
    """Says it in the banner."""

    def __init__(
        self, store: ChatStore, banner: Banner, surroundings: Surroundings, parent: QObject
    ) -> None:
        """Begin to listen.

        Args:
            store: Says what became of the chats' file.
            banner: Shows one notice at a time.
            surroundings: What pages share.
            parent: Owns it.
        """
        super().__init__(parent)
        self._banner = banner
        self._about = surroundings
        store.set_aside.connect(self._on_set_aside)
        store.not_kept.connect(self._on_not_kept)
        surroundings.node.state_changed.connect(self._on_node)

    def say_deleted(self, chat: Chat, shelf: Shelf) -> None:
        """Say that a chat was deleted, and let it be brought back.

        Args:
            chat: Which.
            shelf: Brings it back.
        """
        text = self._about.wording.text

        def sentence() -> str:
            title = one_line(chat.title, TITLE_CHARACTERS) or text("chat.untitled")
            return text("chat.deleted", title=title)

        undo = ("chat.undo", lambda: shelf.restore(chat.chat_id))
        self._banner.say("deleted", sentence, undo, UNDO_FOR_MS)

    def say_refused(self, problem: Problem) -> None:
        """Say why a message was not sent.

        Args:
            problem: Why.
        """
        wording = self._about.wording

        def sentence() -> str:
            words = problem_words(problem, wording)
            if problem.code == "storage":
                return f"{wording.text('chat.not_saved')} {words.advice}"
            return f"{words.what} {words.advice}"

        self._banner.say("refused", sentence)

    def _on_set_aside(self, file: str, made: str) -> None:
        text = self._about.wording.text
        key = "chat.set_aside" if made else "chat.set_aside_empty"
        self._banner.say("store", lambda: text(key, file=file, made=made))

    def _on_not_kept(self, error: StorageError) -> None:
        wording, problem = self._about.wording, problem_of(error)

        def sentence() -> str:
            words = problem_words(problem, wording)
            return wording.text("chat.not_kept", what=f"{words.what} {words.advice}")

        self._banner.say("store", sentence)

    def _on_node(self, state: NodeState) -> None:
        if state in {NodeState.RUNNING, NodeState.STARTING}:
            self._banner.withdraw("node")
            return
        wording, node = self._about.wording, self._about.node
        action = ("chat.start_node", node.start) if state in _STARTABLE else None
        self._banner.say("node", lambda: node_sentence(state, wording), action)
