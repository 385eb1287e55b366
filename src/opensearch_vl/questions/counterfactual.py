"""Counterfactuals: what each step of the recipe closes, shown by leaving it out (paper, section 3.9).

From the same walks, with the filter off: `full` is the question as built; `no_fuzz` asks the canonical question with
the bridges' real names and needs no picture, so one text search should solve it; `answer_anchored` shows the *answer*
page's picture and asks of "the person in the picture", so one image search should solve it. `absolute` describes the
last bridge by attributes of its own instead of relative to the node before it, so an agent that never looks at the
picture should solve it. `no_hub` comes of other walks, those that may pass pages with any number of links.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from opensearch_vl.protocols import Judge, Solver
from opensearch_vl.questions.build import QuestionTools, build_questions
from opensearch_vl.questions.facts import Facts
from opensearch_vl.questions.fuzz import describe_alone
from opensearch_vl.questions.phrases import Form, anchor_phrase, question
from opensearch_vl.questions.screen import Attempt, attempt_task
from opensearch_vl.questions.settings import QuestionSettings
from opensearch_vl.questions.tally import BuildReport
from opensearch_vl.seeds import derive
from opensearch_vl.types import PictureSource, Task, Verdict
from opensearch_vl.wiki.tables import WikiFolder

Variant = Literal["full", "no_fuzz", "answer_anchored"]
VARIANTS: tuple[Variant, ...] = ("full", "no_fuzz", "answer_anchored")
NO_HUB_RULE = 2**31 - 1
"""An in-degree that no page exceeds."""


def variant_of(task: Task, variant: Variant, wiki: WikiFolder, min_image_px: int = 0) -> Task | None:
    """The task as one step of the recipe would have left it; None where the variant does not exist.

    Args:
        task: A finished question with full provenance.
        variant: Which step to leave out.
        wiki: Where the answer page's picture comes from.
        min_image_px: Shortest side of the answer page's picture; a page without one has no answer-anchored variant.
    """
    if variant == "full":
        return task
    provenance = task.provenance
    identity = f"{task.id}-{variant}"
    if variant == "no_fuzz":
        return task.model_copy(update={"id": identity, "question": provenance.canonical, "images": ()})
    answer_page = wiki.resolve(provenance.path[-1])
    if answer_page is None:
        return None
    for image in wiki.page_images(answer_page):
        if min(image.ref.width_px, image.ref.height_px) >= min_image_px:
            page = wiki.page(answer_page)
            ask = question(provenance.attribute, _form(task), derive(task.id, "answer_anchored"))
            source = PictureSource(file=image.file, page=page.title, licence=image.licence, author=image.author)
            return task.model_copy(
                update={
                    "id": identity,
                    "question": ask.replace("{X}", anchor_phrase(page.infobox_type, page.domain)),
                    "images": (image.ref,),
                    "provenance": provenance.model_copy(update={"picture": source, "degradation": None}),
                }
            )
    return None


def absolute_of(task: Task, facts: Facts) -> Task | None:
    """The task with its last bridge told by attributes of its own and no picture; None where three do not suffice."""
    provenance = task.provenance
    nodes = [facts.resolve(title) for title in provenance.path]
    path = [node for node in nodes if node is not None]
    if len(path) != len(nodes) or len(path) < 2:
        return None
    alone = describe_alone(facts, path[-2], path)
    if alone is None:
        return None
    identity = f"{task.id}-absolute"
    ask = question(provenance.attribute, _form(task), derive(task.id, "absolute"))
    asked = ask.replace("{X}", provenance.hops[-1].phrase.replace("{X}", alone))
    return task.model_copy(update={"id": identity, "question": asked, "images": ()})


def without_hub_rule(wiki: WikiFolder, settings: QuestionSettings, *, seed: int, num: int) -> BuildReport:
    """Questions of walks that may pass hubs, with the filter off; nothing is written.

    Args:
        wiki: The wiki.
        settings: All other rules.
        seed: Seed of the walks.
        num: How many questions to stop at.
    """
    walks = settings.walks.model_copy(update={"hub": NO_HUB_RULE})
    loose = settings.model_copy(update={"walks": walks})
    return build_questions(wiki, loose, seed=seed, num=num, tools=QuestionTools())


def _form(task: Task) -> Form:
    match task.provenance.extra.get("answer_form"):
        case "year":
            return "year"
        case "day":
            return "day"
        case _:
            return "plain"


PARALLEL = 8
"""Attempts under way at the same time."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One solver on one variant: a verdict per task, None where unscored."""

    variant: str
    solver: str
    verdicts: tuple[Verdict, ...]

    @property
    def num_correct(self) -> int:
        """Tasks judged right."""
        return sum(verdict.correct is True for verdict in self.verdicts)

    @property
    def num_scored(self) -> int:
        """Tasks with a verdict."""
        return sum(not verdict.unscored for verdict in self.verdicts)


async def solve_all(
    tasks: Iterable[Task], solvers: Sequence[Solver], judge: Judge, *, seed: int, variant: str = "full"
) -> tuple[Cell, ...]:
    """Let every solver try every task once, a few at the same time."""
    tasks = list(tasks)
    cells = []
    gate = asyncio.Semaphore(PARALLEL)

    async def attempt(task: Task, solver: Solver) -> Attempt:
        async with gate:
            return await attempt_task(task, solver, judge, number=0, seed=seed)

    for solver in solvers:
        attempts = await asyncio.gather(*(attempt(task, solver) for task in tasks))
        cells.append(Cell(variant, solver.name, tuple(attempt.verdict for attempt in attempts)))
    return tuple(cells)


async def counterfactuals(
    tasks: Sequence[Task],
    wiki: WikiFolder,
    solvers: Sequence[Solver],
    judge: Judge,
    *,
    seed: int,
    min_image_px: int = 0,
    variants: Sequence[Variant] = VARIANTS,
) -> tuple[Cell, ...]:
    """The table of variants against solvers, over the same walks.

    Args:
        tasks: Questions built with the filter off: final ones and those the filter dropped.
        wiki: The wiki they come from.
        solvers: One text search and one image search, both of the audit.
        judge: Compares answers.
        seed: Seed of the solvers.
        min_image_px: Shortest side of an answer page's picture.
        variants: Which rows of the table.
    """
    cells: list[Cell] = []
    for variant in variants:
        made = [variant_of(task, variant, wiki, min_image_px) for task in tasks]
        changed = [task for task in made if task is not None]
        cells += await solve_all(changed, solvers, judge, seed=seed, variant=variant)
    return tuple(cells)
