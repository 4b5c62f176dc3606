"""What a chat is made of. Plain data.

A chat's messages form a tree: what was edited or answered again stands beside what it replaces.
"""

from __future__ import annotations

from typing import Literal

import msgspec

Role = Literal["user", "assistant"]
# An answer is "growing" while it runs: found so after a crash, it is what could be saved.
State = Literal["whole", "growing", "stopped", "failed"]


class Sampling(msgspec.Struct, frozen=True, kw_only=True):
    """How a chat is answered; None for what the model or the pool decides."""

    temperature: float = 0.7
    top_p: float = 0.95
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    max_tokens: int | None = None
    seed: int | None = None


class Chat(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the list.

    Attributes:
        chat_id: Never given twice.
        title: Empty until the first message gives it one.
        is_titled: A person chose the title.
        system_prompt: Sent before everything else.
        sampling: Of every answer.
        leaf_id: The message at the end of the branch that is shown; None for an empty chat.
        created_s: Unix time.
        changed_s: Unix time of the newest message.
    """

    chat_id: str
    title: str = ""
    is_titled: bool = False
    system_prompt: str = ""
    sampling: Sampling = Sampling()
    leaf_id: str | None = None
    created_s: float = 0.0
    changed_s: float = 0.0


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of how an answer came.

    Attributes:
        model: Its name.
        model_sha256: Which: only the same one can go on with an answer.
        pcs: Names of those that answered, in the order of the chain.
        seed: Drawn by the head, or given.
        prompt_tokens: Of the rendered prompt.
        completion_tokens: Of the answer.
        context_tokens: That a chat may have.
        ttft_s: From asking to the first text.
        decode_s: From the first text to the last.
        finish_reason: ``stop``, ``length`` or ``cancelled``.
        num_left_out: Earlier messages that were not sent, for they didn't fit.
        pauses_s: Each time a PC left and the others went on.
        code: Of what went wrong; empty where nothing did.
        what: The node's own sentence about it.
        advice: The node's own advice.
    """

    model: str = ""
    model_sha256: str = ""
    pcs: tuple[str, ...] = ()
    seed: int | None = None
    prompt_tokens: int = 0
    completion_tokens: int = 0
    context_tokens: int = 0
    ttft_s: float | None = None
    decode_s: float = 0.0
    finish_reason: str = ""
    num_left_out: int = 0
    pauses_s: tuple[float, ...] = ()
    code: str = ""
    what: str = ""
    advice: str = ""

    @property
    def rate(self) -> float | None:
        """Tokens a second; None where too few came to tell."""
        if self.completion_tokens < 2 or self.decode_s <= 0:
            return None
        return (self.completion_tokens - 1) / self.decode_s


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """One message.

    Attributes:
        message_id: Never given twice.
        chat_id: Whose.
        parent_id: The one before it; None for the first.
        role: Who wrote it.
        text: As it was written: nothing is taken out of it.
        state: Whether an answer came to its end.
        created_s: Unix time.
        figures: Of an answer.
        token_ids: Of an answer that can go on.
    """

    message_id: str
    chat_id: str
    parent_id: str | None
    role: Role
    text: str = ""
    state: State = "whole"
    created_s: float = 0.0
    figures: Figures = Figures()
    token_ids: tuple[int, ...] = ()


class Found(msgspec.Struct, frozen=True):
    """A chat of the list, with the place where what was searched for stands."""

    chat: Chat
    excerpt: str = ""
