"""The engine of Daisy: everything but the window.

Start reading at ``ARCHITECTURE.md``; the packages are layered, and ``pyproject.toml`` holds the
contract that keeps them so.
"""

import sys

__version__ = "0.1.0"

# Nothing leaves this PC that nobody asked for: OpenVINO's converter would draw an id for it and
# report each use over the internet. Where this module is missing it does neither.
sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]
