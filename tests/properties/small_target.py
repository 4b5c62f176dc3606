"""A language model of six tokens, whose every answer's probability can be written down."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

import numpy as np

from engine.domain import SequenceId
from engine.sampling.distribution import distribution
from engine.sampling.sampler import sample
from engine.sampling.verification import draw_while_drafts_hold
from engine.scheduler.drafting import DraftRequest

VOCABULARY = 6
PROMPT = (0, 1, 2, 0, 1)
_SHAPE = (VOCABULARY, VOCABULARY, VOCABULARY)
_LOGITS = np.random.default_rng(7).normal(0, 1.2, _SHAPE).astype(np.float32)
_NOISE = np.random.default_rng(8).normal(0, 1, _SHAPE)


def logits_after(token_ids):
    """Return the logits behind a text, float32 ``[6]``: they depend on its last two tokens."""
    return _LOGITS[token_ids[-2], token_ids[-1]]


def next_probabilities(token_ids, parameters):
    """Return the probability of each token to come next, float64 ``[6]``."""
    history = np.array(token_ids, np.int32)
    kept, weights = distribution(logits_after(token_ids), parameters, history, len(PROMPT))
    probabilities = np.zeros(VOCABULARY)
    probabilities[kept] = weights
    return probabilities


def answer_probabilities(parameters, length):
    """Return the probability of every answer of a length, as ``{ids: probability}``."""
    known = {(): 1.0}
    for _ in range(length):
        known = {
            (*ids, token_id): before * probability
            for ids, before in known.items()
            if before
            for token_id, probability in enumerate(next_probabilities(PROMPT + ids, parameters))
        }
    every = itertools.product(range(VOCABULARY), repeat=length)
    return {ids: known.get(ids, 0.0) for ids in every}


def plain_answer(parameters, length):
    """Write an answer one token at a time, by the sampler alone."""
    ids = list(PROMPT)
    while len(ids) < len(PROMPT) + length:
        history = np.array(ids, np.int32)
        ids.append(sample(logits_after(ids), parameters, history, len(PROMPT), len(ids)))
    return tuple(ids[len(PROMPT) :])


@dataclass
class Speculated:
    """Answers that were written with guesses, and what became of these."""

    num_drafted: int = 0
    num_accepted: int = 0
    verify: object = draw_while_drafts_hold
    _num_answers: int = field(default=0)

    def answer(self, drafter, parameters, length, num_drafts):
        """Write an answer; each pass checks ``num_drafts`` guesses at most."""
        self._num_answers += 1
        sequence_id = SequenceId(self._num_answers)
        ids = list(PROMPT)
        while (left := len(PROMPT) + length - len(ids)) > 0:
            request = DraftRequest(sequence_id, np.array(ids, np.int32), num_drafts)
            (drafts,) = finished(drafter.draft([request]))
            fed = [*ids, *drafts]
            rows = [logits_after(fed[: len(ids) + n]) for n in range(len(drafts) + 1)]
            drawn = self.verify(
                np.stack(rows), parameters, np.array(fed, np.int32), len(PROMPT), len(ids)
            )
            self.num_drafted += len(drafts)
            self.num_accepted += len(drawn) - 1
            ids += drawn[:left]
        finished(drafter.close(sequence_id))
        return tuple(ids[len(PROMPT) :])


def finished(coroutine):
    """Return the result of a coroutine that never waits."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        return done.value
    raise AssertionError("It waited.")


class GreedyDrafter:
    """Guesses the likeliest token of a model that is a little wrong about the target's."""

    def __init__(self, error):
        self.error = error

    async def draft(self, requests):
        return [self._guess(request) for request in requests]

    def _guess(self, request):
        ids = request.token_ids.tolist()
        for _ in range(request.max_drafts):
            noise = _NOISE[ids[-2], ids[-1]]
            ids.append(int(np.argmax(logits_after(ids) + self.error * noise)))
        return tuple(ids[len(request.token_ids) :])

    async def close(self, sequence_id):
        pass


class ContraryDrafter:
    """Guesses the least likely token every time."""

    async def draft(self, requests):
        return [(int(np.argmin(logits_after(r.token_ids))),) * r.max_drafts for r in requests]

    async def close(self, sequence_id):
        pass


class KnowingDrafter:
    """Knows what will be drawn, and tells it of some tokens only: of the others it guesses wrong.

    With all tokens it is perfect. With some of them it does what it can to have more of these kept.
    """

    def __init__(self, tells):
        self.tells = tells
        self.parameters = None  # with the seed of the answer that is being written

    async def draft(self, requests):
        return [self._guess(request) for request in requests]

    def _guess(self, request):
        ids = request.token_ids.tolist()
        for _ in range(request.max_drafts):
            history = np.array(ids, np.int32)
            drawn = sample(logits_after(ids), self.parameters, history, len(PROMPT), len(ids))
            ids.append(drawn if drawn in self.tells else (drawn + 1) % VOCABULARY)
        return tuple(ids[len(request.token_ids) :])

    async def close(self, sequence_id):
        pass


def chi_square(counts, probabilities):
    """Compare counts with probabilities; return how far off they are, in standard deviations.

    Pearson's statistic over cells that expect five or more (the others together), turned into a
    normal number as Wilson and Hilferty do. Something that can't happen and did gives infinity.
    """
    total = sum(counts.values())
    if any(counts.get(cell, 0) for cell, share in probabilities.items() if share == 0):
        return np.inf
    large = {cell: share for cell, share in probabilities.items() if share * total >= 5}
    rest = 1 - sum(large.values())
    statistic = sum(
        (counts.get(cell, 0) - share * total) ** 2 / (share * total)
        for cell, share in large.items()
    )
    num_cells = len(large)
    if rest * total >= 5:
        num_rest = total - sum(counts.get(cell, 0) for cell in large)
        statistic += (num_rest - rest * total) ** 2 / (rest * total)
        num_cells += 1
    if num_cells < 2:
        return 0.0
    degrees = num_cells - 1
    spread = 2 / (9 * degrees)
    return ((statistic / degrees) ** (1 / 3) - (1 - spread)) / np.sqrt(spread)
