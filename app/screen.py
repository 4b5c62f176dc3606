"""Whether a window can be shown at all: Qt would end the process in words for programmers. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

X11_LIBRARY = "xcb-cursor"  # Qt's own wheels leave it to the system


def why_no_screen(
    platform: str, environment: Mapping[str, str], has_library: Callable[[str], bool]
) -> str | None:
    """Return the key of the words for why no window can be shown here; None where one can.

    Args:
        platform: As ``sys.platform``.
        environment: Of the process.
        has_library: Whether the system has a library of a name.
    """
    is_chosen = environment.get("QT_QPA_PLATFORM") or environment.get("WAYLAND_DISPLAY")
    if platform != "linux" or is_chosen:
        return None
    if not environment.get("DISPLAY"):
        return "window.no_screen"
    return None if has_library(X11_LIBRARY) else "window.no_library"
