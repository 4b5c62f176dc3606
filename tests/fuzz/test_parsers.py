"""S15, S16: whatever bytes come, each parser takes them or raises the one error it declares.

A short run of what ``python -m tests.fuzz.loop`` does a million times, from the same corpus.
"""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fuzz.mutation import mutated
from tests.fuzz.targets import TARGETS, execute, kept

QUICK = [target for target in TARGETS.values() if target.name != "pairing_machine"]
NUM_MUTATED = 1500


def named(targets):
    return pytest.mark.parametrize("target", targets, ids=[target.name for target in targets])


@named(TARGETS.values())
def test_s15_the_seeds_are_what_they_should_be(target):
    """At least one is accepted: a target that refuses everything would test nothing."""
    assert any(execute(target, seed) for seed in target.seeds())


@named(TARGETS.values())
def test_s15_every_input_of_the_corpus_gives_no_other_error(target):
    corpus = kept(target)
    assert corpus
    for data in corpus:
        execute(target, data)


@named(QUICK)
def test_s15_mutated_inputs_give_no_other_error(target):
    draw = random.Random(15)  # noqa: S311 - so that a failure comes again
    corpus = [*target.seeds(), *kept(target)]
    outcomes = {
        execute(target, mutated(draw, corpus, target.form, target.max_bytes))
        for _ in range(NUM_MUTATED)
    }
    assert False in outcomes or not target.declared


@named(QUICK)
@given(data=st.binary(max_size=400))
@settings(max_examples=60, deadline=None)
def test_s16_garbage_gives_no_other_error(target, data):
    execute(target, data)
    execute(target, target.seeds()[0][:8] + data)


@given(seed=st.integers(0, 2**32))
@settings(max_examples=15, deadline=None)
def test_s16_a_pairing_takes_no_harm(seed):
    target = TARGETS["pairing_machine"]
    draw = random.Random(seed)  # noqa: S311
    execute(target, mutated(draw, target.seeds(), target.form, target.max_bytes))


def test_a_mutated_input_comes_again_with_its_seed():
    target = TARGETS["control"]
    runs = [
        [
            mutated(draw, target.seeds(), target.form, 4096)
            for draw in [random.Random(3)]  # noqa: S311
            for _ in range(50)
        ]
        for _ in range(2)
    ]
    assert runs[0] == runs[1]
    assert len(set(runs[0])) > 40
