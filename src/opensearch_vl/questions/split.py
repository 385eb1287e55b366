"""Disjoint sets of questions: no entity of a question in one set occurs in a question of another (paper, section 3.8).

The paper's 8,000 questions for reinforcement learning are disjoint from those of fine-tuning. Disjoint by question is
too little: two questions over one path give each other's evidence away, so sets are kept apart by *entity*.

Questions are hyperedges over entities. Nearly all of them hang together through a few hubs, so whole connected
components can hardly ever be dealt out; instead every entity is given to one side, and a question with entities on both
sides belongs to neither and is dropped. What is wanted is an assignment that drops few: a set is grown from a start
question by absorbing, again and again, the question that breaks fewest of those still intact, then improved by moving
single questions over, from several starts.
"""

from __future__ import annotations

import heapq
import random
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from opensearch_vl.errors import DataError
from opensearch_vl.seeds import generator
from opensearch_vl.text import normalise_answer
from opensearch_vl.types import Task

BETWEEN, SURPLUS = "between_sets", "surplus"
MAX_PASSES = 6
"""Rounds of improvement; on the miniature nothing changes after the third."""
MAX_TOUCHED = 4_000
"""A move that would touch more questions than this is not tried: hubs stay where growing put them."""


@dataclass(frozen=True, slots=True)
class Dropped:
    """A question that is in no set.

    Attributes:
        index: Its place among the tasks given.
        reason: `between_sets` (its entities lie on both sides) or `surplus` (its set was full).
        inside: Its entities on the side of the set that was being carved out.
        outside: Its entities on the other side.
    """

    index: int
    reason: str
    inside: tuple[str, ...]
    outside: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Split:
    """Disjoint sets, as places among the tasks given, in their order.

    Attributes:
        sets: Members by name of the set.
        dropped: Everything else.
        largest: Size of the largest group of questions that hang together through shared entities.
    """

    sets: dict[str, tuple[int, ...]]
    dropped: tuple[Dropped, ...]
    largest: int

    def reasons(self) -> dict[str, int]:
        """Dropped questions by reason."""
        return dict(sorted(Counter(lost.reason for lost in self.dropped).items()))

    def bridges(self, num: int = 10) -> list[tuple[str, int]]:
        """The entities that occur in most of the questions dropped between sets, with how many."""
        counts: Counter[str] = Counter()
        for lost in self.dropped:
            if lost.reason == BETWEEN:
                counts.update((*lost.inside, *lost.outside))
        return sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))[:num]


MAX_LOSS = 0.1
"""Share of the questions that may be dropped for sets that are alike in how their questions hang together."""


def entities(task: Task, *, named: bool = False) -> frozenset[str]:
    """What a question must not share with one of another set.

    All pages of its path, and its pictures, by content and by file (a degraded picture has other content than the
    original). A question of another corpus has no path: there its answers stand for it.

    Args:
        task: The question.
        named: Add the pages that only a description names, such as an occupation or a country. They are words of the
            question rather than stops on the way to its answer, and hubs: apart as well, three times as many questions
            are dropped (docs/log.md).
    """
    known = task.provenance
    titles = {*known.path, *(hop.source for hop in known.hops), *(hop.target for hop in known.hops)}
    titles |= {descriptor.entity for descriptor in known.descriptors}
    if named:
        titles |= {p.value for descriptor in known.descriptors for p in descriptor.predicates if p.kind == "rel"}
    if not known.path:
        titles |= {task.gold.answer, *task.gold.aliases}
    found = {f"entity:{normalise_answer(title) or title.strip()}" for title in titles if title.strip()}
    found |= {f"picture:{image.sha256}" for image in task.images}
    if known.picture is not None:
        found |= {f"file:{known.picture.file}", f"entity:{normalise_answer(known.picture.page) or known.picture.page}"}
    return frozenset(found or {f"question:{task.id}"})


