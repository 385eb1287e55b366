"""The wiki folder: tables of pages, links, infoboxes and pictures, and how every other room reads them.

A folder is written once by `wiki.dump.build_wiki` and never changed. Page ids are dense: row `i` of `pages.parquet`,
row `i` of the CSR matrix. Tables keyed by page are sorted by page and no page straddles two row groups, so one page
costs one cached row group, whatever the size of the folder.

```
WIKI/meta.json                    what was read, counts, and what was skipped by reason
WIKI/{pages,redirects,links,infobox,images,aliases,text}.parquet
WIKI/indptr.npy, indices.npy      out-links page → page: redirects followed, distinct, no self-links
WIKI/title_hash.npy, title_page.npy   sorted hashes of all titles and redirects, and the pages they mean
WIKI/images/                      the pages' pictures, content-addressed
```
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from functools import cached_property, lru_cache
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq

from opensearch_vl.errors import DataError
from opensearch_vl.images import ImageStore
from opensearch_vl.types import ImageRef
from opensearch_vl.wiki.schema import (
    SCHEMA_VERSION,
    TABLES,
    InfoboxItem,
    LinkRow,
    PageImage,
    PageRow,
)
from opensearch_vl.wiki.titles import Site

__all__ = ["InfoboxItem", "LinkRow", "PageImage", "PageRow", "WikiFolder", "label", "title_hash"]

_CACHED_GROUPS = 24  # row groups per table kept decoded; a group is about a megabyte


def label(key: str) -> str:
    """An infobox key as a reader sees it: ``birth_date`` becomes ``Birth date``."""
    words = key.replace("_", " ").strip()
    return words[:1].upper() + words[1:]


def title_hash(title: str) -> int:
    """64-bit hash that the title index is sorted by; the same in every process."""
    return int.from_bytes(hashlib.blake2b(title.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")


class WikiFolder:
    """A wiki folder open for reading. Safe to share between threads.

    Raises:
        DataError: If `root` is not a wiki folder, or one of another version.
    """

    def __init__(self, root: Path | str) -> None:
        self.root = Path(root)
        self.meta = _read_meta(self.root)
        self.images = ImageStore(self.root / "images")
        site = self.meta["site"]
        self.site = Site(
            name=self.meta["name"], lang=self.meta["lang"], base=self.meta["base"], first_letter=site["first_letter"]
        )
        self._pages = pq.read_table(self.root / "pages.parquet").combine_chunks()
        self._tables: dict[str, _KeyedTable] = {}
        self._opening = Lock()

    def __len__(self) -> int:
        return int(self._pages.num_rows)

    # ------------------------------------------------------------------------------------------- pages

    def page(self, page_id: int) -> PageRow:
        """The row of a page.

        Raises:
            DataError: If there is no such page.
        """
        if not 0 <= page_id < len(self):
            raise DataError(f"There is no page {page_id}; {self.root} has pages 0 to {len(self) - 1}.")
        return PageRow(*(self._pages.column(name)[page_id].as_py() for name in PageRow.__slots__))

    def pages(self) -> Iterator[PageRow]:
        """All pages, by id."""
        for batch in self._pages.select(list(PageRow.__slots__)).to_batches(max_chunksize=10_000):
            for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                yield PageRow(*row)

    def column(self, name: str) -> list[Any]:
        """One column of the pages table, by page id."""
        values: list[Any] = self._pages.column(name).to_pylist()
        return values

    def in_degrees(self) -> npt.NDArray[np.int64]:
        """``[N]`` number of distinct pages that link to each page."""
        degrees: npt.NDArray[np.int64] = self._pages.column("in_degree").to_numpy()
        return degrees

    def resolve(self, title: str) -> int | None:
        """The page that a title means, redirects followed; None if there is none.

        Title normalisation is MediaWiki's: underscores, spaces, first letter, a section after ``#`` ignored.
        """
        normal = self.site.normalise(title.partition("#")[0].strip().removeprefix(":"))
        if not normal:
            return None
        hashes, pages = self._title_index
        wanted = np.uint64(title_hash(normal))
        place = int(np.searchsorted(hashes, wanted))
        return int(pages[place]) if place < len(hashes) and hashes[place] == wanted else None

    def url(self, page_id: int) -> str:
        """Address of a page."""
        return self.site.url(self.page(page_id).title)

    def page_at(self, url: str) -> int | None:
        """The page at an address of this wiki, redirects followed; None for any other address."""
        title = self.site.title_at(url)
        return self.resolve(title) if title is not None else None

    # ----------------------------------------------------------------------------------------- content

    def text(self, page_id: int) -> str:
        """Plain prose: paragraphs separated by blank lines, section headings as ``== H ==``."""
        rows = self._table("text").rows(page_id)
        return str(rows[0]["text"]) if rows else ""

    def infobox(self, page_id: int) -> tuple[InfoboxItem, ...]:
        """Infobox items in the order of the page."""
        return tuple(InfoboxItem(**row) for row in self._table("infobox").rows(page_id))

    def document(self, page_id: int) -> str:
        """What search and readers see: infobox as ``Label: value`` lines, a blank line, then the prose."""
        values: dict[str, list[str]] = {}
        for item in self.infobox(page_id):
            values.setdefault(item.key, []).append(item.value)
        lines = "\n".join(f"{label(key)}: {', '.join(items)}" for key, items in values.items())
        return "\n\n".join(part for part in (lines, self.text(page_id)) if part)

    def links_from(self, page_id: int) -> tuple[LinkRow, ...]:
        """Every link of the page, in order; a target linked twice has two rows."""
        return tuple(LinkRow(**row) for row in self._table("links").rows(page_id))

    def page_images(self, page_id: int) -> tuple[PageImage, ...]:
        """Pictures of the page that the folder holds, the infobox picture (`ord` 0) first."""
        return tuple(
            PageImage(
                page_id=row["page_id"],
                file=row["file"],
                ref=ImageRef(
                    sha256=row["sha256"], mime=row["mime"], width_px=row["width_px"], height_px=row["height_px"]
                ),
                licence=row["licence"],
                author=row["author"],
                ord=row["ord"],
            )
            for row in self._table("images").rows(page_id)
        )

    def aliases(self, page_id: int) -> tuple[str, ...]:
        """Other names of the page: titles of redirects to it, and bold names in its lead."""
        return tuple(row["alias"] for row in self._table("aliases").rows(page_id))

    # ------------------------------------------------------------------------------------------- graph

    @cached_property
    def indptr(self) -> npt.NDArray[np.int64]:
        """``[N+1]`` row pointers of the CSR matrix of out-links."""
        loaded: npt.NDArray[np.int64] = np.load(self.root / "indptr.npy", mmap_mode="r", allow_pickle=False)
        return loaded

    @cached_property
    def indices(self) -> npt.NDArray[np.int32]:
        """``[E]`` targets of the CSR matrix, ascending within a row."""
        loaded: npt.NDArray[np.int32] = np.load(self.root / "indices.npy", mmap_mode="r", allow_pickle=False)
        return loaded

    def neighbours(self, page_id: int) -> npt.NDArray[np.int32]:
        """Pages that a page links to, ascending."""
        return self.indices[self.indptr[page_id] : self.indptr[page_id + 1]]

    def sql(self) -> Any:
        """A fresh in-memory DuckDB connection with one view per table."""
        import duckdb

        connection = duckdb.connect()
        for name in TABLES:
            path = str(self.root / f"{name}.parquet").replace("'", "''")
            connection.execute(f"CREATE VIEW {name} AS SELECT * FROM read_parquet('{path}')")
        return connection

    @cached_property
    def _title_index(self) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.int32]]:
        hashes = np.load(self.root / "title_hash.npy", mmap_mode="r", allow_pickle=False)
        pages = np.load(self.root / "title_page.npy", mmap_mode="r", allow_pickle=False)
        return hashes, pages

    def _table(self, name: str) -> _KeyedTable:
        with self._opening:
            if name not in self._tables:
                self._tables[name] = _KeyedTable(self.root / f"{name}.parquet")
            return self._tables[name]


class _KeyedTable:
    """A Parquet file sorted by its first column, every key within one row group."""

    def __init__(self, file: Path) -> None:
        self._file = pq.ParquetFile(file, memory_map=True)
        self._columns = [field.name for field in self._file.schema_arrow]
        groups = [self._file.metadata.row_group(i) for i in range(self._file.num_row_groups)]
        self._last = np.array([group.column(0).statistics.max for group in groups if group.num_rows], dtype=np.int64)
        self._lock = Lock()
        self._group = lru_cache(maxsize=_CACHED_GROUPS)(self._read)

    def _read(self, index: int) -> tuple[npt.NDArray[np.int32], Any]:
        table = self._file.read_row_group(index).combine_chunks()
        return table.column(0).to_numpy(), table

    def rows(self, key: int) -> list[dict[str, Any]]:
        """All rows with this key, in the order written."""
        index = int(np.searchsorted(self._last, key))
        if index == len(self._last):
            return []
        with self._lock:
            keys, table = self._group(index)
        start, stop = np.searchsorted(keys, [key, key + 1])
        found: list[dict[str, Any]] = table.slice(start, stop - start).to_pylist()
        return found


def _read_meta(root: Path) -> dict[str, Any]:
    file = root / "meta.json"
    try:
        loaded = json.loads(file.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError) as error:
        raise DataError(
            f"{root} is not a wiki folder: it has no meta.json.", "Make one with: osvl wiki build"
        ) from error
    except (OSError, ValueError) as error:
        raise DataError(f"{file} cannot be read: {error}.") from error
    version = loaded.get("schema_version") if isinstance(loaded, dict) else None
    if version != SCHEMA_VERSION:
        raise DataError(
            f"{root} has a wiki folder of version {version}; this is version {SCHEMA_VERSION}.",
            "Build it again with: osvl wiki build",
        )
    missing = [name for name in TABLES if not (root / f"{name}.parquet").is_file()]
    if missing:
        raise DataError(f"{root} lacks {', '.join(f'{name}.parquet' for name in missing)}.", "Build it again.")
    return dict(loaded)
