"""Search services against recorded answers: parsing, odd answers, errors, and keys that never show."""

import json
from collections.abc import Callable
from typing import Any

import httpx2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opensearch_vl.backends.web_search import BraveSearch, JinaReader, SearxngSearch, SerperLens, SerperSearch
from opensearch_vl.errors import (
    BackendDown,
    BadInput,
    Blocked,
    ConfigError,
    RateLimited,
    TooLarge,
    ToolError,
    ToolTimeout,
)
from opensearch_vl.protocols import Passage, VisualMatch

KEY = "k3y-that-must-not-show"
SERPER = {
    "searchParameters": {"q": "foo hall"},
    "organic": [
        {"title": "Foo Hall", "link": "https://a.example/foo", "snippet": "Built in 1931 &amp; loved.", "position": 1},
        {"title": "Foo again", "link": "https://a.example/foo", "snippet": "same address", "position": 2},
        {"title": "no address", "snippet": "x"},
        {"title": "script", "link": "javascript:alert(1)"},
        {"link": "https://b.example/"},
        "junk",
    ],
}
LENS = {
    "organic": [
        {
            "title": "Foo Hall – Wiki",
            "source": "Wiki",
            "link": "https://w.example/Foo",
            "imageUrl": "https://i.example/1.jpg",
        },
        {"title": "Foo Hall", "source": "Shop", "link": "https://s.example/"},
    ]
}
BRAVE = {
    "web": {
        "results": [
            {
                "title": "Foo <strong>Hall</strong>",
                "url": "https://a.example/",
                "description": "A <strong>hall</strong>.",
                "extra_snippets": ["More.", 3],
            },
            {"title": "Bar", "url": "https://b.example/", "description": "B."},
        ]
    }
}
SEARXNG = {
    "query": "foo",
    "results": [{"title": "Foo", "url": "https://a.example/", "content": "A hall.", "engine": "x"}],
}
JINA = {
    "code": 200,
    "data": {"title": "Foo Hall", "url": "https://a.example/foo", "content": "# Foo Hall\n\nBuilt in 1931."},
}


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("SERPER_API_KEY", "BRAVE_API_KEY", "JINA_API_KEY"):
        monkeypatch.setenv(variable, KEY)


class Recorder:
    """A service that gives one answer and remembers what it was asked."""

    def __init__(self, answer: Any, status: int = 200) -> None:
        self.answer, self.status = answer, status
        self.requests: list[httpx2.Request] = []
        self.transport = httpx2.MockTransport(self)

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        self.requests.append(request)
        return (
            httpx2.Response(self.status, content=self.answer)
            if isinstance(self.answer, bytes)
            else httpx2.Response(self.status, json=self.answer)
        )

    @property
    def body(self) -> Any:
        return json.loads(self.requests[0].content)


async def published(image: bytes) -> str:
    return f"https://pictures.example/{len(image)}.png"


async def test_serper() -> None:
    service = Recorder(SERPER)
    found = await SerperSearch(transport=service.transport, country="de").search(" foo  hall ", 5, "de")
    assert found == [
        Passage("Foo Hall", "https://a.example/foo", "Built in 1931 & loved."),
        Passage("https://b.example/", "https://b.example/", ""),
    ]
    assert service.body == {"q": "foo hall", "gl": "de", "hl": "de", "num": 5}
    assert (
        service.requests[0].headers["x-api-key"] == KEY
        and service.requests[0].url == "https://google.serper.dev/search"
    )
    assert len(await SerperSearch(transport=service.transport).search("foo", 1)) == 1


async def test_lens() -> None:
    service = Recorder(LENS)
    found = await SerperLens(published, transport=service.transport).search(b"12345", 1)
    assert found == [VisualMatch("Foo Hall – Wiki", "https://w.example/Foo", "Wiki")]
    assert service.body["url"] == "https://pictures.example/5.png" and str(service.requests[0].url).endswith("/lens")


async def test_brave() -> None:
    service = Recorder(BRAVE)
    found = await BraveSearch(transport=service.transport).search("word " * 80, 99, "en")
    assert found[0] == Passage("Foo Hall", "https://a.example/", "A hall. More.") and len(found) == 2
    params = service.requests[0].url.params
    assert params["count"] == "20" and len(params["q"].split()) == 50 and len(params["q"]) <= 400
    assert service.requests[0].headers["x-subscription-token"] == KEY


