"""Reading a page of the local encyclopedia: the offline stand-in for a web page reader."""

from __future__ import annotations

import asyncio

from opensearch_vl.backends.corpus import WikiPages
from opensearch_vl.errors import BadInput
from opensearch_vl.protocols import Page

MAX_ADDRESS_CHARS = 2000


class WikiPageReader:
    """Pages of an encyclopedia by address or by title (redirects followed)."""

    name = "wiki_reader"

    def __init__(self, wiki: WikiPages) -> None:
        self._wiki = wiki

    async def read(self, url: str) -> Page:
        """The page at an address of the encyclopedia, or of that title.

        Raises:
            BadInput: There is no such page.
        """
        return await asyncio.to_thread(self.read_now, url)

    def read_now(self, url: str) -> Page:
        """`read` for callers without an event loop."""
        wanted = url.strip()
        if not wanted or len(wanted) > MAX_ADDRESS_CHARS:
            raise BadInput(f"An address or a page title was expected, not {wanted[:80]!r}.")
        page_id = self._wiki.page_at(wanted)
        if page_id is None and "://" not in wanted:
            page_id = self._wiki.resolve(wanted)
        if page_id is None:
            raise BadInput(
                f"There is no page {wanted[:200]!r} in this encyclopedia. Use an address from a search result."
            )
        return Page(
            title=self._wiki.page(page_id).title, url=self._wiki.url(page_id), text=self._wiki.document(page_id)
        )
