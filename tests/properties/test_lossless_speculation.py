"""Guesses change nothing: neither the answer to a seed nor what is likely.

Each answer is held against the one that is drawn without guesses from the same seed, and all of
them together against the probabilities that the target's logits give (DAISY_LONG=1 draws 100,000).
"""

import os
from collections import Counter
from statistics import NormalDist

import msgspec
import numpy as np
import pytest

from engine.sampling.parameters import SamplingParameters
from engine.sampling.sampler import sample, uniform_draw
from engine.scheduler.suffix_drafter import SuffixDrafter
from tests.properties.small_target import (
    PROMPT,
    VOCABULARY,
    ContraryDrafter,
    GreedyDrafter,
    KnowingDrafter,
    Speculated,
    answer_probabilities,
    chi_square,
    logits_after,
    next_probabilities,
    plain_answer,
)

IS_LONG = os.environ.get("DAISY_LONG") == "1"
NUM_DRAWS = 100_000 if IS_LONG else 600
NUM_SEEDS = 30
LENGTH = 4
FAR_OFF = 4.5  # standard deviations; the draws are the same each time
SETTINGS = {
    "cool": SamplingParameters(temperature=0.5),
    "warm": SamplingParameters(temperature=1.0),
    "hot": SamplingParameters(temperature=1.5),
    "top p": SamplingParameters(temperature=1.0, top_p=0.8),
    "top k": SamplingParameters(temperature=1.0, top_k=3),
    "min p": SamplingParameters(temperature=1.2, min_p=0.2),
    "repetition": SamplingParameters(temperature=0.8, repetition_penalty=1.4),
    "counts": SamplingParameters(temperature=1.0, presence_penalty=0.6, frequency_penalty=0.8),
    "all": SamplingParameters(
        temperature=1.3, top_p=0.9, top_k=5, repetition_penalty=1.2, presence_penalty=0.3
    ),
}
DRAFTERS = {
    "suffix": lambda: SuffixDrafter(min_match_tokens=1, drafts_per_match=4, archive_tokens=1024),
    "good model": lambda: GreedyDrafter(0.3),
    "poor model": lambda: GreedyDrafter(3.0),
    "contrary": ContraryDrafter,
    "perfect": lambda: KnowingDrafter(range(VOCABULARY)),
    "partial": lambda: KnowingDrafter({0, 4}),
}


def drawn(setting, drafter, num_drafts, speculated=None, num_draws=NUM_DRAWS):
    """Return the answers to as many seeds, each drafter's own, and their sum of drafts."""
    speculated = speculated or Speculated()
    guesser = DRAFTERS[drafter]()
    answers = []
    for seed in seeds_of(drafter, num_draws):
        parameters = msgspec.structs.replace(SETTINGS[setting], seed=seed)
        if isinstance(guesser, KnowingDrafter):
            guesser.parameters = parameters
        answers.append(speculated.answer(guesser, parameters, LENGTH, num_drafts))
    return answers, speculated


def seeds_of(drafter, num_draws):
    """From one seed every drafter gives one answer: only with its own does each say something."""
    first = list(DRAFTERS).index(drafter) << 32
    return range(first, first + num_draws)


@pytest.mark.parametrize("drafter", DRAFTERS)
@pytest.mark.parametrize("setting", SETTINGS)
def test_answers_are_distributed_as_the_target_says(setting, drafter):
    """The first token by itself, and whole answers of four."""
    answers, speculated = drawn(setting, drafter, 3)
    assert speculated.num_drafted > NUM_DRAWS  # it did guess
    parameters = SETTINGS[setting]
    first = dict(enumerate(next_probabilities(PROMPT, parameters)))
    next_token = chi_square(Counter(answer[0] for answer in answers), first)
    whole = chi_square(Counter(answers), answer_probabilities(parameters, LENGTH))
    if IS_LONG:
        shown = f"next token p = {p_value(next_token):.3f}, four tokens p = {p_value(whole):.3f}"
        held = speculated.num_accepted / speculated.num_drafted
        print(f"{setting}, {drafter} ({held:.0%} of guesses hold): {shown}")  # noqa: T201
    assert next_token < FAR_OFF
    assert whole < FAR_OFF


