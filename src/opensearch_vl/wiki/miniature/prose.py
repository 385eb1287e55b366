"""Sentences: the facts of the world in English, with anchors of every kind, one paragraph at a time."""

from __future__ import annotations

import random
import re
from collections.abc import Callable

from opensearch_vl.seeds import derive
from opensearch_vl.wiki.miniature import markup
from opensearch_vl.wiki.miniature.schema import Relation
from opensearch_vl.wiki.miniature.world import World

MENTION_SHARE = 0.85
"""Probability that a page speaks of an entity whose infobox names it: what makes "search the bridge's real name" a
shortcut, which fuzzing then closes (paper, section 3.3)."""
MAX_MENTIONS = 30
"""A page speaks of at most this many such entities."""
STATED_SHARE = 0.9
"""Probability that prose repeats a relation or literal of the infobox."""

_DATE = re.compile(r"(?P<day>\d{1,2} [A-Z][a-z]+) (?P<year>\d{4})$")


class Narrator:
    """Writes the sentences of one page.

    Args:
        world: The facts.
        entity: Whose page it is.
        rng: Random generator of the page.
    """

    def __init__(self, world: World, entity: int, rng: random.Random) -> None:
        self.world, self.entity, self.rng = world, entity, rng
        self.kind = world.kind(entity)
        self.literals = world.attributes_of(entity)

    def link(self, target: int, *, plain: bool = False) -> str:
        """A link to an entity: by its title, piped, through a redirect, or to a section; `plain` for infoboxes."""
        world, rng = self.world, self.rng
        title, name = world.titles[target], world.name(target)
        aliases = world.aliases.get(target, ())
        shown = name if title != name else None
        if aliases and rng.random() < (0.06 if plain else 0.12):
            alias = rng.choice(aliases).title
            return markup.link(alias) if rng.random() < 0.5 else markup.link(alias, name)
        if plain:
            return markup.link(title, shown)
        match rng.randrange(10):
            case 0:
                return markup.link(title, world.short(target))
            case 1:
                return markup.link(title.replace(" ", "_"), name)
            case 2:
                return markup.link(title, name, "History")
            case 3:
                return markup.link(title, f"the {world.kind(target).name} {name}")
            case _:
                return markup.link(title, shown)

    def sentence(self, form: str, *, target: str = "", value: str = "", named: bool = False) -> str:
        """One of `form`'s sentences filled in, opening with the name (`named`) or perhaps with a pronoun."""
        subject = self.subject(named)
        text = form.format(s=subject, n=self.world.short(self.entity), t=target, v=value)
        text = text[0].upper() + text[1:] + "."
        if self.rng.random() < 0.15:
            text += markup.reference(self.rng, self.world.year(self.entity))
        return text

    def subject(self, named: bool = False) -> str:
        """How a sentence calls the page's entity."""
        if named or self.rng.random() < 0.4:
            return self.world.name(self.entity)
        if self.kind.domain == "Person":
            return "She" if self.world.female[self.entity] else "He"
        return self.rng.choice(("It", f"The {self.kind.name}"))

    def date(self, text: str) -> str:
        """A value for prose: the year of a date becomes a link about half of the time."""
        match = _DATE.match(text)
        if match is None or self.rng.random() < 0.5:
            return text
        title, shown = self.world.hubs.year_link(int(match["year"]))
        return f"{match['day']} {markup.link(title, shown)}"

    def relations(self) -> list[str]:
        """Sentences on what the infobox relates the entity to."""
        spoken = [pair for pair in self.world.relations_of(self.entity) if self.rng.random() < STATED_SHARE]
        grouped: dict[str, tuple[Relation, list[str]]] = {}
        for relation, target in spoken:
            grouped.setdefault(relation.key, (relation, []))[1].append(self.link(target))
        return [
            self.sentence(self.rng.choice(relation.forward), target=markup.enumeration(links))
            for relation, links in grouped.values()
        ]

    def attributes(self) -> list[str]:
        """Sentences on the literals of the infobox."""
        return [
            self.sentence(attribute.prose, value=self.date(value.plain))
            for attribute, value in self.literals
            if attribute.prose and self.rng.random() < STATED_SHARE
        ]

    def mentions(self) -> list[str]:
        """Sentences on the entities whose infobox names this one: the way back along a relation."""
        grouped: dict[tuple[str, ...], tuple[Relation, list[int]]] = {}
        for relation, source in self.world.mentions_of(self.entity)[:MAX_MENTIONS]:
            if mentioned(self.world, source, self.entity):
                grouped.setdefault(relation.backward, (relation, []))[1].append(source)
        sentences = []
        for relation, sources in grouped.values():
            for first in range(0, len(sources), 4):
                links = [self.link(source) for source in sources[first : first + 4]]
                sentences.append(
                    self.sentence(self.rng.choice(relation.backward), target=markup.enumeration(links), named=first > 0)
                )
        return sentences

    def filler(self, number: int) -> list[str]:
        """Sentences without facts."""
        chosen = self.rng.sample(self.kind.filler, min(number, len(self.kind.filler)))
        return [self.sentence(text) for text in chosen]


def mentioned(world: World, source: int, target: int) -> bool:
    """Whether the page of `target` speaks of `source`; depends on the pair only, not on when a page is written."""
    return derive(world.seed, "mention", source, target) < MENTION_SHARE * 2**63


def paragraphs(sentences: list[str], rng: random.Random, open_with: Callable[[], str] | None = None) -> list[str]:
    """Sentences in paragraphs of two to four, in order."""
    out, at = [], 0
    while at < len(sentences):
        size = rng.randint(2, 4)
        out.append(" ".join(sentences[at : at + size]))
        at += size
    if open_with is not None and out:
        out[0] = open_with() + " " + out[0]
    return out
