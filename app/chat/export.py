"""A chat as a file to keep or to give away. Pure."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from app.chat.records import Chat, Message

FORMAT = "daisy-chat-1"


def as_markdown(chat: Chat, path: Sequence[Message], names: dict[str, str]) -> str:
    """Return the branch that is shown, as Markdown.

    Args:
        chat: Whose.
        path: From its first message on.
        names: What ``user``, ``assistant`` and ``system`` are called.
    """
    parts = [f"# {' '.join(chat.title.split()) or 'Daisy'}"]
    if chat.system_prompt:
        parts.append(f"## {names['system']}\n\n{chat.system_prompt}")
    for message in path:
        heading = names[message.role]
        if message.figures.pcs:
            heading += f" ({', '.join([message.figures.model, *message.figures.pcs])})"
        parts.append(f"## {heading}\n\n{message.text}")
    return "\n\n".join(parts) + "\n"


def as_json(chat: Chat, messages: Sequence[Message]) -> bytes:
    """Return a chat with every branch and figure, as JSON.

    Args:
        chat: Which.
        messages: All of it.
    """
    told = {
        "format": FORMAT,
        "chat": msgspec.to_builtins(chat),
        "messages": [_without_ids(message) for message in messages],
        "exported": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    return msgspec.json.format(msgspec.json.encode(told), indent=2) + b"\n"


def _without_ids(message: Message) -> dict[str, object]:
    fields: dict[str, object] = msgspec.to_builtins(message)
    del fields["token_ids"]  # of use to the model that wrote them only
    return fields


def file_name(title: str, ending: str) -> str:
    """Return a file name every system takes.

    Args:
        title: Of the chat; may be anything.
        ending: Without the dot.
    """
    kept = "".join(c if c.isalnum() or c in " -_" else " " for c in title)
    return f"{' '.join(kept.split())[:60].strip() or 'Daisy'}.{ending}"
