"""From a MediaWiki export to a wiki folder, in two passes (paper, section 3.1).

The first pass streams the export and writes what each page says, links by title. The second knows all titles, follows
redirects, and writes the final tables and the CSR matrix. Only titles are held in memory.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from opensearch_vl.images import ImageStore
from opensearch_vl.wiki.export import Export, RawPage
from opensearch_vl.wiki.graph import CsrWriter, follow_redirects, title_index
from opensearch_vl.wiki.page import ParsedPage, redirect_target
from opensearch_vl.wiki.parsing import Article, parse_all
from opensearch_vl.wiki.pictures import PictureFolder, Terms, read_terms
from opensearch_vl.wiki.schema import SCHEMA_VERSION, TABLES
from opensearch_vl.wiki.tables import WikiFolder, title_hash
from opensearch_vl.wiki.titles import FILE, MAIN, MAX_TITLE_BYTES, Site, TargetKind, file_name
from opensearch_vl.wiki.writing import TableWriter, new_folder, rows_of

MAX_LINKS = 20_000
"""Links kept per page; the longest lists of Wikipedia stay below."""
_INT, _STR = pa.int32(), pa.string()
_RAW = {
    "links": pa.schema(
        [("src", _INT), ("target", _STR), ("anchor", _STR), ("sentence", _STR), ("section", _STR), ("pos", _INT)]
    ),
    "infobox": pa.schema([("page_id", _INT), ("key", _STR), ("value", _STR), ("ord", _INT), ("target", _STR)]),
    "names": pa.schema([("page_id", _INT), ("alias", _STR)]),
    "files": pa.schema([("page_id", _INT), ("file", _STR), ("ord", _INT)]),
}
"""Tables of the first pass that the second turns into final ones."""


@dataclass
class _Reading:
    """What the first pass holds in memory."""

    pages: dict[str, int] = field(default_factory=dict)
    redirects: dict[str, str] = field(default_factory=dict)
    terms: dict[str, Terms] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    skipped: Counter[str] = field(default_factory=Counter)
    domains: Counter[str] = field(default_factory=Counter)


def build_wiki(
    dump: Path,
    out: Path,
    *,
    images: Path | None = None,
    progress: Callable[[int, int], None] | None = None,
    workers: int = 1,
) -> WikiFolder:
    """Read a MediaWiki XML export into a new wiki folder.

    Args:
        dump: The export: .xml, .xml.bz2 or .xml.gz.
        out: The folder to make. It appears only when everything is written.
        images: Folder of picture files under the names that pages use; the wiki then holds the pictures of its pages.
        progress: Called with (bytes read, bytes total) of the dump.
        workers: Processes that parse; the result is the same for any number. Pays on dumps of tens of megabytes.

    Raises:
        DumpError: `dump` is missing or not a usable export.
        DataError: `images` is not a folder.
        RunExists: `out` is already there.
        StorageFull: The disk is full or `out` cannot be written.
    """
    dump, out = Path(dump), Path(out)
    with new_folder(out) as folder:
        scratch = folder / "scratch"
        scratch.mkdir()
        export = Export(dump, progress)
        pictures = PictureFolder(Path(images)) if images is not None else None
        reading = _first_pass(export, folder, scratch, pictures, workers)
        _second_pass(reading, folder, scratch, pictures)
        _write_meta(folder, export, reading, pictures)
        for file in scratch.iterdir():
            file.unlink()
        scratch.rmdir()
    return WikiFolder(out)


# --------------------------------------------------------------------------------------------- first pass


def _first_pass(export: Export, folder: Path, scratch: Path, pictures: PictureFolder | None, workers: int) -> _Reading:
    reading = _Reading()
    with ExitStack() as stack:
        writers = {name: stack.enter_context(TableWriter(scratch / name, schema)) for name, schema in _RAW.items()}
        writers["text"] = stack.enter_context(TableWriter(folder / "text.parquet", TABLES["text"]))
        writers["pages"] = stack.enter_context(TableWriter(scratch / "pages", TABLES["pages"]))
        articles = _articles(export, reading, pictures)
        for article, parsed in parse_all(articles, lambda: export.site, workers):
            _write_page(article, parsed, reading, writers, pictures)
    return reading


def _articles(export: Export, reading: _Reading, pictures: PictureFolder | None) -> Iterator[Article]:
    """The articles of the export; notes redirects, terms of pictures, and what is skipped on the way."""
    for page in export:
        reading.counts["pages_in_dump"] += 1
        found = _sort(page, export.site, reading, pictures)
        if isinstance(found, Article):
            yield found
        elif found:
            reading.skipped[found] += 1


def _sort(page: RawPage, site: Site, reading: _Reading, pictures: PictureFolder | None) -> Article | str:
    """An article to parse; or why the page is skipped; or an empty string for a redirect, which is noted."""
    namespace, title = _place(page, site)
    if namespace == FILE and pictures is not None and page.text is not None and title in pictures:
        reading.terms[title] = read_terms(page.text, site)
    if namespace != MAIN:
        return f"namespace_{namespace}"
    if not title or len(title.encode("utf-8", "replace")) > MAX_TITLE_BYTES:
        return "bad_title"
    if title == site.main_page:
        return "main_page"
    if title in reading.pages or title in reading.redirects:
        return "title_twice"
    target = _redirect(page, site)
    if target is not None:
        if not target:
            return "redirect_outside"
        if target == title:
            return "redirect_cycle"
        reading.redirects[title] = target
        return ""
    if page.model != "wikitext":
        return "not_wikitext"
    if page.too_long:
        return "page_too_long"
    if page.text is None or not page.text.strip():
        return "no_text"
    page_id = reading.pages[title] = len(reading.pages)
    return Article(page_id, title, page.dump_id, page.text)


def _place(page: RawPage, site: Site) -> tuple[int, str]:
    """Namespace and normalised title; old exports have no `<ns>`, so the prefix tells."""
    prefix, colon, rest = page.title.partition(":")
    named = site.namespace(prefix) if colon else None
    namespace = page.namespace if page.namespace is not None else (named or MAIN)
    if namespace == FILE:
        return namespace, file_name(rest if named is not None else page.title)
    return namespace, site.normalise(rest if namespace != MAIN and named is not None else page.title)


def _redirect(page: RawPage, site: Site) -> str | None:
    """Title a redirect leads to; empty if it leads out of the articles; None if the page is no redirect."""
    if page.redirect:
        target = site.parse(page.redirect)
        return target.title if target.kind is TargetKind.ARTICLE else ""
    found = redirect_target(page.text or "", site)
    return found if found is not None or page.redirect is None else ""


def _write_page(
    article: Article,
    parsed: ParsedPage,
    reading: _Reading,
    writers: dict[str, TableWriter],
    pictures: PictureFolder | None,
) -> None:
    page_id, infobox = article.page_id, parsed.infobox
    writers["pages"].add(
        page_id,
        article.title,
        parsed.kind,
        parsed.domain,
        len(parsed.text),
        0,  # in-degree: known after the second pass
        infobox.type,
        article.dump_id,
        parsed.num_file_links,
    )
    writers["text"].add(page_id, parsed.text, chars=len(parsed.text))
    reading.skipped["links_beyond_limit"] += max(0, len(parsed.links) - MAX_LINKS)
    for pos, link in enumerate(parsed.links[:MAX_LINKS]):
        chars = len(link.sentence) + len(link.anchor)
        writers["links"].add(page_id, link.title, link.anchor, link.sentence, link.section, pos, chars=chars)
    for item in infobox.items:
        writers["infobox"].add(page_id, item.key, item.value, item.ord, item.target, chars=len(item.value))
    for name in parsed.names:
        writers["names"].add(page_id, name)
    if pictures is not None:
        boxed = [(file, 0 if number == 0 else None) for number, file in enumerate(dict.fromkeys(infobox.files))]
        place = 0
        for file, fixed in [*boxed, *((file, None) for file in parsed.files)]:
            if fixed is None:
                place += 1
            if file in pictures:
                writers["files"].add(page_id, file, 0 if fixed == 0 else place)
    for writer in writers.values():
        writer.end_key()
    reading.counts[f"kind_{parsed.kind}"] += 1
    reading.counts["with_infobox"] += bool(infobox.type)
    reading.domains[parsed.domain or "none"] += parsed.kind == "article"
    if infobox.skipped:
        reading.skipped[infobox.skipped] += 1


# -------------------------------------------------------------------------------------------- second pass


def _second_pass(reading: _Reading, folder: Path, scratch: Path, pictures: PictureFolder | None) -> None:
    redirects, dropped = follow_redirects(reading.pages, reading.redirects)
    reading.skipped.update(dropped)
    titles = {**redirects, **reading.pages}
    with TableWriter(folder / "redirects.parquet", TABLES["redirects"]) as writer:
        for title in sorted(redirects):
            writer.add(title, redirects[title], chars=len(title))
            writer.end_key()
    hashes, pages = title_index(titles, title_hash)
    np.save(folder / "title_hash.npy", hashes)
    np.save(folder / "title_page.npy", pages)
    _resolve_infobox(titles, folder, scratch, reading)
    in_degree = _resolve_links(titles, folder, scratch, reading)
    with TableWriter(folder / "pages.parquet", TABLES["pages"]) as writer:
        start = 0
        for table in rows_of(scratch / "pages"):
            degrees = pa.array(in_degree[start : start + table.num_rows])
            writer.add_table(table.set_column(table.schema.get_field_index("in_degree"), "in_degree", degrees))
            start += table.num_rows
    _write_aliases(redirects, folder, scratch, reading)
    _write_images(folder, scratch, reading, pictures)
    reading.counts.update(pages=len(reading.pages), redirects=len(redirects))


def _targets(table: Any, titles: dict[str, int]) -> Any:
    names = table.column("target").to_pylist()
    return np.fromiter((titles.get(name, -1) for name in names), dtype=np.int32, count=len(names))


def _resolve_links(titles: dict[str, int], folder: Path, scratch: Path, reading: _Reading) -> Any:
    """Write `links.parquet` and the CSR matrix; returns the in-degrees, ``[N]``."""
    with (
        closing(CsrWriter(folder, len(reading.pages))) as csr,
        TableWriter(folder / "links.parquet", TABLES["links"]) as writer,
    ):
        for table in rows_of(scratch / "links"):
            src, dst = table.column("src").to_numpy(), _targets(table, titles)
            red, own = dst < 0, dst == src
            reading.skipped.update(link_to_missing_page=int(red.sum()), link_to_itself=int(own.sum()))
            keep = ~(red | own)
            csr.add(src[keep], dst[keep])
            renamed = table.set_column(1, "dst", pa.array(dst)).filter(pa.array(keep))
            writer.add_table(renamed)
        reading.counts.update(links=writer.num_rows, edges=csr.finish())
        return csr.in_degree


def _resolve_infobox(titles: dict[str, int], folder: Path, scratch: Path, reading: _Reading) -> None:
    with TableWriter(folder / "infobox.parquet", TABLES["infobox"]) as writer:
        for table in rows_of(scratch / "infobox"):
            found = _targets(table, titles)
            found[found == table.column("page_id").to_numpy()] = -1
            reading.counts["infobox_values_linked"] += int((found >= 0).sum())
            writer.add_table(table.set_column(4, "target_id", pa.array(found, mask=found < 0)))
        reading.counts.update(infobox_items=writer.num_rows)


def _write_aliases(redirects: dict[str, int], folder: Path, scratch: Path, reading: _Reading) -> None:
    named: dict[int, list[str]] = {}
    for title in sorted(redirects):
        named.setdefault(redirects[title], []).append(title)
    for table in rows_of(scratch / "names"):
        for page_id, alias in zip(*(column.to_pylist() for column in table.columns), strict=True):
            known = named.setdefault(page_id, [])
            if alias not in known:
                known.append(alias)
    with TableWriter(folder / "aliases.parquet", TABLES["aliases"]) as writer:
        for page_id in sorted(named):
            for alias in named[page_id]:
                writer.add(page_id, alias)
            writer.end_key()
        reading.counts.update(aliases=writer.num_rows)


def _write_images(folder: Path, scratch: Path, reading: _Reading, pictures: PictureFolder | None) -> None:
    store = ImageStore(folder / "images")
    with TableWriter(folder / "images.parquet", TABLES["images"]) as writer:
        for table in rows_of(scratch / "files"):
            page_ids, files, numbers = (column.to_pylist() for column in table.columns)
            refs = pictures.store(files, store) if pictures is not None else {}
            for page_id, file, number in zip(page_ids, files, numbers, strict=True):
                if file not in refs:
                    continue
                ref, terms = refs[file], reading.terms.get(file, Terms())
                size = (ref.width_px, ref.height_px)
                writer.add(page_id, file, ref.sha256, *size, terms.licence, terms.author, ref.mime, number)
            writer.end_key()
        reading.counts.update(images=writer.num_rows)


def _write_meta(folder: Path, export: Export, reading: _Reading, pictures: PictureFolder | None) -> None:
    skipped = +reading.skipped + (pictures.problems if pictures is not None else Counter())
    meta = {
        "schema_version": SCHEMA_VERSION,
        "name": export.site.name,
        "lang": export.site.lang,
        "base": export.site.base,
        "site": {"first_letter": export.site.first_letter, "export_version": export.version},
        "source": export.path.name,
        "counts": dict(sorted(reading.counts.items())),
        "domains": dict(sorted(reading.domains.items())),
        "skipped": dict(sorted(skipped.items())),
        "images": pictures is not None,
        "damage": export.damage,
    }
    (folder / "meta.json").write_text(json.dumps(meta, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")
