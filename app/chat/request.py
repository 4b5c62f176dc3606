"""What is sent for an answer: the branch, and what of it fits the model's context. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from engine.messages.control import Generate
from engine.sampling.parameters import SamplingParameters

if TYPE_CHECKING:
    from collections.abc import Sequence

    from app.chat.records import Chat, Message, Sampling

# Tokens a character, where nothing was counted yet: a fourth of an English one, and about two
# thirds of a Chinese one. The chat template adds some around each message.
TOKENS_PER_NARROW = 0.27
TOKENS_PER_WIDE = 0.75
TOKENS_PER_MESSAGE = 6
_WIDE = re.compile("[\u1100-\uffff\U00010000-\U0003ffff]")
_NUMBERS = re.compile(r"\d+")
ANSWER_SHARE = 8  # of the context: an eighth is kept for the answer, or there soon is none


@dataclass(frozen=True, slots=True)
class TooLong:
    """What a head said of a prompt that doesn't fit.

    Attributes:
        prompt_tokens: It has.
        context_tokens: The model can hold, prompt and answer together.
    """

    prompt_tokens: int
    context_tokens: int

    @property
    def excess(self) -> int:
        """Tokens that must go so that one of answer fits."""
        return self.prompt_tokens - self.context_tokens + 1


def estimated_tokens(text: str) -> int:
    """Return about how many tokens a text has, for a model nobody asked yet.

    Args:
        text: Any.
    """
    num_wide = len(_WIDE.findall(text))
    narrow = (len(text) - num_wide) * TOKENS_PER_NARROW
    return round(narrow + num_wide * TOKENS_PER_WIDE)


class Measure:
    """How this chat's model counts, learned from what it said of earlier prompts.

    Attributes:
        factor: By which it counts more tokens than we guess.
    """

    def __init__(self, path: Sequence[Message], system_prompt: str) -> None:
        """Learn from the newest answer that was counted.

        Args:
            path: The branch.
            system_prompt: Sent before it.
        """
        self.factor = 1.0
        for place in range(len(path) - 1, -1, -1):
            figures = path[place].figures
            if figures.prompt_tokens and not figures.num_left_out:
                guess = _raw(path[:place], system_prompt)
                self.factor = figures.prompt_tokens / max(guess, 1)
                break

    def tokens(self, path: Sequence[Message], system_prompt: str) -> int:
        """Return about how many tokens a prompt has.

        Args:
            path: The messages in it.
            system_prompt: Before them; empty for none.
        """
        return round(_raw(path, system_prompt) * self.factor)

    def correct(self, path: Sequence[Message], system_prompt: str, prompt_tokens: int) -> None:
        """Learn how many a prompt really has.

        Args:
            path: The messages in it.
            system_prompt: Before them.
            prompt_tokens: As the head counted.
        """
        self.factor = prompt_tokens / max(_raw(path, system_prompt), 1)


def _raw(path: Sequence[Message], system_prompt: str) -> int:
    whole = estimated_tokens(system_prompt) if system_prompt else 0
    return whole + sum(estimated_tokens(m.text) + TOKENS_PER_MESSAGE for m in path)


def num_to_leave_out(
    path: Sequence[Message], system_prompt: str, context_tokens: int, measure: Measure
) -> int:
    """Return how many messages at the beginning don't fit, whole exchanges at a time.

    The system prompt and the last message always stay.

    Args:
        path: The branch, up to what is asked.
        system_prompt: Sent before it.
        context_tokens: The model can hold; 0 where that isn't known.
        measure: How it counts.
    """
    if context_tokens <= 0:
        return 0
    room = context_tokens - context_tokens // ANSWER_SHARE
    num = 0
    while num < len(path) - 1 and measure.tokens(path[num:], system_prompt) > room:
        num = next_start(path, num)
    return num


def next_start(path: Sequence[Message], num: int) -> int:
    """Return where the next exchange begins, which a person opens.

    Args:
        path: The branch; its last message is a person's.
        num: Messages left out so far.
    """
    later = range(num + 1, len(path))
    return next((place for place in later if path[place].role == "user"), len(path) - 1)


def read_too_long(sentence: str) -> TooLong | None:
    """Return the numbers of the engine's sentence about a prompt that is too long.

    Args:
        sentence: Of an error of code ``context_length_exceeded``.
    """
    numbers = [int(digits) for digits in _NUMBERS.findall(sentence)]
    if len(numbers) < 2 or numbers[0] < numbers[1]:
        return None
    return TooLong(numbers[0], numbers[1])


def build_request(
    request_id: str, chat: Chat, sent: Sequence[Message], going_on: Message | None = None
) -> Generate:
    """Return the request for an answer.

    Args:
        request_id: New.
        chat: Whose system prompt and sampling hold.
        sent: The branch, without what is left out, up to what is asked.
        going_on: The answer; the seed, the tokens and the time of one that has begun are kept.
    """
    messages: list[dict[str, object]] = []
    if chat.system_prompt:
        messages.append({"role": "system", "content": chat.system_prompt})
    messages.extend({"role": m.role, "content": m.text} for m in sent)
    seed = chat.sampling.seed
    if going_on is not None and going_on.figures.seed is not None:
        seed = going_on.figures.seed
    return Generate(
        request_id=request_id,
        messages=tuple(messages),
        max_tokens=chat.sampling.max_tokens,
        sampling=_parameters(chat.sampling, seed),
        seed_given=seed is not None,
        committed_ids=() if going_on is None else going_on.token_ids,
        asked_at=None if going_on is None else _moment(going_on.created_s),
    )


def _moment(unix_s: float) -> str:
    """Return a time as templates are given it: the same each time an answer is asked for."""
    return datetime.fromtimestamp(unix_s, UTC).astimezone().isoformat()


def _parameters(sampling: Sampling, seed: int | None) -> SamplingParameters:
    return SamplingParameters(
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        top_k=sampling.top_k,
        min_p=sampling.min_p,
        repetition_penalty=sampling.repetition_penalty,
        seed=seed or 0,
    )
