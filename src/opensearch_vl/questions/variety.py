"""What a set of questions is made of: histograms, repeats, and how many patterns its wording really has.

For anybody's set: what provenance does not say is left out, and a pattern is read off the words alone.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from opensearch_vl.images import ImageStore
from opensearch_vl.questions.facts import Facts
from opensearch_vl.questions.likeness import Looks, look_of, noted_look
from opensearch_vl.text import words
from opensearch_vl.types import Task

_NUMBER = re.compile(r"\d[\d.,:/-]*")
_NAME = re.compile(r"(?<=[^.?!] )[A-ZÀ-ÖØ-Þ][\w'’.-]*(?: (?:(?:of|the|de|van|von|and|la|le) )?[A-ZÀ-ÖØ-Þ][\w'’.-]*)*")
_QUOTED = re.compile(r"[\"“«][^\"”»]*[\"”»]")


def shape(
    tasks: Sequence[Task], *, facts: Facts | None = None, store: ImageStore | None = None, max_distance: int = 4
) -> dict[str, Any]:
    """Histograms, repeats and variety of wording.

    Args:
        tasks: The questions.
        facts: Their wiki, which tells the domain of every role; without it only the anchor's is known.
        store: Their pictures; without it near-duplicates are only told among those whose hash provenance keeps.
        max_distance: Bound on the hashes of near-duplicate pictures (`likeness`).
    """
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
            "near_picture": near_pictures(tasks, store, max_distance),
            "answer_page_and_attribute": _repeats(answers),
        },
        "corpora": _histogram(task.provenance.corpus for task in tasks),
        "hops": _histogram(len(task.provenance.hops) for task in tasks),
        "domains": _histogram(task.provenance.domain for task in tasks),
        "roles": {} if facts is None else _roles(tasks, facts),
        "answer_kinds": _histogram(task.gold.kind for task in tasks),
        "exactness": _histogram(exactness(task) for task in tasks),
        "attributes": _histogram(task.provenance.attribute for task in tasks),
        "identified_by": _histogram(kinds),
        "degraded": _histogram(damages),
        "relations": _histogram(f"{relation} {direction}" for relation, direction in relations),
        "openings": len({_opening(task.question) for task in tasks}),
        "templates": patterns([template(task) for task in tasks]),
        "skeletons": patterns([skeleton(task) for task in tasks]),
        "words": _spread([len(words(task.question)) for task in tasks]),
    }


def near_pictures(tasks: Sequence[Task], store: ImageStore | None, max_distance: int) -> int:
    """How many distinct pictures are near-duplicates of an earlier one; pictures that cannot be read count as none."""
    looks, found = Looks(max_distance), 0
    for task in {task.images[0].sha256: task for task in reversed(tasks) if task.images}.values():
        look = noted_look(task)
        if look is None and store is not None and task.images[0] in store:
            look = task.images[0].sha256, look_of(store.read(task.images[0])), False
        if look is not None:
            found += bool(looks.near(*look))
            looks.add(*look)
    return found


def _roles(tasks: Sequence[Task], facts: Facts) -> dict[str, dict[str, int]]:
    """Domains of the pages in each role; titles that are no page count as `missing`."""
    found: dict[str, Counter[str]] = {"anchor": Counter(), "bridge": Counter(), "answer": Counter()}
    for task in tasks:
        path = task.provenance.path
        for place, title in enumerate(path):
            role = "anchor" if place == 0 else "answer" if place == len(path) - 1 else "bridge"
            page = facts.resolve(title)
            found[role]["missing" if page is None else facts.page(page).domain or "none"] += 1
    return {role: _histogram(counts.elements()) for role, counts in found.items()}


def exactness(task: Task) -> str:
    """`exact` if tables state the answer and every descriptor; `not_applicable` if prose alone states one of them."""
    from_prose = task.provenance.extra.get("answer_source") == "prose"
    described = task.provenance.descriptors[: len(task.provenance.hops)]  # the anchor's is the picture
    return "not_applicable" if from_prose or any(not d.predicates for d in described) else "exact"


def template(task: Task) -> str:
    """The question with its stated values left out: what remains is the writer's pattern."""
    text = task.question
    for descriptor in task.provenance.descriptors:
        for predicate in descriptor.predicates:
            if predicate.kind == "attr":
                text = text.replace(predicate.value, "…")
    return text


def skeleton(task: Task) -> str:
    """The template with numbers, quotations and runs of capitalised words left out, whoever wrote it."""
    text = _QUOTED.sub("…", template(task))
    return " ".join(_NAME.sub("…", _NUMBER.sub("#", text)).casefold().split())


def patterns(texts: Sequence[str]) -> dict[str, Any]:
    """How many patterns there are, how they are spread, and how often the commonest occurs.

    `effective` is the exponential of the entropy: as many patterns as equally common ones would have to be.
    """
    counts = Counter(texts)
    if not counts:
        return {"distinct": 0}
    text, most = min(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    entropy = -sum(count / len(texts) * math.log(count / len(texts)) for count in counts.values())
    return {
        "distinct": len(counts),
        "effective": round(math.exp(entropy), 1),
        "commonest": {"text": text, "count": most, "of": len(texts)},
    }


def _repeats(counts: Counter[Any]) -> int:
    return sum(count - 1 for count in counts.values())


def _histogram(values: Iterable[Any]) -> dict[str, int]:
    return {
        str(value): count for value, count in sorted(Counter(values).items(), key=lambda pair: (-pair[1], str(pair[0])))
    }


def _opening(question: str) -> str:
    return " ".join(words(question)[:4])


def _spread(values: list[int]) -> dict[str, float]:
    if not values:
        return {}
    ordered = sorted(values)
    return {"least": ordered[0], "median": ordered[len(ordered) // 2], "most": ordered[-1]}
