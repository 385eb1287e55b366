"""The vocabulary of the tables in `kinds_*.py`: what an entity kind, a relation and an attribute are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from opensearch_vl.wiki.miniature.values import Maker

Domain = Literal["Person", "Building", "Location", "Organism", "Artifact", ""]


@dataclass(frozen=True, slots=True)
class Relation:
    """A typed edge: the source's infobox states `key` = link to the target, and both pages speak of it.

    Args:
        key: Parameter of the source's infobox template.
        tag: Kinds carrying this tag can be targets.
        share: Probability that a source has the relation.
        forward: Sentences of the source's page; {s} opens the sentence as its subject, {n} is the source's name inside
            it, {t} the target's link.
        backward: Sentences of the target's page; {s} is the target, {t} one source or several ("A, B and C"), so they
            must not care about number.
        inverse: Parameter of the target's infobox that lists the sources, "" for none.
        at_most: Number of targets a source can have; 1 makes the relation functional.
        mutual: The relation holds both ways (spouses): the target's infobox states the same key.
        exclusive: No two sources share a target (a successor has one predecessor).
    """

    key: str
    tag: str
    share: float
    forward: tuple[str, ...]
    backward: tuple[str, ...]
    inverse: str = ""
    at_most: int = 1
    mutual: bool = False
    exclusive: bool = False


@dataclass(frozen=True, slots=True)
class Attribute:
    """A literal of the infobox and its prose ({s}, {n} as in `Relation`, {v} the value; "" for no sentence)."""

    key: str
    make: Maker
    share: float = 0.9
    prose: str = ""


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of entity.

    Args:
        name: Its common noun, e.g. "lighthouse".
        domain: Seed domain of the recipe, "" for bridges that are never pictured.
        weight: Relative frequency.
        template: Infobox template as on English Wikipedia.
        tags: What relations call it.
        title: How a title is made from a coined stem ({}), or "person".
        pictured: Share of its entities with a picture.
        drawings: Painters of `pictures` that can draw it.
        professions: Hub pages a person of this kind links to.
        relations: Outgoing relations.
        attributes: Literals.
        filler: Sentences without facts, for length ({s}, {n}).
    """

    name: str
    domain: Domain
    weight: float
    template: str
    tags: tuple[str, ...]
    title: tuple[str, ...]
    pictured: float
    drawings: tuple[str, ...]
    relations: tuple[Relation, ...]
    attributes: tuple[Attribute, ...]
    filler: tuple[str, ...]
    professions: tuple[str, ...] = ()

    @property
    def plural(self) -> str:
        """The noun's plural."""
        if self.name == "fish":
            return "fish"
        if self.name.endswith("y") and self.name[-2] not in "aeiou":
            return self.name[:-1] + "ies"
        return self.name + ("es" if self.name.endswith(("ch", "x")) else "s")

    @property
    def a_noun(self) -> str:
        """The noun with its article: ``"an island"``."""
        return f"{'an' if self.name[0] in 'aeio' else 'a'} {self.name}"


def relation(
    key: str,
    tag: str,
    share: float,
    forward: str,
    backward: str,
    inverse: str = "",
    at_most: int = 1,
    mutual: bool = False,
    exclusive: bool = False,
) -> Relation:
    """A `Relation` whose sentences are written in one string, separated by ``|``."""
    return Relation(
        key, tag, share, tuple(forward.split("|")), tuple(backward.split("|")), inverse, at_most, mutual, exclusive
    )
