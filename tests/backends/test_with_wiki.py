"""The local backends over a real wiki folder: the contract between the two rooms."""

from pathlib import Path

import pytest
from backends.pictures import encoded, facade
from wiki.wikitool import write

from opensearch_vl.backends.image_index import LocalImageIndex
from opensearch_vl.backends.passages import LocalSearch
from opensearch_vl.backends.readers import WikiPageReader
from opensearch_vl.backends.summarise import ExtractiveSummariser
from opensearch_vl.protocols import Page
from opensearch_vl.wiki.dump import build_wiki
from opensearch_vl.wiki.tables import WikiFolder

PAGES = {
    "Foo Hall": (
        "{{Infobox building\n| name = Foo Hall\n| image = Foo.png\n| architect = [[Ada Ångström]]\n"
        "| opened_date = {{start date|1931|5|15}}\n}}\n'''Foo Hall''' is a concert hall.\n\n== History ==\nIt burned in 1950."
    ),
    "Great Foo": "#REDIRECT [[Foo Hall]]",
    "Ada Ångström": "'''Ada Ångström''' was an architect who designed [[Foo Hall]].",
}


@pytest.fixture(scope="module")
def wiki(tmp_path_factory: pytest.TempPathFactory) -> WikiFolder:
    root = tmp_path_factory.mktemp("wiki")
    (root / "images").mkdir()
    facade(1).save(root / "images" / "Foo.png")
    return build_wiki(write(root / "dump.xml", PAGES), root / "wiki", images=root / "images")


async def test_search_read_summarise(wiki: WikiFolder, tmp_path: Path) -> None:
    hits = await LocalSearch.build(wiki, tmp_path / "search").search("Great Foo architect", 3)
    assert hits[0].title == "Foo Hall" and "Architect: Ada Ångström" in hits[0].text
    page = await WikiPageReader(wiki).read(hits[0].url)
    assert page.title == "Foo Hall" and "It burned in 1950." in page.text
    for text in (page.text, hits[0].text):
        told = await ExtractiveSummariser().summarise(Page("Foo Hall", hits[0].url, text), "when was foo hall opened")
        assert "Opened date: 15 May 1931." in told


async def test_the_picture_leads_to_its_page(wiki: WikiFolder, tmp_path: Path) -> None:
    found = await LocalImageIndex.build(wiki, tmp_path / "pictures").search(encoded(facade(1), quality=40), 5)
    assert [(match.title, match.source) for match in found] == [("Foo Hall", "Foo.png")]
    assert found[0].url == wiki.url(0) and "Architect: Ada Ångström" in found[0].snippet
    assert await LocalImageIndex(tmp_path / "pictures", exclude={0}).search(encoded(facade(1)), 5) == []
