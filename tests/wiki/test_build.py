import errno
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from wiki.wikitool import write

from opensearch_vl.errors import DataError, DumpError, RunExists, StorageFull
from opensearch_vl.wiki import parsing, writing
from opensearch_vl.wiki.dump import build_wiki
from opensearch_vl.wiki.export import Export
from opensearch_vl.wiki.graph import follow_redirects
from opensearch_vl.wiki.page import parse_page
from opensearch_vl.wiki.schema import TABLES
from opensearch_vl.wiki.tables import WikiFolder, label

DATA = Path(os.environ.get("OSVL_TEST_DATA") or Path(__file__).parents[3] / "shared" / "data") / "wiki-xml"

PAGES = {
    "Rose Hall": (
        "{{Infobox building\n| name = Rose Hall\n| image = Rose Hall.png\n| architect = [[Ann Lee]]\n"
        "| opened = {{start date|1931|5|15}}\n| location = [[Old Town]], [[Norland]]\n}}\n"
        "'''Rose Hall''' (''the '''Rose''''') is a hall by [[Ann Lee (architect)|Lee]] in [[old Town]]s. It is [[Rose Hall|itself]].\n\n"
        "[[File:rose_garden.PNG|thumb|Its [[garden]]]]\n== History ==\n[[Ann Lee]] built it. See [[Nowhere]], [[Roses]] and [[Loop A]]."
    ),
    "Ann Lee": "{{Infobox person|name=Ann Lee|birth_date={{birth date|1901|2|3}}|notable_works=[[Rose Hall]]<br>[[Hidden]]}}\n'''Ann Lee''' of [[Norland]].",
    "Old Town": "{{Infobox settlement|country=[[Norland]]}} [[Norland]] [[Ann Lee]]",
    "Norland": "A land. [[Old Town]]",
    "Roses": "'''Roses''' may be: * [[Rose Hall]]\n{{disambiguation}}",
    "List of halls": "* [[Rose Hall]]",
    "Garden": "A garden.",
    "Ann Lee (architect)": ">>Ann Lee",
    "Lee, Ann": ">>Ann Lee (architect)",
    "Loop A": ">>Loop B",
    "Loop B": ">>Loop A",
    "Broken": ">>Gone",
    "Out": ">>Category:Halls",
    "Old redirect": "#redirect [[Garden#Trees]]",
    "Category:Halls": "x",
    "File:Rose Hall.png": "{{Information|description=x|author=[[User:Ann|Ann P.]]}}\n{{self|cc-by-sa-4.0|GFDL}}",
    "File:Rose garden.PNG": "{{PD-old}}",
    "Empty": " ",
}  # fmt: skip


def picture(path: Path, size: tuple[int, int] = (40, 30), colour: str = "red") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, colour).save(path)


@pytest.fixture(scope="module")
def wiki(tmp_path_factory: pytest.TempPathFactory) -> WikiFolder:
    root = tmp_path_factory.mktemp("built")
    picture(root / "pictures" / "Rose_Hall.png")
    picture(root / "pictures" / "deep" / "rose garden.PNG", colour="blue")
    picture(root / "pictures" / "Unused.png")
    (root / "pictures" / "Bad.png").write_bytes(b"no picture")
    (root / "pictures" / "Map.svg").write_text("<svg/>")
    picture(root / "pictures" / "Caf%C3%A9_view.png", colour="green")
    dump = write(
        root / "dump.xml",
        {**PAGES, "Bad": "[[File:bad.png]] [[File:Absent.png]] [[File:map.svg]] [[File:Café view.png]]"},
    )
    return build_wiki(dump, root / "wiki", images=root / "pictures")


def ids(wiki: WikiFolder, *titles: str) -> list[int]:
    found = [wiki.resolve(title) for title in titles]
    assert None not in found, titles
    return found  # type: ignore[return-value]


