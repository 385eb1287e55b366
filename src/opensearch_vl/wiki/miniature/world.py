"""The facts of the fictional world: which entities there are, what they are called, and how they are related.

Only names and edges are kept in memory (about 300 bytes an entity); attribute values are recomputed from the seed when
a page is written, so a million pages fit on a laptop. Entities live on a line: neighbours on it share country and
generation, and relations reach a few hundred places far, which makes the world coherent (an architect is active when
the house is built) without making it a small clique.
"""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from opensearch_vl.seeds import generator
from opensearch_vl.wiki.miniature import names
from opensearch_vl.wiki.miniature.hubs import Hubs
from opensearch_vl.wiki.miniature.kinds import FIRST_RELATION, KINDS, RELATIONS, kinds_with
from opensearch_vl.wiki.miniature.schema import Attribute, Kind, Relation
from opensearch_vl.wiki.miniature.values import Context, Value

REACH = 120.0
"""Standard deviation of the distance between related entities on the line."""
GENERATIONS = 960
"""Entities after which the calendar has swung from the first year to the last and back."""
PROMINENCE = ((0.03, 512), (0.10, 64), (0.30, 8))
"""(probability, m): the target is moved to a place divisible by m, so that in-degrees have a heavy tail."""
STUB_SHARE = 0.04
"""Entities whose page has neither infobox nor relations."""


@dataclass(frozen=True, slots=True)
class Alias:
    """A redirect: its title, what it points at (another alias in a chain), and whether the lead shows it in bold."""

    title: str
    target: str
    shown: bool


