"""From logits to the distribution a request asked for; pure numpy.

Two rules. Nothing here draws: randomness is the sampler's. Candidates are always given in
ascending order of token id, so that whoever walks them with one random number walks the same way
every time.

Exponents are taken in float64 with the largest logit subtracted: no temperature overflows, and
what underflows becomes an exact 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from engine.errors import InferenceError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from engine.sampling.parameters import SamplingParameters

_MAX_LOGIT = float(np.finfo(np.float32).max)
_SORT_AT_MOST = 4096  # scores; sorting them takes 0.1 ms, sorting a vocabulary of 49,152 takes 4


def best_token(logits: NDArray[np.float32]) -> int:
    """Return the first token with the highest logit.

    Args:
        logits: float32 ``[vocab_size]``; -inf bans a token.

    Raises:
        InferenceError: A logit is NaN or +inf, or every token is banned.
    """
    # argmax stops at the first NaN, so the value it points at tells all three faults.
    best = int(np.argmax(logits))
    if not np.isfinite(logits[best]):
        raise InferenceError(
            f"The logits can't be sampled: the highest of {logits.size} is {logits[best]}."
        )
    return best


def penalised(
    logits: NDArray[np.float32],
    parameters: SamplingParameters,
    history: NDArray[np.int32],
    num_prompt_tokens: int,
) -> NDArray[np.float32]:
    """Return the logits after the three penalties; the argument itself where there are none.

    Repetition (Keskar et al. 2019, as transformers applies it): every token that occurs in prompt
    or answer has its logit divided by the penalty if positive, multiplied if negative. Presence
    and frequency (OpenAI API reference): ``logit -= frequency * count + presence * (count > 0)``,
    counted over the answer only.

    Args:
        logits: float32 ``[vocab_size]``.
        parameters: The penalties.
        history: int32 ``[num_tokens]``, prompt and answer up to the token to be chosen. Ids
            beyond the vocabulary (a tokenizer may know more than the model) count for nothing.
        num_prompt_tokens: Where the answer begins in ``history``.
    """
    if not parameters.has_penalties:
        return logits
    is_known = (history >= 0) & (history < logits.size)
    is_seen = np.zeros(logits.size, dtype=np.bool_)
    is_seen[history[is_known]] = True
    seen = np.flatnonzero(is_seen)
    before = logits.take(seen).astype(np.float64)
    penalty = parameters.repetition_penalty
    after = np.where(before > 0, before / penalty, before * penalty)
    answer = history[num_prompt_tokens:][is_known[num_prompt_tokens:]]
    count = np.bincount(answer, minlength=logits.size).take(seen)
    after -= parameters.frequency_penalty * count + parameters.presence_penalty * (count > 0)
    # A banned token stays banned, and no finite logit is pushed over the edge of float32.
    np.clip(after, -_MAX_LOGIT, _MAX_LOGIT, out=after, where=np.isfinite(before))
    scores = logits.copy()
    scores[seen] = after
    return scores


def weighted_candidates(
    logits: NDArray[np.float32],
    parameters: SamplingParameters,
    history: NDArray[np.int32],
    num_prompt_tokens: int,
) -> tuple[NDArray[np.int64] | None, NDArray[np.float64]]:
    """Return the tokens that may be drawn and their weights, not normalised.

    Args:
        logits: float32 ``[vocab_size]``; -inf bans a token.
        parameters: Checked parameters.
        history: int32 ``[num_tokens]``; read only if there are penalties.
        num_prompt_tokens: Where the answer begins in ``history``.

    Returns:
        Token ids int64 ``[k]``, ascending, k at least 1, or None for the whole vocabulary;
        weights float64 ``[k]``, the largest is 1, and those too small for float64 are 0.

    Logits that can't be sampled raise ``InferenceError``, as ``best_token`` says.
    """
    best = best_token(logits)
    scores = penalised(logits, parameters, history, num_prompt_tokens)
    if scores is not logits:
        best = int(np.argmax(scores))
    if parameters.is_greedy:
        return np.array([best]), np.ones(1)
    highest = float(scores[best])
    token_ids = None  # all of them
    if 0 < parameters.top_k < scores.size:
        token_ids = _highest(scores, None, parameters.top_k)
        scores = scores.take(token_ids)
    weights = scores.astype(np.float64)
    weights -= highest  # in place: fresh pages for a whole vocabulary cost more than the sums
    weights /= parameters.temperature
    np.exp(weights, out=weights)
    if parameters.top_p < 1.0:
        kept = _nucleus(scores, weights, parameters.top_p)
        token_ids, weights = _narrowed(token_ids, kept), weights.take(kept)
    if parameters.min_p > 0.0:
        kept = np.flatnonzero(weights >= parameters.min_p)  # the largest weight is 1
        token_ids, weights = _narrowed(token_ids, kept), weights.take(kept)
    return token_ids, weights


def distribution(
    logits: NDArray[np.float32],
    parameters: SamplingParameters,
    history: NDArray[np.int32],
    num_prompt_tokens: int,
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the distribution the next token is drawn from.

    Args:
        logits: float32 ``[vocab_size]``; -inf bans a token.
        parameters: Checked parameters.
        history: int32 ``[num_tokens]``, prompt and answer so far; read only if there are
            penalties.
        num_prompt_tokens: Where the answer begins in ``history``.

    Returns:
        Token ids int64 ``[k]``, ascending, k at least 1; probabilities float64 ``[k]``, each
        above 0, together 1.

    Logits that can't be sampled raise ``InferenceError``, as ``best_token`` says.
    """
    token_ids, weights = weighted_candidates(logits, parameters, history, num_prompt_tokens)
    possible = np.flatnonzero(weights)
    return _narrowed(token_ids, possible), weights.take(possible) / weights.sum()