def test_pages_and_kinds(wiki: WikiFolder) -> None:
    rows = list(wiki.pages())
    assert [row.page_id for row in rows] == list(range(len(wiki)))
    assert [wiki.page(row.page_id) for row in rows] == rows
    assert {row.title: row.kind for row in rows} == {
        "Rose Hall": "article", "Ann Lee": "article", "Old Town": "article", "Norland": "article",
        "Roses": "disambiguation", "List of halls": "list", "Garden": "article", "Bad": "article",
    }  # fmt: skip
    assert [row.domain for row in rows] == ["Building", "Person", "Location", "", "", "", "", ""]
    assert [row.infobox_type for row in rows][:3] == ["building", "person", "settlement"]
    assert wiki.column("dump_id")[0] == 10
    assert wiki.column("num_file_links")[0] == 2


def test_titles_resolve_as_mediawiki_does(wiki: WikiFolder) -> None:
    hall, ann, garden = ids(wiki, "Rose Hall", "Ann Lee", "Garden")
    assert wiki.resolve("rose_Hall#History") == hall
    assert wiki.resolve("Lee, Ann") == wiki.resolve("Ann Lee (architect)") == ann
    assert wiki.resolve("Old redirect") == garden
    for title in ("Nowhere", "", "#x", "Loop A", "Broken", "Category:Halls", "Rose hall"):
        assert wiki.resolve(title) is None
    assert wiki.url(hall) == "https://en.example.org/wiki/Rose_Hall"
    assert wiki.page_at("https://en.example.org/wiki/Lee%2C_Ann") == ann
    assert wiki.page_at("https://en.example.org/wiki/Nowhere") is None
    assert wiki.page_at("https://elsewhere.org/wiki/Rose_Hall") is None


def test_links_follow_redirects_and_drop_red_and_self_links(wiki: WikiFolder) -> None:
    hall, ann, town, land, roses, garden = ids(wiki, "Rose Hall", "Ann Lee", "Old Town", "Norland", "Roses", "Garden")
    found = wiki.links_from(hall)
    assert [(link.dst, link.anchor, link.section) for link in found] == [
        (ann, "Ann Lee", "infobox"), (town, "Old Town", "infobox"), (land, "Norland", "infobox"),
        (ann, "Lee", ""), (town, "old Towns", ""), (garden, "garden", ""), (ann, "Ann Lee", "History"), (roses, "Roses", "History"),
    ]  # fmt: skip
    assert found[0].sentence == "architect: Ann Lee"
    assert found[3].sentence == "Rose Hall (the Rose) is a hall by Lee in old Towns."
    assert found[5].sentence == "Its garden"
    assert [link.pos for link in found] == sorted(link.pos for link in found)
    assert wiki.neighbours(hall).tolist() == sorted({ann, town, land, roses, garden})
    assert wiki.meta["skipped"]["link_to_missing_page"] >= 2
    assert wiki.meta["skipped"]["link_to_itself"] == 1


def test_graph_agrees_with_the_links_table(wiki: WikiFolder) -> None:
    pairs = {(link.src, link.dst) for page in range(len(wiki)) for link in wiki.links_from(page)}
    assert pairs == {(page, int(target)) for page in range(len(wiki)) for target in wiki.neighbours(page)}
    assert wiki.indptr.dtype == np.int64
    assert wiki.indices.dtype == np.int32
    degrees = np.bincount(wiki.indices, minlength=len(wiki))
    assert wiki.in_degrees().tolist() == degrees.tolist() == [row.in_degree for row in wiki.pages()]
    assert wiki.meta["counts"]["edges"] == len(wiki.indices) == len(pairs)


def test_infobox_and_document(wiki: WikiFolder) -> None:
    hall, ann, land = ids(wiki, "Rose Hall", "Ann Lee", "Norland")
    items = [(item.key, item.value, item.ord, item.target_id) for item in wiki.infobox(hall)]
    assert items == [
        ("name", "Rose Hall", 0, None), ("architect", "Ann Lee", 0, ann), ("opened", "15 May 1931", 0, None),
        ("location", "Old Town", 0, ids(wiki, "Old Town")[0]), ("location", "Norland", 1, land),
    ]  # fmt: skip
    assert [item.target_id for item in wiki.infobox(ann) if item.key == "notable_works"] == [hall, None]
    assert wiki.document(hall).startswith(
        "Name: Rose Hall\nArchitect: Ann Lee\nOpened: 15 May 1931\nLocation: Old Town, Norland\n\nRose Hall (the Rose) is"
    )
    assert wiki.document(land) == wiki.text(land) == "A land. Old Town"
    assert label("birth_date") == "Birth date"


