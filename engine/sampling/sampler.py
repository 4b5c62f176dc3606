"""Drawing the next token: greedy, or one uniform number and the inverse of the distribution.

The number comes from a counter-based generator keyed by (seed, position), so a draw depends on
nothing but logits, seed and position: not on who else is in the batch, not on what was drawn
before, not on whether the tokens were computed once or replayed on other nodes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from engine.sampling.distribution import best_token, weighted_candidates

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from engine.sampling.parameters import SamplingParameters


def uniform_draw(seed: int, position: int) -> float:
    """Return the number in [0, 1) that belongs to a position.

    Philox4x64-10 (Salmon et al. 2011) with the seed as key and the position as counter; the top
    53 bits of its first word. Raw words, because numpy promises their stream for ever.

    Args:
        seed: u64.
        position: Of the token to be drawn, counted from the first token of the prompt.
    """
    word = int(np.random.Philox(key=seed, counter=position).random_raw())
    return (word >> 11) * 2.0**-53


def sample(
    logits: NDArray[np.float32],
    parameters: SamplingParameters,
    history: NDArray[np.int32],
    num_prompt_tokens: int,
    position: int,
) -> int:
    """Return the token drawn for one position.

    Args:
        logits: float32 ``[vocab_size]``; -inf bans a token.
        parameters: Checked parameters, with the seed.
        history: int32 ``[num_tokens]``, prompt and answer so far; read only if there are
            penalties.
        num_prompt_tokens: Where the answer begins in ``history``.
        position: Of the token to be drawn, counted from the first token of the prompt.

    Logits that can't be sampled raise ``InferenceError``, as ``best_token`` says.
    """
    if parameters.is_greedy and not parameters.has_penalties:
        return best_token(logits)
    token_ids, weights = weighted_candidates(logits, parameters, history, num_prompt_tokens)
    cumulative = np.cumsum(weights, out=weights)
    # u < 1, so u * total stays below the total after rounding too, and the first sum above it
    # belongs to a token whose weight is not 0.
    drawn = uniform_draw(parameters.seed, position) * cumulative[-1]
    index = int(np.searchsorted(cumulative, drawn, side="right"))
    return index if token_ids is None else int(token_ids[index])
