"""The exact uniqueness check: how many entities satisfy a descriptor's predicates, counted over the whole table.

The method fixes the anchor and asks that exactly one entity fits (paper, section 3.3, condition ii). A predicate is a
row of the infobox table, so the count is a join, not an opinion. Two implementations must agree: `matches` over the
in-memory index, used while building, and `DuckCounter`, used by audits on tables that do not fit in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from opensearch_vl.questions.facts import Facts, Pages, same_value
from opensearch_vl.types import Predicate
from opensearch_vl.wiki.tables import WikiFolder


def matches(facts: Facts, predicates: Sequence[Predicate]) -> tuple[int, ...]:
    """Ids of all pages that satisfy every predicate, ascending.

    Raises:
        ValueError: For an empty conjunction, which everything satisfies; a descriptor from prose alone has none and
            must be reported as `not_applicable` (``matches=None``) instead.
    """
    if not predicates:
        raise ValueError("An empty conjunction has no count; report it as not applicable.")
    found: Pages | None = None
    for predicate in predicates:
        pages = _satisfying(facts, predicate)
        found = pages if found is None else np.intersect1d(found, pages, assume_unique=True)
    assert found is not None
    values = [p for p in predicates if p.kind == "attr"]
    return tuple(int(page) for page in found if all(_states(facts, int(page), p) for p in values))


def _satisfying(facts: Facts, predicate: Predicate) -> Pages:
    if predicate.kind == "attr":
        return facts.with_value(predicate.key, predicate.value)
    node = facts.resolve(predicate.value)
    if node is None:
        return np.empty(0, dtype=np.int32)
    if predicate.inverse:
        return np.unique(np.array(facts.targets(node, predicate.key), dtype=np.int32))
    return facts.holders(predicate.key, node)


def _states(facts: Facts, page: int, predicate: Predicate) -> bool:
    wanted = same_value(predicate.value)
    return any(item.key == predicate.key and same_value(item.value) == wanted for item in facts.items(page))


class DuckCounter:
    """The same count in SQL; memory is DuckDB's business, so any size of table will do."""

    def __init__(self, wiki: WikiFolder) -> None:
        self._wiki = wiki
        self._sql = wiki.sql()
        self._sql.create_function("same_value", same_value, [str], str)
        self._sql.execute(
            "CREATE TABLE facts AS SELECT page_id, key, same_value(value) AS value, target_id FROM infobox"
        )

    def matches(self, predicates: Sequence[Predicate]) -> tuple[int, ...]:
        """Ids of all pages that satisfy every predicate, ascending.

        Raises:
            ValueError: For an empty conjunction.
        """
        if not predicates:
            raise ValueError("An empty conjunction has no count; report it as not applicable.")
        parts, arguments = [], []
        for predicate in predicates:
            part, values = self._part(predicate)
            parts.append(part)
            arguments += values
        rows = self._sql.execute(" INTERSECT ".join(parts) + " ORDER BY 1", arguments).fetchall()
        return tuple(row[0] for row in rows)

    def _part(self, predicate: Predicate) -> tuple[str, list[Any]]:
        if predicate.kind == "attr":
            return "SELECT DISTINCT page_id FROM facts WHERE key = ? AND value = ?", [
                predicate.key,
                same_value(predicate.value),
            ]
        node = self._wiki.resolve(predicate.value)
        if predicate.inverse:
            return (
                "SELECT DISTINCT target_id FROM facts WHERE key = ? AND page_id = ? AND target_id IS NOT NULL",
                [predicate.key, node],
            )
        return "SELECT DISTINCT page_id FROM facts WHERE key = ? AND target_id = ?", [predicate.key, node]
