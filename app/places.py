"""Where the app finds its own files, and where it keeps what is the person's."""

from __future__ import annotations

from pathlib import Path

RESOURCES = Path(__file__).resolve().parents[1] / "resources"
WORDING = RESOURCES / "wording"
ICONS = RESOURCES / "icons"


def app_folder(data_dir: Path) -> Path:
    """Return the window's own folder in the data folder: chats and choices.

    Args:
        data_dir: Daisy's data folder.
    """
    return data_dir / "app"