def test_aliases(wiki: WikiFolder) -> None:
    hall, ann = ids(wiki, "Rose Hall", "Ann Lee")
    assert wiki.aliases(ann) == ("Ann Lee (architect)", "Lee, Ann")
    assert wiki.aliases(hall) == ("Rose",)


def test_pictures(wiki: WikiFolder) -> None:
    (hall,) = ids(wiki, "Rose Hall")
    main, other = wiki.page_images(hall)
    assert (main.file, main.ord, main.licence, main.author) == ("Rose Hall.png", 0, "cc-by-sa-4.0, gfdl", "Ann P.")
    assert (other.file, other.ord, other.licence, other.author) == ("Rose garden.PNG", 1, "pd-old", "")
    assert wiki.images.open(main.ref).size == (main.ref.width_px, main.ref.height_px) == (40, 30)
    assert wiki.meta["skipped"]["picture_undecodable"] == 2
    assert [(image.file, image.ord) for image in wiki.page_images(ids(wiki, "Bad")[0])] == [("Café view.png", 4)]
    assert wiki.meta["images"] is True
    assert len(list((wiki.root / "images").rglob("*.png"))) == 3  # unused pictures are not copied


def test_skipped_pages_are_counted_by_reason(wiki: WikiFolder) -> None:
    skipped = wiki.meta["skipped"]
    assert skipped["redirect_cycle"] == 2
    assert skipped["redirect_missing"] == 1
    assert skipped["redirect_outside"] == 1
    assert skipped["no_text"] == 1
    assert skipped["namespace_14"] == 1
    assert skipped["namespace_6"] == 2
    assert wiki.meta["counts"]["redirects"] == 3


def test_sql_views_and_schemas(wiki: WikiFolder) -> None:
    connection = wiki.sql()
    assert connection.execute("SELECT count(*) FROM pages JOIN text USING (page_id)").fetchone() == (len(wiki),)
    assert connection.execute("SELECT title FROM redirects ORDER BY title").fetchall() == [
        ("Ann Lee (architect)",),
        ("Lee, Ann",),
        ("Old redirect",),
    ]
    connection.close()
    for name, schema in TABLES.items():
        assert pq.read_schema(wiki.root / f"{name}.parquet").equals(schema)


def test_the_folder_holds_nothing_else(wiki: WikiFolder) -> None:
    names = {path.name for path in wiki.root.iterdir()}
    arrays = {"indptr.npy", "indices.npy", "title_hash.npy", "title_page.npy"}
    assert names == {"meta.json", "images", *arrays, *(f"{name}.parquet" for name in TABLES)}


def test_same_dump_same_bytes(wiki: WikiFolder, tmp_path: Path) -> None:
    again = build_wiki(wiki.root.parent / "dump.xml", tmp_path / "again", images=wiki.root.parent / "pictures")
    for path in sorted(p for p in wiki.root.rglob("*") if p.is_file()):
        assert (again.root / path.relative_to(wiki.root)).read_bytes() == path.read_bytes(), path.name


def test_any_number_of_processes_writes_the_same_bytes(
    wiki: WikiFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parsing, "_BATCH_PAGES", 2)
    again = build_wiki(
        wiki.root.parent / "dump.xml", tmp_path / "again", images=wiki.root.parent / "pictures", workers=2
    )
    for path in sorted(p for p in wiki.root.rglob("*") if p.is_file()):
        assert (again.root / path.relative_to(wiki.root)).read_bytes() == path.read_bytes(), path.name


