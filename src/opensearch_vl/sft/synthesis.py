"""Trajectory synthesis (paper, section 3.8): roll every task out with an expert, judge, and keep what stands review.

Each task is rolled out several times in the real environment. A rollout is rejected first by its answer, then by its
process: quality of the searches, ineffective repetition, an answer that no observation supports. Every finished rollout
becomes a record with its verdict, reward and the reason of its rejection, appended at once, so a killed run resumes
where it was. A rollout that a model server's failure stopped leaves no record: it is counted, and resuming retries it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from pydantic import Field

from opensearch_vl.agent.environment import Environment
from opensearch_vl.agent.rollout import Job, run_many
from opensearch_vl.config import Config
from opensearch_vl.errors import ModelError
from opensearch_vl.images import ImageStore
from opensearch_vl.protocols import ChatModel, Judge
from opensearch_vl.runs import RunFolder, read_records
from opensearch_vl.scoring.answers import find
from opensearch_vl.scoring.metrics import Accuracy, accuracy
from opensearch_vl.scoring.reward import NOT_THE_POLICY
from opensearch_vl.scoring.score import RewardSettings, Scored, score_rollout
from opensearch_vl.scoring.search_quality import call_key
from opensearch_vl.types import RolloutRecord, Task, Trajectory, Verdict

SAMPLES = 5
"""Rollouts per task (paper, section 3.8)."""


class SynthesisSettings(Config):
    """How trajectories are made and which are kept.

    Attributes:
        samples: Rollouts per task.
        seed: Seed of the run.
        min_query: Least score of the query judge, in [0, 1].
        max_repeats: How many calls of a trajectory may exactly repeat an earlier one that had worked.
        max_failed_steps: How many failed steps a kept trajectory may have; None allows any number.
        require_support: Whether some observation must hold the reference answer.
        max_parallel: Rollouts under way at the same time.
        give_up_after: Rollouts in a row that the model server may fail before the run stops.
        reward: How rollouts are scored.
    """

    samples: int = Field(default=SAMPLES, ge=1)
    seed: int = 0
    min_query: float = Field(default=0.5, ge=0, le=1)
    max_repeats: int = Field(default=0, ge=0)
    max_failed_steps: int | None = Field(default=2, ge=0)
    require_support: bool = True
    max_parallel: int = Field(default=8, ge=1)
    give_up_after: int = Field(default=20, ge=1)
    reward: RewardSettings = RewardSettings()


DEFAULTS = SynthesisSettings()


@dataclass(slots=True)
class SynthesisReport:
    """What became of all rollouts of a run, those of earlier sittings included.

    Attributes:
        accepted: Rollouts kept.
        rejected: Rollouts rejected, by reason.
        unscored: Rollouts that a judge failed on; neither kept nor rejected.
        failed: Rollouts that a model server's failure stopped in this sitting, by message; they leave no record.
        verdicts: Verdict of every recorded rollout.
        tasks_with_accepted: Ids of tasks with at least one kept rollout.
    """

    accepted: int = 0
    rejected: Counter[str] = field(default_factory=Counter)
    unscored: int = 0
    failed: Counter[str] = field(default_factory=Counter)
    verdicts: list[Verdict | None] = field(default_factory=list)
    tasks_with_accepted: set[str] = field(default_factory=set)

    @property
    def done(self) -> int:
        """Recorded rollouts."""
        return len(self.verdicts)

    @property
    def accuracy(self) -> Accuracy:
        """Pass@1 of the expert over all recorded rollouts."""
        return accuracy(self.verdicts)

    def add(self, record: RolloutRecord) -> None:
        """Count a record."""
        self.verdicts.append(record.verdict)
        if record.accepted:
            self.accepted += 1
            self.tasks_with_accepted.add(record.task.id)
        elif record.accepted is None:
            self.unscored += 1
        else:
            self.rejected[record.reason] += 1

    def counts(self) -> dict[str, object]:
        """The figures for a manifest."""
        return {
            "done": self.done,
            "accepted": self.accepted,
            "rejected": dict(sorted(self.rejected.items())),
            "unscored": self.unscored,
            "failed": sum(self.failed.values()),
            "tasks_with_accepted": len(self.tasks_with_accepted),
        }


ExpertFor = Callable[[Task, int], ChatModel]
"""The expert for the n-th rollout of a task."""


async def synthesise(
    tasks: Iterable[Task],
    env: Environment,
    expert_for: ExpertFor,
    judge: Judge,
    run: RunFolder,
    settings: SynthesisSettings = DEFAULTS,
    *,
    progress: Callable[[SynthesisReport], None] | None = None,
) -> SynthesisReport:
    """Roll out, judge and record every task `settings.samples` times; finished rollouts are skipped.

    Args:
        tasks: The question pool.
        env: Tools and rules. Its pictures end up in the run folder.
        expert_for: Gives the policy of each rollout.
        judge: Judges answers and searches.
        run: Where records go; its manifest gets the counts.
        settings: Numbers and thresholds.
        progress: Called after every rollout of this sitting.

    Raises:
        ModelError: If `give_up_after` rollouts in a row failed at the model server. All records are kept.
    """
    pool = {task.id: task for task in tasks}
    run.write_manifest(agent=describe(env), judge=judge.name, task_ids=sorted(pool))
    report = SynthesisReport()
    if run.done:
        for record in read_records(run.path, RolloutRecord):
            report.add(record)
    jobs = (Job(task.view(), sample) for task in pool.values() for sample in range(settings.samples))
    waiting = (job for job in jobs if job.id not in run.done)
    failures_in_a_row = 0
    rollouts = run_many(
        waiting,
        lambda job: expert_for(pool[job.task.id], job.sample),
        env,
        run_seed=settings.seed,
        max_parallel=settings.max_parallel,
    )
    async with aclosing(rollouts), aclosing(_judged(rollouts, pool, judge, settings)) as finished:
        async for task, trajectory, scored in finished:
            if trajectory.termination in NOT_THE_POLICY:
                report.failed[trajectory.error or str(trajectory.termination)] += 1
                failures_in_a_row += 1
                if failures_in_a_row >= settings.give_up_after:
                    run.write_manifest(counts=report.counts())
                    raise ModelError(f"{failures_in_a_row} rollouts in a row failed: {trajectory.error}")
            else:
                failures_in_a_row = 0
                record = make_record(task, trajectory, scored, settings)
                keep_pictures(record, env.store, run.images)
                run.append(record)
                report.add(record)
            if progress is not None:
                progress(report)
    run.write_manifest(counts=report.counts())
    return report


def describe(env: Environment) -> dict[str, Any]:
    """What a policy was told, for a manifest: enough to export or train on trajectories without the tools at hand."""
    schemas = [
        {"name": schema.name, "description": schema.description, "parameters": schema.parameters}
        for schema in env.toolbox.schemas()
    ]
    return {
        "layout": env.layout.name,
        "system": env.layout.system,
        "tools": schemas,
        "prompt_hash": env.prompt_hash,
        "settings": env.settings.model_dump(mode="json"),
    }


async def _judged(
    rollouts: AsyncGenerator[tuple[Job, Trajectory], None],
    pool: dict[str, Task],
    judge: Judge,
    settings: SynthesisSettings,
) -> AsyncGenerator[tuple[Task, Trajectory, Scored], None]:
    """Judge rollouts as they come, several at the same time; yields them as they are finished."""

    async def judged(task: Task, trajectory: Trajectory) -> tuple[Task, Trajectory, Scored]:
        return task, trajectory, await score_rollout(task, trajectory, judge, settings.reward)

    pending: set[asyncio.Task[tuple[Task, Trajectory, Scored]]] = set()
    try:
        async for job, trajectory in rollouts:
            pending.add(asyncio.create_task(judged(pool[job.task.id], trajectory)))
            await asyncio.sleep(0)
            full = len(pending) >= settings.max_parallel
            done = (
                (await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED))[0]
                if full
                else {work for work in pending if work.done()}
            )
            pending -= done
            for work in done:
                yield work.result()
        for finished in asyncio.as_completed(pending):
            yield await finished
    finally:
        for work in pending:
            work.cancel()
        await asyncio.gather(*pending, return_exceptions=True)


def make_record(task: Task, trajectory: Trajectory, scored: Scored, settings: SynthesisSettings) -> RolloutRecord:
    """The record of a judged rollout, with the outcome of its review."""
    reason = review(task, trajectory, scored, settings)
    return RolloutRecord(
        id=trajectory.id,
        task=task,
        trajectory=trajectory,
        verdict=scored.verdict,
        reward=scored.reward,
        accepted=None if reason == "unscored" else reason == "",
        reason=reason,
    )


def review(task: Task, trajectory: Trajectory, scored: Scored, settings: SynthesisSettings) -> str:
    """Why a rollout is rejected; empty if it is kept, `unscored` if a judge failed (paper, section 3.8).

    Reasons, in the order in which they are looked for: `no_answer_<termination>`, `wrong_answer`, `low_query_score`,
    `repetition`, `too_many_failures`, `unsupported_answer`.
    """
    if trajectory.response is None or scored.fatal is not None:
        return f"no_answer_{trajectory.termination}"
    if scored.verdict.unscored or scored.query.score is None:
        return "unscored"
    if not scored.verdict.correct:
        return "wrong_answer"
    if scored.query.score < settings.min_query:
        return "low_query_score"
    if num_repeats(trajectory) > settings.max_repeats:
        return "repetition"
    num_failed = sum(step.failure is not None for step in trajectory.steps)
    if settings.max_failed_steps is not None and num_failed > settings.max_failed_steps:
        return "too_many_failures"
    if settings.require_support and not is_supported(task, trajectory):
        return "unsupported_answer"
    return ""


def num_repeats(trajectory: Trajectory) -> int:
    """How many calls repeat an earlier one that had worked; trying a failed call again is no repetition."""
    worked: set[str] = set()
    repeats = 0
    for step in trajectory.steps:
        if step.call is not None:
            key = call_key(step.call)
            repeats += key in worked
            if step.failure is None:
                worked.add(key)
    return repeats


def is_supported(task: Task, trajectory: Trajectory) -> bool:
    """Whether some observation holds the reference answer or an alias."""
    gold = task.gold
    return any(
        find(gold.answer, gold.aliases, gold.kind, step.observation.text).matched
        for step in trajectory.steps
        if step.observation is not None
    )


def keep_pictures(record: RolloutRecord, source: ImageStore, target: ImageStore) -> None:
    """Make the pictures of a record readable from the run folder alone."""
    made = [step.observation.image for step in record.trajectory.steps if step.observation is not None]
    for ref in (*record.task.images, *made):
        if ref is not None:
            target.adopt(ref, source)
