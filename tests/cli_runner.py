"""Runs the command line in a process of its own, as a user does."""

import os
import subprocess
import sys
from pathlib import Path

SRC = Path(__file__).parents[1] / "src"


def osvl(*arguments: str, cwd: Path | None = None, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "from opensearch_vl.cli import main; main()", *arguments],
        env={**os.environ, "PYTHONPATH": str(SRC), "NO_COLOR": "1", **env},
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=600,
    )
