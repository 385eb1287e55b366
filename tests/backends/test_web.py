"""Fetching from the web, against servers on the loopback interface and replaced transports."""

import asyncio
import gzip
import ipaddress
import zlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import httpx2
import pytest

from opensearch_vl.backends.addresses import AddressGuard
from opensearch_vl.backends.web import HttpPageReader, SafeFetcher, fetch_image
from opensearch_vl.errors import BackendDown, BadInput, Blocked, RateLimited, TooLarge, ToolError, ToolTimeout

PAGE = (
    b"<html><head><title>Foo &amp; Bar</title></head><body><nav><a href='/'>menu entry</a></nav><article><h1>Foo Hall</h1>"
    + b"<p>This is a long paragraph about the hall and its builders, with facts in it.</p>" * 6
    + "<h2>History</h2><p>It was built in 1931 by Ada Ångström and is 45 m tall.</p></article></body></html>".encode()
)
Handler = Callable[[httpx2.Request], httpx2.Response]


async def public(host: str, port: int) -> list[str]:
    return {"evil.example": ["10.0.0.1"]}.get(host, ["93.184.216.34"])


def fetcher(handler: Handler, **options: float) -> SafeFetcher:
    return SafeFetcher(AddressGuard(public), transport=httpx2.MockTransport(handler), proxy="", **options)


@asynccontextmanager
async def server(answer: bytes, hangs: bool = False) -> AsyncIterator[tuple[int, list[bytes]]]:
    """A server on the loopback interface that always answers alike."""
    seen: list[bytes] = []
    over = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await reader.readuntil(b"\r\n\r\n"))
        if hangs:
            await over.wait()
        writer.write(answer)
        writer.close()

    running = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield running.sockets[0].getsockname()[1], seen
    finally:
        over.set()
        running.close()
        await asyncio.sleep(0.01)


def http(body: bytes, *headers: str, status: str = "200 OK") -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", "Connection: close", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def on_loopback(port: int, **options: float) -> SafeFetcher:
    """Every name leads to the loopback interface, which this guard allows."""

    async def here(host: str, asked_port: int) -> list[str]:
        return ["127.0.0.1"]

    guard = AddressGuard(here, frozenset({port}), (ipaddress.ip_network("127.0.0.0/8"),))
    return SafeFetcher(guard, proxy="", **options)


async def test_connects_to_the_checked_address_and_names_the_host() -> None:
    async with server(http(b"hello", "Content-Type: text/plain; charset=utf-8")) as (port, seen):
        fetched = await on_loopback(port).get(f"http://foo.example:{port}/a?b=c#d", max_bytes=100)
    assert (fetched.data, fetched.content_type) == (b"hello", "text/plain")
    assert seen[0].startswith(b"GET /a?b=c HTTP/1.1") and f"host: foo.example:{port}".encode() in seen[0].lower()


async def test_a_name_that_changes_its_mind_is_never_asked_twice() -> None:
    answers = [["93.184.216.34"], ["127.0.0.1"]]
    hosts: list[tuple[str, str, object]] = []

    async def rebinding(host: str, port: int) -> list[str]:
        return answers.pop(0)

    def handle(request: httpx2.Request) -> httpx2.Response:
        hosts.append((request.url.host, request.headers["host"], request.extensions.get("sni_hostname")))
        return httpx2.Response(200, stream=httpx2.ByteStream(b"x"))

    chosen = SafeFetcher(AddressGuard(rebinding), transport=httpx2.MockTransport(handle), proxy="")
    await chosen.get("https://rebind.example/", max_bytes=10)
    assert hosts == [("93.184.216.34", "rebind.example", "rebind.example")] and len(answers) == 1


@pytest.mark.parametrize(
    "location",
    [
        "http://127.0.0.1/",
        "http://169.254.169.254/latest/meta-data/",
        "https://evil.example/",
        "file:///etc/passwd",
        "//[::1]/",
        "http://x@localhost/",
        "http://ok.example:22/",
    ],
)
async def test_every_redirect_is_checked(location: str) -> None:
    calls: list[str] = []

    def handle(request: httpx2.Request) -> httpx2.Response:
        calls.append(str(request.url))
        return httpx2.Response(302, headers={"location": location})

    with pytest.raises(Blocked):
        await fetcher(handle).get("https://ok.example/", max_bytes=10)
    assert len(calls) == 1


