"""Streaming reader of MediaWiki XML exports: the first step from an encyclopedia to a graph (paper, section 3.1).

Reads `.xml`, `.bz2` (also many streams in one file) and `.gz`, told apart by their first bytes, in any encoding that
the XML declares and any version of the export schema. One page is held at a time. A document type declaration is
refused, so no entity is ever expanded.
"""

from __future__ import annotations

import bz2
import gzip
import io
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any
from xml.parsers import expat

from opensearch_vl.errors import DumpError
from opensearch_vl.wiki.titles import Site, base_prefix, main_page

_CHUNK = 1 << 18
_MAX_TEXT = 32_000_000
"""Characters of one page; MediaWiki's own limit is 2 MB (`$wgMaxArticleSize`)."""

_FOREIGN = (
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive", "Unpack it first (7z x), then give the .xml."),
    (b"\x28\xb5\x2f\xfd", "a zstd file", "Unpack it first (zstd -d), then give the .xml."),
    (b"\xfd7zXZ", "an xz file", "Unpack it first (xz -d), then give the .xml."),
    (b"PK\x03\x04", "a ZIP archive", "Unpack it first, then give the .xml."),
    (b"ZIM\x04", "a ZIM file", "Get the pages-articles .xml.bz2 of the wiki instead."),
    (b"PAR1", "a Parquet file", "Get the pages-articles .xml.bz2 of the wiki instead."),
    (b"%PDF", "a PDF", ""),
    (b"SQLite format", "an SQLite database", ""),
    (b"-- MySQL", "an SQL dump", "Get the pages-articles .xml.bz2 of the wiki instead."),
    (b"{", "JSON", "Get the pages-articles .xml.bz2 of the wiki instead."),
)


@dataclass(frozen=True, slots=True)
class RawPage:
    """A page as exported, of its last revision in the file.

    Attributes:
        dump_id: The wiki's own page id; -1 if the export has none.
        redirect: Target in the `<redirect>` element; None without the element, empty if it names no target.
        text: Wikitext; None where the revision's text was deleted or is longer than we accept.
        model: Content model; `wikitext` where none is given.
        too_long: Whether the text was longer than we accept.
    """

    title: str
    namespace: int | None
    dump_id: int
    redirect: str | None
    text: str | None
    model: str
    too_long: bool = False


class Export:
    """An export being read. Iterate once over the pages; `site` is known from the first page on.

    Args:
        dump: The file.
        progress: Called with (bytes read, bytes total) of the file as it lies on disk.

    Attributes:
        damage: Set after reading if the file broke off or was damaged after some pages.
        num_pages: Pages read so far.
    """

    def __init__(self, dump: Path | str, progress: Callable[[int, int], None] | None = None) -> None:
        self.path = Path(dump)
        self.site = Site()
        self.version = ""
        self.damage = ""
        self.num_pages = 0
        self._progress = progress or (lambda done, total: None)

    def __iter__(self) -> Iterator[RawPage]:
        """Pages in file order.

        Raises:
            DumpError: Not an export, no pages in it, or broken before the first page.
        """
        try:
            raw = open(self.path, "rb")  # noqa: SIM115 - closed by the with below
        except FileNotFoundError as error:
            raise DumpError(f"There is no dump {self.path}.", "Check the path.") from error
        except IsADirectoryError as error:
            raise DumpError(f"{self.path} is a folder.", "Give one .xml, .xml.bz2 or .xml.gz file.") from error
        except OSError as error:
            raise DumpError(f"Cannot read {self.path}: {error.strerror}.") from error
        with raw:
            yield from self._read(raw)
        if not self.num_pages:
            raise DumpError(f"{self.path} is a MediaWiki export without a single page.", "Was the download cut short?")

    def _read(self, raw: IO[bytes]) -> Iterator[RawPage]:
        total = raw.seek(0, io.SEEK_END)
        raw.seek(0)
        if total == 0:
            raise DumpError(f"{self.path} is empty.", "Download it again.")
        head = raw.read(16)
        raw.seek(0)
        self._refuse_foreign(head)
        stream: Any = raw
        if head.startswith(b"BZh"):
            stream = bz2.BZ2File(raw)
        elif head.startswith(b"\x1f\x8b"):
            stream = gzip.GzipFile(fileobj=raw)
        handler = _Handler()
        first = True
        while True:
            try:
                chunk = stream.read1(_CHUNK)  # `read` would lose what came before a damaged block
            except (EOFError, OSError, zlib.error) as error:
                self._broken(f"the compressed data break off or are damaged ({error})")
                return
            if first:
                self._refuse_foreign(chunk[:64].lstrip(b"\xef\xbb\xbf \r\n\t"))
                first = False
            broken = handler.feed(chunk, final=not chunk)
            self.version, self.site = handler.version, handler.site
            for page in handler.take():
                self.num_pages += 1
                yield page
            self._progress(min(raw.tell(), total), total)
            if broken:
                self._broken(broken)
            if broken or not chunk:
                return

    def _refuse_foreign(self, head: bytes) -> None:
        for magic, what, fix in _FOREIGN:
            if head.startswith(magic):
                raise DumpError(f"{self.path} is {what}, not a MediaWiki XML export.", fix)

    def _broken(self, why: str) -> None:
        if not self.num_pages:
            raise DumpError(f"{self.path} cannot be read as a MediaWiki XML export: {why}.", "Download it again.")
        self.damage = f"After {self.num_pages:,} pages {why}."


