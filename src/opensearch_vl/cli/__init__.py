"""Command line `osvl`: the only place that wires rooms together.

``osvl <room> <verb>``; exit code 0 done, 1 failed, 2 wrong usage, 3 partial (some items failed), 130 interrupted.
"""

from opensearch_vl.cli.app import main

__all__ = ["main"]
