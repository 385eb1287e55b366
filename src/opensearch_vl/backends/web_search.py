"""Web search services as `SearchEngine`, `ImageIndex` and `PageReader`: Serper, Brave, SearXNG, Jina Reader.

The paper searches the web through a service and reads the pages it finds; any of these, or several of one's own, take
the place of the local indexes without another line changed. Keys come from the environment, never from a config file.
"""

from __future__ import annotations

import html
import re
from collections.abc import Awaitable, Callable
from typing import Any

import httpx2

from opensearch_vl import redaction
from opensearch_vl.backends.addresses import AddressGuard
from opensearch_vl.backends.http_service import TIMEOUT_S, JsonService, key_from_env, objects, text_of
from opensearch_vl.errors import BadInput
from opensearch_vl.protocols import Page, Passage, VisualMatch

Transport = httpx2.AsyncBaseTransport | None
Publish = Callable[[bytes], Awaitable[str]]
"""Puts a picture where the whole internet can read it and returns its address."""

_TAG = re.compile(r"<[^<>]*>")
_MAX_QUERY_CHARS = 2000
_BRAVE_QUERY_CHARS, _BRAVE_QUERY_WORDS, _BRAVE_COUNT = 400, 50, 20  # limits of its API


def _plain(text: str) -> str:
    return html.unescape(_TAG.sub("", text)).strip()


def _passages(items: list[dict[str, Any]], url: str, texts: tuple[str, ...], top_k: int) -> list[Passage]:
    """Results as passages: those without an http(s) address are left out, and so are repeated ones."""
    found: dict[str, Passage] = {}
    for item in items:
        address = text_of(item, url)
        if address.startswith(("http://", "https://")) and address not in found:
            title = _plain(text_of(item, "title")) or address
            found[address] = Passage(title, address, _plain(text_of(item, *texts)))
    return list(found.values())[: max(0, top_k)]


def _query(text: str) -> str:
    query = " ".join(text.split())[:_MAX_QUERY_CHARS]
    if not query:
        raise BadInput("The query is empty.")
    return query


class SerperSearch:
    """Google results by Serper; the key is in ``SERPER_API_KEY``."""

    name = "serper"

    def __init__(
        self,
        *,
        country: str = "us",
        base_url: str = "https://google.serper.dev",
        timeout_s: float = TIMEOUT_S,
        transport: Transport = None,
    ) -> None:
        self._country = country
        self._service = _serper(base_url, timeout_s, transport)

    async def search(self, query: str, top_k: int, lang: str = "en") -> list[Passage]:
        """See `protocols.SearchEngine`. The text of a passage is the service's snippet."""
        body = {"q": _query(query), "gl": self._country, "hl": lang, "num": max(1, min(top_k, 100))}
        answer = await self._service.call("POST", "/search", body=body)
        return _passages(objects(answer.get("organic")), "link", ("snippet",), top_k)


class SerperLens:
    """Google Lens by Serper; the key is in ``SERPER_API_KEY``.

    The service fetches the picture itself, from an address on the public internet. Putting a user's picture there is
    a decision we do not take for anybody: `publish` has to be given, and no ready-made one is shipped.
    """

    name = "serper_lens"

    def __init__(
        self,
        publish: Publish,
        *,
        country: str = "us",
        lang: str = "en",
        base_url: str = "https://google.serper.dev",
        timeout_s: float = TIMEOUT_S,
        transport: Transport = None,
    ) -> None:
        self._publish = publish
        self._country, self._lang = country, lang
        self._service = _serper(base_url, timeout_s, transport)

    async def search(self, image: bytes, top_k: int) -> list[VisualMatch]:
        """See `protocols.ImageIndex`. The service gives no scores: they are 0, and nothing counts as `exact`."""
        body = {"url": await self._publish(image), "gl": self._country, "hl": self._lang}
        answer = await self._service.call("POST", "/lens", body=body)
        found: dict[str, VisualMatch] = {}
        for item in objects(answer.get("organic")):
            link = text_of(item, "link")
            if link.startswith(("http://", "https://")) and link not in found:
                title = _plain(text_of(item, "title")) or link
                found[link] = VisualMatch(title, link, text_of(item, "source"), _plain(text_of(item, "snippet")))
        return list(found.values())[: max(0, top_k)]


