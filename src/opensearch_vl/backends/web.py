"""Reading public web pages and pictures whose addresses a model wrote: guarded, bounded, pinned.

Every hop of a redirect passes the address guard anew, and the connection is made to the very address that was checked,
with the host's name in the Host header and in TLS, so that a name cannot resolve to something else in between.
"""

from __future__ import annotations

import asyncio
import logging
import urllib.request
import zlib
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any
from urllib.parse import urljoin

import httpx2

from opensearch_vl.backends.addresses import AddressGuard, Target
from opensearch_vl.errors import BackendDown, BadInput, Blocked, RateLimited, TooLarge, ToolTimeout
from opensearch_vl.images import MAX_BYTES as MAX_IMAGE_BYTES
from opensearch_vl.protocols import Page

log = logging.getLogger(__name__)

MAX_REDIRECTS = 5
MAX_PAGE_BYTES = 5_000_000
MAX_PAGE_CHARS = 200_000
TIMEOUT_S = 20.0
HTML_TYPES = frozenset({"text/html", "application/xhtml+xml"})
TEXT_TYPES = frozenset({"text/plain", "text/markdown", "application/json", "application/xml", "text/xml", "text/csv"})
USER_AGENT = "opensearch-vl (research agent; reads single pages on behalf of a user)"
_REDIRECTS = frozenset({301, 302, 303, 307, 308})


@dataclass(frozen=True, slots=True)
class Fetched:
    """A document from the web. `url` is where the redirects ended, `content_type` without parameters."""

    url: str
    content_type: str
    data: bytes


class SafeFetcher:
    """Gets documents from addresses nobody vouches for.

    Args:
        guard: The address guard.
        timeout_s: For the whole of it, redirects included.
        transport: Replaces the network, in tests.
        proxy: Address of a proxy; None takes the environment's, "" uses none.
    """

    def __init__(
        self,
        guard: AddressGuard | None = None,
        *,
        timeout_s: float = TIMEOUT_S,
        transport: httpx2.AsyncBaseTransport | None = None,
        proxy: str | None = None,
    ) -> None:
        if proxy is None:
            found = urllib.request.getproxies()
            proxy = found.get("https") or found.get("http") or ""
        self._proxy = proxy
        self._guard = guard if guard is not None else AddressGuard(proxied=bool(proxy))
        self._timeout_s = timeout_s
        self._transport = transport
        if self._guard.limits:
            log.warning(self._guard.limits)

    @property
    def limits(self) -> str:
        """What the guard cannot check here; empty when it checks everything."""
        return self._guard.limits

    async def get(self, url: str, *, max_bytes: int, types: Collection[str] | None = None) -> Fetched:
        """Get one document.

        Args:
            url: Its address.
            max_bytes: Most bytes, after decompression.
            types: Content types that are accepted; None accepts any.

        Raises:
            Blocked: The guard refused the address or that of a redirect.
            BadInput: No such page, or of another type.
            TooLarge, ToolTimeout, RateLimited, BackendDown: As they say.
        """
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._follow(url, max_bytes, types)
        except (TimeoutError, httpx2.TimeoutException) as error:
            raise ToolTimeout(f"The page did not arrive within {self._timeout_s:g} s.") from error
        except httpx2.HTTPError as error:
            raise BackendDown(f"The page could not be read ({type(error).__name__}).") from error

    async def _follow(self, url: str, max_bytes: int, types: Collection[str] | None) -> Fetched:
        async with httpx2.AsyncClient(
            transport=self._transport,
            proxy=self._proxy or None,
            trust_env=False,
            follow_redirects=False,
            timeout=self._timeout_s,
        ) as client:
            for _ in range(MAX_REDIRECTS + 1):
                target = await self._guard.check(url)
                async with client.stream("GET", **_pinned(target)) as response:
                    if response.status_code in _REDIRECTS:
                        url = _next(target.url, response)
                        continue
                    _check_status(response)
                    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
                    if types is not None and kind not in types:
                        raise BadInput(f"The address holds {kind[:60] or 'something of no stated type'}, not a page.")
                    return Fetched(target.url, kind, await _body(response, max_bytes))
        raise BadInput(f"The address redirects more than {MAX_REDIRECTS} times.")


