"""What a wiki folder holds, and walks as records of a run folder: what `osvl wiki stats` and `osvl wiki walks` show."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from opensearch_vl.types import SCHEMA_VERSION, Frozen
from opensearch_vl.wiki.tables import WikiFolder
from opensearch_vl.wiki.walks import Dropped, Walk, WalkRules, eligible_seeds, resolve_rules


class WalkRecord(Frozen):
    """A line of `records.jsonl` in a run of walks: one seed and the walk it gave, or none.

    Attributes:
        path: Titles ``v0 … vh``; only ``v0`` for a dropped seed.
        anchors: Text of the link of each edge.
        sentences: Sentence around each link.
        reasons: Neighbours left out and failed tries, by reason.
    """

    schema_version: Literal[1] = SCHEMA_VERSION
    kind: Literal["walk"] = "walk"
    id: str
    accepted: bool
    path: tuple[str, ...]
    anchors: tuple[str, ...] = ()
    sentences: tuple[str, ...] = ()
    domain: str = ""
    seed: int | None = None
    retries: int = 0
    reasons: dict[str, int]


def walk_record(wiki: WikiFolder, outcome: Walk | Dropped, number: int) -> WalkRecord:
    """The record of one outcome; `number` counts outcomes of the run from 0."""
    reasons = dict(sorted(outcome.reasons.items()))
    if isinstance(outcome, Dropped):
        page = wiki.page(outcome.seed_page)
        return WalkRecord(
            id=f"walk-{number:06d}", accepted=False, path=(page.title,), domain=page.domain, reasons=reasons
        )
    return WalkRecord(
        id=f"walk-{number:06d}",
        accepted=True,
        path=tuple(wiki.page(node).title for node in outcome.nodes),
        anchors=tuple(link.anchor for link in outcome.links),
        sentences=tuple(link.sentence for link in outcome.links),
        domain=outcome.domain,
        seed=outcome.seed,
        retries=outcome.retries,
        reasons=reasons,
    )


def wiki_stats(wiki: WikiFolder, rules: WalkRules) -> dict[str, Any]:
    """Counts, what was skipped, the thresholds that "auto" comes to, and the seeds that walks may start at."""
    resolved = resolve_rules(wiki, rules)
    seeds, reasons = eligible_seeds(wiki, resolved)
    degrees = wiki.in_degrees()
    cuts = (50, 90, 99, 99.97, 100)
    return {
        "name": wiki.meta["name"],
        "lang": wiki.meta["lang"],
        "counts": wiki.meta["counts"],
        "domains": wiki.meta["domains"],
        "skipped": wiki.meta["skipped"],
        "damage": wiki.meta["damage"],
        "in_degree": {f"p{cut:g}": float(np.percentile(degrees, cut)) if degrees.size else 0.0 for cut in cuts},
        "rules": {name: getattr(resolved, name) for name in ("hub", "min_in_degree", "min_image_px", "require_image")},
        "seeds": {domain: len(pages) for domain, pages in seeds.items()},
        "not_seeds": dict(sorted(reasons.items())),
    }
