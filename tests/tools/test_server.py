"""The tool server over a loopback socket."""

import base64
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession
from aiohttp.test_utils import TestServer
from tool_fakes import FakeIndex, FakeOcr, FakeSearch, FakeSummariser, NearestUpscaler, picture

from opensearch_vl.errors import ConfigError
from opensearch_vl.images import ImageStore, encode_png
from opensearch_vl.protocols import Passage
from opensearch_vl.tools.server import ToolServer
from opensearch_vl.tools.standard import standard_tools
from opensearch_vl.tools.toolbox import Toolbox
from opensearch_vl.types import FailureKind, ToolResult

TOKEN = "a-token-for-tests-only"
PICTURE = "data:image/png;base64," + base64.b64encode(encode_png(picture(64, 48))).decode()


class Client:
    """Requests as a client makes them: `await client("POST", "/sessions", {...})` gives status and JSON."""

    def __init__(self, session: ClientSession, server: TestServer, state: ToolServer) -> None:
        self.session, self.server, self.state = session, server, state

    async def __call__(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None, data: bytes | None = None
    ) -> tuple[int, Any]:
        sent = {"Authorization": f"Bearer {TOKEN}"} if headers is None else headers
        async with self.session.request(
            method, self.server.make_url(path), json=body, data=data, headers=sent
        ) as answer:
            return answer.status, await (answer.json() if answer.content_type == "application/json" else answer.read())

    async def open(self, *images: str) -> str:
        status, answer = await self("POST", "/sessions", {"images": list(images)})
        assert status == 201 and answer["images"] == [f"img_{n}" for n in range(1, len(images) + 1)]
        return str(answer["id"])


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[Client]:
    search = FakeSearch([Passage("Halden", "w://1", "A town.")])
    tools = standard_tools(search, FakeIndex(), FakeOcr(), NearestUpscaler(), FakeSummariser())
    state = ToolServer(
        Toolbox(tools, ImageStore(tmp_path)), TOKEN, allowed_origins=["https://demo.example"], max_sessions=3
    )
    async with TestServer(state.app(), host="127.0.0.1") as server, ClientSession() as session:
        yield Client(session, server, state)


async def test_a_session_calls_tools_and_numbers_pictures(client: Client) -> None:
    session = await client.open(PICTURE)
    status, answer = await client(
        "POST",
        f"/sessions/{session}/call",
        {"name": "crop", "arguments": {"image": "img_1", "x": 0, "y": 0, "width": 20, "height": 10}},
    )
    result = ToolResult.model_validate(answer)
    assert status == 200 and result.failure is None
    assert result.observation.image_id == "img_2" and result.observation.image is not None
    _, answer = await client("POST", f"/sessions/{session}/call", {"name": "sharpen", "arguments": {"image": "img_2"}})
    assert answer["observation"]["image_id"] == "img_3"
    status, data = await client("GET", f"/sessions/{session}/images/img_2")
    assert status == 200 and data == client.state.toolbox.store.read(result.observation.image)
    assert (await client("DELETE", f"/sessions/{session}"))[0] == 204
    assert (await client("POST", f"/sessions/{session}/call", {"name": "crop"}))[0] == 404


async def test_a_failing_call_is_a_result_not_an_http_error(client: Client) -> None:
    session = await client.open()
    for call, kind in (
        ({"name": "nope"}, FailureKind.UNKNOWN_TOOL),
        ({"name": "crop"}, FailureKind.BAD_ARGUMENTS),
        ({"name": "sharpen", "arguments": {"image": "/etc/passwd"}}, FailureKind.BAD_INPUT),
    ):
        status, answer = await client("POST", f"/sessions/{session}/call", call)
        failure = ToolResult.model_validate(answer).failure
        assert status == 200 and failure is not None and failure.kind is kind


