"""What the person chose, kept in one small file of the data folder."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Literal

import msgspec
from msgspec.structs import replace
from PySide6.QtCore import QObject, Signal

if TYPE_CHECKING:
    from pathlib import Path


class Choices(msgspec.Struct, frozen=True, kw_only=True):
    """Every choice, with what holds before one is made.

    Attributes:
        language: Of the window.
        theme: Of the window.
        scale_percent: On top of the system's scaling.
        on_close: What closing the window does; asked the first time.
        starts_node: Whether starting the window starts a node where none runs.
        rail_page: Shown last.
        last_source: What this PC last had the pool run; None for the embedded model.
        has_motion: Whether anything may move, where the system allows it.
        pc_name: As the other PCs are shown this one; empty for the system's name.
        lend_bytes: Memory this PC lends at most; None for no limit.
    """

    language: Literal["system", "en", "zh"] = "system"
    theme: Literal["light", "dark", "system"] = "system"
    scale_percent: int = 100
    on_close: Literal["ask", "keep", "quit"] = "ask"
    starts_node: bool = True
    rail_page: str = "chat"
    last_source: str | None = None
    has_motion: bool = True
    pc_name: str = ""
    lend_bytes: int | None = None


class Preferences(QObject):
    """The choices as they are now.

    Attributes:
        changed: One was made.
        failed: Carries why the last one could not be written; it holds until the program ends.

    Thread: the main one; the file has a few hundred bytes.
    """

    changed = Signal()
    failed = Signal(str)

    def __init__(self, file: Path, parent: QObject | None = None) -> None:
        """Read them; a file that can't be understood counts as none, and is kept beside.

        Args:
            file: Where they are kept.
            parent: Owns it.
        """
        super().__init__(parent)
        self._file = file
        self._choices = _read(file)

    @property
    def choices(self) -> Choices:
        """All of them."""
        return self._choices

    def choose(self, **choices: object) -> None:
        """Make choices, and write them.

        Args:
            choices: By the names ``Choices`` has.

        Raises:
            msgspec.ValidationError: One is not of its kind.
        """
        fresh = replace(self._choices, **choices)
        fresh = msgspec.convert(msgspec.to_builtins(fresh), Choices)
        if fresh == self._choices:
            return
        self._choices = fresh
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            beside = self._file.with_suffix(".new")
            beside.write_bytes(msgspec.json.format(msgspec.json.encode(fresh)))
            beside.replace(self._file)
        except OSError as exc:
            self.failed.emit(f"{self._file}: {exc.strerror}")
        self.changed.emit()


def _read(file: Path) -> Choices:
    try:
        return msgspec.json.decode(file.read_bytes(), type=Choices)
    except OSError:
        return Choices()
    except (msgspec.MsgspecError, UnicodeDecodeError):
        with contextlib.suppress(OSError):
            file.replace(file.with_name(f"{file.name}.damaged-{os.getpid()}"))
        return Choices()
