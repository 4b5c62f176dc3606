"""What an asker has of an answer, and with what another head goes on with it.

Pure: the time is an argument.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from engine.errors import RemoteProtocolError
from engine.messages.control import (
    Accepted,
    AnswerInterrupted,
    AnswerProgress,
    AnswerResumed,
    Finished,
    TextDelta,
)

if TYPE_CHECKING:
    from engine.messages.control import Generate
    from engine.messages.message import Message


class AnswerSoFar:
    """One answer, whichever heads it comes from.

    Attributes:
        is_accepted: The asker was told that its request is taken.
        is_finished: The asker was told the end.
    """

    def __init__(self, request: Generate, began_s: float) -> None:
        """Begin with what the asker has already.

        Args:
            request: What is asked; an asker that lost its node says in it what it has.
            began_s: When it came.
        """
        self._request = request
        self._began_s = began_s
        self._committed_ids = list(request.committed_ids)
        self._next_number = request.next_number
        self._prompt_tokens = 0
        self._first_delta_s: float | None = None
        self._last_delta_s: float | None = None
        self._quiet_since_s: float | None = None  # while it is interrupted
        self.is_accepted = False
        self.is_finished = False

    @property
    def has_begun(self) -> bool:
        """Whether an asker holds a part of it, or was promised it."""
        return self.is_accepted or bool(self._committed_ids)

    @property
    def is_coming(self) -> bool:
        """Whether its asker would be surprised by a pause: it was promised, and none is told."""
        return self.is_accepted and self._quiet_since_s is None

    def request_for(self, epoch: int) -> Generate:
        """Return the request with which a head begins the answer, or goes on with it.

        Args:
            epoch: Of that head's placement.
        """
        return msgspec.structs.replace(
            self._request,
            committed_ids=tuple(self._committed_ids),
            next_number=self._next_number,
            epoch=epoch,
        )

    def take(self, message: Message, now_s: float) -> tuple[Message, ...]:
        """Take what a head says of the request; return what the asker is told.

        Args:
            message: Of this request.
            now_s: When it came.

        Raises:
            RemoteProtocolError: The head leaves out a piece, says what no head says, or reads
                the prompt otherwise than the one before it did.
        """
        match message:
            case Accepted():
                return self._accepted(message)
            case TextDelta():
                return self._delta(message, now_s)
            case Finished():
                self.is_finished = True
                return (*self._resumed(now_s), self._timed(message))
            case AnswerProgress():
                return (message,) if self._first_delta_s is None else ()
            case AnswerInterrupted() | AnswerResumed():
                return ()
            case _:
                raise RemoteProtocolError(f"The head sent {type(message).__name__} to an asker.")

    def interrupted(self, what: str, now_s: float) -> tuple[Message, ...]:
        """Note that no more comes for now; return what the asker is told.

        Args:
            what: Why, one sentence.
            now_s: When it was noticed.
        """
        if not self.is_coming:
            return ()
        self._quiet_since_s = now_s if self._last_delta_s is None else self._last_delta_s
        return (AnswerInterrupted(request_id=self._request.request_id, what=what),)

    def cancelled(self) -> Finished:
        """Return the end of an answer whose asker wants no more, where no head says it."""
        self.is_finished = True
        return self._timed(
            Finished(
                request_id=self._request.request_id,
                finish_reason="cancelled",
                prompt_tokens=self._prompt_tokens,
                completion_tokens=len(self._committed_ids),
                ttft_s=None,
                decode_s=0.0,
                chain_compute_ms=0.0,
            )
        )

    def _accepted(self, message: Accepted) -> tuple[Message, ...]:
        if self.is_accepted:
            if message.prompt_tokens != self._prompt_tokens:
                raise RemoteProtocolError(
                    f"The prompt was {self._prompt_tokens} tokens long, and the PC that is to go "
                    f"on with the answer makes {message.prompt_tokens} of it.",
                    "Ask again from the beginning.",
                )
            return ()
        self.is_accepted = True
        self._prompt_tokens = message.prompt_tokens
        sampling = msgspec.structs.replace(self._request.sampling, seed=message.seed)
        self._request = msgspec.structs.replace(self._request, sampling=sampling, seed_given=True)
        return (message,)

    def _delta(self, message: TextDelta, now_s: float) -> tuple[Message, ...]:
        if message.number < self._next_number:
            return ()
        if message.number > self._next_number:
            raise RemoteProtocolError(
                f"Piece {message.number} of the answer came where {self._next_number} was due."
            )
        resumed = self._resumed(now_s)
        self._next_number += 1
        self._committed_ids.extend(message.token_ids)
        self._last_delta_s = now_s
        if self._first_delta_s is None:
            self._first_delta_s = now_s
        return (*resumed, message)

    def _resumed(self, now_s: float) -> tuple[Message, ...]:
        since_s, self._quiet_since_s = self._quiet_since_s, None
        if since_s is None:
            return ()
        return (AnswerResumed(request_id=self._request.request_id, pause_s=now_s - since_s),)

    def _timed(self, end: Finished) -> Finished:
        """Return an end with the times of the whole answer: a head knows of its own part only."""
        first, last = self._first_delta_s, self._last_delta_s
        return msgspec.structs.replace(
            end,
            ttft_s=None if first is None else first - self._began_s,
            decode_s=0.0 if first is None or last is None else last - first,
        )
