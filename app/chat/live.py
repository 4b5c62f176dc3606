"""An answer while it runs: how far it is, and what of it is not on disk yet. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from msgspec.structs import replace

if TYPE_CHECKING:
    from app.chat.records import Chat, Figures, Message
    from app.chat.request import Measure

# keeping: the question goes to disk; waiting: no head has taken it; reading: no text has come.
Phase = Literal["keeping", "waiting", "reading", "writing", "interrupted"]


@dataclass(slots=True)
class LiveTurn:
    """One answer.

    Attributes:
        chat: As it was when it was asked.
        asked: The branch up to what is asked; the last message is a person's.
        answer: As far as it has come.
        measure: How the model counts.
        phase: How far it is.
        began_s: When it was asked; of the monotonic clock.
        first_s: When its first text came; None before.
        last_s: When its last text came.
        queue_place: From 1, while it waits for its turn; 0 else.
        wait_s: Until its turn; None where nobody knows.
        num_read: Tokens of the prompt that are computed.
        num_requests: Sent for it; each has a name of its own.
        was_interrupted: It waits for PCs to go on.
        unsaved: Text that is not on disk.
        unsaved_ids: Its tokens.
    """

    chat: Chat
    asked: tuple[Message, ...]
    answer: Message
    measure: Measure
    began_s: float
    phase: Phase = "keeping"
    first_s: float | None = None
    last_s: float = 0.0
    queue_place: int = 0
    wait_s: float | None = None
    num_read: int = 0
    num_requests: int = 0
    num_before: int = 0  # tokens of an answer that goes on
    unsaved: list[str] = field(default_factory=list)
    unsaved_ids: list[int] = field(default_factory=list)

    @property
    def message_id(self) -> str:
        """Of the answer."""
        return self.answer.message_id

    @property
    def request_id(self) -> str:
        """Of the request that runs."""
        return f"{self.message_id}/{self.num_requests}"

    def note(self, **figures: object) -> None:
        """Note what is known of how the answer comes.

        Args:
            figures: By the names ``Figures`` has.
        """
        known: Figures = replace(self.answer.figures, **figures)
        self.answer = replace(self.answer, figures=known)

    def take(self, text: str, token_ids: tuple[int, ...], now_s: float) -> None:
        """Take a piece of it.

        Args:
            text: That came.
            token_ids: Of it.
            now_s: Of the monotonic clock.
        """
        if self.first_s is None:
            self.first_s = now_s
            self.note(ttft_s=now_s - self.began_s)
        self.last_s = now_s
        self.phase = "writing"
        ids = (*self.answer.token_ids, *token_ids)
        self.answer = replace(self.answer, text=self.answer.text + text, token_ids=ids)
        self.note(completion_tokens=len(ids), decode_s=now_s - self.first_s)
        self.unsaved.append(text)
        self.unsaved_ids.extend(token_ids)

    def take_unsaved(self) -> tuple[str, tuple[int, ...]]:
        """Return what is to be put on disk; it counts as being there."""
        text, ids = "".join(self.unsaved), tuple(self.unsaved_ids)
        self.unsaved.clear()
        self.unsaved_ids.clear()
        return text, ids