def _pinned(target: Target) -> dict[str, Any]:
    """Request arguments that connect to the checked address while naming the host in the header and in TLS."""
    headers = {"User-Agent": USER_AGENT, "Accept-Encoding": "gzip, deflate"}
    if not target.addresses:  # a proxy connects
        return {"url": target.url, "headers": headers}
    url = httpx2.URL(target.url)
    headers["Host"] = url.netloc.decode("ascii")
    extensions = {"sni_hostname": target.host} if target.scheme == "https" else {}
    return {"url": url.copy_with(host=target.addresses[0]), "headers": headers, "extensions": extensions}


def _next(base: str, response: httpx2.Response) -> str:
    location = response.headers.get("location", "")
    if not location:
        raise BackendDown("The server redirects to nowhere.")
    try:
        return urljoin(base, location)
    except ValueError as error:
        raise BadInput("The server redirects to something that is no address.") from error


def _check_status(response: httpx2.Response) -> None:
    status = response.status_code
    if status == 429:
        raise RateLimited("The site asks to slow down (HTTP 429).")
    if status in (401, 403, 451):
        raise Blocked(f"The site refuses to show the page (HTTP {status}).")
    if 400 <= status < 500:
        raise BadInput(f"There is no such page (HTTP {status}).")
    if status != 200:
        raise BackendDown(f"The site answered with HTTP {status}.")


async def _body(response: httpx2.Response, max_bytes: int) -> bytes:
    """The body, decompressed no further than the limit."""
    coding = response.headers.get("content-encoding", "identity").strip().lower()
    if coding not in ("", "identity", "gzip", "x-gzip", "deflate"):
        raise BackendDown(f"The site compresses its pages in a way we did not ask for ({coding[:20]}).")
    inflate = None if coding in ("", "identity") else zlib.decompressobj(wbits=zlib.MAX_WBITS | 32)
    data = bytearray()
    try:
        async for chunk in response.aiter_raw():
            data += chunk if inflate is None else inflate.decompress(chunk, max_bytes + 1 - len(data))
            if len(data) > max_bytes:
                raise TooLarge(f"The document has more than {max_bytes:,} bytes.")
    except zlib.error as error:
        raise BackendDown("The compressed page is damaged.") from error
    return bytes(data)


class HttpPageReader:
    """Web pages as Markdown (trafilatura)."""

    name = "http_reader"

    def __init__(self, fetcher: SafeFetcher | None = None) -> None:
        self._fetcher = fetcher if fetcher is not None else SafeFetcher()

    @property
    def limits(self) -> str:
        """What the address guard cannot check here."""
        return self._fetcher.limits

    async def read(self, url: str) -> Page:
        """The main text of a page.

        Raises:
            ToolError: See `SafeFetcher.get`; `BadInput` also when the page holds no text.
        """
        fetched = await self._fetcher.get(url, max_bytes=MAX_PAGE_BYTES, types=HTML_TYPES | TEXT_TYPES)
        if fetched.content_type in TEXT_TYPES:
            return Page(fetched.url, fetched.url, fetched.data.decode("utf-8", "replace")[:MAX_PAGE_CHARS])
        title, text = await asyncio.to_thread(main_text, fetched.data)
        if not text:
            raise BadInput("The page holds no text that can be read (it may need a browser).")
        return Page(title or fetched.url, fetched.url, text[:MAX_PAGE_CHARS])


def main_text(html: bytes) -> tuple[str, str]:
    """Title and main text, as Markdown, of an HTML page; both may be empty."""
    import trafilatura

    text = trafilatura.extract(html, output_format="markdown", include_tables=True, include_comments=False)
    if not text:
        text = trafilatura.html2txt(html)
    about = trafilatura.extract_metadata(html)
    return (about.title or "") if about is not None else "", text or ""


async def fetch_image(url: str, fetcher: SafeFetcher | None = None) -> bytes:
    """Encoded bytes of a picture on the web; whoever decodes them finds out whether they are one.

    Raises:
        ToolError: See `SafeFetcher.get`.
    """
    chosen = fetcher if fetcher is not None else SafeFetcher()
    return (await chosen.get(url, max_bytes=MAX_IMAGE_BYTES)).data


def fetch_image_now(url: str, fetcher: SafeFetcher | None = None) -> bytes:
    """`fetch_image` for `images.ingest`, in a thread without an event loop."""
    return asyncio.run(fetch_image(url, fetcher))
