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
from itertools import pairwise
from typing import Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field, field_validator

from opensearch_vl.config import Config
from opensearch_vl.errors import ConfigError
from opensearch_vl.seeds import derive
from opensearch_vl.wiki.language import language
from opensearch_vl.wiki.schema import DOMAINS, INFOBOX_SECTION, LinkRow
from opensearch_vl.wiki.tables import WikiFolder

PAPER_HUB, PAPER_MIN_IN_DEGREE, PAPER_MIN_IMAGE_PX = 10_000, 50, 512
"""Thresholds of the paper for English Wikipedia (section 3.1)."""
LARGE = 1_000_000
"""Pages from which `auto` means the paper's values."""
HUB_PERCENTILE = 99.97
"""The paper's hubs are the top 0.03 % of English Wikipedia."""
HUB_SHARE, HUB_FLOOR = 0.02, 20
"""On small graphs that percentile excludes next to nothing, so a page linked from over 2 % of all pages is a hub
too (countries and years, not people and buildings), but never one with under 20 links."""
SEED_PERCENTILE = 25.0
"""On small graphs a seed needs the in-degree that three quarters of the candidates reach."""

Auto = Literal["auto"]


class WalkRules(Config):
    """Rules of the walk.

    Attributes:
        hop_probs: Probabilities of 2, 3 and 4 hops.
        hub: A page with more incoming links than this is never visited.
        min_in_degree: Incoming links a seed needs.
        min_image_px: Shorter side a seed's picture needs, in pixels.
        max_retries: Further tries after a walk failed, before its seed is dropped.
        require_image: Whether a seed needs a picture at all.
        no_chord: Whether `vh` must be unlinked with `v0`, in both directions.
        walks_per_seed: How many walks may start at one seed.
        excluded_prefixes: Openings of titles never visited, by language, beside the language's own table.
    """

    hop_probs: tuple[float, float, float] = (0.4, 0.4, 0.2)
    hub: int | Auto = "auto"
    min_in_degree: int | Auto = "auto"
    min_image_px: int | Auto = "auto"
    max_retries: int = Field(default=10, ge=0)
    require_image: bool = True
    no_chord: bool = True
    walks_per_seed: int = Field(default=1, ge=1)
    excluded_prefixes: dict[str, tuple[str, ...]] = Field(default_factory=dict)

    @field_validator("hop_probs")
    @classmethod
    def _probabilities(cls, probs: tuple[float, float, float]) -> tuple[float, float, float]:
        if min(probs) < 0 or abs(sum(probs) - 1) > 1e-6:
            raise ValueError("hop_probs must be three numbers ≥ 0 that add up to 1")
        return probs


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
    """

    indptr: npt.NDArray[np.int64]
    indices: npt.NDArray[np.int32]
    blocked: npt.NDArray[np.int8]

    def row(self, node: int) -> npt.NDArray[np.int32]:
        """Out-neighbours of a node."""
        return self.indices[self.indptr[node] : self.indptr[node + 1]]

    def has_edge(self, source: int, target: int) -> bool:
        """Whether `source` links to `target`."""
        row = self.row(source)
        place = int(np.searchsorted(row, target))
        return place < len(row) and int(row[place]) == target


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
        for neighbour in graph.row(path[-1]).tolist():
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


# -------------------------------------------------------------------------------------- rules and seeds


def resolve_rules(wiki: WikiFolder, rules: WalkRules) -> WalkRules:
    """`rules` with every "auto" replaced by a number that suits the graph.

    From a million pages on these are the paper's values. Below: `hub` is the 99.97th percentile of in-degrees or 2 % of
    all pages, whichever is lower, but at least 20; `min_in_degree` is the 25th percentile among the pages that could be
    seeds otherwise, at least 1; `min_image_px` is 512, or the median of what there is if no picture reaches that.
    """
    large = len(wiki) >= LARGE
    hub, min_in_degree, min_image_px = rules.hub, rules.min_in_degree, rules.min_image_px
    if hub == "auto":
        hub = PAPER_HUB if large else _auto_hub(wiki.in_degrees())
    if min_image_px == "auto":
        sides = np.array(sorted(_largest_pictures(wiki).values()))
        reached = large or not sides.size or sides[-1] >= PAPER_MIN_IMAGE_PX
        min_image_px = PAPER_MIN_IMAGE_PX if reached else int(np.median(sides))
    resolved = rules.model_copy(update={"hub": hub, "min_image_px": min_image_px, "min_in_degree": 0})
    if min_in_degree == "auto":
        if large:
            min_in_degree = PAPER_MIN_IN_DEGREE
        else:
            candidates, _ = eligible_seeds(wiki, resolved)
            degrees = wiki.in_degrees()[[page for pages in candidates.values() for page in pages]]
            min_in_degree = max(1, int(np.percentile(degrees, SEED_PERCENTILE))) if degrees.size else 1
    return resolved.model_copy(update={"min_in_degree": min_in_degree})


def _auto_hub(in_degrees: npt.NDArray[np.int64]) -> int:
    if not in_degrees.size:
        return HUB_FLOOR
    percentile = float(np.percentile(in_degrees, HUB_PERCENTILE))
    return max(HUB_FLOOR, int(min(percentile, HUB_SHARE * len(in_degrees))))


def eligible_seeds(wiki: WikiFolder, rules: WalkRules) -> tuple[dict[str, list[int]], Counter[str]]:
    """Pages a walk may start at, by domain and ascending, and why the other articles may not (first reason found).

    A seed is an article of one of the five domains with an infobox, a picture large enough, and an in-degree in
    ``[min_in_degree, hub]``.
    """
    hub, min_in_degree, min_image_px = _numbers(rules)
    pictures = _largest_pictures(wiki) if rules.require_image else {}
    seeds: dict[str, list[int]] = {domain: [] for domain in DOMAINS}
    reasons: Counter[str] = Counter()
    prefixes = _prefixes(wiki, rules)
    for page in wiki.pages():
        why = ""
        if page.kind != "article":
            why = page.kind
        elif page.title.startswith(prefixes):
            why = "excluded_prefix"
        elif not page.infobox_type:
            why = "no_infobox"
        elif page.domain not in seeds:
            why = "no_domain"
        elif rules.require_image and page.page_id not in pictures:
            why = "no_image"
        elif rules.require_image and pictures[page.page_id] < min_image_px:
            why = "image_too_small"
        elif page.in_degree < min_in_degree:
            why = "in_degree_low"
        elif page.in_degree > hub:
            why = "hub"
        if why:
            reasons[why] += 1
        else:
            seeds[page.domain].append(page.page_id)
    return seeds, reasons


def _numbers(rules: WalkRules) -> tuple[int, int, int]:
    for name in ("hub", "min_in_degree", "min_image_px"):
        if getattr(rules, name) == "auto":
            raise ConfigError(f"walks.{name} is still 'auto'.", "Pass the rules through resolve_rules first.")
    return int(rules.hub), int(rules.min_in_degree), int(rules.min_image_px)


def _prefixes(wiki: WikiFolder, rules: WalkRules) -> tuple[str, ...]:
    return (*language(wiki.site.lang).list_prefix, *rules.excluded_prefixes.get(wiki.site.lang, ()))


def _largest_pictures(wiki: WikiFolder) -> dict[int, int]:
    """Shorter side, in pixels, of each page's largest picture."""
    query = "SELECT page_id, max(least(width_px, height_px)) FROM images GROUP BY page_id"
    connection = wiki.sql()
    try:
        return dict(connection.execute(query).fetchall())
    finally:
        connection.close()