def test_small_row_groups_never_split_a_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "MAX_GROUP_ROWS", 7)
    monkeypatch.setattr(writing, "MAX_GROUP_CHARS", 60)
    pages = {f"P{n}": "".join(f"[[P{(n * 7 + k) % 40}|a{k}]] " for k in range(n % 9)) + f"text {n}" for n in range(40)}
    wiki = build_wiki(write(tmp_path / "d.xml", pages), tmp_path / "wiki")
    assert pq.ParquetFile(wiki.root / "links.parquet").num_row_groups > 5
    for n in range(40):
        expected = [(f"P{(n * 7 + k) % 40}", f"a{k}") for k in range(n % 9) if (n * 7 + k) % 40 != n]
        assert [(wiki.page(link.dst).title, link.anchor) for link in wiki.links_from(n)] == expected
        assert wiki.text(n).endswith(f"text {n}")


def test_threads_may_share_a_folder(wiki: WikiFolder) -> None:
    folder = WikiFolder(wiki.root)
    expected = [wiki.document(page) for page in range(len(wiki))]
    wrong: list[int] = []

    def read() -> None:
        wrong.extend(page for _ in range(20) for page in range(len(folder)) if folder.document(page) != expected[page])

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_unusable_folders_are_named(tmp_path: Path, wiki: WikiFolder) -> None:
    with pytest.raises(DataError, match="not a wiki folder"):
        WikiFolder(tmp_path)
    (tmp_path / "meta.json").write_text("{")
    with pytest.raises(DataError, match="cannot be read"):
        WikiFolder(tmp_path)
    (tmp_path / "meta.json").write_text('{"schema_version": 99}')
    with pytest.raises(DataError, match="version 99"):
        WikiFolder(tmp_path)
    (tmp_path / "meta.json").write_text(json.dumps(wiki.meta))
    with pytest.raises(DataError, match=r"pages\.parquet"):
        WikiFolder(tmp_path)
    with pytest.raises(DataError, match="no page 99"):
        wiki.page(99)


def test_an_existing_folder_is_refused(tmp_path: Path) -> None:
    dump = write(tmp_path / "d.xml", {"A": "x"})
    (tmp_path / "out").mkdir()
    with pytest.raises(RunExists, match="already exists"):
        build_wiki(dump, tmp_path / "out")


@pytest.mark.parametrize("problem", ["dump", "images"])
def test_a_failed_build_leaves_nothing(tmp_path: Path, problem: str) -> None:
    dump = tmp_path / "d.xml"
    write(dump, {"A": "x"}) if problem == "images" else dump.write_text("<mediawiki></mediawiki>")
    images = tmp_path / "none" if problem == "images" else None
    with pytest.raises(DataError if problem == "images" else DumpError):
        build_wiki(dump, tmp_path / "out" / "wiki", images=images)
    assert [path.name for path in tmp_path.rglob("*") if path.is_dir() and path.name != "out"] == []


