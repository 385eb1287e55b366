"""Command line `osvl`: the only place that wires rooms together.

``osvl <room> <verb>``; exit code 0 done, 1 failed, 2 wrong usage, 3 partial (some items failed), 130 interrupted.
"""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType

__all__ = ["main"]

_EXIT_INTERRUPTED = 130


def main() -> None:
    """Entry point of the `osvl` command.

    The command tree is imported here, so that a Ctrl-C while it loads ends in one line too. Loading leaves nothing
    half done, so the process may go at once; an exception could get lost in an import that catches what it likes.
    """
    ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if ours:
        signal.signal(signal.SIGINT, _leave)
    from opensearch_vl.cli.app import app
    from opensearch_vl.cli.common import run_guarded

    if ours:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    run_guarded(app)


def _leave(number: int, frame: FrameType | None) -> None:
    os.write(sys.stderr.fileno(), b"\nosvl: stopped.\n")
    os._exit(_EXIT_INTERRUPTED)