class World:
    """All entities `0..N-1` with their names and relations.

    Args:
        num_entities: N.
        num_shared: Surnames that several persons share; each gets a disambiguation page.
        seed: Everything derives from it.
        hubs: The hub pages, whose titles are taken before any entity is named.
    """

    def __init__(self, num_entities: int, num_shared: int, seed: int, hubs: Hubs) -> None:
        self.seed = seed
        self.hubs = hubs
        self.num_entities = num_entities
        self.titles: list[str] = []
        self.stems: list[str] = []
        self.aliases: dict[int, tuple[Alias, ...]] = {}
        self.native: dict[int, str] = {}
        self.shared: dict[str, list[int]] = {}
        self._taken = {title.casefold() for title in hubs.titles()}
        rng = generator(seed, "world")
        weights = [kind.weight for kind in KINDS]
        self.kind_of = bytearray(rng.choices(range(len(KINDS)), weights, k=num_entities))
        self._ensure_every_kind()
        self.female = bytearray(rng.getrandbits(1) for _ in range(num_entities))
        self.stub = bytearray(int(rng.random() < STUB_SHARE) for _ in range(num_entities))
        self._name_all(rng, num_shared)
        self._relate_all(rng)

    def _ensure_every_kind(self) -> None:
        """Even the smallest world has two entities of every kind that relations need, spread over the line."""
        missing = [place for place in range(len(KINDS)) for _ in range(max(0, 2 - self.kind_of.count(place)))]
        counts = np.bincount(np.frombuffer(self.kind_of, dtype=np.uint8), minlength=len(KINDS))
        for nth, place in enumerate(missing):
            at = (nth * 7) % self.num_entities
            while counts[self.kind_of[at]] <= 2:
                at = (at + 1) % self.num_entities
            counts[self.kind_of[at]] -= 1
            counts[place] += 1
            self.kind_of[at] = place

    # -- places on the line ------------------------------------------------------------------------------------------

    def kind(self, entity: int) -> Kind:
        """The entity's kind."""
        return KINDS[self.kind_of[entity]]

    def country(self, entity: int) -> int:
        """Number of the entity's country in `Hubs.countries`."""
        return self.hubs.country_at(entity / self.num_entities)

    def year(self, entity: int) -> int:
        """The year the entity belongs to: a person's prime, a building's opening."""
        first, last = self.hubs.calendar
        phase = (entity % GENERATIONS) / GENERATIONS
        return first + round((last - first) * (1 - abs(2 * phase - 1)))

    def language(self, entity: int) -> names.Language:
        """The language its name is coined in."""
        return self.hubs.countries[self.country(entity)].language

    # -- names -------------------------------------------------------------------------------------------------------

    def name(self, entity: int) -> str:
        """The title without the parenthesis that tells namesakes apart."""
        return self.titles[entity].split(" (")[0]

    def short(self, entity: int) -> str:
        """A person's surname, otherwise the name."""
        return self.stems[entity] if self.kind(entity).domain == "Person" else self.name(entity)

    def _claim(self, title: str) -> bool:
        key = title.casefold()
        if key in self._taken:
            return False
        self._taken.add(key)
        return True

    def _name_all(self, rng: random.Random, num_shared: int) -> None:
        people = [entity for entity in range(self.num_entities) if self.kind(entity).domain == "Person"]
        shared_by: dict[int, str] = {}
        while len(self.shared) < num_shared:
            first = rng.randrange(len(people))
            word = names.surname(rng, self.language(people[first]))
            group = sorted({people[(first + step * 3) % len(people)] for step in range(rng.randint(2, 4))})
            free = [entity for entity in group if entity not in shared_by]
            if len(free) < 2 or not self._claim(word):
                continue
            self.shared[word] = free
            shared_by.update(dict.fromkeys(free, word))
        towns: list[str] = []
        for entity in range(self.num_entities):
            kind, language = self.kind(entity), self.language(entity)
            while True:
                if kind.domain == "Person":
                    stem = shared_by.get(entity) or names.surname(rng, language, rng.choice((1, 2, 2)))
                    title = f"{names.given(rng, language, bool(self.female[entity]))} {stem}"
                    if rng.random() < 0.04:
                        title += f" ({rng.choice(kind.professions)})"
                else:
                    pattern = rng.choice(kind.title)
                    stem = names.place(rng, language, rng.choice((1, 2)))
                    title = pattern.format(stem)
                    if title == stem and kind.name == "town":
                        towns.append(stem)
                    elif towns and rng.random() < 0.05:
                        stem = rng.choice(towns[-40:])
                        title = f"{stem} ({kind.name})"
                if self._claim(title):
                    break
            self.titles.append(title)
            self.stems.append(stem)
            self._alias(rng, entity, kind, language)

    def _alias(self, rng: random.Random, entity: int, kind: Kind, language: names.Language) -> None:
        """Redirects: plain spelling, initials, former names (in chains), misspellings, the second script."""
        title, name = self.titles[entity], self.name(entity)
        wanted: list[tuple[str, bool]] = []
        if kind.domain == "Person":
            if rng.random() < 0.3:
                wanted.append((f"{name[0]}. {self.stems[entity]}", False))
            if rng.random() < 0.2:
                wanted.append((names.given(rng, language, bool(self.female[entity])) + " " + name, True))
        elif rng.random() < 0.3:
            wanted.append((rng.choice(kind.title).format(names.place(rng, language)), True))
            if rng.random() < 0.3:
                wanted.append((rng.choice(kind.title).format(names.place(rng, language)), True))
        if language.script != "Latin" and rng.random() < 0.5:
            own = name if kind.domain == "Person" else self.stems[entity]
            self.native[entity] = names.transliterate(own, language.script)
            wanted.append((self.native[entity], True))
        if names.ascii_title(title) != title:
            wanted.append((names.ascii_title(title), False))
        if rng.random() < 0.14:
            wanted.append((names.misspell(rng, name), False))
        free = [(alias, shown) for alias, shown in wanted if self._claim(alias)]
        chained = len(free) > 1 and rng.random() < 0.4
        self.aliases[entity] = tuple(
            Alias(alias, free[0][0] if chained and nth == len(free) - 1 else title, shown)
            for nth, (alias, shown) in enumerate(free)
        )
        if not free:
            del self.aliases[entity]

    # -- relations ---------------------------------------------------------------------------------------------------

    def _relate_all(self, rng: random.Random) -> None:
        by_kind: list[list[int]] = [[] for _ in KINDS]
        for entity in range(self.num_entities):
            by_kind[self.kind_of[entity]].append(entity)
        members = {
            tag: sorted(entity for place in kinds_with(tag) for entity in by_kind[place])
            for tag in sorted({relation.tag for _, relation in RELATIONS})
        }
        used: dict[int, set[int]] = {}
        edges: list[int] = []  # source, relation, target, source, relation, …: flat, because there are millions
        for entity in range(self.num_entities):
            if self.stub[entity]:
                continue
            chosen: set[int] = {entity}
            first = FIRST_RELATION[self.kind_of[entity]]
            for nth, relation in enumerate(KINDS[self.kind_of[entity]].relations):
                if rng.random() >= relation.share:
                    continue
                taken = used.setdefault(_slot(first + nth, relation), set()) if relation.exclusive else set()
                if relation.mutual and entity in taken:
                    continue
                for _ in range(1 if relation.at_most == 1 else rng.randint(1, relation.at_most)):
                    target = self._pick(rng, entity, members[relation.tag], chosen, taken)
                    if target is None:
                        continue
                    chosen.add(target)
                    edges += (entity, first + nth, target)
                    if relation.exclusive:
                        taken.add(target)
                    if relation.mutual:
                        taken.add(entity)
                        if not self.stub[target]:
                            back = FIRST_RELATION[self.kind_of[target]] + _place_of(relation, self.kind(target))
                            edges += (target, back, entity)
        table = np.array(edges, dtype=np.int32).reshape(-1, 3)
        self._forward = table[np.argsort(table[:, 0], kind="stable")]
        self._backward = table[np.argsort(table[:, 2], kind="stable")]
        places = np.arange(self.num_entities + 1)
        self._forward_at = np.searchsorted(self._forward[:, 0], places)
        self._backward_at = np.searchsorted(self._backward[:, 2], places)

    def _pick(
        self, rng: random.Random, entity: int, candidates: list[int], chosen: set[int], taken: set[int]
    ) -> int | None:
        for _ in range(8):
            at = bisect_left(candidates, entity + rng.gauss(0.0, min(REACH, self.num_entities / 6)))
            luck = rng.random()
            for share, step in PROMINENCE:
                if luck < share and len(candidates) >= 4 * step:
                    at -= at % step
                    break
            target = candidates[min(max(at, 0), len(candidates) - 1)]
            if target not in chosen and target not in taken:
                return target
        return None

    def relations_of(self, entity: int) -> list[tuple[Relation, int]]:
        """(relation, target) in infobox order."""
        rows = self._forward[self._forward_at[entity] : self._forward_at[entity + 1]]
        return sorted(
            ((RELATIONS[number][1], target) for _, number, target in rows.tolist()), key=lambda pair: pair[0].key
        )

    def mentions_of(self, entity: int) -> list[tuple[Relation, int]]:
        """(relation, source) of every relation whose target the entity is, mutual ones left out."""
        rows = self._backward[self._backward_at[entity] : self._backward_at[entity + 1]]
        return [
            (RELATIONS[number][1], source)
            for source, number, _ in rows.tolist()
            if not RELATIONS[number][1].mutual or self.stub[entity]
        ]

    @cached_property
    def edges(self) -> npt.NDArray[np.int32]:
        """All relations as rows (source, number in `RELATIONS`, target): int32 [E, 3]."""
        return self._forward

    def attributes_of(self, entity: int) -> list[tuple[Attribute, Value]]:
        """The literals its infobox states; recomputed, always the same."""
        rng = generator(self.seed, "attributes", entity)
        context = Context(self.year(entity), self.language(entity), self.stems[entity])
        return [
            (attribute, attribute.make(rng, context))
            for attribute in self.kind(entity).attributes
            if rng.random() < attribute.share
        ]

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.num_entities))


def _slot(number: int, relation: Relation) -> int:
    """Spouses of all kinds of persons share one register; any other relation has its own."""
    return -1 if relation.mutual else number


def _place_of(relation: Relation, kind: Kind) -> int:
    return kind.relations.index(relation)
