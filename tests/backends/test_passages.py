"""Passage search: finding, ties, exclusion, hostile queries, and the folder's discipline."""

import asyncio
import threading
from pathlib import Path

import pytest
from backends.fake_wiki import FakePage, FakeWiki
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from opensearch_vl.backends.corpus import INDEX_VERSION
from opensearch_vl.backends.passages import LocalSearch
from opensearch_vl.backends.sentences import heading, num_words, passages, sentences, terms
from opensearch_vl.errors import DataError

PAGES = [
    FakePage(
        "Foo Hall",
        "Foo Hall is a concert hall in Malmö. It was opened by the mayor.\n\n== History ==\n\n"
        + "The hall burned. " * 80,
        {"architect": "Ada Ångström", "opened": "15 May 1931", "location": "Malmö"},
        aliases=("Great Foo", "Foohallen"),
    ),
    FakePage("Bar Hall", "Bar Hall is a town hall.", {"architect": "Bo Beck"}),
    FakePage("Ada Ångström", "Ada Ångström was an architect. She designed Foo Hall."),
    FakePage("東京タワー", "東京タワーは東京都港区にある電波塔である。高さは333メートル。"),
    FakePage("Москва́", "Столица России, город на реке Москве."),
    FakePage("Empty"),
]


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> LocalSearch:
    root = tmp_path_factory.mktemp("passages")
    return LocalSearch.build(FakeWiki(PAGES, root), root / "index")


def titles(index: LocalSearch, query: str, top_k: int = 5) -> list[str]:
    return [hit.title for hit in asyncio.run(index.search(query, top_k))]


def test_finds_the_infobox_passage_of_the_named_page(index: LocalSearch) -> None:
    best = asyncio.run(index.search("Foo Hall architect", 3))[0]
    assert best.title == "Foo Hall" and best.url == "https://fake.invalid/wiki/Foo_Hall"
    assert "Architect: Ada Ångström" in best.text and best.score > 0


def test_small_words_do_not_choose_the_passage(tmp_path: Path) -> None:
    page = FakePage(
        "Foo", "What Foo is to the town of Bar is what it is to the people of it.", {"known_for": "the Foo method"}
    )
    built = LocalSearch.build(FakeWiki([page], tmp_path), tmp_path / "index")
    for query in ("What is the Foo known for?", "what is Foo known for", "known for of Foo"):
        assert built.search_now(query, 1)[0].text == "Known for: the Foo method"


@pytest.mark.parametrize(
    ("query", "title"),
    [
        ("ada angstrom", "Ada Ångström"),
        ("ÅNGSTRÖM ADA", "Ada Ångström"),
        ("architects Bar Hall", "Bar Hall"),
        ("great foo", "Foo Hall"),
        ("foohallen", "Foo Hall"),
        ("東京タワー", "東京タワー"),
        ("電波塔 高さ", "東京タワー"),
        ("москва", "Москва́"),
        ("empty", "Empty"),
    ],
)
def test_folds_stems_and_knows_other_names(index: LocalSearch, query: str, title: str) -> None:
    assert titles(index, query)[0] == title


def test_one_hit_per_page_and_top_k(index: LocalSearch) -> None:
    found = titles(index, "hall burned", 5)
    assert found.count("Foo Hall") == 1 and len(found) == len(set(found))
    assert len(titles(index, "hall", 1)) == 1
    assert titles(index, "hall", 0) == []


def test_nothing_found_is_empty(index: LocalSearch) -> None:
    assert titles(index, "zzzqqq") == [] and titles(index, "") == [] and titles(index, "  \n ?!") == []


@pytest.mark.parametrize(
    "query",
    [
        '"',
        "a AND",
        "(((",
        "title:foo",
        "foo^^9",
        "*",
        "[a TO",
        "\\",
        "+foo -bar",
        "~1",
        "\x00foo",
        "\ud800 foo",
        "hall " * 50_000,
    ],
)
def test_no_query_is_a_syntax_error(index: LocalSearch, query: str) -> None:
    asyncio.run(index.search(query, 3))


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(max_size=60), st.integers(0, 7))
def test_any_text_is_a_query(index: LocalSearch, query: str, top_k: int) -> None:
    hits = index.search_now(query, top_k)
    assert len(hits) <= top_k and [h.score for h in hits] == sorted((h.score for h in hits), reverse=True)


def test_exclude_hides_pages_by_id_and_address(index: LocalSearch) -> None:
    blinded = LocalSearch(index.path, exclude={0, "https://fake.invalid/wiki/Ada_Ångström"})
    found = titles(blinded, "Foo Hall architect Ada Ångström", 6)
    assert found == ["Bar Hall"]


def test_ties_come_in_order_of_page_id(tmp_path: Path) -> None:
    same = [FakePage(f"Page {number:03d}", "identical words everywhere") for number in range(300)]
    built = LocalSearch.build(FakeWiki(same, tmp_path), tmp_path / "index")
    found = titles(built, "identical", 100)
    assert found == [f"Page {number:03d}" for number in range(100)]


