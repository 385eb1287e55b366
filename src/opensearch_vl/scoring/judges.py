"""The offline judge: exact match with aliases for accuracy, countable features for search quality.

It is deterministic, needs no model, and never fails, so the whole recipe runs and is tested without a network. An LLM
takes its place through `llm_judge.LLMJudge`.
"""

from __future__ import annotations

from opensearch_vl.protocols import JudgedCase, QueryScore
from opensearch_vl.scoring.answers import find
from opensearch_vl.scoring.search_quality import search_quality
from opensearch_vl.types import Task, Trajectory, Verdict


def case_of(task: Task, response: str | None) -> JudgedCase:
    """What a judge is told about a task and a response."""
    return JudgedCase(
        question=task.question,
        reference=task.gold.answer,
        response=response or "",
        aliases=task.gold.aliases,
        answer_kind=task.gold.kind,
        extra={"num_images": len(task.images)},
    )


class ExactJudge:
    """Right iff the response states the reference or an alias (see `answers.find`).

    Args:
        max_candidates: A response that offers more candidates than this is wrong even if one of them is right; None
            only counts them, in the reason.
    """

    name = "exact"

    def __init__(self, max_candidates: int | None = None) -> None:
        self.max_candidates = max_candidates

    async def accuracy(self, case: JudgedCase) -> Verdict:
        """Never unscored. The reason ends in ``num_candidates=N``."""
        found = find(case.reference, case.aliases, case.answer_kind, case.response)
        too_many = self.max_candidates is not None and found.num_candidates > self.max_candidates
        if found.matched and too_many:
            reason = f"lists more than {self.max_candidates} candidates"
        elif found.matched:
            reason = "states the reference"
        else:
            reason = "does not state the reference" if case.response.strip() else "empty response"
        return Verdict(
            correct=found.matched and not too_many,
            reason=f"{reason}; num_candidates={found.num_candidates}",
            judge=self.name,
        )

    async def query(self, case: JudgedCase, trajectory: Trajectory) -> QueryScore:
        """The weighted mean of five features, which the reason lists; 0 without a tool call."""
        quality = search_quality(case, trajectory)
        return QueryScore(quality.score, quality.explain(), self.name)
