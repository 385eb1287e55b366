"""Constrained random walks over the page graph: the backbone of every question (paper, section 3.1).

From a seed `v0`, ``h ∈ {2, 3, 4}`` hops to `vh`. A neighbour that breaks a rule is left out of its step; a step with
no neighbour left fails the walk, which is retried; after `max_retries` retries the seed is dropped. Every neighbour
left out and every failure is counted by reason. The choices made at a seed page depend on it and the run's seed alone.

One rule is ours: no *chord*. `vh` must neither be linked from `v0` nor link to it, since one image search (which finds
`v0`) and one hop would then reach the answer.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache, partial
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from opensearch_vl.seeds import derive
from opensearch_vl.wiki.rules import WalkRules, eligible_seeds, excluded_prefixes, resolve_rules, thresholds
from opensearch_vl.wiki.schema import INFOBOX_SECTION, LinkRow
from opensearch_vl.wiki.tables import WikiFolder

__all__ = [
    "BLOCKS",
    "Dropped",
    "Graph",
    "Walk",
    "WalkRules",
    "draw_hops",
    "eligible_seeds",
    "resolve_rules",
    "sample_walks",
    "walks_by_seed",
    "stated_edges",
    "try_walk",
    "walk_graph",
]


@dataclass(frozen=True, slots=True)
class Walk:
    """An accepted walk ``v0 … vh``.

    Attributes:
        nodes: ``[h+1]`` page ids.
        links: ``[h]`` the link that stands for each edge: one from the infobox if there is one, else the first.
        seed: Seed of the generator that drew it.
        domain: Domain of `v0`.
        retries: Tries that failed before this one.
        reasons: Neighbours left out and failed tries, by reason, over all tries.
    """

    nodes: tuple[int, ...]
    links: tuple[LinkRow, ...]
    seed: int
    domain: str
    retries: int = 0
    reasons: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class Dropped:
    """A seed none of whose tries was accepted, and why they failed."""

    seed_page: int
    reasons: Counter[str]


@dataclass(frozen=True)
class Graph:
    """What a walk needs to know of the graph.

    Attributes:
        indptr: ``[N+1]`` row pointers.
        indices: ``[E]`` out-neighbours, ascending within a row.
        blocked: ``[N]`` 0 where a page may be visited, else the number of a reason in `BLOCKS`.
        stated: ``[E]`` whether an infobox states the edge, where walks keep to such edges; None where they follow all.
    """

    indptr: npt.NDArray[np.int64]
    indices: npt.NDArray[np.int32]
    blocked: npt.NDArray[np.int8]
    stated: npt.NDArray[np.bool_] | None = None

    def row(self, node: int) -> npt.NDArray[np.int32]:
        """Out-neighbours of a node."""
        return self.indices[self.indptr[node] : self.indptr[node + 1]]

    def steps(self, node: int) -> npt.NDArray[np.int32]:
        """Out-neighbours that a walk may step to as far as the edge is concerned."""
        row = self.row(node)
        return row if self.stated is None else row[self.stated[self.indptr[node] : self.indptr[node + 1]]]

    def has_edge(self, source: int, target: int) -> bool:
        """Whether `source` links to `target`."""
        row = self.row(source)
        place = row.searchsorted(target)  # the method: `np.searchsorted` takes longer to arrive here than this takes
        return bool(place < len(row) and row[place] == target)


_CACHED_LINKS = 50_000
"""Links kept at hand, about 0.5 kB each: reading one takes longer than all the rest of a walk."""

BLOCKS = ("", "disambiguation", "list", "excluded_prefix", "hub")
"""Why a page is never visited; `Graph.blocked` holds indexes into this."""


# ----------------------------------------------------------------------------------------- the pure walk


def try_walk(
    graph: Graph, start: int, hops: int, rng: random.Random, reasons: Counter[str], *, no_chord: bool = True
) -> tuple[int, ...] | None:
    """One try: a path of `hops` edges without repeated or blocked pages, or None if a step had no neighbour left.

    Each step draws uniformly among the neighbours that keep every rule; those that do not are counted in `reasons`.
    """
    path = [start]
    for hop in range(1, hops + 1):
        allowed: list[int] = []
        steps = graph.steps(path[-1])
        if unstated := len(graph.row(path[-1])) - len(steps):
            reasons["skip_unstated"] += unstated
        for neighbour in steps.tolist():
            why = _breaks(graph, path, neighbour, last=hop == hops and no_chord)
            if why:
                reasons[f"skip_{why}"] += 1
            else:
                allowed.append(neighbour)
        if not allowed:
            reasons["no_neighbour"] += 1
            return None
        path.append(allowed[rng.randrange(len(allowed))])
    return tuple(path)


def _breaks(graph: Graph, path: list[int], node: int, *, last: bool) -> str:
    if node in path:
        return "cycle"
    if graph.blocked[node]:
        return BLOCKS[graph.blocked[node]]
    if last and (graph.has_edge(path[0], node) or graph.has_edge(node, path[0])):
        return "chord"
    return ""


def draw_hops(probs: tuple[float, float, float], rng: random.Random) -> int:
    """2, 3 or 4 with the given probabilities."""
    return rng.choices((2, 3, 4), weights=probs)[0]


def walk_graph(wiki: WikiFolder, rules: WalkRules) -> Graph:
    """The wiki's graph with the pages marked that the rules never visit."""
    hub, _, _ = thresholds(rules)
    prefixes = excluded_prefixes(wiki, rules)
    blocked = np.zeros(len(wiki), dtype=np.int8)
    blocked[wiki.in_degrees() > hub] = BLOCKS.index("hub")
    for page_id, (kind, title) in enumerate(zip(wiki.column("kind"), wiki.column("title"), strict=True)):
        if kind in BLOCKS:
            blocked[page_id] = BLOCKS.index(kind)
        elif title.startswith(prefixes):
            blocked[page_id] = BLOCKS.index("excluded_prefix")
    plain = np.asarray(wiki.indptr), np.asarray(wiki.indices)  # still mapped, without what a memmap does at every slice
    return Graph(*plain, blocked, stated_edges(wiki) if rules.edges == "stated" else None)


