"""Where things lie and how long things may take; the only file that reads the environment."""

from __future__ import annotations

import os
import sys
from pathlib import Path

# Deadlines, in seconds. Progress resets each of them.
STAGE_LOAD_DEADLINE_S = 600.0  # compiling 20 GB of weights on a slow disk
NODE_START_DEADLINE_S = 30.0  # importing the engine on a cold disk
PLACEMENT_DEADLINE_S = STAGE_LOAD_DEADLINE_S + NODE_START_DEADLINE_S
TOKEN_DEADLINE_S = 120.0  # between two tokens of one answer, prefill of a chunk included
NODE_STOP_DEADLINE_S = 5.0

# Beside the packages, in a checkout and where they are installed.
RESOURCES = Path(__file__).resolve().parents[1] / "resources"
TRIAL_MODEL = RESOURCES / "trial"  # one small shard, for trying devices

DEFAULT_MAX_SEQUENCES = 4
DEFAULT_CONTEXT_TOKENS = 4096  # where the model does not say how much it takes
DEFAULT_MAX_TOKENS = (
    512  # of an answer at the command line: a small model may repeat itself for ever
)
MAX_DEFAULT_CONTEXT_TOKENS = 8192  # more only when asked for: KV room is planned for it


def data_folder() -> Path:
    """Return the folder for models, shards and settings.

    ``DAISY_DATA`` wins; otherwise the platform's own place for a program's data.
    """
    chosen = os.environ.get("DAISY_DATA")
    if chosen:
        return Path(chosen).absolute()
    home = Path.home()
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", home / "AppData" / "Local")) / "Daisy"
    if sys.platform == "darwin":
        return home / "Library" / "Application Support" / "Daisy"
    return Path(os.environ.get("XDG_DATA_HOME") or home / ".local" / "share") / "daisy"