async def test_sessions_do_not_see_each_other(client: Client) -> None:
    first, second = await client.open(PICTURE), await client.open()
    assert first != second
    _, answer = await client("POST", f"/sessions/{second}/call", {"name": "sharpen", "arguments": {"image": "img_1"}})
    assert answer["failure"]["kind"] == "bad_input"
    assert (await client("GET", f"/sessions/{second}/images/img_1"))[0] == 404


async def test_the_tools_are_listed(client: Client) -> None:
    status, answer = await client("GET", "/tools")
    assert status == 200 and [tool["name"] for tool in answer["tools"]] == list(client.state.toolbox.names)


@pytest.mark.parametrize(
    "headers",
    [
        {}, {"Authorization": ""}, {"Authorization": TOKEN}, {"Authorization": f"Basic {TOKEN}"}, {"Authorization": "Bearer wrong"},
        {"Authorization": f"Bearer {TOKEN}x"}, {"Authorization": "Bearer "}, {"Authorization": "Bearer é"},
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/tools"),
        ("POST", "/sessions"),
        ("POST", "/sessions/x/call"),
        ("DELETE", "/sessions/x"),
        ("GET", "/none"),
    ],
)
async def test_nothing_is_given_without_the_token(
    client: Client, method: str, path: str, headers: dict[str, str]
) -> None:
    status, answer = await client(method, path, headers=headers)
    assert status == 401 and set(answer) == {"error"}


async def test_web_pages_of_other_origins_are_refused(client: Client) -> None:
    right = {"Authorization": f"Bearer {TOKEN}"}
    for origin, expected in (
        ("https://evil.example", 403),
        ("null", 403),
        ("http://127.0.0.1", 403),
        ("https://demo.example", 200),
    ):
        assert (await client("GET", "/tools", headers={**right, "Origin": origin}))[0] == expected


@pytest.mark.parametrize(
    "images",
    [
        "x",
        ["/etc/passwd"],
        ["img.png"],
        ["https://a.example/x.png"],
        ["file:///etc/passwd"],
        [5],
        [{"path": "/etc/passwd"}],
        ["data:image/png;base64,AAAA"],
        ["data:text/html;base64,AAAA"],
        [PICTURE] * 65,
    ],
)
async def test_pictures_come_as_data_urls_only(client: Client, images: Any) -> None:
    status, answer = await client("POST", "/sessions", {"images": images})
    assert status == 400 and "error" in answer
    assert not client.state._sessions, "nothing is left open"


@pytest.mark.parametrize(
    "data",
    [
        b"{",
        b"[]",
        b'"x"',
        b"\xff",
        b"[" * 200_000,
        b'{"name": 5}',
        b'{"name": "crop", "arguments": []}',
        b'{"name": "crop", "extra": 1}',
    ],
)
async def test_a_malformed_body_is_refused(client: Client, data: bytes) -> None:
    session = await client.open()
    status, answer = await client("POST", f"/sessions/{session}/call", data=data)
    assert status == 400 and "error" in answer


async def test_unknown_routes_and_methods_answer_in_json(client: Client) -> None:
    assert (await client("GET", "/none"))[0] == 404
    status, answer = await client("PUT", "/tools")
    assert status == 405 and "error" in answer


async def test_idle_sessions_make_room_and_busy_ones_do_not(client: Client) -> None:
    first = await client.open()
    await client.open(), await client.open()
    assert (await client("POST", "/sessions"))[0] == 503
    client.state._sessions[first].used_s -= client.state.idle_s + 1
    assert (await client("POST", "/sessions"))[0] == 201
    assert (await client("DELETE", f"/sessions/{first}"))[0] == 404


async def test_a_fault_of_the_server_shows_nothing(
    client: Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        raise RuntimeError("internal detail")

    monkeypatch.setattr(client.state.toolbox, "schemas", fail)
    status, answer = await client("GET", "/tools")
    assert (status, answer) == (500, {"error": "The server failed."}) and "internal detail" in caplog.text


def test_a_short_token_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="16"):
        ToolServer(Toolbox([], ImageStore(tmp_path)), "short")
