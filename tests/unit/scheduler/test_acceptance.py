"""Rates by depth: what was tried counts, and what was not follows from what was."""

import numpy as np
import pytest

from engine.scheduler.acceptance import Acceptance

FLAT = [0.5] * 4


def test_without_trials_the_priors_hold():
    """Whatever they are."""
    priors = [0.6, 0.5, 0.4, 0.3]
    assert Acceptance(4, 0.9).rates(priors, 5) == pytest.approx(priors)


def test_a_guess_behind_a_wrong_one_was_not_tried():
    """Two of four held: two successes, one failure, and nothing of the fourth."""
    acceptance = Acceptance(4, 1 - 1e-9)
    for _ in range(1000):
        acceptance.observe(4, 2)
    rates = acceptance.rates(FLAT, 1)
    assert rates[:3] == pytest.approx([1, 1, 0], abs=0.01)


def test_an_untried_depth_follows_the_one_before():
    """In the proportion of the priors."""
    acceptance = Acceptance(3, 1 - 1e-9)
    for number in range(1000):
        acceptance.observe(1, number % 5 > 0)
    assert acceptance.rates([0.5, 0.25, 0.25], 1) == pytest.approx([0.8, 0.4, 0.4], abs=0.01)


def test_no_rate_is_above_one():
    """Also where a prior rises with depth."""
    acceptance = Acceptance(2, 1 - 1e-9)
    for _ in range(1000):
        acceptance.observe(1, 1)
    assert acceptance.rates([0.5, 0.9], 1)[1] <= 1


def test_old_trials_are_forgotten():
    """After ten times the memory only the new ones count."""
    acceptance = Acceptance(1, 0.9)
    for _ in range(100):
        acceptance.observe(1, 1)
    for _ in range(100):
        acceptance.observe(1, 0)
    assert acceptance.rates([0.5], 0.001)[0] == pytest.approx(0, abs=0.01)


@pytest.mark.parametrize("rate", [0.2, 0.7, 0.95])
def test_finds_the_rate(rate):
    """Of independent guesses, at every depth that is reached."""
    generator = np.random.default_rng(3)
    acceptance = Acceptance(3, 0.999)
    for _ in range(20_000):
        held = generator.random(3) < rate
        acceptance.observe(3, 3 if held.all() else int(np.argmin(held)))
    assert acceptance.rates([0.5] * 3, 4) == pytest.approx([rate] * 3, abs=0.06)


def test_longer_drafts_than_expected_count_as_far_as_they_can():
    """Beyond the last depth nothing is kept."""
    acceptance = Acceptance(2, 0.9)
    acceptance.observe(5, 5)
    assert acceptance.rates([0.5, 0.5], 1)[1] > 0.7
