"""The fatal step of a trajectory (paper, section 5): where a cascade of consecutive tool errors begins or trips.

A counter rises on every step that is an error and returns to zero on any other step. When it reaches K the trajectory
is fatal. Errors are the typed failures that the dialect and the toolbox recorded; observation text is never read. Pure
functions, shared by rewards, reinforcement learning and evaluation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from opensearch_vl.types import COUNTS_TOWARDS_FATAL, FailureKind, Trajectory

Onset = Literal["first_error", "threshold"]

FATAL_AFTER = 3
"""K: consecutive errors that make a trajectory fatal (paper, section 5)."""


def fatal_index(error_flags: Sequence[bool], K: int = FATAL_AFTER, onset: Onset = "first_error") -> int | None:
    """The fatal step ``f``, counted from 0; the prefix that keeps its loss is ``steps[:f]``.

    Args:
        error_flags: ``[L]`` whether each step is an error.
        K: Consecutive errors that make a trajectory fatal; at least 1.
        onset: `first_error` puts ``f`` on the first error of the cascade (the paper's text), `threshold` on the K-th
            (its appendix).

    Returns:
        ``f`` of the first cascade, or None where there is none (the paper writes ``f = L + 1``).

    Raises:
        ValueError: If `K` is below 1 or `onset` unknown.
    """
    if K < 1:
        raise ValueError(f"K must be at least 1, got {K}.")
    if onset not in ("first_error", "threshold"):
        raise ValueError(f"onset must be first_error or threshold, got {onset!r}.")
    count = 0
    for index, is_error in enumerate(error_flags):
        count = count + 1 if is_error else 0
        if count == K:
            return index if onset == "threshold" else index - K + 1
    return None


def error_flags(trajectory: Trajectory, table: Mapping[FailureKind, bool] = COUNTS_TOWARDS_FATAL) -> list[bool]:
    """``[L]`` whether each step counts as an error.

    A step counts iff it failed and `table` says that its kind of failure counts. A final response is never an error,
    and a failure that does not count breaks a cascade as a success does.

    Args:
        trajectory: The rollout.
        table: Which kinds of failure count; kinds left out do not.
    """
    return [
        step.response is None and step.failure is not None and table.get(step.failure.kind, False)
        for step in trajectory.steps
    ]
