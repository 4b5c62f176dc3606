"""Bring the messages of a chat into the form a template takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from engine.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# Names a message's reasoning goes by; templates read the first, gpt-oss the second.
_REASONING_KEYS = ("reasoning_content", "thinking", "reasoning")


@dataclass(frozen=True, slots=True)
class ContentForms:
    """What a template can take as the content of a message; at least one of the two."""

    takes_text: bool
    takes_parts: bool


def prepared(messages: Sequence[Mapping[str, Any]], forms: ContentForms) -> list[dict[str, Any]]:
    """Return copies of messages that a template understands.

    Keys whose value is null are left out, ``developer`` becomes ``system``, and content becomes
    text or parts as the template takes it; parts are joined with nothing between.

    Args:
        messages: As they came.
        forms: What the template takes.

    Returns:
        New messages; those given are not changed.

    Raises:
        UsageError: One has no role, or a part that isn't text.
    """
    result: list[dict[str, Any]] = []
    for number, message in enumerate(messages, start=1):
        if not isinstance(message.get("role"), str):
            raise UsageError(f"Message {number} has no role.")
        copy = {key: value for key, value in message.items() if value is not None}
        if copy["role"] == "developer":
            copy["role"] = "system"
        if "content" in copy:
            copy["content"] = _content(copy["content"], number, forms)
        result.append(_with_reasoning(copy))
    return result


def _content(content: object, number: int, forms: ContentForms) -> object:
    if isinstance(content, str):
        return content if forms.takes_text else [{"type": "text", "text": content}]
    if not isinstance(content, list):
        raise UsageError(f"The content of message {number} is neither text nor a list of parts.")
    texts = [_text_of(part, number) for part in content]
    if forms.takes_parts:
        return [{"type": "text", "text": text} for text in texts]
    return "".join(texts)


def _text_of(part: object, number: int) -> str:
    if isinstance(part, str):
        return part
    kind = part.get("type") if isinstance(part, dict) else None
    text = part.get("text") if isinstance(part, dict) else None
    # The kind may be anything JSON can say: only text can be looked up in a set.
    is_text = isinstance(kind, str) and kind in {"text", "input_text", "output_text"}
    if not is_text or not isinstance(text, str):
        raise UsageError(
            f"Message {number} has a part of the type {kind!r}; this model takes only text."
        )
    return text


def _with_reasoning(message: dict[str, Any]) -> dict[str, Any]:
    found = [message[key] for key in _REASONING_KEYS if key in message]
    if not found:
        return message
    return {"thinking": found[0], **message, "reasoning_content": found[0]}
