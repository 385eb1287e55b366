"""The reader of the local encyclopedia."""

from pathlib import Path

import pytest
from backends.fake_wiki import FakePage, FakeWiki

from opensearch_vl.backends.readers import WikiPageReader
from opensearch_vl.errors import BadInput


@pytest.fixture
def reader(tmp_path: Path) -> WikiPageReader:
    return WikiPageReader(FakeWiki([FakePage("Foo Hall", "Prose.", {"built": "1900"}, aliases=("Foo",))], tmp_path))


@pytest.mark.parametrize("address", ["https://fake.invalid/wiki/Foo_Hall", "Foo Hall", "Foo_Hall", " Foo "])
async def test_reads_by_address_title_and_redirect(reader: WikiPageReader, address: str) -> None:
    page = await reader.read(address)
    assert (page.title, page.url) == ("Foo Hall", "https://fake.invalid/wiki/Foo_Hall")
    assert page.text == "Built: 1900\n\nProse."


@pytest.mark.parametrize(
    "address", ["", "  ", "Bar", "https://fake.invalid/wiki/Bar", "http://127.0.0.1/", "file:///etc/passwd", "x" * 5000]
)
async def test_unknown_pages_are_bad_input(reader: WikiPageReader, address: str) -> None:
    with pytest.raises(BadInput):
        await reader.read(address)
