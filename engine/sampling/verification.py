"""Drawing tokens behind drafts: each as if it were drawn without them.

A draw depends on logits, seed and position only. So the token of a row is exactly the one that
would have been drawn had the tokens before it been fed one at a time; and as long as each draft is
the token that was drawn for its place, what was fed *is* what would have been fed. Behind the first
draft that is not, logits belong to a text nobody wrote, and nothing is drawn from them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.errors import LocalProtocolError
from engine.sampling.sampler import sample

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from engine.sampling.parameters import SamplingParameters


def draw_while_drafts_hold(
    logits: NDArray[np.float32],
    parameters: SamplingParameters,
    token_ids: NDArray[np.int32],
    num_prompt_tokens: int,
    first_position: int,
) -> tuple[int, ...]:
    """Return the tokens drawn for consecutive positions, up to the first the drafts do not have.

    Args:
        logits: float32 ``[1 + num_drafts, vocab_size]``; row i is for ``first_position + i``.
        parameters: Checked parameters, with the seed.
        token_ids: int32, the sequence as it was fed: the drafts lie from ``first_position`` on.
            Where there are penalties it must reach to the last row.
        num_prompt_tokens: Where the answer begins in ``token_ids``.
        first_position: Of the first token to be drawn.

    Returns:
        1 to ``1 + num_drafts`` ids: those that equal the drafts, then the one behind them. None
        where there is no row.

    Raises:
        LocalProtocolError: There are penalties and ``token_ids`` is too short.

    Logits that can't be sampled raise ``InferenceError``, as ``sample`` says; those behind the
    first draft that does not hold may be anything.
    """
    num_needed = first_position + len(logits) - 1
    if parameters.has_penalties and token_ids.size < num_needed:
        raise LocalProtocolError(
            f"Sampling up to position {num_needed} needs {num_needed} tokens before it, "
            f"and {token_ids.size} are known."
        )
    drawn: list[int] = []
    for position, row in enumerate(logits, start=first_position):
        before = token_ids[:position]
        drawn.append(sample(row, parameters, before, num_prompt_tokens, position))
        if position < num_needed and drawn[-1] != token_ids[position]:
            break
    return tuple(drawn)
