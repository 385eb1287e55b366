"""What a build of questions counts: stages and reasons, and histograms over the final questions."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from opensearch_vl.questions.repairs import REPAIR, Kind
from opensearch_vl.questions.stages import StageTable
from opensearch_vl.types import QuestionRecord, Task


@dataclass(slots=True)
class BuildReport:
    """What was built, and what became of everything else.

    Attributes:
        stages: Walks by the stage where they ended; sums match.
        dropped: Seeds that gave no walk, by the walk rules' reasons.
        num_seeds_dropped: How many seeds those were.
        num_unscored: Verdicts of the filter that could not be reached.
        num_ungrounded: Final questions without a picture.
        corpora, hops, domains, identified_by, degraded: Histograms over the final questions.
        degrading: Damages tried, by kind and by whether the repair gave the lettering back.
        tasks: The final questions, in order.
        screened: Questions that the filter dropped, for the counterfactuals (built with the filter off).
    """

    stages: StageTable = field(default_factory=StageTable)
    dropped: Counter[str] = field(default_factory=Counter)
    num_seeds_dropped: int = 0
    num_unscored: int = 0
    num_ungrounded: int = 0
    corpora: Counter[str] = field(default_factory=Counter)
    hops: Counter[int] = field(default_factory=Counter)
    domains: Counter[str] = field(default_factory=Counter)
    identified_by: Counter[str] = field(default_factory=Counter)
    degraded: Counter[str] = field(default_factory=Counter)
    degrading: Counter[str] = field(default_factory=Counter)
    tasks: list[Task] = field(default_factory=list)
    screened: list[Task] = field(default_factory=list)

    def least_degraded(self) -> list[Kind]:
        """The kinds of damage, the rarest so far first."""
        return sorted(REPAIR, key=lambda kind: (self.degraded[kind], list(REPAIR).index(kind)))

    def add(self, record: QuestionRecord, task: Task) -> None:
        """Count a record whose draft became a task, kept or dropped by the filter.

        Args:
            record: The record; its `task` is set if the question is final.
            task: The question, also where the filter dropped it.
        """
        attempts = record.draft.get("attempts")
        if isinstance(attempts, list):
            self.num_unscored += sum(isinstance(a, dict) and a.get("correct") is None for a in attempts)
        if record.task is None:
            self.screened.append(task)
            return
        self.tasks.append(task)
        self.num_ungrounded += not task.images
        self.corpora[task.provenance.corpus] += 1
        self.hops[len(task.provenance.hops)] += 1
        self.domains[task.provenance.domain] += 1
        if task.provenance.picture is not None:
            self.identified_by[task.provenance.picture.identified_by] += 1
        if task.provenance.degradation is not None:
            self.degraded[task.provenance.degradation.kind] += 1
        trials = record.draft.get("degrading")
        for trial in trials if isinstance(trials, list) else ():
            if isinstance(trial, dict):
                accepted = trial.get("readable_after") and not trial.get("readable_before")
                self.degrading[f"{trial.get('kind')}_{'accepted' if accepted else 'refused'}"] += 1

    def as_dict(self) -> dict[str, Any]:
        """The report as plain data, for manifests and `--json`."""
        return {
            "questions": len(self.tasks),
            "ungrounded": self.num_ungrounded,
            "stages": self.stages.as_dict(),
            "seeds_dropped": self.num_seeds_dropped,
            "walks_dropped": dict(sorted(self.dropped.items())),
            "unscored": self.num_unscored,
            "corpora": dict(sorted(self.corpora.items())),
            "hops": {str(hops): num for hops, num in sorted(self.hops.items())},
            "domains": dict(sorted(self.domains.items())),
            "identified_by": dict(sorted(self.identified_by.items())),
            "degraded": dict(sorted(self.degraded.items())),
            "degrading": dict(sorted(self.degrading.items())),
        }
