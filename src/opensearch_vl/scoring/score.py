"""Scoring one rollout: fatal step, both judges, reward. The one path that synthesis, training and evaluation share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from pydantic import Field

from opensearch_vl.config import Config
from opensearch_vl.protocols import Judge, QueryScore
from opensearch_vl.scoring.fatal import FATAL_AFTER, Onset, error_flags, fatal_index
from opensearch_vl.scoring.judges import case_of
from opensearch_vl.scoring.reward import ALPHA, NOT_THE_POLICY, compose, prefix
from opensearch_vl.types import COUNTS_TOWARDS_FATAL, FailureKind, RewardParts, Task, Trajectory, Verdict


class RewardSettings(Config):
    """How a rollout is scored; the defaults are the paper's (section 5) and the choices of docs/recipe.md.

    Attributes:
        alpha: Weight of accuracy against search quality, in [0, 1].
        fatal_after: K, consecutive errors that make a trajectory fatal.
        onset: Which step of the cascade is fatal.
        counts: Which kinds of failure count, where it differs from the table in `types`.
    """

    alpha: float = Field(default=ALPHA, ge=0, le=1)
    fatal_after: int = Field(default=FATAL_AFTER, ge=1)
    onset: Onset = "first_error"
    counts: dict[FailureKind, bool] = Field(default_factory=dict)

    def table(self) -> Mapping[FailureKind, bool]:
        """The whole table of what counts towards a fatal step."""
        return {**COUNTS_TOWARDS_FATAL, **self.counts}


DEFAULTS = RewardSettings()


@dataclass(frozen=True, slots=True)
class Scored:
    """What became of a rollout: verdict on the answer, judgement of the searches, fatal step, reward."""

    verdict: Verdict
    query: QueryScore
    fatal: int | None
    reward: RewardParts


async def score_rollout(
    task: Task, trajectory: Trajectory, judge: Judge, settings: RewardSettings = DEFAULTS
) -> Scored:
    """Judge a rollout and put its reward together.

    A trajectory that was cut off is wrong without asking the judge; one that a model server's failure or a cancellation
    stopped is unscored.
    """
    fatal = fatal_index(error_flags(trajectory, settings.table()), settings.fatal_after, settings.onset)
    case = case_of(task, trajectory.response)
    if trajectory.response is not None and fatal is None:
        verdict = await judge.accuracy(case)
    elif fatal is not None:
        verdict = Verdict(correct=False, reason=f"fatal from step {fatal}", judge="rule")
    elif trajectory.termination in NOT_THE_POLICY:
        reason = f"no response: {trajectory.termination} {trajectory.error}".strip()
        verdict = Verdict(correct=None, reason=reason, judge="rule")
    else:
        verdict = Verdict(correct=False, reason=f"cut off: {trajectory.termination}", judge="rule")
    judged = prefix(trajectory, fatal)
    query = await judge.query(case, judged) if judged.num_calls else QueryScore(0.0, "no tool call", "rule")
    if query.score is not None and not 0 <= query.score <= 1:  # NaN too: a judge that fails leaves no score
        query = replace(query, score=None, reason=f"{query.score} is no score in [0, 1]; {query.reason}")
    reward = compose(trajectory, correct=verdict.correct, query=query.score, fatal=fatal, alpha=settings.alpha)
    return Scored(verdict, query, fatal, reward)