def walk_graph(wiki: WikiFolder, rules: WalkRules) -> Graph:
    """The wiki's graph with the pages marked that the rules never visit."""
    hub, _, _ = _numbers(rules)
    prefixes = _prefixes(wiki, rules)
    blocked = np.zeros(len(wiki), dtype=np.int8)
    blocked[wiki.in_degrees() > hub] = BLOCKS.index("hub")
    for page_id, (kind, title) in enumerate(zip(wiki.column("kind"), wiki.column("title"), strict=True)):
        if kind in BLOCKS:
            blocked[page_id] = BLOCKS.index(kind)
        elif title.startswith(prefixes):
            blocked[page_id] = BLOCKS.index("excluded_prefix")
    return Graph(wiki.indptr, wiki.indices, blocked)


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
    resolved = resolve_rules(wiki, rules)
    seeds, _ = eligible_seeds(wiki, resolved)
    graph = walk_graph(wiki, resolved)
    accepted = 0
    for turn, page_id, domain in _in_turn(seeds, seed, resolved.walks_per_seed):
        if num is not None and accepted >= num:
            return
        outcome = _from_seed(wiki, graph, resolved, page_id, domain, derive(seed, "walk", page_id, turn), accept)
        accepted += isinstance(outcome, Walk)
        yield outcome


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
    wiki: WikiFolder,
    graph: Graph,
    rules: WalkRules,
    page_id: int,
    domain: str,
    seed: int,
    accept: Callable[[Walk], str | None],
) -> Walk | Dropped:
    """The first accepted try from one seed. The length is drawn once, so that retries do not favour short walks."""
    rng = random.Random(seed)
    hops = draw_hops(rules.hop_probs, rng)
    reasons: Counter[str] = Counter()
    for retries in range(rules.max_retries + 1):
        nodes = try_walk(graph, page_id, hops, rng, reasons, no_chord=rules.no_chord)
        if nodes is None:
            continue
        links = tuple(_link(wiki, source, target) for source, target in pairwise(nodes))
        walk = Walk(nodes, links, seed, domain, retries, reasons)
        why = accept(walk)
        if why is None:
            return walk
        reasons[why] += 1
    return Dropped(page_id, reasons)


def _link(wiki: WikiFolder, source: int, target: int) -> LinkRow:
    found = [link for link in wiki.links_from(source) if link.dst == target]
    return next((link for link in found if link.section == INFOBOX_SECTION), found[0])