async def test_redirects_are_followed_relative_and_bounded() -> None:
    def handle(request: httpx2.Request) -> httpx2.Response:
        if request.url.path == "/a":
            return httpx2.Response(301, headers={"location": "../b?x=1"})
        if request.url.path == "/b":
            return httpx2.Response(200, stream=httpx2.ByteStream(b"end"))
        return httpx2.Response(302, headers={"location": "/loop"})

    assert (await fetcher(handle).get("http://ok.example/a", max_bytes=10)).url == "http://ok.example/b?x=1"
    with pytest.raises(BadInput, match="redirects"):
        await fetcher(handle).get("http://ok.example/loop", max_bytes=10)
    with pytest.raises(BackendDown):
        await fetcher(lambda _: httpx2.Response(302)).get("http://ok.example/", max_bytes=10)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (404, BadInput),
        (410, BadInput),
        (403, Blocked),
        (401, Blocked),
        (429, RateLimited),
        (500, BackendDown),
        (503, BackendDown),
        (204, BackendDown),
    ],
)
async def test_status_codes_become_kinds(status: int, kind: type[ToolError]) -> None:
    with pytest.raises(kind):
        await fetcher(lambda _: httpx2.Response(status)).get("http://ok.example/", max_bytes=10)


@pytest.mark.parametrize("coding", ["gzip", "deflate", "identity"])
async def test_bodies_are_unpacked_but_no_further_than_the_limit(coding: str) -> None:
    pack = {"gzip": gzip.compress, "deflate": zlib.compress, "identity": bytes}[coding]

    def handle(request: httpx2.Request) -> httpx2.Response:
        size = 50 if request.url.path == "/small" else 20_000_000
        return httpx2.Response(200, headers={"content-encoding": coding}, stream=httpx2.ByteStream(pack(b"a" * size)))

    assert (await fetcher(handle).get("http://ok.example/small", max_bytes=50)).data == b"a" * 50
    with pytest.raises(TooLarge):
        await fetcher(handle).get("http://ok.example/bomb", max_bytes=1_000_000)


@pytest.mark.parametrize(("coding", "body"), [("br", b"x"), ("gzip", b"not gzip"), ("gzip, gzip", b"x")])
async def test_odd_compression_is_refused(coding: str, body: bytes) -> None:
    def handle(_: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, headers={"content-encoding": coding}, stream=httpx2.ByteStream(body))

    with pytest.raises(BackendDown):
        await fetcher(handle).get("http://ok.example/", max_bytes=100)


async def test_a_slow_server_times_out() -> None:
    async with server(http(b"late"), hangs=True) as (port, _):
        with pytest.raises(ToolTimeout):
            await on_loopback(port, timeout_s=0.2).get(f"http://foo.example:{port}/", max_bytes=100)


async def test_a_server_that_is_not_there_is_down() -> None:
    async with server(b"") as (port, _):
        pass
    with pytest.raises(BackendDown):
        await on_loopback(port, timeout_s=5).get(f"http://foo.example:{port}/", max_bytes=100)


async def test_reads_a_page_as_markdown() -> None:
    def handle(_: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(
            200, headers={"content-type": "text/html; charset=utf-8"}, stream=httpx2.ByteStream(PAGE)
        )

    page = await HttpPageReader(fetcher(handle)).read("https://ok.example/foo")
    assert page.url == "https://ok.example/foo" and page.title
    assert "It was built in 1931 by Ada Ångström and is 45 m tall." in page.text
    assert "## History" in page.text and "menu entry" not in page.text


@pytest.mark.parametrize(
    ("kind", "body", "failure"),
    [
        ("application/pdf", b"%PDF", BadInput),
        ("image/png", b"\x89PNG", BadInput),
        ("", b"<html>", BadInput),
        ("text/html", b"", BadInput),
        ("text/html", b"<html><body><script>x()</script></body></html>", BadInput),
    ],
)
async def test_what_is_no_page_is_bad_input(kind: str, body: bytes, failure: type[ToolError]) -> None:
    def handle(_: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, headers={"content-type": kind}, stream=httpx2.ByteStream(body))

    with pytest.raises(failure):
        await HttpPageReader(fetcher(handle)).read("https://ok.example/")


async def test_plain_text_and_pictures() -> None:
    def handle(_: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, headers={"content-type": "text/plain"}, stream=httpx2.ByteStream("Größe".encode()))

    assert (await HttpPageReader(fetcher(handle)).read("https://ok.example/a.txt")).text == "Größe"
    assert await fetch_image("https://ok.example/a.png", fetcher(handle)) == "Größe".encode()
    with pytest.raises(Blocked):
        await fetch_image("http://127.0.0.1/a.png", fetcher(handle))


def test_under_a_proxy_it_says_what_it_cannot_check(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("urllib.request.getproxies", lambda: {"https": "http://proxy.example:3128"})
    chosen = SafeFetcher()
    assert "proxy" in chosen.limits and "proxy" in caplog.text and HttpPageReader(chosen).limits == chosen.limits
    monkeypatch.setattr("urllib.request.getproxies", dict)
    assert SafeFetcher().limits == ""
