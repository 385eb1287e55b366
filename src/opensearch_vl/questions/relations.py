"""What each edge of a walk stands for (paper, section 3.1: the relation that a link induces).

An infobox key states the relation exactly and can be counted; prose needs a reader. So an edge is, in this order: a key
of the source that points to the target (`forward`), a key of the target that points to the source (`inverse`), or only
`prose`, which the rule-based writer turns away.
"""

from __future__ import annotations

from functools import lru_cache

from opensearch_vl.questions.facts import Facts
from opensearch_vl.questions.phrases import Direction, base_key, noun, relation_phrase, table
from opensearch_vl.questions.settings import QuestionSettings
from opensearch_vl.questions.stages import Rejection
from opensearch_vl.questions.unique import matches
from opensearch_vl.types import PathHop, Predicate
from opensearch_vl.wiki.walks import Walk


def relate(facts: Facts, walk: Walk, settings: QuestionSettings) -> tuple[PathHop, ...] | Rejection:
    """One hop per edge.

    Rejects `prose_relation` (no infobox states an edge, and the settings ask for rule-based writing).
    """
    hops = []
    for source, target, link in zip(walk.nodes[:-1], walk.nodes[1:], walk.links, strict=True):
        options = stated(facts, source, target)
        if options:
            hops.append(options[0])
            continue
        if not settings.fuzz.use_prose:
            return Rejection("relations", "prose_relation", f"{link.anchor}: {link.sentence}"[:300])
        titles = facts.page(source).title, facts.page(target).title
        page = facts.page(target)
        phrase = f"the {noun(page.infobox_type, page.domain)} linked from {{X}}"
        hops.append(PathHop(source=titles[0], target=titles[1], relation=link.anchor, direction="prose", phrase=phrase))
    return tuple(hops)


@lru_cache(maxsize=50_000)
def stated(facts: Facts, source: int, target: int) -> tuple[PathHop, ...]:
    """Every way in which an infobox states the edge, best first: few fits, then forward, then the order of the box."""
    forward = [i.key for i in facts.items(source) if i.target_id == target]
    inverse = [i.key for i in facts.items(target) if i.target_id == source]
    unsaid = table().never_asked
    ways: list[tuple[Direction, list[str]]] = [("forward", forward), ("inverse", inverse)]
    options = [
        _hop(facts, source, target, key, direction)
        for direction, keys in ways
        for key in dict.fromkeys(keys)
        if base_key(key) not in unsaid
    ]
    return tuple(sorted(options, key=lambda hop: len(matches(facts, [link_predicate(hop)])) > 1))


def link_predicate(hop: PathHop) -> Predicate:
    """What the hop says of its target, with its source bound.

    A `forward` key lies in the source's own infobox, which the predicate calls inverse (seen from the target).
    """
    return Predicate(kind="rel", key=hop.relation, value=hop.source, inverse=hop.direction == "forward")


def _hop(facts: Facts, source: int, target: int, key: str, direction: Direction) -> PathHop:
    page = facts.page(target)
    holder, named = (source, target) if direction == "forward" else (target, source)
    written = next(item.value for item in facts.items(holder) if (item.key, item.target_id) == (key, named))
    return PathHop(
        source=facts.page(source).title,
        target=page.title,
        relation=key,
        direction=direction,
        phrase=relation_phrase(key, direction, noun(page.infobox_type, page.domain)),
        written=written if written != facts.page(named).title else "",
    )
