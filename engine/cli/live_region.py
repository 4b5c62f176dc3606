"""A few lines at the bottom of a terminal that are drawn again in place."""

from __future__ import annotations

import shutil
import sys
from typing import TYPE_CHECKING

from engine.cli.shown_text import clipped

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import TextIO

if sys.platform == "win32":
    import ctypes

    def _can_draw_over(stream: TextIO) -> bool:
        """Have the console obey; older ones can't."""
        number = _STANDARD_ERROR if stream is sys.stderr else _STANDARD_OUTPUT
        console = ctypes.windll.kernel32
        handle, mode = console.GetStdHandle(number), ctypes.c_uint32()
        return bool(
            console.GetConsoleMode(handle, ctypes.byref(mode))
            and console.SetConsoleMode(handle, mode.value | _ENABLE_SEQUENCES)
        )

else:

    def _can_draw_over(_stream: TextIO) -> bool:
        return True


_UP = "\x1b[{}F"
_ERASE_BELOW = "\x1b[J"
_ENABLE_SEQUENCES = 0x0004  # Windows: ENABLE_VIRTUAL_TERMINAL_PROCESSING
_STANDARD_ERROR, _STANDARD_OUTPUT = -12, -11


class LiveRegion:
    """The lines, and how many of them stand on the terminal now.

    Thread: one.
    """

    def __init__(self, stream: TextIO) -> None:
        """Begin; nothing is drawn.

        Args:
            stream: Standard output or standard error; a terminal that ``obeys_sequences``.
        """
        self._stream = stream
        self._num_lines = 0

    def draw(self, lines: Sequence[str]) -> None:
        """Draw lines over those that were drawn before.

        Args:
            lines: Printable; what is too wide or too much for the terminal is cut off, for a line
                that breaks could not be drawn over.
        """
        size = shutil.get_terminal_size()
        # The last column stays free: some terminals break the line when it is written to.
        shown = [clipped(line, max(1, size.columns - 1)) for line in lines]
        if len(shown) >= size.lines > 1:
            shown = [*shown[: size.lines - 2], "..."]
        encoding = self._stream.encoding or "utf-8"
        text = "".join(f"{line}\n" for line in shown).encode(encoding, "replace").decode(encoding)
        self._stream.write(self._back() + text)
        self._stream.flush()
        self._num_lines = len(shown)

    def clear(self) -> None:
        """Take the lines away; where they stood, other text may be written."""
        if self._num_lines:
            self._stream.write(self._back())
            self._stream.flush()
            self._num_lines = 0

    def leave(self) -> None:
        """Let the lines stand as they are; what is drawn next comes below."""
        self._num_lines = 0

    def _back(self) -> str:
        return (_UP.format(self._num_lines) + _ERASE_BELOW) if self._num_lines else ""


def obeys_sequences(stream: TextIO | None) -> bool:
    """Return whether a stream is a terminal whose lines can be drawn over.

    Args:
        stream: Standard output or standard error; None where it is closed.
    """
    if stream is None or not stream.isatty():
        return False
    return _can_draw_over(stream)