@dataclass
class _Draft:
    """A page while its elements arrive."""

    values: dict[str, str] = field(default_factory=dict)
    redirect: str | None = None
    deleted: bool = False
    too_long: bool = False


class _Handler:
    """Turns expat's events into pages. Elements are recognised by their local name and parent."""

    def __init__(self) -> None:
        self.version = ""
        self._lang = ""
        self._info: dict[str, str] = {}
        self._namespaces: dict[str, int] = {}
        self._site: Site | None = None
        self._pages: list[RawPage] = []
        self._path: list[str] = []
        self._text: list[str] = []
        self._size = 0
        self._draft: _Draft | None = None
        self._namespace_key: int | None = None
        self._problem = ""
        self._parser = expat.ParserCreate()
        self._parser.buffer_text = True
        self._parser.buffer_size = 1 << 16
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.CharacterDataHandler = self._characters
        self._parser.StartDoctypeDeclHandler = self._doctype

    @property
    def site(self) -> Site:
        if self._site is None:
            info = self._info
            lang = self._lang or info.get("dbname", "").removesuffix("wiki").replace("_", "-") or "en"
            self._site = Site(
                name=info.get("sitename", ""),
                main_page=main_page(info.get("base", "")),
                lang=lang.lower(),
                base=base_prefix(info["base"]) if info.get("base") else Site.base,
                first_letter=info.get("case", "first-letter") != "case-sensitive",
                namespaces=dict(self._namespaces),
            )
        return self._site

    def take(self) -> list[RawPage]:
        pages, self._pages = self._pages, []
        return pages

    def feed(self, chunk: bytes, *, final: bool) -> str:
        """Parse; returns what is wrong, or an empty string."""
        try:
            self._parser.Parse(chunk, final)
        except expat.ExpatError as error:
            return self._problem or f"the XML is damaged or breaks off ({error})"
        except _Refused as error:
            return str(error)
        except (LookupError, ValueError) as error:
            return f"its encoding cannot be read ({error})"
        return ""

    def _doctype(self, name: str, *_: Any) -> None:
        what = "an HTML page" if name.lower() == "html" else f"an XML document of type {name!r:.60}"
        raise _Refused(f"it is {what}; an export has no document type declaration")

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        name = tag.rpartition(":")[2]
        path = self._path
        if not path:
            if name != "mediawiki":
                raise _Refused(f"its outermost element is <{name[:60]}>, expected <mediawiki>")
            self.version = attributes.get("version", "")
            self._lang = attributes.get("xml:lang", "")
        depth = len(path)
        path.append(name)
        self._text = []
        self._size = 0
        if name == "page" and depth == 1:
            self._draft = _Draft()
        elif name == "namespace":
            key = attributes.get("key", "")
            self._namespace_key = int(key) if key.lstrip("-").isdigit() else None
        elif self._draft is not None:
            if name == "redirect" and depth == 2:
                self._draft.redirect = attributes.get("title", "")
            elif name == "text":
                self._draft.deleted = "deleted" in attributes

    def _characters(self, data: str) -> None:
        self._size += len(data)
        if self._size <= _MAX_TEXT:
            self._text.append(data)
        elif self._draft is not None:
            self._draft.too_long = True
            self._text = []

    def _end(self, tag: str) -> None:
        name = self._path.pop()
        draft = self._draft
        if draft is None:
            self._end_siteinfo(name)
            return
        depth = len(self._path)
        if (depth == 2 and name in ("title", "ns", "id")) or (depth == 3 and name in ("text", "model")):
            draft.values[name] = "".join(self._text)
        elif name == "page" and depth == 1:
            self._finish(draft)
            self._draft = None
        self._text = []
        self._size = 0

    def _end_siteinfo(self, name: str) -> None:
        text = "".join(self._text)
        if name == "namespace" and self._namespace_key is not None:
            if text.strip():
                self._namespaces[text.strip().replace("_", " ").lower()] = self._namespace_key
            self._namespace_key = None
        elif name in ("sitename", "dbname", "base", "case"):
            self._info[name] = text.strip()
        self._site = None
        self._text = []

    def _finish(self, draft: _Draft) -> None:
        values = draft.values
        number = values.get("ns", "").strip()
        page_id = values.get("id", "").strip()
        self._pages.append(
            RawPage(
                title=values.get("title", ""),
                namespace=int(number) if number.lstrip("-").isdigit() else None,
                dump_id=int(page_id) if page_id.isdigit() else -1,
                redirect=draft.redirect,
                text=None if draft.deleted or draft.too_long or "text" not in values else values["text"],
                model=values.get("model", "wikitext").strip() or "wikitext",
                too_long=draft.too_long,
            )
        )


class _Refused(Exception):
    """Something in the XML that an export never has."""
