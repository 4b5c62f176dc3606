"""A chain of stages whose model is a pure function, and a head that guesses.

The stages are the engine's own, from the frame to the drawn token, but for the model: each caches
what it was fed and gives, for every position, a number that depends on all of its cache before. So
a cache that is wrong anywhere, at any stage, shows in the next token.
"""

from types import SimpleNamespace

import numpy as np

from engine.errors import InferenceError
from engine.sampling.parameters import SamplingParameters
from engine.sampling.sampler import sample
from engine.scheduler.request import SequenceState
from engine.stages.batch_arrays import check_batch
from engine.stages.blocks import KVBlocks

VOCABULARY = 12
BLOCK_TOKENS = 8
ENDS = {SequenceState.FINISHED, SequenceState.CANCELLED, SequenceState.FAILED}
SAMPLINGS = (
    SamplingParameters(),
    SamplingParameters(temperature=1.0, seed=3),
    SamplingParameters(temperature=0.7, top_p=0.8, repetition_penalty=1.4, seed=9),
    SamplingParameters(presence_penalty=1.0, frequency_penalty=0.5),
)


def next_value(before, number):
    return (before * 31 + number * 7 + 11) % 9973


def row_of_logits(value):
    return np.random.default_rng(value).standard_normal(VOCABULARY).astype(np.float32) * 2


class ToyStage:
    """Layers of the toy model; follows the stage protocol to the letter."""

    def __init__(self, number, num_stages, num_blocks):
        self.description = SimpleNamespace(is_first=number == 0, is_last=number == num_stages - 1)
        self.caches = {}  # for each position the value behind it
        self.blocks = KVBlocks(num_blocks, BLOCK_TOKENS, 1)
        self.fails_next = False
        self.num_rows = 0

    def run(self, batch):
        check_batch(batch, self.blocks.num_tokens, None if self.description.is_first else 1)
        self.blocks.resize([(s.sequence_id, s.past_len + s.num_tokens) for s in batch.steps])
        if self.fails_next:
            self.fails_next = False
            for step in batch.steps:
                self.release(step.sequence_id)
            raise InferenceError("It was told to fail.")
        fed = batch.token_ids if batch.hidden_states is None else batch.hidden_states[:, 0]
        self.num_rows += len(fed)
        values, wanted, first = [], [], 0
        for step in batch.steps:
            cache = self.caches.setdefault(step.sequence_id, [])
            del cache[step.past_len :]
            for number in fed[first : first + step.num_tokens].tolist():
                cache.append(next_value(cache[-1] if cache else 1, int(number)))
            first += step.num_tokens
            values += cache[step.past_len :]
            wanted += cache[len(cache) - step.num_logits :] if step.num_logits else []
        if not self.description.is_last:
            return np.array(values, np.float32)[:, None]
        rows = [row_of_logits(value) for value in wanted]
        return np.array(rows, np.float32).reshape(len(rows), VOCABULARY)

    def release(self, sequence_id):
        self.caches.pop(sequence_id, None)
        self.blocks.release(sequence_id)


def reference_answer(prompt, num_tokens, sampling, num_stages):
    """Answer by one token at a time, with none of the engine but the sampler."""
    values = [1] * num_stages
    token_ids = list(prompt)

    def feed(number):
        for stage in range(num_stages):
            number = values[stage] = next_value(values[stage], number)

    for token_id in prompt:
        feed(token_id)
    for _ in range(num_tokens):
        history = np.array(token_ids, np.int32)
        drawn = sample(row_of_logits(values[-1]), sampling, history, len(prompt), len(token_ids))
        token_ids.append(drawn)
        feed(drawn)
    return tuple(token_ids[len(prompt) :])
