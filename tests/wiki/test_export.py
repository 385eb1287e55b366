import bz2
import gzip
import os
import tracemalloc
from pathlib import Path

import pytest
from wiki.wikitool import export, write

from opensearch_vl.errors import DumpError
from opensearch_vl.wiki.export import Export

DATA = Path(os.environ.get("OSVL_TEST_DATA") or Path(__file__).parents[3] / "shared" / "data") / "wiki-xml"
PAGES = {"Bus": "A [[tram]] & <b>bus</b>.", "Tram": ">>Bus", "File:A.png": "x", "Élan": "é ü 日本"}


def titles(path: Path) -> list[str]:
    return [page.title for page in Export(path)]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "iso-8859-1"])
@pytest.mark.parametrize("pack", ["", "bz2", "gz"])
def test_encodings_and_compressions(tmp_path: Path, encoding: str, pack: str) -> None:
    pages = PAGES if encoding != "iso-8859-1" else {"Élan": "é ü"}
    data = export(pages, encoding=encoding).encode(encoding)
    packed = {"": lambda d: d, "bz2": bz2.compress, "gz": gzip.compress}[pack](data)
    (tmp_path / "dump").write_bytes(packed)  # told apart by content, not by name
    found = list(Export(tmp_path / "dump"))
    assert {page.title: page.text for page in found if page.redirect is None} == {
        k: v for k, v in pages.items() if v[:2] != ">>"
    }


def test_bz2_of_many_streams(tmp_path: Path) -> None:
    data = export(PAGES).encode()
    (tmp_path / "d.bz2").write_bytes(bz2.compress(data[:500]) + bz2.compress(data[500:900]) + bz2.compress(data[900:]))
    assert titles(tmp_path / "d.bz2") == list(PAGES)


def test_siteinfo(tmp_path: Path) -> None:
    reader = Export(write(tmp_path / "d.xml", PAGES, lang="de", namespaces={0: "", 6: "Datei", 14: "Kategorie"}))
    pages = list(reader)
    assert (reader.site.name, reader.site.lang, reader.site.base) == ("Test wiki", "de", "https://de.example.org/wiki/")
    assert reader.site.namespace("datei") == reader.site.namespace("File") == reader.site.namespace("Bild") == 6
    assert pages[1].redirect == "Bus"
    assert pages[0].redirect is None
    assert pages[0].dump_id == 10


def test_old_schema_without_siteinfo_and_ns(tmp_path: Path) -> None:
    (tmp_path / "d.xml").write_text(
        '<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.3/" version="0.3"><page><title>Pear</title><id>24278</id>'
        "<revision><id>1</id><text>old</text></revision><revision><id>2</id><text>new</text></revision></page></mediawiki>"
    )
    (page,) = Export(tmp_path / "d.xml")
    assert (page.title, page.namespace, page.dump_id, page.text, page.model) == ("Pear", None, 24278, "new", "wikitext")


def test_deleted_text_is_none(tmp_path: Path) -> None:
    (tmp_path / "d.xml").write_text(
        '<mediawiki><page><title>A</title><revision><text deleted="deleted" /></revision></page></mediawiki>'
    )
    assert [page.text for page in Export(tmp_path / "d.xml")] == [None]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is empty"),
        (b"7z\xbc\xaf\x27\x1crest", "7z archive"),
        (b"PK\x03\x04rest", "ZIP archive"),
        (b'{"title": 1}', "JSON"),
        (b"-- MySQL dump 10", "SQL dump"),
        (b"<!DOCTYPE html><html></html>", "an HTML page"),
        (b"<html><body/></html>", "<html>"),
        (b"<?xml version='1.0'?><rss><channel/></rss>", "<rss>"),
        (b"just words", "damaged or breaks off"),
        (b"\x00\xff\x13" * 50, "damaged or breaks off"),
        (b"BZhjunk", "compressed data"),
        (b"\x1f\x8bjunk", "compressed data"),
        (bz2.compress(b'{"a": 1}'), "JSON"),
        (b"<mediawiki></mediawiki>", "without a single page"),
        (b"<?xml version='1.0' encoding='klingon'?><mediawiki></mediawiki>", "encoding"),
        (b"<!DOCTYPE m [<!ENTITY a 'b'>]><mediawiki><page><title>&a;</title></page></mediawiki>", "document type"),
        (b"<mediawiki><page><title>&nope;</title></page></mediawiki>", "damaged or breaks off"),
    ],
)
def test_what_is_not_an_export_is_named(tmp_path: Path, content: bytes, said: str) -> None:
    (tmp_path / "d").write_bytes(content)
    with pytest.raises(DumpError, match="d") as caught:
        list(Export(tmp_path / "d"))
    assert said in str(caught.value)


def test_missing_file_and_folder(tmp_path: Path) -> None:
    with pytest.raises(DumpError, match="no dump"):
        list(Export(tmp_path / "none.xml"))
    with pytest.raises(DumpError, match="is a folder"):
        list(Export(tmp_path))


@pytest.mark.parametrize("pack", [lambda d: d, bz2.compress, gzip.compress])
@pytest.mark.parametrize("share", [0.5, 0.9])
def test_truncated_after_pages_is_reported(tmp_path: Path, pack, share: float) -> None:  # type: ignore[no-untyped-def]
    pages = {f"Page {n}": os.urandom(300).hex() for n in range(4_000)}
    packed = pack(export(pages).encode())
    (tmp_path / "d").write_bytes(packed[: int(len(packed) * share)])
    reader = Export(tmp_path / "d")
    found = list(reader)
    assert 0 < len(found) < 4_000
    assert [page.title for page in found] == list(pages)[: len(found)]
    assert f"After {len(found):,} pages" in reader.damage


def test_truncated_before_the_first_page_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "d").write_bytes(export(PAGES).encode()[:400])
    with pytest.raises(DumpError, match="breaks off"):
        list(Export(tmp_path / "d"))


def test_progress_ends_at_the_size_of_the_file(tmp_path: Path) -> None:
    path = write(tmp_path / "d.xml", PAGES)
    seen: list[tuple[int, int]] = []
    list(Export(path, lambda done, total: seen.append((done, total))))
    assert seen[-1] == (path.stat().st_size, path.stat().st_size)


def test_memory_stays_flat(tmp_path: Path) -> None:
    path = write(tmp_path / "d.xml", {f"Page {n}": "word " * 2_000 for n in range(2_000)})  # 20 MB
    tracemalloc.start()
    for _ in Export(path):
        pass
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 6_000_000


@pytest.mark.skipif(not DATA.is_dir(), reason="real dumps are not here")
@pytest.mark.parametrize(
    ("file", "count", "first"),
    [
        ("pywikibot/article-pear.xml", 1, "Pear"),
        ("pywikibot/article-pear-0.10.xml", 1, "Pear"),
        ("pywikibot/article-pyrus-utf16.xml", 1, "Pyrus"),
        ("pywikibot/pair-0.10.xml", None, "Çullu, Agdam"),
        ("gensim/bgwiki-latest-pages-articles-shortened.xml.bz2", None, None),
        ("ltgwiki-201709-pages-articles.xml.bz2", 2_004, "Suoku puslopa"),
    ],
)
def test_real_files(file: str, count: int | None, first: str | None) -> None:
    found = titles(DATA / file)
    assert found
    assert count is None or len(found) == count
    assert first is None or found[0] == first
