"""Audit of a set of questions, anybody's: shortcut rates, leaks, answers that no page states (variety: `variety`).

Shortcuts are measured by handicapped solvers that the filter did not use; what can be checked against the wiki is
checked row by row. Nothing is repaired or dropped here, only counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from opensearch_vl.errors import RecordError
from opensearch_vl.images import ImageStore
from opensearch_vl.protocols import ImageIndex, PageReader, SearchEngine, Solver
from opensearch_vl.questions.facts import Facts
from opensearch_vl.questions.leak import leaks
from opensearch_vl.questions.solvers import BlindAgent, GuessFromMemory, ImageThenText, OneTextSearch, ReadImageMatches
from opensearch_vl.questions.unique import DuckCounter
from opensearch_vl.runs import read_json_lines
from opensearch_vl.text import normalise_answer, words
from opensearch_vl.types import QuestionRecord, Task


def read_tasks(path: Path) -> list[Task]:
    """The finished tasks of a run folder, of its `records.jsonl`, or of a JSONL file of bare tasks.

    Of a run of rollouts the tasks that were tried, each once.

    Raises:
        DataError: If the file is missing.
        RecordError: If a line is neither; names the line.
    """
    file = path / "records.jsonl" if path.is_dir() else path
    tasks: dict[str, Task] = {}
    for number, row in enumerate(read_json_lines(file), 1):
        try:
            if row.get("kind") == "question":
                task = QuestionRecord.model_validate(row).task
            else:
                task = Task.model_validate(row["task"] if row.get("kind") == "rollout" else row)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"])
            raise RecordError(f"{file}, line {number}: {where}: {first['msg']}.") from error
        if task is not None:
            tasks.setdefault(task.id, task)
    return list(tasks.values())


def audit_solvers(
    tasks: Sequence[Task], search: SearchEngine, index: ImageIndex, store: ImageStore, reader: PageReader | None
) -> tuple[Solver, ...]:
    """The audit's attackers, none of them used in filtering, from no tool at all to one of each."""
    memory = [(task.question, task.gold.answer) for task in tasks]
    return (
        GuessFromMemory(memory),
        OneTextSearch(search, reader),
        ReadImageMatches(index, store),
        ImageThenText(index, search, store, reader),
        BlindAgent(search, reader),
    )


PROBLEMS = ("missing_page", "leak", "answer_leak", "answer_not_on_page", "not_unique", "broken_hop")
"""What can be wrong with a task; without a wiki only `answer_leak` can be told."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Something wrong with one task."""

    task_id: str
    problem: str
    detail: str = ""


def check_alone(tasks: Iterable[Task]) -> tuple[Finding, ...]:
    """What can be told of a task without the wiki it is about: `answer_leak`."""
    return tuple(
        Finding(task.id, "answer_leak", task.gold.answer)
        for task in tasks
        if leaks(task.question, (task.gold.answer, *task.gold.aliases))
    )


def check_against_wiki(tasks: Iterable[Task], facts: Facts) -> tuple[Finding, ...]:
    """Hold every task against the wiki.

    Finds `missing_page` (a path title that is no page), `leak` (a name of the path in the question), `answer_leak`,
    `answer_not_on_page`, `not_unique` (a descriptor whose predicates fit other than exactly its entity), `broken_hop`
    (an infobox that does not state the hop).
    """
    counter = DuckCounter(facts.wiki)
    return tuple(finding for task in tasks for finding in _findings(task, facts, counter))


def _findings(task: Task, facts: Facts, counter: DuckCounter) -> Iterable[Finding]:
    provenance = task.provenance
    if not provenance.path:  # of another corpus
        yield from check_alone((task,))
        return
    pages = [facts.resolve(title) for title in provenance.path]
    if None in pages:
        yield Finding(task.id, "missing_page", str(provenance.path))
        return
    nodes = [page for page in pages if page is not None]
    for node in nodes if task.images else nodes[1:]:  # without a picture, the question must name its anchor
        person = facts.page(node).domain == "Person"
        for leak in leaks(task.question, facts.names(node), person):
            yield Finding(task.id, "leak", leak.name)
    if leaks(task.question, (task.gold.answer,)):
        yield Finding(task.id, "answer_leak", task.gold.answer)
    stated = str(provenance.extra.get("answer_value", task.gold.answer))
    if provenance.extra.get("answer_source") == "prose":  # no table to compare with: the page has to say it
        found = f" {' '.join(words(stated))} " in facts.document_words(nodes[-1])
    else:
        values = [item.value for item in facts.items(nodes[-1]) if item.key == provenance.attribute]
        found = normalise_answer(stated) in [normalise_answer(value) for value in values]
    if not found:
        yield Finding(task.id, "answer_not_on_page", stated)
    for descriptor in provenance.descriptors:
        entity = facts.resolve(descriptor.entity)
        if descriptor.predicates and counter.matches(descriptor.predicates) != (entity,):
            yield Finding(task.id, "not_unique", descriptor.phrase)
    for hop, source, target in zip(provenance.hops, nodes, nodes[1:], strict=False):
        holder, value = (source, target) if hop.direction == "forward" else (target, source)
        if hop.direction != "prose" and value not in facts.targets(holder, hop.relation):
            yield Finding(task.id, "broken_hop", f"{hop.source} → {hop.target}: {hop.relation}")