def _serper(base_url: str, timeout_s: float, transport: Transport) -> JsonService:
    headers = {"X-API-KEY": key_from_env("SERPER_API_KEY", "Serper")}
    return JsonService("Serper", base_url, headers=headers, timeout_s=timeout_s, transport=transport)


class BraveSearch:
    """Brave Search; the key is in ``BRAVE_API_KEY``."""

    name = "brave"

    def __init__(
        self,
        *,
        base_url: str = "https://api.search.brave.com/res/v1",
        timeout_s: float = TIMEOUT_S,
        transport: Transport = None,
    ) -> None:
        headers = {"X-Subscription-Token": key_from_env("BRAVE_API_KEY", "Brave Search")}
        self._service = JsonService("Brave Search", base_url, headers=headers, timeout_s=timeout_s, transport=transport)

    async def search(self, query: str, top_k: int, lang: str = "en") -> list[Passage]:
        """See `protocols.SearchEngine`. Queries are cut to the 400 characters and 50 words its API takes."""
        words = _query(query)[:_BRAVE_QUERY_CHARS].split()[:_BRAVE_QUERY_WORDS]
        params = {"q": " ".join(words), "count": str(max(1, min(top_k, _BRAVE_COUNT))), "search_lang": lang}
        answer = await self._service.call("GET", "/web/search", params=params)
        web = answer.get("web")
        results = objects(web.get("results")) if isinstance(web, dict) else []
        for item in results:
            extra = item.get("extra_snippets")
            if isinstance(extra, list):
                item["description"] = " ".join(
                    [text_of(item, "description"), *(x for x in extra if isinstance(x, str))]
                )
        return _passages(results, "url", ("description",), top_k)


class SearxngSearch:
    """A SearXNG instance of one's own, which must have the JSON format switched on (`search.formats`).

    Args:
        base_url: Its address.
        timeout_s: For one request.
        transport: Replaces the network, in tests.
    """

    name = "searxng"

    def __init__(self, base_url: str, *, timeout_s: float = TIMEOUT_S, transport: Transport = None) -> None:
        self._service = JsonService("SearXNG", base_url, timeout_s=timeout_s, transport=transport)

    async def search(self, query: str, top_k: int, lang: str = "en") -> list[Passage]:
        """See `protocols.SearchEngine`."""
        params = {"q": _query(query), "format": "json", "language": lang}
        answer = await self._service.call("GET", "/search", params=params)
        return _passages(objects(answer.get("results")), "url", ("content",), top_k)


class JinaReader:
    """Jina Reader as `PageReader`: a service that opens a page in a browser and returns Markdown.

    Works without a key at a low rate; with ``JINA_API_KEY`` set it is sent along. The service makes the connection, so
    the address guard checks what can be checked without resolving names.
    """

    name = "jina_reader"

    def __init__(
        self,
        *,
        base_url: str = "https://r.jina.ai",
        timeout_s: float = 60.0,
        max_chars: int = 200_000,
        transport: Transport = None,
    ) -> None:
        key = redaction.env("JINA_API_KEY")
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._service = JsonService(
            "Jina Reader", base_url, headers=headers, timeout_s=timeout_s, rejects=BadInput, transport=transport
        )
        self._guard = AddressGuard(proxied=True)
        self._max_chars = max_chars

    async def read(self, url: str) -> Page:
        """See `protocols.PageReader`."""
        target = await self._guard.check(url)
        answer = await self._service.call("POST", "/", body={"url": target.url})
        data = answer.get("data")
        text = text_of(data, "content") if isinstance(data, dict) else ""
        if not isinstance(data, dict) or not text:
            raise BadInput("The page holds no text that can be read.")
        return Page(text_of(data, "title") or target.url, text_of(data, "url") or target.url, text[: self._max_chars])
