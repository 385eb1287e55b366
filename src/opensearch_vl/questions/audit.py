"""Audit of a set of questions, anybody's: shortcut rates, leaks, duplicates, answers that no page states, variety.

Shortcuts are measured by handicapped solvers that the filter did not use; what can be checked against the wiki is
checked row by row. Nothing is repaired or dropped here, only counted.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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

    Raises:
        DataError: If the file is missing.
        RecordError: If a line is neither; names the line.
    """
    file = path / "records.jsonl" if path.is_dir() else path
    tasks = []
    for number, row in enumerate(read_json_lines(file), 1):
        try:
            if row.get("kind") == "question":
                record = QuestionRecord.model_validate(row)
                if record.task is not None:
                    tasks.append(record.task)
            else:
                tasks.append(Task.model_validate(row))
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"])
            raise RecordError(f"{file}, line {number}: {where}: {first['msg']}.") from error
    return tasks


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


@dataclass(frozen=True, slots=True)
class Finding:
    """Something wrong with one task."""

    task_id: str
    problem: str
    detail: str = ""


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
    pages = [facts.resolve(title) for title in provenance.path]
    if None in pages or not pages:
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


def shape(tasks: Sequence[Task]) -> dict[str, Any]:
    """Histograms, duplicates and variety of wording."""
    questions = Counter((task.question, task.images[0].sha256 if task.images else "") for task in tasks)
    pictures = Counter(task.images[0].sha256 for task in tasks if task.images)
    answers = Counter((task.provenance.path[-1:], task.provenance.attribute) for task in tasks if task.provenance.path)
    kinds = [task.provenance.picture.identified_by for task in tasks if task.provenance.picture is not None]
    damages = [task.provenance.degradation.kind for task in tasks if task.provenance.degradation is not None]
    relations = [(hop.relation, hop.direction) for task in tasks for hop in task.provenance.hops]
    return {
        "questions": len(tasks),
        "ungrounded": sum(not task.images for task in tasks),
        "duplicates": {
            "question_and_picture": _repeats(questions),
            "picture": _repeats(pictures),
            "answer_page_and_attribute": _repeats(answers),
        },
        "hops": _histogram(len(task.provenance.hops) for task in tasks),
        "domains": _histogram(task.provenance.domain for task in tasks),
        "answer_kinds": _histogram(task.gold.kind for task in tasks),
        "exactness": _histogram(exactness(task) for task in tasks),
        "attributes": _histogram(task.provenance.attribute for task in tasks),
        "identified_by": _histogram(kinds),
        "degraded": _histogram(damages),
        "relations": _histogram(f"{relation} {direction}" for relation, direction in relations),
        "openings": len({_opening(task.question) for task in tasks}),
        "templates": len({_template(task) for task in tasks}),
        "words": _spread([len(words(task.question)) for task in tasks]),
    }


def exactness(task: Task) -> str:
    """`exact` if tables state the answer and every descriptor; `not_applicable` if prose alone states one of them."""
    from_prose = task.provenance.extra.get("answer_source") == "prose"
    described = task.provenance.descriptors[: len(task.provenance.hops)]  # the anchor's is the picture
    return "not_applicable" if from_prose or any(not d.predicates for d in described) else "exact"


def _repeats(counts: Counter[Any]) -> int:
    return sum(count - 1 for count in counts.values())


def _histogram(values: Iterable[Any]) -> dict[str, int]:
    return {
        str(value): count for value, count in sorted(Counter(values).items(), key=lambda pair: (-pair[1], str(pair[0])))
    }


def _opening(question: str) -> str:
    return " ".join(words(question)[:4])


def _template(task: Task) -> str:
    """The question with its stated values left out: what remains is the writer's pattern."""
    text = task.question
    for descriptor in task.provenance.descriptors:
        for predicate in descriptor.predicates:
            if predicate.kind == "attr":
                text = re.sub(re.escape(predicate.value), "…", text)
    return text


def _spread(values: list[int]) -> dict[str, float]:
    if not values:
        return {}
    ordered = sorted(values)
    return {"least": ordered[0], "median": ordered[len(ordered) // 2], "most": ordered[-1]}
