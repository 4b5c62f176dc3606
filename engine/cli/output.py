"""What the command line shows: sentences for people, or lines of JSON for programs."""

from __future__ import annotations

import json
import os
import sys
import time
from typing import TYPE_CHECKING

from engine.cli.live_region import LiveRegion, obeys_sequences
from engine.cli.shown_text import printable, without_controls
from engine.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engine.errors import DaisyError

_REDRAW_S = 0.1  # a progress line is drawn at most ten times a second
_BAR_CELLS = 24


class Output:
    """Writes answers to standard output and everything else to standard error."""

    def __init__(self, *, as_json: bool) -> None:
        """Choose the form.

        Args:
            as_json: One JSON object a line on standard output, and nothing else anywhere.
        """
        self._as_json = as_json
        self._is_terminal = sys.stderr.isatty()
        self._line_width = 0
        self._drawn_s = 0.0
        self._phase: str | None = None
        self._is_mid_line = False  # the answer's last piece did not end its line
        self._region: LiveRegion | None = None
        self._has_told_stop = False

    @property
    def can_redraw(self) -> bool:
        """Whether a person looks at a terminal whose lines can be drawn over."""
        return not self._as_json and obeys_sequences(sys.stderr)

    @property
    def is_for_programs(self) -> bool:
        """Whether lines of JSON are wanted."""
        return self._as_json

    def event(self, name: str, **fields: object) -> None:
        """Tell a program something; people are not shown it.

        Args:
            name: What happened.
            fields: Plain data.
        """
        if self._as_json:
            self._print(json.dumps({"event": name, **fields}, ensure_ascii=True) + "\n")

    def say(self, sentence: str) -> None:
        """Tell a person something."""
        if not self._as_json:
            self._make_room()
            sys.stderr.write(f"{sentence}\n")
            sys.stderr.flush()

    def result(self, lines: Sequence[str]) -> None:
        """Give a person what the command is there to find out, on standard output."""
        if not self._as_json:
            self._make_room()
            self._print("".join(f"{line}\n" for line in lines))

    def redraw(self, lines: Sequence[str]) -> None:
        """Show lines in place of those shown this way before; they go when anything is said.

        Only where ``can_redraw``.

        Args:
            lines: Printable.
        """
        if self._region is None:
            self._clear_line()
            self._region = LiveRegion(sys.stderr)
        self._region.draw(lines)

    def keep_drawn(self) -> None:
        """Let the lines that were drawn last stand as they are."""
        if self._region is not None:
            self._region.leave()

    def progress(self, phase: str, done: int, total: int | None, unit: str = "") -> None:
        """Show how far a long step is.

        Args:
            phase: What is being done.
            done: So far.
            total: In all; None where not known.
            unit: ``bytes`` are shown as MB.
        """
        now_s = time.monotonic()
        is_new = phase != self._phase
        is_last = total is not None and done >= total
        if not (is_new or is_last) and now_s - self._drawn_s < _REDRAW_S:
            return
        self._drawn_s = now_s
        if self._as_json:
            self.event("progress", phase=phase, done=done, total=total)
        elif self._is_terminal:
            self._draw(f"{phase} {_bar(done, total, unit)}")
        elif is_new:
            sys.stderr.write(f"{phase} ...\n")
            sys.stderr.flush()
        self._phase = phase

    def text(self, piece: str, token_ids: tuple[int, ...]) -> None:
        """Write a piece of the answer at once."""
        if self._as_json:
            self.event("text", text=piece, token_ids=list(token_ids))
        elif piece:
            self._make_room()
            # A model may write what a terminal would obey; a file gets it as it is.
            shown = without_controls(piece) if sys.stdout and sys.stdout.isatty() else piece
            self._print(shown)
            self._is_mid_line = not piece.endswith("\n")

    def end_of_text(self) -> None:
        """End the answer's line."""
        if not self._as_json:
            self._print("\n")
            self._is_mid_line = False

    def aside(self, sentence: str) -> None:
        """Tell a person something in the middle of an answer, whose text stays as it is."""
        self._leave_answer()
        self.say(sentence)

    def stopped(self, sentence: str) -> None:
        """Tell a person that Ctrl-C was obeyed; only the first such sentence is said.

        Args:
            sentence: What ends, and what goes on.
        """
        if not self._has_told_stop:
            self._leave_answer()
            self.say(sentence)
        self._has_told_stop = True

    def _leave_answer(self) -> None:
        """Begin a line of its own where the answer's last piece stands in the same place."""
        if not self._as_json and self._is_mid_line and self._is_one_place():
            sys.stderr.write("\n")
            self._is_mid_line = False

    def _is_one_place(self) -> bool:
        """Return whether both streams end in the same terminal, file or pipe."""
        if sys.stdout is None:
            return False
        if self._is_terminal and sys.stdout.isatty():
            return True
        try:
            return os.path.sameopenfile(sys.stdout.fileno(), sys.stderr.fileno())
        except (OSError, ValueError):
            return False

    def error(self, error: DaisyError) -> None:
        """Say what went wrong and what to do."""
        if self._as_json:
            self.event("error", code=error.code, what=error.what, advice=error.advice)
        else:
            self._leave_answer()
            self._make_room()
            # What comes from another PC may hold what a terminal would obey.
            what, advice = printable(error.what), printable(error.advice)
            sys.stderr.write(f"Error: {what}\n{advice}\n".rstrip() + "\n")
            sys.stderr.flush()

    def forget_reader(self) -> None:
        """Send standard output nowhere: its reader has left, and what is buffered would fail."""
        if sys.stdout is not None:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, sys.stdout.fileno())
            os.close(nowhere)

    def _print(self, text: str) -> None:
        if sys.stdout is None:
            raise StorageError("There is no standard output to answer to.", "Do not close it.")
        # An answer may hold anything; a terminal of another encoding shows what it can.
        encoding = sys.stdout.encoding or "utf-8"
        try:
            sys.stdout.buffer.write(text.encode(encoding, "replace"))
            sys.stdout.flush()
        except BrokenPipeError:
            raise
        except OSError as exc:
            raise StorageError(f"The answer can't be written: {exc.strerror}.") from exc

    def _draw(self, line: str) -> None:
        sys.stderr.write("\r" + line.ljust(self._line_width))
        sys.stderr.flush()
        self._line_width = len(line)

    def _make_room(self) -> None:
        self._clear_line()
        if self._region is not None:
            self._region.clear()

    def _clear_line(self) -> None:
        if self._line_width:
            sys.stderr.write("\r" + " " * self._line_width + "\r")
            sys.stderr.flush()
            self._line_width = 0


def _bar(done: int, total: int | None, unit: str) -> str:
    if total is None or total <= 0:
        return _amount(done, unit)
    share = min(1.0, done / total)
    filled = round(share * _BAR_CELLS)
    bar = "#" * filled + "." * (_BAR_CELLS - filled)
    return f"[{bar}] {share:4.0%} {_amount(done, unit)} of {_amount(total, unit)}"


def _amount(value: int, unit: str) -> str:
    return f"{value / 1e6:.1f} MB" if unit == "bytes" else str(value)
