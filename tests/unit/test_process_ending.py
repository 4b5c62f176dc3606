"""One sentence says how a process ended."""

import signal

import pytest

from engine.process_ending import describe_ending, is_arithmetic_fault, last_line


@pytest.mark.parametrize(
    ("status", "words", "ran_out", "sentence"),
    [
        (-signal.SIGFPE, "", False, "The stage process was ended by SIGFPE."),
        (-signal.SIGKILL, "", False, "The stage process was ended by SIGKILL."),
        (
            -signal.SIGKILL,
            "",
            True,
            "The stage process was ended by SIGKILL, probably because memory ran out.",
        ),
        (-signal.SIGSEGV, "", True, "The stage process was ended by SIGSEGV."),
        (
            70,
            "ValueError: x",
            False,
            "The stage process ended with exit status 70; its last words: ValueError: x",
        ),
        (0, "", False, "The stage process ended by itself."),
        (0xC0000005, "", False, "The stage process was ended by an access violation."),
        (-1073741819, "", False, "The stage process was ended by an access violation."),
        (-999, "", False, "The stage process ended with exit status -999."),
    ],
)
def test_the_sentence(status, words, ran_out, sentence):
    assert describe_ending("The stage process", status, words, memory_ran_out=ran_out) == sentence


def test_only_faults_of_arithmetic_are_worth_another_precision():
    assert is_arithmetic_fault(-signal.SIGFPE)
    assert is_arithmetic_fault(0xC0000094)
    for status in (None, 0, 70, -signal.SIGSEGV, -signal.SIGKILL, 0xC0000005):
        assert not is_arithmetic_fault(status)


def test_the_last_words_are_the_last_line_that_says_something():
    assert last_line(b"one\ntwo \n\n  \n") == "two"
    assert last_line(b"") == ""
    assert last_line("half \u00e9".encode()[1:] + b"\xff") == "alf \u00e9\ufffd"
