"""The trajectory reward ``r = r_fmt · [α·r_acc + (1−α)·r_query]`` (paper, section 5) with all its special cases.

For a fatal trajectory only the prefix before the fatal step counts: hand `prefix(trajectory, f)` to the query judge and
`f` to `compose`. Pure functions; `score.py` is what calls the judges.
"""

from __future__ import annotations

from opensearch_vl.types import RewardParts, Step, Termination, Trajectory

ALPHA = 0.8
"""Weight of accuracy against search quality (paper, section 5)."""

NOT_THE_POLICY = frozenset({Termination.ERROR, Termination.CANCELLED})
"""Endings that say nothing about the policy: without a response such a rollout is unscored, never a zero."""


def prefix(trajectory: Trajectory, fatal: int | None) -> Trajectory:
    """The trajectory up to, not including, step `fatal`; unchanged when None."""
    return trajectory if fatal is None else trajectory.model_copy(update={"steps": trajectory.steps[:fatal]})


def format_reward(trajectory: Trajectory, fatal: int | None = None) -> float:
    """``r_fmt``: the mean over the steps (of the prefix, if fatal) of 1 for a faultless step, else 0.

    A step is faultless if its reply had exactly the strict form and its call raised no failure. No steps give 0.
    """
    steps = prefix(trajectory, fatal).steps
    return sum(map(_faultless, steps)) / len(steps) if steps else 0.0


def _faultless(step: Step) -> bool:
    return step.well_formed and step.failure is None and (step.call is not None or step.response is not None)


def compose(
    trajectory: Trajectory,
    *,
    correct: bool | None,
    query: float | None,
    fatal: int | None = None,
    alpha: float = ALPHA,
) -> RewardParts:
    """Put the reward together.

    - Cut off before a response (limits, or fatal): accuracy is 0 by definition, whatever `correct` says. If the rollout
      was stopped by a model server's failure or cancelled, accuracy is None instead.
    - No tool call (in the prefix): search quality is 0 by definition.
    - A part that a judge failed to give is None, and so is the total unless that part's weight is 0.
    - ``fatal = 0``: the prefix is empty, everything is 0.

    Args:
        trajectory: The whole rollout, not its prefix.
        correct: The accuracy judge's finding on the final response; None if it failed.
        query: The query judge's score of the (prefix of the) searches, in [0, 1]; None if it failed.
        fatal: The fatal step ``f`` or None.
        alpha: Weight of accuracy, in [0, 1].

    Raises:
        ValueError: If `alpha` or `query` is outside [0, 1].
    """
    for name, value in (("alpha", alpha), ("query", query)):
        if value is not None and not 0 <= value <= 1:
            raise ValueError(f"{name} must lie in [0, 1], got {value}.")
    acc = _accuracy(trajectory, correct, fatal)
    quality = query if prefix(trajectory, fatal).num_calls else 0.0
    fmt = format_reward(trajectory, fatal)
    weighted = [(alpha, acc), (1 - alpha, quality)]
    known = [(weight, part) for weight, part in weighted if part is not None]
    missing = any(part is None and weight > 0 for weight, part in weighted)
    total = None if missing else min(1.0, fmt * sum(weight * part for weight, part in known))
    return RewardParts(fmt=fmt, acc=acc, query=quality, total=total)


def _accuracy(trajectory: Trajectory, correct: bool | None, fatal: int | None) -> float | None:
    if fatal is not None:
        return 0.0
    if trajectory.response is None:
        return None if trajectory.termination in NOT_THE_POLICY else 0.0
    return None if correct is None else float(correct)
