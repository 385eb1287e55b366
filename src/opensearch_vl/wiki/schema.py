"""Rows and Arrow schemas of the wiki folder; `tables` reads them, `writing` writes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa

from opensearch_vl.types import ImageRef

SCHEMA_VERSION = 1
"""Of the wiki folder as a whole; raised whenever a reader of the old layout would go wrong."""

Kind = Literal["article", "disambiguation", "list"]
Domain = Literal["Person", "Building", "Location", "Organism", "Artifact", ""]
DOMAINS: tuple[Domain, ...] = ("Person", "Building", "Location", "Organism", "Artifact")
"""The five strata of seeds (paper, section 3.1)."""

INFOBOX_SECTION = "infobox"
"""Section of links inside the infobox."""


@dataclass(frozen=True, slots=True)
class PageRow:
    """A page of the main namespace that is not a redirect.

    Attributes:
        page_id: Dense id, from 0.
        kind: `article`, `disambiguation` or `list`.
        domain: Stratum of seeds, from the infobox; empty if it tells none.
        length: Characters of plain text.
        in_degree: Number of distinct pages that link here, redirects followed, itself left out.
        infobox_type: Name of the infobox template without "infobox", lower-case; empty without an infobox.
    """

    page_id: int
    title: str
    kind: str
    domain: str
    length: int
    in_degree: int
    infobox_type: str


@dataclass(frozen=True, slots=True)
class InfoboxItem:
    """One value of one infobox key.

    Attributes:
        key: Lower-case, underscores, as in the template (`birth_date`).
        value: Plain text.
        ord: Number of the value within its key, from 0.
        target_id: The page that the value names by a link; None for plain values.
    """

    page_id: int
    key: str
    value: str
    ord: int
    target_id: int | None


@dataclass(frozen=True, slots=True)
class LinkRow:
    """One link from a page to a page, where it stands.

    Attributes:
        anchor: The text shown.
        sentence: The sentence around it; ``key: value`` in the infobox.
        section: Section title; empty in the lead, `infobox` in the infobox.
        pos: Number of the link on its page, from 0.
    """

    src: int
    dst: int
    anchor: str
    sentence: str
    section: str
    pos: int


@dataclass(frozen=True, slots=True)
class PageImage:
    """A picture of a page. `ord` is 0 for the infobox picture; others follow in the order of the page."""

    page_id: int
    file: str
    ref: ImageRef
    licence: str
    author: str
    ord: int


_INT, _STR = pa.int32(), pa.string()

TABLES: dict[str, Any] = {
    "pages": pa.schema(
        [
            ("page_id", _INT), ("title", _STR), ("kind", _STR), ("domain", _STR), ("length", _INT),
            ("in_degree", pa.int64()), ("infobox_type", _STR), ("dump_id", pa.int64()), ("num_file_links", _INT),
        ]
    ),
    "redirects": pa.schema([("title", _STR), ("target_id", _INT)]),
    "links": pa.schema(
        [("src", _INT), ("dst", _INT), ("anchor", _STR), ("sentence", _STR), ("section", _STR), ("pos", _INT)]
    ),
    "infobox": pa.schema([("page_id", _INT), ("key", _STR), ("value", _STR), ("ord", _INT), ("target_id", _INT)]),
    "images": pa.schema(
        [
            ("page_id", _INT), ("file", _STR), ("sha256", _STR), ("width_px", _INT), ("height_px", _INT),
            ("licence", _STR), ("author", _STR), ("mime", _STR), ("ord", _INT),
        ]
    ),
    "aliases": pa.schema([("page_id", _INT), ("alias", _STR)]),
    "text": pa.schema([("page_id", _INT), ("text", _STR)]),
}  # fmt: skip
"""Arrow schema per table; each but `redirects` (sorted by title) is sorted by its first column."""
