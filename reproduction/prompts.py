"""Prompts of an exact number of tokens, none of which begins like another."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine.models.tokenizer import Tokenizer

_WORDS = ("river", "stone", "garden", "engine", "winter", "letter", "bridge", "market", "copper",
    "forest", "signal", "window", "harbour", "paper", "silver", "mountain", "coffee", "circle",
    "thunder", "library", "orange", "needle", "canal", "blanket")  # fmt: skip
_FILLER = " a"


class PromptError(Exception):
    """No text has that number of tokens."""


def prompt_of(tokenizer: Tokenizer, num_tokens: int, number: int) -> str:
    """Return a text of exactly so many tokens, special ones included.

    Args:
        tokenizer: The model's.
        num_tokens: From about 10.
        number: Another one gives another text, from its first words on.

    Raises:
        PromptError: The tokenizer has no text of that length.
    """
    random = Random(number)
    words = [f"{number}", *(random.choice(_WORDS) for _ in range(num_tokens))]

    def count(num_words: int, num_fillers: int = 0) -> int:
        text = " ".join(words[:num_words]) + _FILLER * num_fillers
        return len(tokenizer.encode(text, add_special_tokens=True))

    low, high = 1, len(words)  # the most words that fit
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if count(middle) <= num_tokens else (low, middle - 1)
    num_fillers = max(0, num_tokens - count(low))
    if count(low, num_fillers) != num_tokens:
        raise PromptError(f"No text of {num_tokens} tokens was found.")
    return " ".join(words[:low]) + _FILLER * num_fillers
