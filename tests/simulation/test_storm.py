"""The pool in thousands of storms, under links that stay cut, and the checks themselves."""

from __future__ import annotations

import os

import pytest

from engine.errors import LocalProtocolError
from engine.messages.pool import Term
from engine.pool import election, office
from engine.pool.terms import Fence
from tests.simulation.storm import links_that_stay_cut, sides, weather
from tests.simulation.world import BreachError, Process, World

NUM_SEEDS = 2000 if os.environ.get("DAISY_LONG") == "1" else 1000
BATCH = 250


def told(seed: int) -> str:
    lines: list[str] = []
    with pytest.raises(BreachError):
        weather(seed, lines.append)
    return "\n".join(lines)


@pytest.mark.parametrize("first", range(0, NUM_SEEDS, BATCH))
def test_no_storm_breaks_a_rule_and_every_pool_agrees_after_it(first: int) -> None:
    """Fails with the seed and what happened: ``python -m tests.simulation.storm SEED``."""
    commands = 0
    for seed in range(first, first + BATCH):
        try:
            outcome = weather(seed)
        except BreachError as breach:
            pytest.fail(f"seed {seed}: {breach}\n{told(seed)}")
        commands += outcome.applied
    assert commands > BATCH  # or nothing was tried


@pytest.mark.parametrize("first", range(0, 500, 100))
def test_links_that_stay_cut_leave_the_pool_quiet(first: int) -> None:
    """Whichever links are missing, and in whichever direction: no office changes for ever."""
    changes = {seed: links_that_stay_cut(seed) for seed in range(first, first + 100)}
    assert not {seed: count for seed, count in changes.items() if count}


@pytest.mark.parametrize("first", range(0, 200, 100))
def test_each_side_of_a_cut_agrees_and_both_do_after_it(first: int) -> None:
    for seed in range(first, first + 100):
        sides(seed)


def test_a_seed_is_always_the_same_storm() -> None:
    lines: tuple[list[str], list[str]] = ([], [])
    for told_to in lines:
        weather(5, told_to.append)
    assert lines[0] == lines[1]
    assert len(lines[0]) > 20


# ---- a simulation that can't fail proves nothing -----------------------------------------------


def broken(what: str, seeds: int = 200) -> None:
    """Expect one of the seeds to be caught."""
    with pytest.raises((BreachError, LocalProtocolError), match=what):
        list(map(weather, range(seeds)))


def test_a_fence_that_lets_everything_through_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Fence, "admit", lambda *_: True)
    broken("obeyed term")


def test_a_term_claimed_twice_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Starts are not told apart, and the data folder is lost with each."""
    start = World.start

    def emptied(self: World, process: Process) -> None:
        process.disk = None
        start(self, process)

    monkeypatch.setattr(World, "start", emptied)
    monkeypatch.setattr(election, "Term", lambda counter, claimant, _: Term(counter, claimant, 0))
    broken("both coordinate")


def test_a_counter_that_does_not_go_up_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(election, "newest_counter", lambda *_: 0)
    broken("wrote|accepted after")


def test_a_word_ahead_of_the_disk_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk loses every second write, and says nothing."""
    store = World._store

    def forgetful(self: World, process: Process, term: Term) -> None:
        if term.counter % 2:
            store(self, process, term)

    monkeypatch.setattr(World, "_store", forgetful)
    broken("on disk")


def test_coordinators_that_never_give_way_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(election, "standing_of", lambda _: (1, ()))
    broken("no agreement")


def test_a_late_claim_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(election, "STAGGER_S", 7.0)
    monkeypatch.setattr(election, "num_preferred", lambda *_: 1)
    broken("no agreement")


def test_a_vouch_that_needs_no_witness_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two that only repeat each other would keep a dead coordinator in office."""
    honest = office.leaders_seen

    def credulous(node_id: str, seen: office.Observed) -> office.Leaders:
        leaders = {beat.coordinator: beat.term for beat in seen.mutual if beat.coordinator}
        leaders.pop(node_id, None)
        return leaders | honest(node_id, seen)

    monkeypatch.setattr(election, "leaders_seen", credulous)
    broken("no agreement")


def test_a_ghost_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.pool.membership.LEASE_S", 30.0)
    broken("sees|no agreement")
