"""One answer as the window has it, and with what a node goes on with it. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from engine.errors import RemoteProtocolError

if TYPE_CHECKING:
    from engine.messages.control import Accepted, Generate, TextDelta


class Answer:
    """What came of one request.

    Attributes:
        is_accepted: A head took it.
        prompt_tokens: Of the rendered prompt; 0 before that.
        seed: The head's, or the person's; 0 before that.
        token_ids: All that came, those of an answer that goes on included.
    """

    def __init__(self, request: Generate) -> None:
        """Begin with what the request says there is already.

        Args:
            request: As it is first sent.
        """
        self._request = request
        self._next_number = request.next_number
        self.is_accepted = False
        self.prompt_tokens = 0
        self.seed = request.sampling.seed
        self.token_ids = list(request.committed_ids)

    @property
    def request_id(self) -> str:
        """Names it."""
        return self._request.request_id

    @property
    def request(self) -> Generate:
        """The request as it must be sent now: with everything that came already."""
        return replace(
            self._request,
            committed_ids=tuple(self.token_ids),
            next_number=self._next_number,
        )

    def accept(self, message: Accepted) -> None:
        """Note that a head took it.

        Args:
            message: The head's.

        Raises:
            RemoteProtocolError: It reads the prompt otherwise than the one before it did: another
                model can't go on with this one's answer.
        """
        if self.is_accepted and message.prompt_tokens != self.prompt_tokens:
            raise RemoteProtocolError(
                f"The prompt was {self.prompt_tokens} tokens long, and the node that is to go on "
                f"with the answer makes {message.prompt_tokens} of it.",
                "Ask again from the beginning.",
            )
        self.is_accepted = True
        self.prompt_tokens = message.prompt_tokens
        self.seed = message.seed
        sampling = replace(self._request.sampling, seed=message.seed)
        self._request = replace(self._request, sampling=sampling, seed_given=True)

    def take(self, message: TextDelta) -> str:
        """Take a piece; return what is new of it.

        Args:
            message: The head's.

        Raises:
            RemoteProtocolError: One before it is missing.
        """
        if message.number < self._next_number:
            return ""
        if message.number > self._next_number:
            raise RemoteProtocolError(
                f"Piece {message.number} of the answer came where {self._next_number} was due."
            )
        self._next_number += 1
        self.token_ids.extend(message.token_ids)
        return message.text