def test_two_builds_answer_alike_and_a_build_replaces(tmp_path: Path) -> None:
    wiki = FakeWiki(PAGES, tmp_path)
    first = LocalSearch.build(wiki, tmp_path / "index").search_now("hall architect", 5)
    assert LocalSearch.build(wiki, tmp_path / "index").search_now("hall architect", 5) == first
    assert sorted(path.name for path in tmp_path.iterdir()) == ["index"]


def test_a_failed_build_leaves_the_old_index(tmp_path: Path) -> None:
    LocalSearch.build(FakeWiki(PAGES, tmp_path), tmp_path / "index")

    class Broken(FakeWiki):
        def document(self, page_id: int) -> str:
            raise DataError("row 1 is torn")

    with pytest.raises(DataError, match="torn"):
        LocalSearch.build(Broken(PAGES, tmp_path), tmp_path / "index")
    assert LocalSearch(tmp_path / "index").search_now("hall", 1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["index"]


def test_refuses_folders_that_are_no_index(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="not a passage index"):
        LocalSearch(tmp_path / "nowhere")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.tex").write_text("precious")
    with pytest.raises(DataError, match="not a passage index"):
        LocalSearch.build(FakeWiki(PAGES, tmp_path), tmp_path / "other")
    assert (tmp_path / "other" / "thesis.tex").exists()


def test_an_index_of_another_version_is_refused_with_the_fix(tmp_path: Path) -> None:
    built = LocalSearch.build(FakeWiki([FakePage("A", "Text.")], tmp_path), tmp_path / "index")
    manifest = built.path / "index.json"
    manifest.write_text(manifest.read_text().replace(f'"schema_version": {INDEX_VERSION}', '"schema_version": 1'))
    with pytest.raises(DataError, match=r"version 1; this package reads 2.*Delete the folder"):
        LocalSearch(built.path)


def test_a_damaged_index_is_a_data_error(tmp_path: Path) -> None:
    built = LocalSearch.build(FakeWiki(PAGES, tmp_path), tmp_path / "index")
    (built.path / "tantivy" / "meta.json").write_text("{")
    with pytest.raises(DataError, match="damaged"):
        LocalSearch(built.path)


def test_searches_from_many_threads(index: LocalSearch) -> None:
    expected = index.search_now("hall architect", 5)
    seen: list[bool] = []
    threads = [
        threading.Thread(target=lambda: seen.append(index.search_now("hall architect", 5) == expected))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [True] * 8


def test_passages_hold_whole_sentences_and_keep_the_infobox_apart() -> None:
    document = "A: 1\nB: 2\n\n" + "One two three four. " * 100 + "\n\n== Later ==\n\nFive six."
    pieces = list(passages(document, has_infobox=True))
    assert pieces[0].text == "A: 1\nB: 2" and pieces[0].infobox
    assert all(num_words(piece.text) <= 150 for piece in pieces)
    assert all(num_words(piece.text) >= 100 for piece in pieces[1:4])
    assert pieces[-1].text == "== Later ==\nFive six."
    assert all(piece.text.endswith(".") for piece in pieces[1:])


def test_long_infoboxes_and_endless_words_are_split() -> None:
    box = "\n".join(f"Key {n}: some value of it" for n in range(100))
    pieces = list(passages(box + "\n\n", has_infobox=True))
    assert len(pieces) > 3 and "\n".join(piece.text for piece in pieces) == box
    assert all(num_words(piece.text) <= 150 for piece in passages("字" * 10_000 + " x" * 500, has_infobox=False))


def test_a_section_without_text_makes_no_passage() -> None:
    assert list(passages("== A ==\n\n== B ==", has_infobox=False)) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("He met J. R. Smith. They left.", ["He met J. R. Smith.", "They left."]),
        ("Built ca. 1900 by Dr. Who! Yes?", ["Built ca. 1900 by Dr. Who!", "Yes?"]),
        ("It is 3.5 m long. Really", ["It is 3.5 m long.", "Really"]),
        ("高さは333。東京。", ["高さは333。", "東京。"]),
        ("", []),
    ],
)
def test_sentences(text: str, expected: list[str]) -> None:
    assert sentences(text) == expected


def test_terms_and_headings() -> None:
    assert terms("Ångström's 東京都!") == ["angstrom", "s", "東京", "京都"]
    assert heading("=== A = B ===") == "A = B" and heading("= no =") is None and heading("text") is None


@given(st.text(max_size=400))
def test_passages_lose_no_word(text: str) -> None:
    kept = " ".join(piece.text for piece in passages(text, has_infobox=False))
    flat = " ".join(line for line in text.split("\n\n"))
    assert set(terms(kept)) <= set(terms(flat)) or num_words(text) > 100
