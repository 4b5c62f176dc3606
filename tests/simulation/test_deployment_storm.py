"""The coordinator's machine in storms: 2,000 with DAISY_LONG=1, some of them otherwise."""

from __future__ import annotations

import os

import pytest
from msgspec.structs import replace

from engine.errors import LocalProtocolError
from engine.pool import deployment_attempt, deployment_due, deployment_troubles, deployment_upkeep
from engine.pool.deployment_due import with_orders
from engine.pool.deployment_state import State
from tests.simulation.deployment_storm import storm
from tests.simulation.world import BreachError

NUM_SEEDS = 2000 if os.environ.get("DAISY_LONG") == "1" else 200
BATCH = NUM_SEEDS // 4


def told(seed: int) -> str:
    lines: list[str] = []
    with pytest.raises((BreachError, LocalProtocolError)):
        storm(seed, lines.append)
    return "\n".join(lines)


@pytest.mark.parametrize("first", range(0, NUM_SEEDS, BATCH))
def test_no_storm_breaks_a_rule_and_every_pool_is_ready_after_it(first: int) -> None:
    """Fails with seed and transcript: ``python -m tests.simulation.deployment_storm SEED``."""
    placements, moves = 0, set()
    for seed in range(first, first + BATCH):
        try:
            outcome = storm(seed)
        except (BreachError, LocalProtocolError) as breach:
            pytest.fail(f"seed {seed}: {breach}\n{told(seed)}")
        placements += outcome.orders["OrderPlacement"]
        moves |= outcome.moves
    assert placements > 2 * BATCH  # or nothing was tried
    left = {before for before, _ in moves}
    assert left == set(State)  # or there is a state that no storm ends


def test_a_seed_is_always_the_same_storm() -> None:
    lines: tuple[list[str], list[str]] = ([], [])
    for told_to in lines:
        storm(7, told_to.append)
    assert lines[0] == lines[1]
    assert len(lines[0]) > 20


# ---- a simulation that can't fail proves nothing -----------------------------------------------


def broken(what: str, seeds: int = 60) -> None:
    """Expect one of the seeds to be caught."""
    with pytest.raises((BreachError, LocalProtocolError), match=what):
        list(map(storm, range(seeds)))


def test_an_order_that_is_never_repeated_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was lost in the storm is then waited for until the deadline, and the next one after."""
    monkeypatch.setattr(deployment_due, "REPEAT_S", 1e9)
    monkeypatch.setattr(deployment_attempt, "DEADLINES_S", dict.fromkeys(State, 1e9))
    broken("not ready")


def test_a_stage_that_nobody_ends_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deployment_due, "_to_end", lambda _, after, __: (after, []))
    broken("runs [0-9]+, and")


def test_a_second_copy_that_nobody_makes_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deployment_upkeep, "next_keeper", lambda *_: None)
    broken("keep the model")


def test_keepers_ordered_too_often_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deployment_upkeep, "KEEP_EVERY_S", 5.0)
    broken("within 30 s")


def test_a_wait_that_never_ends_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deployment_attempt, "TRY_AGAIN_S", 1e9)
    monkeypatch.setattr(deployment_attempt, "MAX_ATTEMPTS", 1)
    monkeypatch.setattr(deployment_attempt, "has_changed", lambda *_, **__: False)
    broken("not ready")


def test_a_node_that_is_used_though_left_out_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deployment_attempt, "plan_for", forgetful_plan)
    broken("may not have one")


def forgetful_plan(wish, nodes, _):  # type: ignore[no-untyped-def]
    """Plan as if nothing had been held against anybody."""
    return real_plan(wish, nodes, deployment_troubles.Ledger())


real_plan = deployment_attempt.plan_for


def test_an_epoch_given_out_twice_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deployment_attempt, "_fresh_epoch", lambda *_: 7)
    broken("epoch 7")


def test_a_lost_node_that_nobody_misses_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.pool.deployment.without_lost", lambda machine, _: machine)
    broken("can't be reached|not ready")


def test_a_version_that_stands_still_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def standing(before, after, now_s):  # type: ignore[no-untyped-def]
        after, orders = with_orders(before, after, now_s)
        return replace(after, version=0), orders

    monkeypatch.setattr("engine.pool.deployment.with_orders", standing)
    broken("version 1 after 1")


def test_a_placement_taken_over_without_a_look_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new coordinator believes the record, whatever the nodes say that they run."""

    def credulous(machine, _):  # type: ignore[no-untyped-def]
        there = set(machine.chain) <= set(machine.reachable)
        return None if there else deployment_troubles.lost("a PC")

    monkeypatch.setattr("engine.pool.deployment._why_not_running", credulous)
    monkeypatch.setattr(deployment_upkeep, "AMISS_S", 1e9)
    broken("not ready", seeds=200)
