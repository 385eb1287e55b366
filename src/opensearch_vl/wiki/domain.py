"""The domain of a page, told from its infobox: the strata that seeds are drawn from (paper, section 3.1)."""

from __future__ import annotations

import re
from collections.abc import Collection
from functools import cache

from opensearch_vl.wiki.language import read_data
from opensearch_vl.wiki.schema import Domain


@cache
def _tables() -> tuple[dict[str, Domain], dict[str, Domain], dict[str, Domain]]:
    data = read_data("domains")

    def turned(name: str) -> dict[str, Domain]:
        pairs = [(entry, domain) for domain, entries in data[name].items() for entry in entries]
        return {entry: "" if domain == "none" else domain for entry, domain in pairs}

    return turned("types"), turned("words"), turned("keys")


def domain_of(infobox_type: str, keys: Collection[str]) -> Domain:
    """Domain by the whole type, else by a word of it (the last one that says something), else by the majority of keys.

    A page without an infobox has none, nor has one whose box says it is something else (a company, an album).
    """
    if not infobox_type:
        return ""
    types, words, by_key = _tables()
    if infobox_type in types:
        return types[infobox_type]
    telling = [] if infobox_type in read_data("domains")["by_keys"] else re.split(r"[\s/:\-]+", infobox_type)
    for word in reversed(telling):
        if word.strip("0123456789") in words:
            return words[word.strip("0123456789")]
    votes: dict[Domain, int] = {}
    for key in keys:
        if key in by_key:
            votes[by_key[key]] = votes.get(by_key[key], 0) + 1
    return max(votes, key=lambda domain: votes[domain]) if votes else ""