def stated_edges(wiki: WikiFolder) -> npt.NDArray[np.bool_]:
    """``[E]`` whether an infobox states the edge: the source's own by a value naming the target, or the target's.

    Needs 8 bytes per edge while it works.
    """
    connection = wiki.sql()
    try:
        query = "SELECT page_id, target_id FROM infobox WHERE target_id IS NOT NULL"
        pairs = connection.execute(query).fetchnumpy()
    finally:
        connection.close()
    holders, values = (np.asarray(pairs[name], dtype=np.int64) for name in ("page_id", "target_id"))
    size = len(wiki)
    sources = np.repeat(np.arange(size, dtype=np.int64), np.diff(wiki.indptr))
    return np.isin(sources * size + wiki.indices, np.concatenate((holders * size + values, values * size + holders)))


# ------------------------------------------------------------------------------------------------ sampling


def sample_walks(
    wiki: WikiFolder,
    rules: WalkRules,
    seed: int,
    num: int | None,
    accept: Callable[[Walk], str | None] = lambda walk: None,
) -> Iterator[Walk | Dropped]:
    """Walks from eligible seeds, the five domains taken in turn, until `num` are accepted or the seeds run out.

    Args:
        wiki: The graph.
        rules: "auto" thresholds are resolved here.
        seed: Same seed, same walks. What a seed page yields does not depend on which others were tried before.
        num: Number of accepted walks; None for all.
        accept: Returns why a walk will not do, or None. The walk is then tried again (a bridge without a unique
            descriptor, an answer page without a short attribute).
    """
    accepted = 0
    for tries in walks_by_seed(wiki, rules, seed, accept):
        if num is not None and accepted >= num:
            return
        outcome = next(tries)
        accepted += isinstance(outcome, Walk)
        yield outcome


def walks_by_seed(
    wiki: WikiFolder, rules: WalkRules, seed: int, accept: Callable[[Walk], str | None]
) -> Iterator[Iterator[Walk | Dropped]]:
    """The same walks, each seed's as an iterator: first its accepted walk, then the next one, until no retry is left.

    For callers that find out only later that a walk will not do: `next` goes on with the seed's remaining retries. The
    last item is always a `Dropped`.
    """
    resolved = resolve_rules(wiki, rules)
    seeds, _ = eligible_seeds(wiki, resolved)
    graph = walk_graph(wiki, resolved)
    link = lru_cache(maxsize=_CACHED_LINKS)(partial(_link, wiki))
    for turn, page_id, domain in _in_turn(seeds, seed, resolved.walks_per_seed):
        yield _from_seed(link, graph, resolved, page_id, domain, derive(seed, "walk", page_id, turn), accept)


def _in_turn(seeds: dict[str, list[int]], seed: int, turns: int) -> Iterator[tuple[int, int, str]]:
    """(turn, page, domain): each domain shuffled on its own, then dealt round robin."""
    decks = {domain: sorted(pages, key=lambda page: derive(seed, "seed", page)) for domain, pages in seeds.items()}
    longest = max((len(deck) for deck in decks.values()), default=0)
    for turn in range(turns):
        for place in range(longest):
            for domain, deck in decks.items():
                if place < len(deck):
                    yield turn, deck[place], domain


def _from_seed(
    link: Callable[[int, int], LinkRow],
    graph: Graph,
    rules: WalkRules,
    page_id: int,
    domain: str,
    seed: int,
    accept: Callable[[Walk], str | None],
) -> Iterator[Walk | Dropped]:
    """The accepted tries from one seed. The length is drawn once, so that retries do not favour short walks."""
    rng = random.Random(seed)
    hops = draw_hops(rules.hop_probs, rng)
    reasons: Counter[str] = Counter()
    for retries in range(rules.max_retries + 1):
        nodes = try_walk(graph, page_id, hops, rng, reasons, no_chord=rules.no_chord)
        if nodes is None:
            continue
        links = tuple(link(source, target) for source, target in pairwise(nodes))
        walk = Walk(nodes, links, seed, domain, retries, Counter(reasons))
        why = accept(walk)
        if why is None:
            yield walk
            why = "refused_later"
        reasons[why] += 1
    yield Dropped(page_id, reasons)


def _link(wiki: WikiFolder, source: int, target: int) -> LinkRow:
    found = [link for link in wiki.links_from(source) if link.dst == target]
    return next((link for link in found if link.section == INFOBOX_SECTION), found[0])
