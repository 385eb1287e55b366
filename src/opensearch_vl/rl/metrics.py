"""The figures of a training step, from its rollouts and its batch; and the alarm when training collapses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from opensearch_vl.rl.batch import BatchCounts
from opensearch_vl.rl.rollouts import Outcome, reward_means
from opensearch_vl.runs import read_json_lines
from opensearch_vl.types import FailureKind, Termination


def rollout_metrics(outcomes: Sequence[Outcome], counts: BatchCounts) -> dict[str, float]:
    """Figures of one generation, by name; every name is there every time.

    Rates are over all rollouts, means of rewards over those that have the part, `fatal/by/*` over fatal rollouts.
    """
    num = len(outcomes)
    steps = [step for outcome in outcomes for step in outcome.trajectory.steps]
    endings = Counter(outcome.trajectory.termination for outcome in outcomes)
    fatal = [outcome for outcome in outcomes if outcome.score.fatal is not None]
    causes = Counter(cause for outcome in fatal if (cause := fatal_cause(outcome)) is not None)
    failures = Counter(step.failure.kind for step in steps if step.failure is not None)
    correct = [outcome.score.verdict.correct for outcome in outcomes if outcome.score.verdict.correct is not None]
    row = {f"reward/{part}": value for part, value in reward_means([o.score.reward for o in outcomes]).items()}
    row |= {
        "accuracy": sum(correct) / len(correct) if correct else 0.0,
        "unscored": counts.num_unscored / num,
        "fatal/rate": len(fatal) / num,
        "fatal/clamped_share": counts.num_clamped / max(counts.num_fatal, 1),
        "fatal/clamped_mean": counts.clamped_mean,
        "fatal/kept_share": counts.num_kept / max(counts.num_fatal, 1),
        "fatal/kept_mean": counts.kept_mean,
        "groups/flat": counts.num_flat_groups / counts.num_groups,
        "groups/small": counts.num_small_groups / counts.num_groups,
        "tokens/generated": counts.num_generated_tokens / num,
        "tokens/trained": counts.num_trained_tokens / num,
        "tokens/none": counts.num_no_tokens / num,
        "turns": len(steps) / num,
        "calls": sum(outcome.trajectory.num_calls for outcome in outcomes) / num,
    }
    row |= {f"fatal/by/{kind}": causes[kind] / max(len(fatal), 1) for kind in FailureKind}
    row |= {f"errors/{kind}": failures[kind] / num for kind in FailureKind}
    row |= {f"ended/{ending}": endings[ending] / num for ending in Termination}
    return row


def fatal_cause(outcome: Outcome) -> FailureKind | None:
    """The kind of failure at the fatal step; None for a non-fatal rollout."""
    if outcome.score.fatal is None:
        return None
    failure = outcome.trajectory.steps[outcome.score.fatal].failure
    return failure.kind if failure is not None else None


def history_of(run: Path) -> list[dict[str, float]]:
    """The rows of a run's metrics that begin a generation, as `alarms` wants them: what a resumed run goes on from."""
    file = run / "metrics.jsonl"
    rows = [row for row in read_json_lines(file) if "reward/total" in row] if file.exists() else []
    return [row | {"entropy": row.get("policy/entropy") or 0.0} for row in rows]


WINDOW = 5
"""Steps over which the alarm averages."""


def alarms(history: Sequence[Mapping[str, float]], window: int = WINDOW) -> list[str]:
    """What looks like a collapse in the last steps; empty while all is well or too little is known.

    Args:
        history: One row per generation, as `rollout_metrics` gives it with `entropy` added, oldest first.
        window: Rows to average over, at the beginning of the run and at its end.
    """
    if len(history) < 2 * window:
        return []

    def mean(name: str, rows: Sequence[Mapping[str, float]]) -> float:
        return sum(row[name] for row in rows) / len(rows)

    first, last = history[:window], history[-window:]
    best = max(mean("reward/total", history[i : i + window]) for i in range(len(history) - window + 1))
    found = []
    if mean("reward/total", last) < 0.5 * best:
        found.append(f"the reward fell to {mean('reward/total', last):.3f}, less than half its best of {best:.3f}")
    if mean("entropy", last) < 0.1 * mean("entropy", first):
        found.append("the policy's entropy fell below a tenth of what it was")
    if mean("fatal/rate", last) > 0.5 and mean("fatal/rate", last) > 2 * mean("fatal/rate", first):
        found.append(f"{mean('fatal/rate', last):.0%} of the rollouts are fatal")
    if mean("groups/flat", last) > 0.95:
        found.append("nearly all groups have equal rewards, so there is nothing left to learn from")
    if mean("unscored", last) > 0.5:
        found.append("more than half of the rollouts have no reward")
    return found
