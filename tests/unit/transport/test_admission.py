"""Who is let in: the limits on strangers and on all."""

from __future__ import annotations

from engine.transport.admission import (
    MAX_CONNECTIONS,
    MAX_STRANGERS,
    MAX_STRANGERS_PER_ADDRESS,
    Admission,
)


def test_one_address_can_not_shut_the_others_out() -> None:
    admission = Admission()
    admitted = [admission.admit(("a", i), "10.0.0.1") for i in range(MAX_STRANGERS)]
    assert sum(admitted) == MAX_STRANGERS_PER_ADDRESS
    assert admission.admit("b", "10.0.0.2")


def test_strangers_together_are_limited() -> None:
    admission = Admission()
    admitted = [admission.admit(i, f"10.0.0.{i}") for i in range(2 * MAX_STRANGERS)]
    assert sum(admitted) == MAX_STRANGERS == len(admission.strangers)


def test_who_greets_or_leaves_makes_room() -> None:
    admission = Admission()
    for i in range(MAX_STRANGERS_PER_ADDRESS):
        admission.admit(i, "10.0.0.1")
    assert not admission.admit("x", "10.0.0.1")
    admission.greet(0)
    assert admission.admit("x", "10.0.0.1")
    assert not admission.admit("y", "10.0.0.1")
    admission.leave(1)
    assert admission.admit("y", "10.0.0.1")
    admission.leave("never admitted")
    admission.greet("never admitted")


def test_all_together_are_limited_until_someone_leaves() -> None:
    admission = Admission()
    for i in range(MAX_CONNECTIONS):
        assert admission.admit(i, "10.0.0.1")
        admission.greet(i)
    assert not admission.admit("x", "10.0.0.2")
    admission.leave(0)
    assert admission.admit("x", "10.0.0.2")
