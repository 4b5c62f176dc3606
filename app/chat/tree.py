"""A chat's messages as a tree, and the branch of it that is shown. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from app.chat.records import Message


class MessageTree:
    """Every message of one chat.

    Attributes:
        leaf_id: The end of the branch that is shown; None for an empty chat.
    """

    def __init__(self, messages: Iterable[Message] = (), leaf_id: str | None = None) -> None:
        """Take what was kept.

        Args:
            messages: In the order they were made.
            leaf_id: The end of the branch to show; one that is not there counts as None.
        """
        self._messages: dict[str, Message] = {}
        self._children: dict[str | None, list[str]] = {}
        for message in messages:
            self._put(message)
        known = leaf_id in self._messages
        self.leaf_id = leaf_id if known else self._newest_leaf(None)

    def __len__(self) -> int:
        return len(self._messages)

    def get(self, message_id: str) -> Message | None:
        """Return a message; None if it is not of this chat.

        Args:
            message_id: Of it.
        """
        return self._messages.get(message_id)

    def add(self, message: Message) -> None:
        """Add a message and show it.

        Args:
            message: Its parent is here already, or it is a first one.
        """
        self._put(message)
        self.leaf_id = message.message_id

    def take_back(self, message_id: str, leaf_id: str | None) -> None:
        """Forget a message that was added last.

        Args:
            message_id: Of it; nothing stands behind it.
            leaf_id: The end of the branch that was shown before.
        """
        message = self._messages.pop(message_id)
        self._children[message.parent_id].remove(message_id)
        self.leaf_id = leaf_id

    def replace(self, message: Message) -> None:
        """Put another state of a message in its place.

        Args:
            message: Of the same id and parent.
        """
        self._messages[message.message_id] = message

    def path(self) -> list[Message]:
        """Return the branch that is shown, from its first message on."""
        return self.path_to(self.leaf_id)

    def path_to(self, message_id: str | None) -> list[Message]:
        """Return the messages up to one, it included.

        Args:
            message_id: The last; None for none.
        """
        found: list[Message] = []
        while message_id is not None and (message := self._messages.get(message_id)) is not None:
            if len(found) > len(self._messages):
                break  # a file somebody tampered with: messages that are their own forebears
            found.append(message)
            message_id = message.parent_id
        return found[::-1]

    def siblings(self, message_id: str) -> list[str]:
        """Return the versions of a message, itself included, the oldest first.

        Args:
            message_id: Of one of them.
        """
        return list(self._children.get(self._messages[message_id].parent_id, ()))

    def choose(self, message_id: str) -> None:
        """Show the branch a message is on, to its newest end.

        Args:
            message_id: Of it.
        """
        self.leaf_id = self._newest_leaf(message_id)

    def _put(self, message: Message) -> None:
        if message.message_id not in self._messages:
            self._children.setdefault(message.parent_id, []).append(message.message_id)
        self._messages[message.message_id] = message

    def _newest_leaf(self, message_id: str | None) -> str | None:
        for _ in range(len(self._messages)):
            children = self._children.get(message_id)
            if not children:
                break
            message_id = children[-1]
        return message_id
