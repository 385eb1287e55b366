"""The infobox table in memory: what every rule-based stage asks, answered in microseconds.

Two directions are indexed: which pages hold a key that points to a node, and which pages hold a key with a value.
Both are sorted arrays of 64-bit codes, about 24 bytes per infobox item, so a table of ten million items fits easily.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt

from opensearch_vl.questions.phrases import relation_phrase
from opensearch_vl.text import fold, words
from opensearch_vl.wiki.tables import InfoboxItem, PageRow, WikiFolder

Pages = npt.NDArray[np.int32]
_NO_PAGES: Pages = np.empty(0, dtype=np.int32)
_BATCH = 100_000


@lru_cache(maxsize=200_000)
def same_value(text: str) -> str:
    """The form in which two infobox values are compared: case- and accent-folded, single spaces."""
    return " ".join(fold(text).split())


def display_name(title: str) -> str:
    """A title as it is spoken: without the bracket that tells namesakes apart."""
    bare, bracket, _ = title.partition(" (")
    return bare if bracket and bare.strip() else title


class Facts:
    """Read access to a wiki's infoboxes, pages and names, with the inverse directions indexed.

    Args:
        wiki: The wiki folder.
    """

    def __init__(self, wiki: WikiFolder) -> None:
        self.wiki = wiki
        self._key_ids: dict[str, int] = {}
        self._key_pages: dict[str, int] = {}
        self._rel_codes, self._rel_pages, self._attr_codes, self._attr_pages = self._index()
        self.page = lru_cache(maxsize=200_000)(self._page)
        self.items = lru_cache(maxsize=100_000)(self._items)
        self.names = lru_cache(maxsize=100_000)(self._names)
        self.document_words = lru_cache(maxsize=20_000)(self._document_words)
        self.opening = lru_cache(maxsize=20_000)(self._opening)
        self.resolve = lru_cache(maxsize=100_000)(wiki.resolve)

    def _page(self, page_id: int) -> PageRow:
        return self.wiki.page(page_id)

    def _items(self, page_id: int) -> tuple[InfoboxItem, ...]:
        return self.wiki.infobox(page_id)

    def _names(self, page_id: int) -> tuple[str, ...]:
        title = self.page(page_id).title
        return tuple(dict.fromkeys((title, display_name(title), *self.wiki.aliases(page_id))))

    def _document_words(self, page_id: int) -> str:
        return f" {' '.join(words(self.wiki.document(page_id)))} "

    def _opening(self, page_id: int, num_chars: int) -> str:
        return fold(self.wiki.document(page_id)[:num_chars])

    def _index(self) -> tuple[npt.NDArray[np.uint64], Pages, npt.NDArray[np.uint64], Pages]:
        rel_codes: list[npt.NDArray[np.uint64]] = []
        rel_pages: list[Pages] = []
        attr_codes: list[npt.NDArray[np.uint64]] = []
        attr_pages: list[Pages] = []
        seen: tuple[int, str] | None = None
        for batch in self._batches():
            rels: list[tuple[int, int]] = []
            attrs: list[tuple[int, int]] = []
            for page_id, key, value, target in batch:
                if (page_id, key) != seen:
                    seen = (page_id, key)
                    self._key_pages[key] = self._key_pages.get(key, 0) + 1
                attrs.append((_value_code(key, value), page_id))
                if target is not None:
                    rels.append((self._rel_code(key, target), page_id))
            for pairs, codes, pages in ((rels, rel_codes, rel_pages), (attrs, attr_codes, attr_pages)):
                codes.append(np.array([code for code, _ in pairs], dtype=np.uint64))
                pages.append(np.array([page for _, page in pairs], dtype=np.int32))
        return (*_sorted(rel_codes, rel_pages), *_sorted(attr_codes, attr_pages))

    def _batches(self) -> Iterator[list[tuple[int, str, str, int | None]]]:
        cursor = self.wiki.sql().execute("SELECT page_id, key, value, target_id FROM infobox ORDER BY page_id, key")
        while rows := cursor.fetchmany(_BATCH):
            yield rows

    def _rel_code(self, key: str, target: int) -> int:
        return self._key_ids.setdefault(key, len(self._key_ids)) << 32 | target

    # -------------------------------------------------------------------------------------- questions

    def targets(self, page_id: int, key: str) -> tuple[int, ...]:
        """Distinct pages that a page's key points to, in order."""
        return tuple(
            dict.fromkeys(i.target_id for i in self.items(page_id) if i.key == key and i.target_id is not None)
        )

    def holders(self, key: str, node: int) -> Pages:
        """Distinct pages whose key points to `node`, ascending."""
        if key not in self._key_ids:
            return _NO_PAGES
        return _lookup(self._rel_codes, self._rel_pages, self._rel_code(key, node))

    def with_value(self, key: str, value: str) -> Pages:
        """Distinct pages whose key has `value`, ascending (up to collisions of a 64-bit hash)."""
        return _lookup(self._attr_codes, self._attr_pages, _value_code(key, value))

    def num_pages_with(self, key: str) -> int:
        """How many pages hold the key."""
        return self._key_pages.get(key, 0)

    def keys_spoken_like(self, key: str) -> tuple[str, ...]:
        """All infobox keys of the wiki that are worded as `key` is on the holder's side, itself included."""
        return self._wordings.get(relation_phrase(key, "inverse", ""), ())

    @cached_property
    def _wordings(self) -> dict[str, tuple[str, ...]]:
        groups: dict[str, tuple[str, ...]] = {}
        for key in self._key_pages:
            wording = relation_phrase(key, "inverse", "")
            groups[wording] = (*groups.get(wording, ()), key)
        return groups


def _value_code(key: str, value: str) -> int:
    return int.from_bytes(hashlib.blake2b(f"{key}\x1f{same_value(value)}".encode(), digest_size=8).digest(), "little")


def _sorted(codes: list[npt.NDArray[np.uint64]], pages: list[Pages]) -> tuple[npt.NDArray[np.uint64], Pages]:
    if not codes:
        return np.empty(0, dtype=np.uint64), _NO_PAGES
    all_codes, all_pages = np.concatenate(codes), np.concatenate(pages)
    order = np.argsort(all_codes, kind="stable")  # pages came in ascending order and stay so under one code
    all_codes, all_pages = all_codes[order], all_pages[order]
    first = np.ones(len(all_codes), dtype=np.bool_)
    first[1:] = (all_codes[1:] != all_codes[:-1]) | (all_pages[1:] != all_pages[:-1])
    return all_codes[first], all_pages[first]


def _lookup(codes: npt.NDArray[np.uint64], pages: Pages, code: int) -> Pages:
    wanted = np.uint64(code)
    return pages[codes.searchsorted(wanted, "left") : codes.searchsorted(wanted, "right")]
