"""Pass@1 of a policy on tasks, by the same rollouts and judge that training uses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from opensearch_vl.rl.rollouts import ModelFor, Outcome, Scene, roll_out, unscored_reasons
from opensearch_vl.scoring.metrics import Accuracy, accuracy
from opensearch_vl.types import Task


@dataclass(frozen=True, slots=True)
class PassRate:
    """How often a policy answers right.

    Attributes:
        accuracy: Over all rollouts that could be judged, with its interval.
        reward: Mean reward over the rollouts that have one.
        turns: Mean number of steps.
        fatal: Share of fatal rollouts.
        unscored: Reason → number of rollouts without a reward.
        outcomes: The rollouts.
    """

    accuracy: Accuracy
    reward: float
    turns: float
    fatal: float
    unscored: dict[str, int]
    outcomes: tuple[Outcome, ...]

    def sometimes_solved(self) -> list[Task]:
        """Tasks with right and wrong rollouts, in order of their first one.

        What a policy always or never answers teaches it nothing and adds noise, which a few hundred rollouts of a
        small policy cannot afford. Measured with a handful of samples a task, this is the selection by pass rate that
        is usual before reinforcement learning.
        """
        verdicts: dict[str, set[bool]] = {}
        tasks: dict[str, Task] = {}
        for outcome in self.outcomes:
            right = outcome.score.verdict is not None and outcome.score.verdict.correct is True
            tasks.setdefault(outcome.task.id, outcome.task)
            verdicts.setdefault(outcome.task.id, set()).add(right)
        return [task for name, task in tasks.items() if len(verdicts[name]) == 2]


async def pass_rate(
    scene: Scene, tasks: Sequence[Task], model_for: ModelFor, *, samples: int = 1, seed: int = 0
) -> PassRate:
    """Roll every task out `samples` times and judge.

    The temperature is that of the scene's settings: 0 gives greedy pass@1, the training temperature sampled pass@1.

    Raises:
        ValueError: Without tasks.
    """
    if not tasks:
        raise ValueError("there are no tasks to measure on")
    outcomes = await roll_out(scene, tasks, samples, model_for, run_seed=seed, step=0)
    rewards = [outcome.score.reward.total for outcome in outcomes if outcome.score.reward.total is not None]
    return PassRate(
        accuracy=accuracy([outcome.score.verdict for outcome in outcomes]),
        reward=sum(rewards) / len(rewards) if rewards else 0.0,
        turns=sum(len(outcome.trajectory.steps) for outcome in outcomes) / len(outcomes),
        fatal=sum(outcome.score.fatal is not None for outcome in outcomes) / len(outcomes),
        unscored=dict(unscored_reasons(outcomes)),
        outcomes=tuple(outcomes),
    )