async def test_searxng() -> None:
    service = Recorder(SEARXNG)
    found = await SearxngSearch("http://localhost:8888/", transport=service.transport).search("foo", 5, "fr")
    assert found == [Passage("Foo", "https://a.example/", "A hall.")]
    assert str(service.requests[0].url) == "http://localhost:8888/search?q=foo&format=json&language=fr"


async def test_jina_reader() -> None:
    service = Recorder(JINA)
    page = await JinaReader(transport=service.transport).read("https://a.example/foo#part")
    assert (page.title, page.url, page.text) == ("Foo Hall", "https://a.example/foo", "# Foo Hall\n\nBuilt in 1931.")
    assert (
        service.body == {"url": "https://a.example/foo"}
        and service.requests[0].headers["authorization"] == f"Bearer {KEY}"
    )
    for address in ("http://127.0.0.1/", "file:///etc/passwd", "http://localhost/"):
        with pytest.raises(Blocked):
            await JinaReader(transport=service.transport).read(address)
    with pytest.raises(BadInput):
        await JinaReader(transport=Recorder({"data": {"content": ""}}).transport).read("https://a.example/")


def test_a_missing_key_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SERPER_API_KEY")
    monkeypatch.delenv("BRAVE_API_KEY")
    for make, variable in ((SerperSearch, "SERPER_API_KEY"), (BraveSearch, "BRAVE_API_KEY")):
        with pytest.raises(ConfigError, match=variable):
            make()
    with pytest.raises(ConfigError, match="http"):
        SearxngSearch("localhost:8888")


async def test_an_empty_query_is_not_sent() -> None:
    service = Recorder(SERPER)
    with pytest.raises(BadInput):
        await SerperSearch(transport=service.transport).search("  ", 5)
    assert service.requests == []


ENGINES: list[Callable[[httpx2.AsyncBaseTransport], Any]] = [
    lambda transport: SerperSearch(transport=transport),
    lambda transport: BraveSearch(transport=transport),
    lambda transport: SearxngSearch("http://localhost:8888", transport=transport),
]


@pytest.mark.parametrize("make", ENGINES)
@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, BackendDown),
        (401, BackendDown),
        (403, BackendDown),
        (404, BackendDown),
        (413, TooLarge),
        (429, RateLimited),
        (500, BackendDown),
        (503, BackendDown),
        (504, ToolTimeout),
        (302, BackendDown),
    ],
)
async def test_status_codes_become_kinds_and_keys_never_show(make: Any, status: int, kind: type[ToolError]) -> None:
    service = Recorder(f'{{"message": "key {KEY} is bad"}}'.encode(), status)
    with pytest.raises(kind) as caught:
        await make(service.transport).search("q", 5)
    assert KEY not in str(caught.value) and KEY not in repr(caught.value.__cause__)


@pytest.mark.parametrize("make", ENGINES)
@pytest.mark.parametrize(
    ("failure", "kind"),
    [
        (httpx2.ReadTimeout("t"), ToolTimeout),
        (httpx2.ConnectTimeout("t"), ToolTimeout),
        (httpx2.ConnectError(KEY), BackendDown),
    ],
)
async def test_broken_connections_become_kinds(make: Any, failure: Exception, kind: type[ToolError]) -> None:
    def handle(request: httpx2.Request) -> httpx2.Response:
        raise failure

    with pytest.raises(kind) as caught:
        await make(httpx2.MockTransport(handle)).search("q", 5)
    assert KEY not in str(caught.value)


@pytest.mark.parametrize("make", ENGINES)
@pytest.mark.parametrize("answer", [b"<html>oops</html>", b"[]", b"null", b"\xff\xfe", b""])
async def test_answers_that_are_no_json_objects(make: Any, answer: bytes) -> None:
    with pytest.raises(BackendDown):
        await make(Recorder(answer).transport).search("q", 5)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["title", "link", "url", "web", "results", "organic", "x"]), inner, max_size=4
        )
    ),
    max_leaves=12,
)


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(st.sampled_from(["organic", "results", "web"]), json_values, max_size=3))
async def test_any_object_is_survived(answer: dict[str, Any]) -> None:
    for make in ENGINES:
        for passage in await make(Recorder(answer).transport).search("q", 5):
            assert passage.url.startswith(("http://", "https://")) and passage.title
