"""Exact uniqueness: the index, DuckDB and brute force agree on every conjunction over random tables."""

import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from questions.worlds import Entry, MemoryWiki

from opensearch_vl.questions.facts import Facts
from opensearch_vl.questions.unique import DuckCounter, matches
from opensearch_vl.types import Predicate

KEYS, VALUES, TITLES = (
    ["a", "b", "b2"],
    ["x", "X", " x ", "é", "E", "y z", "y  z", "ß", "ss"],
    [f"P{n}" for n in range(6)],
)
item = st.tuples(st.sampled_from(KEYS), st.sampled_from(VALUES)) | st.tuples(
    st.sampled_from(KEYS), st.sampled_from(VALUES), st.sampled_from(TITLES)
)
tables = st.lists(st.lists(item, max_size=6), min_size=6, max_size=6)
predicate = st.builds(Predicate, kind=st.just("attr"), key=st.sampled_from([*KEYS, "never"]), value=st.sampled_from(VALUES)) | st.builds(
    Predicate, kind=st.just("rel"), key=st.sampled_from([*KEYS, "never"]), value=st.sampled_from([*TITLES, "Nobody"]), inverse=st.booleans()
)  # fmt: skip


def folded(text: str) -> str:
    kept = [c for c in unicodedata.normalize("NFKD", text.casefold()) if not unicodedata.combining(c)]
    return " ".join("".join(kept).split())


def brute(boxes, p: Predicate) -> set[int]:
    """Independent of the code under test: plain loops over the rows."""
    rows = [(n, *row) for n, box in enumerate(boxes) for row in box]
    if p.kind == "attr":
        return {n for n, key, value, *_ in rows if key == p.key and folded(value) == folded(p.value)}
    if p.inverse:
        return {TITLES.index(t[0]) for n, key, _, *t in rows if key == p.key and t and TITLES[n] == p.value}
    return {n for n, key, _, *t in rows if key == p.key and t == [p.value]}


@settings(max_examples=25, deadline=None)
@given(boxes=tables, predicates=st.lists(predicate, min_size=1, max_size=3))
def test_three_counts_agree(boxes, predicates) -> None:
    wiki = MemoryWiki([Entry(title, infobox=box) for title, box in zip(TITLES, boxes, strict=True)], None)
    wanted = tuple(sorted(set.intersection(*(brute(boxes, p) for p in predicates))))
    assert matches(Facts(wiki), predicates) == wanted
    assert DuckCounter(wiki).matches(predicates) == wanted


def test_an_empty_conjunction_is_refused() -> None:
    wiki = MemoryWiki([Entry("A")], None)
    with pytest.raises(ValueError, match="not applicable"):
        matches(Facts(wiki), [])
    with pytest.raises(ValueError, match="not applicable"):
        DuckCounter(wiki).matches([])
