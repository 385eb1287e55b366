"""Rules of the walks: thresholds, the seeds they allow, and why other pages may not be one (paper, section 3.1)."""

from __future__ import annotations

from collections import Counter
from typing import Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field, field_validator

from opensearch_vl.config import Config
from opensearch_vl.errors import ConfigError
from opensearch_vl.wiki.language import language
from opensearch_vl.wiki.schema import DOMAINS
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
        edges: Which links a step may follow: `any` (the paper), or only those that an infobox states, the source's own
            or the target's (`stated`): no rule-based writer can say what the others mean.
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
    edges: Literal["any", "stated"] = "any"
    no_chord: bool = True
    walks_per_seed: int = Field(default=1, ge=1)
    excluded_prefixes: dict[str, tuple[str, ...]] = Field(default_factory=dict)

    @field_validator("hop_probs")
    @classmethod
    def _probabilities(cls, probs: tuple[float, float, float]) -> tuple[float, float, float]:
        if min(probs) < 0 or abs(sum(probs) - 1) > 1e-6:
            raise ValueError("hop_probs must be three numbers ≥ 0 that add up to 1")
        return probs


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
    hub, min_in_degree, min_image_px = thresholds(rules)
    pictures = _largest_pictures(wiki) if rules.require_image else {}
    seeds: dict[str, list[int]] = {domain: [] for domain in DOMAINS}
    reasons: Counter[str] = Counter()
    prefixes = excluded_prefixes(wiki, rules)
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


def thresholds(rules: WalkRules) -> tuple[int, int, int]:
    """`hub`, `min_in_degree` and `min_image_px` of resolved rules.

    Raises:
        ConfigError: If one of them is still "auto".
    """
    for name in ("hub", "min_in_degree", "min_image_px"):
        if getattr(rules, name) == "auto":
            raise ConfigError(f"walks.{name} is still 'auto'.", "Pass the rules through resolve_rules first.")
    return int(rules.hub), int(rules.min_in_degree), int(rules.min_image_px)


def excluded_prefixes(wiki: WikiFolder, rules: WalkRules) -> tuple[str, ...]:
    """Openings of titles that are never visited on this wiki."""
    return (*language(wiki.site.lang).list_prefix, *rules.excluded_prefixes.get(wiki.site.lang, ()))


def _largest_pictures(wiki: WikiFolder) -> dict[int, int]:
    """Shorter side, in pixels, of each page's largest picture."""
    query = "SELECT page_id, max(least(width_px, height_px)) FROM images GROUP BY page_id"
    connection = wiki.sql()
    try:
        return dict(connection.execute(query).fetchall())
    finally:
        connection.close()
