"""Fuzzy entity rewriting: one entity at a time, from the bridge before the answer back to the anchor.

Paper, section 3.3. A name gives way to a descriptor *relative to the node before it*, so the whole chain hangs on the
picture: the relation of the hop, and where several entities fit it, attributes until exactly one is left. The count is
exact (`unique.matches`); a rewrite that leaves more than one is refused. An added attribute must be widely shared, so
that it cannot be searched for on its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from opensearch_vl.questions.compose import spoken_bridges
from opensearch_vl.questions.facts import Facts, same_value
from opensearch_vl.questions.phrases import Direction, base_key, narrowed, noun, relation_phrase, statement, table
from opensearch_vl.questions.relations import link_predicate
from opensearch_vl.questions.settings import FuzzSettings, QuestionSettings, pages_bound
from opensearch_vl.questions.stages import Rejection
from opensearch_vl.questions.unique import matches
from opensearch_vl.types import Descriptor, PathHop, Predicate
from opensearch_vl.wiki.tables import InfoboxItem
from opensearch_vl.wiki.walks import Walk

_MAX_STATED_TOKENS = 4


@dataclass(frozen=True, slots=True)
class Description:
    """How one entity is told relative to the node before it: a noun phrase with the slot ``{X}``, and its count.

    `matches` is None where only prose states the relation: not applicable.
    """

    phrase: str
    predicates: tuple[Predicate, ...]
    matches: int | None


def describe_path(
    facts: Facts, walk: Walk, hops: tuple[PathHop, ...], asked: str, settings: QuestionSettings
) -> tuple[Description, ...] | Rejection:
    """``[h]`` descriptions, one per hop, each fitting exactly one entity once the node before it is known.

    Args:
        facts: The wiki.
        walk: The path.
        hops: Its relations.
        settings: All rules.
        asked: The infobox key that is asked for; never used to describe the answer node.

    Rejects `not_unique`, `same_wording` (another key of the box would be spoken alike and points elsewhere) and
    `unlinked_alternative` (the key also names somebody without a page, whom no table can tell apart).
    """
    found = []
    for place, hop in enumerate(hops, 1):
        source, target = walk.nodes[place - 1], walk.nodes[place]
        if hop.direction == "prose":  # a writer must word it; no table can count it
            found.append(Description(hop.phrase, (), None))
            continue
        if trouble := _ambiguous_wording(facts, hop, source, target):
            return Rejection("fuzz", trouble, f"{hop.source}: {hop.relation}")
        hidden = asked if place == len(hops) else ""
        description = describe(facts, hop, target, walk.nodes, hidden, settings.fuzz)
        if description is None:
            return Rejection("fuzz", "not_unique", f"{hop.source}: {hop.relation}")
        found.append(description)
    return tuple(found)


def describe(
    facts: Facts, hop: PathHop, target: int, path: Sequence[int], hidden: str, settings: FuzzSettings
) -> Description | None:
    """The plainest description that fits exactly one entity, or None.

    Args:
        facts: The wiki.
        hop: The relation to start from.
        target: Page id of the entity.
        path: Pages that must not be named.
        hidden: A key that must not be stated.
        settings: How many attributes may be added, and how common they must be.
    """
    relation = link_predicate(hop)
    candidates = matches(facts, [relation])
    if candidates == (target,):
        return Description(hop.phrase, (relation,), 1)
    page = facts.page(target)
    kind, animate = noun(page.infobox_type, page.domain), page.domain == "Person"
    least = pages_bound(settings.min_shared, len(facts.wiki))
    stock = _stock(facts, target, path, {hidden, hop.relation}, least)
    for size in range(1, settings.max_attributes + 1):
        for chosen in combinations(stock, size):
            added = [predicate for predicate, _ in chosen]
            predicates = (relation, *added)
            if matches(facts, predicates) == (target,) and len(matches(facts, added)) >= least:
                clauses = [clause for _, clause in chosen]
                return Description(narrowed(hop.phrase, _way(hop), clauses, kind, animate), predicates, 1)
    return None


def describe_alone(facts: Facts, target: int, path: Sequence[int], most: int = 3) -> str | None:
    """A description by attributes alone that fits exactly one entity, or None: what the method forbids.

    It hangs on nothing before it, so whoever searches for it needs no picture. Only counterfactuals use it.

    Args:
        facts: The wiki.
        target: Page id of the entity.
        path: Pages that must not be named.
        most: How many attributes may be stated.
    """
    page = facts.page(target)
    stock = _stock(facts, target, path, set(), least=1)
    for size in range(1, most + 1):
        for chosen in combinations(stock, size):
            if matches(facts, [predicate for predicate, _ in chosen]) == (target,):
                return f"the {noun(page.infobox_type, page.domain)} {' and '.join(clause for _, clause in chosen)}"
    return None


def _way(hop: PathHop) -> Direction:
    return "inverse" if hop.direction == "inverse" else "forward"


def _stock(facts: Facts, target: int, path: Sequence[int], hidden: set[str], least: int) -> list[tuple[Predicate, str]]:
    """Attributes that may be added, shared by `least` pages or more, the least telling first."""
    counted = []
    for item in facts.items(target):
        key = base_key(item.key)
        if item.key in hidden or key in table().never_stated or key in table().never_asked:
            continue
        if not _speakable(facts, item, path):
            continue
        if item.target_id is None:
            predicate = Predicate(kind="attr", key=item.key, value=item.value)
            shared = len(facts.with_value(item.key, item.value))
        else:
            predicate = Predicate(kind="rel", key=item.key, value=facts.page(item.target_id).title)
            shared = len(facts.holders(item.key, item.target_id))
        if shared >= least:
            counted.append((-shared, item.key, item.value, predicate))
    animate = facts.page(target).domain == "Person"
    return [
        (predicate, statement(key, value, animate)) for _, key, value, predicate in sorted(counted, key=lambda c: c[:3])
    ]


def _speakable(facts: Facts, item: InfoboxItem, path: Sequence[int]) -> bool:
    if item.target_id in path or not 0 < len(item.value.split()) <= _MAX_STATED_TOKENS:
        return False
    value = f" {same_value(item.value)} "
    return not any(f" {same_value(name)} " in value for node in path for name in facts.names(node))


def _ambiguous_wording(facts: Facts, hop: PathHop, source: int, target: int) -> str:
    """Why the phrase alone could mean somebody else, or an empty text."""
    if hop.direction == "inverse":
        twins = (key for key in facts.keys_spoken_like(hop.relation) if key != hop.relation)
        return "same_wording" if any(int(x) != target for key in twins for x in facts.holders(key, source)) else ""
    wording = relation_phrase(hop.relation, "forward", "")
    for item in facts.items(source):
        if item.key == hop.relation:
            if item.target_id is None and any(ch.isalpha() for ch in item.value):
                return "unlinked_alternative"
        elif item.target_id not in (None, target) and relation_phrase(item.key, "forward", "") == wording:
            return "same_wording"
    return ""


@dataclass(frozen=True, slots=True)
class Rewrite:
    """The partly rewritten question after one entity gave way to its descriptor."""

    question: str
    descriptor: Descriptor


def rewrite(question: str, hops: tuple[PathHop, ...], descriptions: tuple[Description, ...]) -> tuple[Rewrite, ...]:
    """Replace the bridges' names in the canonical question, ``v(h-1)`` first and ``v1`` last.

    The canonical question reads "… of Ann Roe (the architect of Foo Hall)"; rewriting Ann Roe leaves
    "… of the architect of Foo Hall". The anchor's own name stays; grounding replaces it.
    """
    steps = []
    spoken = spoken_bridges(hops)
    for place in range(len(hops) - 1, 0, -1):
        hop, description = hops[place - 1], descriptions[place - 1]
        plain = description.phrase.replace("{X}", spoken[place - 1])
        question = question.replace(spoken[place], plain, 1)
        descriptor = Descriptor(
            entity=hop.target, phrase=plain, predicates=description.predicates, matches=description.matches
        )
        steps.append(Rewrite(question, descriptor))
    return tuple(steps)
