"""Whether a window can be shown at all: Qt would end the process with words for programmers. Pure.

Said before any translation is loaded, and so in English, as the command line does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

X11_LIBRARY = "xcb-cursor"  # Qt's own wheels leave it to the system


def why_no_screen(
    platform: str, environment: Mapping[str, str], has_library: Callable[[str], bool]
) -> str | None:
    """Return why no window can be shown here, and what to do; None where one can.

    Args:
        platform: As ``sys.platform``.
        environment: Of the process.
        has_library: Whether the system has a library of a name.
    """
    if platform != "linux" or environment.get("QT_QPA_PLATFORM"):
        return None
    if environment.get("WAYLAND_DISPLAY"):
        return None
    if not environment.get("DISPLAY"):
        return (
            "There is no screen here for Daisy's window. "
            "Without one this PC takes part with: daisy node"
        )
    if not has_library(X11_LIBRARY):
        return (
            "The system's library libxcb-cursor is missing, which windows need here. "
            "Install the package libxcb-cursor0 (or xcb-util-cursor)."
        )
    return None
