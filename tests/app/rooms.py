"""What pages share, in a data folder of the test's own."""

from __future__ import annotations

from app.start import build_surroundings


def surroundings(tmp_path, parent, *, language="en", theme="light"):
    """Return what pages share: nothing of it is connected to a node."""
    shared = build_surroundings(tmp_path, parent)
    shared.wording.choose(language)
    shared.look.choose(theme, 1.0)
    return shared
