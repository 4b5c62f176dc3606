"""Who is let in: the limits on strangers and on all."""

from __future__ import annotations

from engine.transport.admission import (
    MAX_CONNECTIONS,
    MAX_STRANGERS,
    MAX_STRANGERS_PER_ADDRESS,
    Admission,
    Admitted,
)

IN = Admitted(is_in=True, instead_of=None)


def test_s18_one_address_can_not_shut_the_others_out() -> None:
    admission = Admission()
    for i in range(2 * MAX_STRANGERS):
        assert admission.admit(("a", i), "10.0.0.1").is_in
    assert len(admission.strangers) == MAX_STRANGERS_PER_ADDRESS
    assert admission.admit("b", "10.0.0.2") == IN
    assert "b" in admission.strangers


def test_s18_of_too_many_from_one_address_the_oldest_goes() -> None:
    admission = Admission()
    for i in range(MAX_STRANGERS_PER_ADDRESS):
        assert admission.admit(i, "10.0.0.1") == IN
    assert admission.admit("x", "10.0.0.1") == Admitted(is_in=True, instead_of=0)
    assert admission.admit("y", "10.0.0.1") == Admitted(is_in=True, instead_of=1)
    assert len(admission.strangers) == MAX_STRANGERS_PER_ADDRESS


def test_s18_many_addresses_together_shut_nobody_out_either() -> None:
    """Whoever has come last is there, and the crowd has lost one."""
    admission = Admission()
    admitted = [admission.admit(i, f"10.0.0.{i}") for i in range(2 * MAX_STRANGERS)]
    assert [a.instead_of for a in admitted] == [
        *[None] * MAX_STRANGERS,
        *range(MAX_STRANGERS),
    ]
    assert len(admission.strangers) == MAX_STRANGERS


def test_s18_the_address_with_most_loses_first() -> None:
    admission = Admission()
    admission.admit("slow and honest", "10.0.0.9")
    for i in range(MAX_STRANGERS_PER_ADDRESS):
        admission.admit(("a", i), "10.0.0.1")
    for i in range(MAX_STRANGERS):
        admission.admit(("b", i), f"10.0.1.{i % 8}")
    assert "slow and honest" in admission.strangers
    assert len(admission.strangers) == MAX_STRANGERS


def test_who_greets_or_leaves_makes_room() -> None:
    admission = Admission()
    for i in range(MAX_STRANGERS_PER_ADDRESS):
        admission.admit(i, "10.0.0.1")
    admission.greet(0)
    assert admission.admit("x", "10.0.0.1") == IN
    admission.leave(1)
    assert admission.admit("y", "10.0.0.1") == IN
    admission.leave("never admitted")
    admission.greet("never admitted")
    assert len(admission.strangers) == MAX_STRANGERS_PER_ADDRESS


def test_all_together_are_limited_until_someone_leaves() -> None:
    admission = Admission()
    for i in range(MAX_CONNECTIONS):
        assert admission.admit(i, "10.0.0.1") == IN
        admission.greet(i)
    assert admission.admit("x", "10.0.0.2") == Admitted(is_in=False, instead_of=None)
    admission.leave(0)
    assert admission.admit("x", "10.0.0.2") == IN
    assert admission.admit("y", "10.0.0.3") == Admitted(is_in=True, instead_of="x")