def split_by_entity(
    tasks: Sequence[Task], sizes: Mapping[str, int], *, rest: str, seed: int, named: bool = False
) -> Split:
    """Carve sets of given sizes out of the tasks, one after another; what stays intact is the set `rest`.

    Args:
        tasks: The questions.
        sizes: Exact size by name of the set.
        rest: Name of the remaining set.
        seed: Same seed, same sets.
        named: As in `entities`.

    Raises:
        DataError: If there are fewer tasks than the sizes ask for, or a set cannot be filled because its questions were
            dropped for an earlier one.
    """
    if sum(sizes.values()) > len(tasks):
        raise DataError(f"There are {len(tasks)} questions, fewer than the {sum(sizes.values())} asked for.")
    names = [sorted(entities(task, named=named)) for task in tasks]
    numbers = {name: n for n, name in enumerate(sorted({name for own in names for name in own}))}
    graph = [[numbers[name] for name in own] for own in names]
    left = list(range(len(tasks)))
    sets: dict[str, tuple[int, ...]] = {}
    dropped: list[Dropped] = []
    largest = max((len(group) for group in _components(graph, left)), default=0)
    for name, wanted in sizes.items():
        if wanted > len(left):
            raise DataError(
                f"Only {len(left)} questions are left for the set {name!r} of {wanted}: "
                f"{len(dropped)} were dropped between the sets before it.",
                "Ask for smaller sets.",
            )
        side = _carve(graph, left, wanted, generator(seed, "split", name))
        inside = [task for task in left if side.whole(task)]
        surplus = set(generator(seed, "surplus", name).sample(inside, len(inside) - wanted))
        sets[name] = tuple(task for task in inside if task not in surplus)
        for task in left:
            if task in surplus or side.broken(task):
                mine = tuple(own for own in names[task] if side.inside[numbers[own]])
                others = tuple(own for own in names[task] if not side.inside[numbers[own]])
                dropped.append(Dropped(task, SURPLUS if task in surplus else BETWEEN, mine, others))
        left = [task for task in left if side.count[task] == 0]
    sets[rest] = tuple(left)
    return Split(sets, tuple(sorted(dropped, key=lambda lost: lost.index)), largest)


class _Side:
    """Which entities are inside, and what that makes of every question; moves can be undone."""

    def __init__(self, graph: Sequence[Sequence[int]], tasks: Sequence[int]) -> None:
        self.graph = graph
        self.members: defaultdict[int, list[int]] = defaultdict(list)
        for task in tasks:
            for entity in graph[task]:
                self.members[entity].append(task)
        self.inside: defaultdict[int, bool] = defaultdict(bool)
        self.count = dict.fromkeys(tasks, 0)
        self.intact = {entity: len(own) for entity, own in self.members.items()}
        self.num_whole, self.num_intact = 0, len(self.count)

    def whole(self, task: int) -> bool:
        return 0 < self.count[task] == len(self.graph[task])

    def broken(self, task: int) -> bool:
        return 0 < self.count[task] < len(self.graph[task])

    def missing(self, task: int, inside: bool) -> list[int]:
        """The entities that would have to change sides for the question to be wholly in, or wholly out."""
        return [entity for entity in self.graph[task] if self.inside[entity] != inside]

    def flip(self, entity: int) -> None:
        """Move an entity to the other side."""
        entering = not self.inside[entity]
        self.inside[entity] = entering
        for task in self.members[entity]:
            before = self.count[task]
            after = self.count[task] = before + (1 if entering else -1)
            size = len(self.graph[task])
            self.num_whole += (after == size) - (before == size)
            change = (after == 0) - (before == 0)
            if change:
                self.num_intact += change
                for other in self.graph[task]:
                    self.intact[other] += change

    def take(self, groups: Sequence[Sequence[int]]) -> None:
        """Move whole components in."""
        for group in groups:
            for task in group:
                for entity in self.missing(task, inside=True):
                    self.flip(entity)

    def cost(self, task: int) -> int:
        """How many intact questions absorbing this one touches, counted once per entity."""
        return sum(self.intact[entity] for entity in self.missing(task, inside=True))

    def grow(self, start: int, wanted: int, rng: random.Random) -> None:
        """Absorb questions from `start` on until `wanted` are whole."""
        heap: list[tuple[int, float, int]] = [(0, 0.0, start)]
        while heap and self.num_whole < wanted:
            stored, _, task = heapq.heappop(heap)
            flips = self.missing(task, inside=True)
            if not flips:
                continue
            if task != start and (now := self.cost(task)) > stored:
                heapq.heappush(heap, (now, rng.random(), task))
                continue
            for entity in flips:
                self.flip(entity)
            for touched in {other for entity in flips for other in self.members[entity]}:
                if self.broken(touched):
                    heapq.heappush(heap, (self.cost(touched), rng.random(), touched))

    def improve(self, tasks: Sequence[int], wanted: int, rng: random.Random) -> None:
        """Move broken questions wholly in or out wherever that leaves more questions usable."""
        for _ in range(MAX_PASSES):
            before = self.usable(wanted)
            broken = [task for task in tasks if self.broken(task)]
            rng.shuffle(broken)
            for task in broken:
                for inside in (False, True):
                    self._try(self.missing(task, inside), wanted)
            if self.usable(wanted) == before:
                return

    def usable(self, wanted: int) -> int:
        """How many questions end up in a set."""
        return min(self.num_whole, wanted) + self.num_intact

    def _try(self, flips: list[int], wanted: int) -> None:
        if not flips or sum(len(self.members[entity]) for entity in flips) > MAX_TOUCHED:
            return
        before = self.usable(wanted)
        for entity in flips:
            self.flip(entity)
        if self.num_whole < wanted or self.usable(wanted) <= before:
            for entity in flips:
                self.flip(entity)


