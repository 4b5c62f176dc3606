"""What a request may ask of the sampler, checked once where it enters."""

from __future__ import annotations

import math

import msgspec

from engine.errors import UsageError

MAX_SEED = 2**64 - 1
GREEDY_BELOW_TEMPERATURE = 1e-5  # as vLLM: from here down only exact ties could still be drawn


class SamplingParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How to choose the next token; the defaults are greedy.

    Order of application (as transformers applies its processors and warpers): repetition,
    presence and frequency penalties; temperature; top_k; top_p; min_p; then one draw.

    Candidates are ranked by logit, equal logits by token id, the lower first: ``top_k`` keeps
    exactly k (transformers keeps all that tie with the k-th), ``top_p`` the shortest run that
    reaches it, and each at least one.
    """

    temperature: float = 0.0  # 0 = greedy
    top_k: int = 0  # 0 = off
    top_p: float = 1.0  # 1 = off
    min_p: float = 0.0  # 0 = off
    repetition_penalty: float = 1.0  # 1 = off; counts prompt and answer
    presence_penalty: float = 0.0  # 0 = off; counts the answer only
    frequency_penalty: float = 0.0  # 0 = off; counts the answer only
    seed: int = 0  # u64; the head draws one where the request gives none

    @property
    def is_greedy(self) -> bool:
        """Whether only the best token can be drawn: no exponent and no random number is needed."""
        return self.temperature < GREEDY_BELOW_TEMPERATURE or self.top_k == 1 or self.min_p >= 1.0

    @property
    def has_penalties(self) -> bool:
        """Whether the tokens before count; without, no history has to be kept for the sampler."""
        return (
            self.repetition_penalty != 1.0
            or self.presence_penalty != 0.0
            or self.frequency_penalty != 0.0
        )

    def checked(self) -> SamplingParameters:
        """Return self if every value is in its range.

        Raises:
            UsageError: A value is not; the sentence names it, its value and its range.
        """
        ranges: tuple[tuple[str, float, float], ...] = (
            ("temperature", 0.0, 100.0),
            ("top_p", 0.0, 1.0),
            ("min_p", 0.0, 1.0),
            ("presence_penalty", -100.0, 100.0),
            ("frequency_penalty", -100.0, 100.0),
        )
        for name, low, high in ranges:
            value = getattr(self, name)
            if not (math.isfinite(value) and low <= value <= high):
                raise UsageError(f"{name} is {value}; it must be from {low:g} to {high:g}.")
        if not (math.isfinite(self.repetition_penalty) and 0.01 <= self.repetition_penalty <= 100):
            raise UsageError(
                f"repetition_penalty is {self.repetition_penalty}; it must be from 0.01 to 100."
            )
        if self.top_k < 0:
            raise UsageError(f"top_k is {self.top_k}; it must be 0 (off) or more.")
        if not 0 <= self.seed <= MAX_SEED:
            raise UsageError(f"seed is {self.seed}; it must be from 0 to {MAX_SEED}.")
        return self
