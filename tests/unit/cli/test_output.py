"""What is shown: sentences to people on standard error, answers on standard output, or JSON."""

import io
import json
import sys

import pytest

from engine.cli.output import Output
from engine.errors import StorageError


class Stream(io.TextIOWrapper):
    """A standard stream of any encoding that may be a terminal."""

    def __init__(self, encoding, *, is_terminal):
        super().__init__(io.BytesIO(), encoding=encoding, newline="")
        self._is_terminal = is_terminal

    def isatty(self):
        return self._is_terminal

    def written(self):
        self.flush()
        return self.buffer.getvalue()


@pytest.fixture
def streams(monkeypatch):
    """Replace both streams; return a function that makes them anew."""

    def make(encoding="utf-8", *, is_terminal=False):
        pair = [Stream(encoding, is_terminal=is_terminal) for _ in range(2)]
        monkeypatch.setattr(sys, "stdout", pair[0])
        monkeypatch.setattr(sys, "stderr", pair[1])
        return pair

    return make


def events(stream):
    return [json.loads(line) for line in stream.written().decode("ascii").splitlines()]


def test_people_read_the_answer_on_one_stream_and_the_rest_on_the_other(streams):
    out, err = streams()
    output = Output(as_json=False)
    output.say("Loading.")
    output.event("loaded", stages=2)
    output.text("Hello", (1,))
    output.text("", (2,))
    output.text(" world", (3,))
    output.end_of_text()
    output.error(StorageError("The disk is full.", "Free some space."))
    assert out.written() == b"Hello world\n"
    assert err.written() == b"Loading.\nError: The disk is full.\nFree some space.\n"


def test_programs_get_lines_of_json_and_nothing_else(streams):
    out, err = streams(is_terminal=True)
    output = Output(as_json=True)
    output.say("Loading.")
    output.progress("Cutting", 1, 4)
    output.event("loaded", stages=2)
    output.text("日本\n", (1, 2))
    output.text("", (3,))
    output.end_of_text()
    output.error(StorageError("Full.", "Free some."))
    assert err.written() == b""
    assert events(out) == [
        {"event": "progress", "phase": "Cutting", "done": 1, "total": 4},
        {"event": "loaded", "stages": 2},
        {"event": "text", "text": "日本\n", "token_ids": [1, 2]},
        {"event": "text", "text": "", "token_ids": [3]},
        {"event": "error", "code": "storage", "what": "Full.", "advice": "Free some."},
    ]


def test_an_error_without_advice_ends_in_one_line(streams):
    _, err = streams()
    Output(as_json=False).error(StorageError("Full.", ""))
    assert err.written() == b"Error: Full.\n"


@pytest.mark.parametrize(
    ("encoding", "shown"),
    [
        ("utf-8", "naïve 🦙 語".encode()),
        ("ascii", b"na?ve ? ?"),
        ("latin-1", b"na\xefve ? ?"),
        ("gbk", "na?ve ? 語".encode("gbk")),
    ],
)
def test_a_terminal_of_another_encoding_shows_what_it_can(streams, encoding, shown):
    out, _ = streams(encoding)
    Output(as_json=False).text("naïve 🦙 語", (1,))
    assert out.written() == shown


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_half_a_character_pair_ends_nothing(streams, encoding):
    out, _ = streams(encoding)
    Output(as_json=False).text("a\ud83db", (1,))
    assert out.written() == b"a?b"
    out, _ = streams(encoding)
    Output(as_json=True).text("a\ud83db", (1,))
    assert events(out)[0]["text"] == "a\ud83db"


def test_without_a_terminal_each_phase_is_named_once(streams):
    _, err = streams()
    output = Output(as_json=False)
    for done in range(5):
        output.progress("Cutting", done, 4)
    output.progress("Hashing", 0, None)
    assert err.written() == b"Cutting ...\nHashing ...\n"


def test_a_terminal_shows_a_bar_that_makes_room_for_text(streams):
    out, err = streams(is_terminal=True)
    output = Output(as_json=False)
    output.progress("Hashing", 0, 2_000_000, "bytes")
    output.progress("Hashing", 2_000_000, 2_000_000, "bytes")
    output.text("Hello", (1,))
    drawn = err.written().decode()
    assert "[........................]   0% 0.0 MB of 2.0 MB" in drawn
    assert "[########################] 100% 2.0 MB of 2.0 MB" in drawn
    last = drawn.rsplit("\r", 2)
    assert last[-1] == "", "the cursor is at the line's beginning"
    assert set(last[-2]) == {" "}, "and the line is empty"
    assert len(last[-2]) >= len("Hashing [########################] 100% 2.0 MB of 2.0 MB")
    assert out.written() == b"Hello"


def test_a_shorter_line_covers_a_longer_one(streams):
    _, err = streams(is_terminal=True)
    output = Output(as_json=False)
    output.progress("A very long phase", 1, None, "bytes")
    output.progress("Short", 7, None)
    first, second = err.written().decode().split("\r")[1:]
    assert first == "A very long phase 0.0 MB"
    assert second == "Short 7".ljust(len(first))


def test_a_line_is_not_drawn_more_often_than_one_can_read(streams, monkeypatch):
    now_s = [100.0]
    monkeypatch.setattr("engine.cli.output.time.monotonic", lambda: now_s[0])
    _, err = streams(is_terminal=True)
    output = Output(as_json=False)
    for done in range(1000):
        now_s[0] += 0.001
        output.progress("Cutting", done, 1000)
    output.progress("Cutting", 1000, 1000)
    assert 8 <= err.written().count(b"\r") <= 14
    assert b"1000 of 1000" in err.written()


@pytest.mark.parametrize(("done", "total"), [(5, 4), (0, 0), (3, 0), (1, None)])
def test_odd_amounts_are_shown_all_the_same(streams, done, total):
    _, err = streams(is_terminal=True)
    Output(as_json=False).progress("Odd", done, total)
    assert str(done).encode() in err.written()
    assert b"125%" not in err.written()


def test_only_the_first_word_on_being_stopped_is_said(capfd):
    """The command knows what goes on; a bare "Stopped." after that would contradict it."""
    output = Output(as_json=False)
    output.stopped("Stopped showing; the pool goes on loading.")
    output.stopped("Stopped.")
    assert capfd.readouterr().err == "Stopped showing; the pool goes on loading.\n"
