"""Nothing leaves this PC that nobody asked for."""

from __future__ import annotations

import subprocess
import sys


def test_what_openvino_converts_is_reported_to_nobody(tmp_path):
    """Its converter would draw an id, keep it in the home folder, and send each use with it."""
    work = (
        "import engine, openvino.tools.ovc.telemetry_utils as it;"
        "it.init_ovc_telemetry().send_event('ovc', 'version', '1');"
        "print(it.tm.__name__)"
    )
    done = subprocess.run(
        [sys.executable, "-c", work],
        capture_output=True,
        text=True,
        check=True,
        env={"HOME": str(tmp_path), "USERPROFILE": str(tmp_path), "PATH": ""},
        cwd=".",
    )
    assert done.stdout.strip() == "openvino.tools.ovc.telemetry_stub"
    assert not list(tmp_path.iterdir())
