"""The staged filter: drop what needs no tool, then what one image search answers (paper, section 3.6).

Each stage is a `Solver`, so a frozen vision-language model and a rule-based attacker plug in alike. A verdict that
could not be reached is stored and counted, and never drops a question.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from opensearch_vl.protocols import Judge, JudgedCase, Solver
from opensearch_vl.seeds import derive
from opensearch_vl.types import Task, Verdict


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try of one solver, as it is stored."""

    solver: str
    attempt: int
    response: str
    verdict: Verdict

    def as_dict(self) -> dict[str, str | int | bool | None]:
        """Plain data for a record."""
        return {
            "solver": self.solver,
            "attempt": self.attempt,
            "response": self.response,
            "correct": self.verdict.correct,
            "reason": self.verdict.reason,
            "judge": self.verdict.judge,
        }


@dataclass(frozen=True, slots=True)
class Screening:
    """What the filter found: the tries made, and the solver that answered the question, if one did."""

    attempts: tuple[Attempt, ...]
    answered_by: str = ""

    @property
    def num_unscored(self) -> int:
        """Tries whose verdict could not be reached."""
        return sum(attempt.verdict.unscored for attempt in self.attempts)


async def screen(task: Task, solvers: Sequence[Solver], judge: Judge, *, attempts: int, seed: int) -> Screening:
    """Try the solvers in order; stop at the first that is judged right.

    Args:
        task: The question.
        judge: Compares answers with the reference.
        seed: Seed of the solvers.
        solvers: Stages of the filter, the cheapest first.
        attempts: Tries per solver; one right answer suffices to drop the question.
    """
    made: list[Attempt] = []
    for solver in solvers:
        for number in range(attempts):
            attempt = await attempt_task(task, solver, judge, number=number, seed=seed)
            made.append(attempt)
            if attempt.verdict.correct:
                return Screening(tuple(made), solver.name)
    return Screening(tuple(made))


async def attempt_task(task: Task, solver: Solver, judge: Judge, *, number: int, seed: int) -> Attempt:
    """One try: the solver sees the question and the picture alone, the judge compares with the reference."""
    trajectory = await solver.solve(task.view(), derive(seed, solver.name, task.id, number))
    response = trajectory.response
    if response is None:
        verdict = Verdict(correct=False, reason=f"no answer ({trajectory.termination})", judge=judge.name)
        if trajectory.termination == "error":
            verdict = Verdict(correct=None, reason=trajectory.error or "the solver failed", judge=judge.name)
        return Attempt(solver.name, number, "", verdict)
    case = JudgedCase(
        question=task.question,
        reference=task.gold.answer,
        response=response,
        aliases=task.gold.aliases,
        answer_kind=task.gold.kind,
    )
    return Attempt(solver.name, number, response, await judge.accuracy(case))