def p_value(score):
    """Return how often right draws are as far off, or farther."""
    return NormalDist().cdf(-score)


@pytest.mark.parametrize("num_drafts", [1, 2, 5])
@pytest.mark.parametrize("drafter", DRAFTERS)
@pytest.mark.parametrize("setting", SETTINGS)
def test_each_seed_gives_the_answer_it_gives_without_guesses(setting, drafter, num_drafts):
    """Whatever is guessed, and however much of it at once."""
    answers, _ = drawn(setting, drafter, num_drafts, num_draws=NUM_SEEDS)
    for seed, answer in zip(seeds_of(drafter, NUM_SEEDS), answers, strict=True):
        parameters = msgspec.structs.replace(SETTINGS[setting], seed=seed)
        assert answer == plain_answer(parameters, LENGTH)


def test_good_guesses_hold_and_contrary_ones_do_not():
    """Else the tests above would say little."""
    rates = {}
    for drafter in ("good model", "contrary", "perfect", "partial"):
        _, speculated = drawn("warm", drafter, 3, num_draws=500)
        rates[drafter] = speculated.num_accepted / speculated.num_drafted
    assert rates["good model"] > 0.15
    assert rates["contrary"] < 0.1
    assert rates["perfect"] > 0.7  # behind an answer's end nothing is kept
    assert 0.05 < rates["partial"] < rates["perfect"]


# ---- rules that are nearly right must be found out ---------------------------------------------


def believes(share):
    """Return a rule that keeps a guess whenever the target finds it likely enough."""

    def verify(logits, parameters, token_ids, num_prompt_tokens, first_position):
        kept = []
        for row in range(len(logits)):
            position = first_position + row
            history = token_ids[:position]
            token = sample(logits[row], parameters, history, num_prompt_tokens, position)
            if row + 1 == len(logits):
                return (*kept, token)
            guess = int(token_ids[position])
            if next_probabilities(history, parameters)[guess] < share:
                return (*kept, token)
            kept.append(guess)
        return tuple(kept)

    return verify


def forgets_the_remainder(logits, parameters, token_ids, num_prompt_tokens, first_position):
    """Keep a guess with the target's probability, else draw again from all of it."""
    kept = []
    for row in range(len(logits)):
        position = first_position + row
        history = token_ids[:position]
        token = sample(logits[row], parameters, history, num_prompt_tokens, position)
        if row + 1 == len(logits):
            return (*kept, token)
        guess = int(token_ids[position])
        likely = next_probabilities(history, parameters)[guess]
        if uniform_draw(parameters.seed + 2**40, position) >= likely:
            return (*kept, token)
        kept.append(guess)
    return tuple(kept)


@pytest.mark.parametrize("rule", [believes(0.3), forgets_the_remainder])
def test_a_wrong_rule_is_far_off(rule):
    """By the same measure and with as few draws."""
    answers, _ = drawn("warm", "good model", 3, Speculated(verify=rule), num_draws=3000)
    assert chi_square(Counter(answers), answer_probabilities(SETTINGS["warm"], LENGTH)) > 10


def test_the_measure_is_right_about_draws_that_are_right():
    """Over many samples it is a standard normal number."""
    generator = np.random.default_rng(1)
    shares = generator.dirichlet(np.ones(40))
    scores = [
        chi_square(Counter(generator.choice(40, 2000, p=shares).tolist()), dict(enumerate(shares)))
        for _ in range(300)
    ]
    assert abs(np.mean(scores)) < 0.25
    assert 0.8 < np.std(scores) < 1.2


def test_the_measure_knows_what_cannot_happen():
    """And what is certain."""
    assert chi_square(Counter({0: 10, 1: 1}), {0: 1.0, 1: 0.0}) == np.inf
    assert chi_square(Counter({0: 10}), {0: 1.0, 1: 0.0}) == 0


def test_the_target_is_a_distribution():
    """Its answers' probabilities are 1 together."""
    for parameters in SETTINGS.values():
        assert sum(answer_probabilities(parameters, LENGTH).values()) == pytest.approx(1)
    assert len({logits_after(ids).tobytes() for ids in np.ndindex(VOCABULARY, VOCABULARY)}) == 36