@pytest.mark.parametrize(("number", "raised"), [(errno.ENOSPC, StorageFull), (errno.EDQUOT, StorageFull)])
def test_a_full_disk_is_reported_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, raised: type[Exception]
) -> None:
    def full(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(writing.TableWriter, "_flush", full)
    with pytest.raises(raised, match="Cannot write"):
        build_wiki(write(tmp_path / "d.xml", {"A": "x"}), tmp_path / "wiki")
    assert [path.name for path in tmp_path.iterdir()] == ["d.xml"]


def test_a_place_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(StorageFull, match="Cannot write"):
        build_wiki(write(tmp_path / "d.xml", {"A": "x"}), tmp_path / "file" / "wiki")


def test_a_full_file_system(tmp_path: Path) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full here")
    with pytest.raises(StorageFull, match="No space"), writing.new_folder(tmp_path / "wiki"):
        writing.TableWriter(Path("/dev/full"), TABLES["text"])


def test_a_quota_that_runs_out_while_writing(tmp_path: Path) -> None:
    """The real thing: the kernel refuses to let files grow over 40 kB."""
    dump = write(tmp_path / "d.xml", {f"P{n}": f"[[P{n + 1}]] {os.urandom(300).hex()}" for n in range(400)})
    code = (
        "import sys, resource; from pathlib import Path; from opensearch_vl.wiki.dump import build_wiki\n"
        "from opensearch_vl.errors import StorageFull\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, 40_000))\n"
        "try: build_wiki(Path(sys.argv[1]), Path(sys.argv[2]))\n"
        "except StorageFull as error: print('StorageFull', error)"
    )
    done = subprocess.run([sys.executable, "-c", code, dump, tmp_path / "wiki"], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": "src"}, cwd=Path(__file__).parents[2])  # fmt: skip
    assert done.stdout.startswith("StorageFull"), done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["d.xml"]


def test_interrupting_leaves_nothing(tmp_path: Path) -> None:
    dump = write(tmp_path / "d.xml", {f"P{n}": "[[P1]] text" for n in range(200)})
    code = (
        "import sys, os, signal; from pathlib import Path; from opensearch_vl.wiki.dump import build_wiki\n"
        "build_wiki(Path(sys.argv[1]), Path(sys.argv[2]), progress=lambda done, total: os.kill(os.getpid(), signal.SIGINT))"
    )
    done = subprocess.run([sys.executable, "-c", code, dump, tmp_path / "wiki"], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": "src"}, cwd=Path(__file__).parents[2])  # fmt: skip
    assert done.returncode in (-signal.SIGINT, 130, 1)
    assert "KeyboardInterrupt" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["d.xml"]


def test_damage_is_reported_in_meta(tmp_path: Path) -> None:
    text = write(tmp_path / "d.xml", {f"P{n}": "text " * 500 for n in range(500)}).read_text()
    (tmp_path / "cut.xml").write_text(text[: len(text) // 2])
    wiki = build_wiki(tmp_path / "cut.xml", tmp_path / "wiki")
    assert 0 < len(wiki) < 500
    assert "pages the XML is damaged" in wiki.meta["damage"]


def test_a_title_twice_is_taken_once(tmp_path: Path) -> None:
    first, second = (
        write(tmp_path / "a.xml", {"A": "one"}).read_text(),
        write(tmp_path / "b.xml", {"A": "two"}).read_text(),
    )
    start = second.index("<page>")
    (tmp_path / "d.xml").write_text(first.replace("</mediawiki>", second[start:]))
    wiki = build_wiki(tmp_path / "d.xml", tmp_path / "wiki")
    assert (len(wiki), wiki.text(0), wiki.meta["skipped"]) == (1, "one", {"title_twice": 1})


def test_a_case_sensitive_wiki(tmp_path: Path) -> None:
    dump = write(tmp_path / "d.xml", {"bus": "[[Bus]]", "Bus": "[[bus]] [[File:x.png]]"}, case="case-sensitive")
    picture(tmp_path / "p" / "X.png")
    wiki = build_wiki(dump, tmp_path / "wiki", images=tmp_path / "p")
    assert (wiki.resolve("bus"), wiki.resolve("Bus")) == (0, 1)
    assert [len(wiki.neighbours(n)) for n in (0, 1)] == [1, 1]
    assert len(wiki.page_images(1)) == 1


def test_old_exports_without_ns_and_redirect_elements(tmp_path: Path) -> None:
    (tmp_path / "d.xml").write_text(
        '<mediawiki version="0.3" xml:lang="de"><siteinfo><namespaces><namespace key="10">Vorlage</namespace></namespaces></siteinfo>'
        "<page><title>Bus</title><revision><text>a</text></revision></page><page><title>Omnibus</title><revision><text>#WEITERLEITUNG [[bus]]</text></revision></page>"
        "<page><title>Vorlage:X</title><revision><text>b</text></revision></page><page><title>2001: Film</title><revision><text>c</text></revision></page></mediawiki>"
    )  # fmt: skip
    wiki = build_wiki(tmp_path / "d.xml", tmp_path / "wiki")
    assert wiki.column("title") == ["Bus", "2001: Film"]
    assert wiki.resolve("Omnibus") == 0
    assert wiki.meta["skipped"] == {"namespace_10": 1}


def test_pages_that_are_no_articles_or_out_of_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("opensearch_vl.wiki.export._MAX_TEXT", 1_000)
    monkeypatch.setattr("opensearch_vl.wiki.dump.MAX_LINKS", 3)
    pages = {"Main Page": "[[A]]", "A": "[[B]] [[B]] [[B]] [[B]] [[C]]", "B": "x" * 2_000, "C": "end", "T" * 300: "x"}
    wiki = build_wiki(write(tmp_path / "d.xml", pages), tmp_path / "wiki")
    assert wiki.column("title") == ["A", "C"]
    assert wiki.meta["skipped"] == {
        "main_page": 1,
        "page_too_long": 1,
        "bad_title": 1,
        "links_beyond_limit": 2,
        "link_to_missing_page": 3,
    }


TITLES = st.sampled_from([f"T{n}" for n in range(12)])


@given(st.dictionaries(TITLES, st.integers(0, 99), max_size=5), st.dictionaries(TITLES, TITLES, max_size=12))
def test_redirects_end_at_pages_or_are_counted(pages: dict[str, int], redirects: dict[str, str]) -> None:
    redirects = {title: target for title, target in redirects.items() if title not in pages}
    found, dropped = follow_redirects(pages, redirects)
    assert len(found) + sum(dropped.values()) == len(redirects)
    for title, page in found.items():
        for _ in range(20):
            title = redirects.get(title, title)
        assert pages[title] == page


def test_a_long_chain_is_bounded() -> None:
    chain = {f"R{n}": f"R{n + 1}" for n in range(100)}
    found, dropped = follow_redirects({"R100": 0}, chain)
    assert len(found) == 16
    assert dropped == {"redirect_too_long": 84}


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 12), st.booleans()), max_size=40))
def test_random_link_lists_become_the_same_graph(
    tmp_path_factory: pytest.TempPathFactory, edges: list[tuple[int, int, bool]]
) -> None:
    """10 pages, 3 redirects (10→0, 11→10, 12→missing); pages link as drawn."""
    pages = {f"P{n}": "text" for n in range(10)}
    for source, target, piped in edges:
        pages[f"P{source}"] += f" [[P{target}|x]]" if piped else f" [[p{target}]]."
    folder = tmp_path_factory.mktemp("random")
    wiki = build_wiki(
        write(folder / "d.xml", {**pages, "P10": ">>P0", "P11": ">>P10", "P12": ">>Gone"}), folder / "wiki"
    )
    means = {**{n: n for n in range(10)}, 10: 0, 11: 0}
    expected = {(source, means[target]) for source, target, _ in edges if target in means and means[target] != source}
    assert {(n, int(k)) for n in range(10) for k in wiki.neighbours(n)} == expected


@pytest.mark.skipif(not DATA.is_dir(), reason="real dumps are not here")
def test_a_whole_wikipedia(tmp_path: Path) -> None:
    wiki = build_wiki(DATA / "ltgwiki-201709-pages-articles.xml.bz2", tmp_path / "wiki")
    counts = wiki.meta["counts"]
    assert (wiki.meta["lang"], counts["pages_in_dump"], counts["pages"]) == ("ltg", 2_004, 902)
    assert counts["links"] > 3_000
    assert counts["with_infobox"] > 200
    assert counts["kind_disambiguation"] >= 5
    assert wiki.meta["domains"]["Location"] > 200
    page = wiki.page_at("https://ltg.wikipedia.org/wiki/R%C4%93zne_(upe)")
    assert page is not None
    assert wiki.page(page).title == "Rēzne (upe)"


@pytest.mark.skipif(not DATA.is_dir(), reason="real dumps are not here")
def test_pages_of_many_editions() -> None:
    read = empty = 0
    for file in sorted((DATA / "dbpedia-minidumps").iterdir())[::5]:
        export = Export(file)
        try:
            for page in export:
                if page.text and page.model == "wikitext":
                    parsed = parse_page(page.title, page.text, export.site)
                    assert len(parsed.text) <= 2 * len(page.text)
                    read += 1
        except DumpError:
            empty += 1
    assert read > 20
    assert empty > 5