def _narrowed(token_ids: NDArray[np.int64] | None, kept: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the ids at the kept indices; None stands for a whole vocabulary, in order."""
    return kept if token_ids is None else token_ids.take(kept)


def _nucleus(
    scores: NDArray[np.float32], weights: NDArray[np.float64], top_p: float
) -> NDArray[np.int64]:
    """Return the ascending indices of the smallest set with ``top_p`` of the weight."""
    total = float(weights.sum())
    # n tokens, each lighter than (1 - p) / n of the total, together are lighter than 1 - p of
    # it: none of them can be needed. On text this leaves some hundreds of 49,152.
    is_heavy = weights >= (1.0 - top_p) * total / weights.size
    if is_heavy.all():
        return _highest(scores, weights, top_p * total)
    heavy = np.flatnonzero(is_heavy)
    return heavy.take(_highest(scores.take(heavy), weights.take(heavy), top_p * total))


def _highest(
    scores: NDArray[np.float32], weights: NDArray[np.float64] | None, target: float
) -> NDArray[np.int64]:
    """Return the ascending indices of the fewest highest scores that weigh ``target`` together.

    Without weights each weighs 1.
    """
    cutoff, num_at_cutoff = _cutoff(scores, weights, target)
    kept = scores > cutoff
    kept[np.flatnonzero(scores == cutoff)[:num_at_cutoff]] = True
    return np.flatnonzero(kept)


def _cutoff(
    scores: NDArray[np.float32], weights: NDArray[np.float64] | None, target: float
) -> tuple[np.float32, int]:
    """Return the lowest score kept, and how many that have it are kept.

    Quickselect on weight: cut at a pivot until what is left is cheap to sort.
    """
    weight_above = 0.0
    while scores.size > _SORT_AT_MOST:
        is_upper = scores >= _pivot(scores, target - weight_above)
        indices = np.flatnonzero(is_upper)
        if indices.size == scores.size:
            break  # all equal: already in order
        weight = float(indices.size if weights is None else weights.take(indices).sum())
        if weight_above + weight < target:
            weight_above += weight
            indices = np.flatnonzero(~is_upper)
        scores = scores.take(indices)
        weights = None if weights is None else weights.take(indices)
    order = np.argsort(-scores, kind="stable")
    ranked = np.ones(scores.size) if weights is None else weights.take(order)
    last = min(int(np.searchsorted(weight_above + np.cumsum(ranked), target)), scores.size - 1)
    cutoff = scores[order[last]]
    return cutoff, int(np.count_nonzero(scores[order[: last + 1]] == cutoff))


def _pivot(scores: NDArray[np.float32], target: float) -> float:
    """Return a score to cut at: the mean, or above it while ``target`` scores remain."""
    mean = max(float(scores.mean(dtype=np.float64)), -_MAX_LOGIT)
    highest = float(scores.max())
    for share in (0.5, 0.25, 0.125):
        pivot = mean + share * (highest - mean)
        if np.count_nonzero(scores >= pivot) >= target:
            return pivot
    return mean
