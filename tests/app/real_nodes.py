"""Real nodes as processes, which end with the test."""

import os
import subprocess
import sys
from pathlib import Path

CHECKOUT = Path(__file__).parents[2]


class RealNode:
    def __init__(self, data_dir, *options):
        command = [sys.executable, "-m", "engine.cli.entry", "node", "--interface", "lo"]
        self.process = subprocess.Popen(
            [*command, "--data", str(data_dir), "--until-stdin-closes", *options],
            cwd=CHECKOUT,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        )

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