def _carve(graph: Sequence[Sequence[int]], tasks: Sequence[int], wanted: int, rng: random.Random) -> _Side:
    """The side that holds at least `wanted` whole questions and breaks few.

    Taking whole components breaks none, but those outside the largest are the odd ones: a set of them alone is unlike
    what remains. So they give their share only, and the largest component is cut for the rest, unless that costs more
    than `MAX_LOSS`.
    """
    groups = _components(graph, tasks)
    rng.shuffle(groups)
    largest = max(groups, key=len)
    others = [group for group in groups if group is not largest]
    share = round(wanted * sum(map(len, others)) / len(tasks))
    alike = _assemble(graph, tasks, wanted, _fitting(others, share), largest, rng)
    whole = _fitting(groups, wanted)
    left = [group for group in groups if all(group is not other for other in whole)]
    fewest = _assemble(graph, tasks, wanted, whole, min(left, key=len, default=[]), rng)
    close = alike.num_whole >= wanted and alike.usable(wanted) >= fewest.usable(wanted) - MAX_LOSS * len(tasks)
    return alike if close else fewest


def _fitting(groups: Sequence[list[int]], room: int) -> list[list[int]]:
    """Groups, in order, as far as they fit whole."""
    taken = []
    for group in groups:
        if len(group) <= room:
            taken.append(group)
            room -= len(group)
    return taken


def _assemble(
    graph: Sequence[Sequence[int]],
    tasks: Sequence[int],
    wanted: int,
    whole: Sequence[Sequence[int]],
    cut: Sequence[int],
    rng: random.Random,
) -> _Side:
    """The side of some whole components and as much of one more as is wanted, the best of several starts."""
    num_starts = 16 if len(cut) < 5_000 else 4 if len(cut) < 30_000 else 1
    full = sum(map(len, whole)) >= wanted
    starts = [None] if full else rng.sample(cut, min(len(cut), num_starts))
    best: _Side | None = None
    for start in starts:
        side = _Side(graph, tasks)
        side.take(whole)
        if start is not None:
            side.grow(start, wanted, rng)
            side.improve(cut, wanted, rng)
        if best is None or side.usable(wanted) > best.usable(wanted):
            best = side
    assert best is not None
    return best


def _components(graph: Sequence[Sequence[int]], tasks: Sequence[int]) -> list[list[int]]:
    """Groups of questions that hang together through shared entities, in the order of their first member."""
    parent: dict[int, int] = {}

    def root(entity: int) -> int:
        while parent.setdefault(entity, entity) != entity:
            parent[entity] = parent[parent[entity]]
            entity = parent[entity]
        return entity

    for task in tasks:
        for entity in graph[task][1:]:
            parent[root(entity)] = root(graph[task][0])
    groups: defaultdict[int, list[int]] = defaultdict(list)
    for task in tasks:
        groups[root(graph[task][0]) if graph[task] else -1 - task].append(task)
    return list(groups.values())
