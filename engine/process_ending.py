"""How a process ended, in one sentence. Pure."""

from __future__ import annotations

import signal

_WINDOWS_STATUS = {
    0xC0000005: "an access violation",
    0xC000001D: "an illegal instruction",
    0xC000008E: "a floating-point exception",
    0xC0000094: "an integer division by zero",
    0xC00000FD: "a stack overflow",
    0xC0000374: "heap corruption",
    0xC0000409: "a fast-fail exception",
    0xC000013A: "Ctrl-C",
}
_WINDOWS_ARITHMETIC = frozenset({0xC000008E, 0xC0000094})
_STATUS_MASK = 0xFFFFFFFF
_MAX_LINE_CHARACTERS = 300


def describe_ending(
    who: str, exit_status: int, last_words: str = "", *, memory_ran_out: bool = False
) -> str:
    """Return how a process of ours ended, for a person.

    Args:
        who: "The stage process", "The converter".
        exit_status: As ``subprocess`` gives it: negative is a signal.
        last_words: The last line of its standard error; may be empty.
        memory_ran_out: Whether the operating system gave evidence of that.
    """
    what = f"{who} {_ending(exit_status)}"
    if exit_status == -_signal_number("SIGKILL") and memory_ran_out:
        what += ", probably because memory ran out"
    said = last_words[:_MAX_LINE_CHARACTERS]
    return f"{what}; its last words: {said}" if said else f"{what}."


def last_line(tail: bytes) -> str:
    """Return the last line of a process's standard error that says something; empty if none."""
    lines = [line.strip() for line in tail.decode("utf-8", "replace").splitlines()]
    return next((line for line in reversed(lines) if line), "")


def is_arithmetic_fault(exit_status: int | None) -> bool:
    """Tell whether the processor stopped it for a division or floating-point fault."""
    if exit_status is None:
        return False
    return (
        exit_status == -_signal_number("SIGFPE")
        or exit_status & _STATUS_MASK in _WINDOWS_ARITHMETIC
    )


def _ending(exit_status: int) -> str:
    if exit_status == 0:
        return "ended by itself"
    if exit_status < 0 and -exit_status in {member.value for member in signal.Signals}:
        return f"was ended by {signal.Signals(-exit_status).name}"
    named = _WINDOWS_STATUS.get(exit_status & _STATUS_MASK)
    return f"was ended by {named}" if named else f"ended with exit status {exit_status}"


def _signal_number(name: str) -> int:
    # SIGKILL and others do not exist on Windows; 0 is no signal anywhere.
    return int(getattr(signal, name, 0))
