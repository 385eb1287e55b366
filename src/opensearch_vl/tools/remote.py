"""Tools that run on a tool server (`tools.server`), usable in a `Toolbox` like local ones.

```python
async with RemoteTools("http://127.0.0.1:8765", token) as remote:
    toolbox = Toolbox(await remote.tools(), store)
```

Every rollout's bank of pictures is mirrored by a session of its own. The bank here decides what `img_n` is: before a
call, the pictures the server does not know yet are sent, and a session whose pictures have come to differ (one was made
there that the rollout had no room for) is given up for a fresh one. Arguments are checked by the server, which knows
the real argument models; a failure there is a failure of the same kind here.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import ipaddress
import weakref
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self
from urllib.parse import quote, urlsplit

import httpx2
from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from opensearch_vl.errors import BackendDown, ConfigError, DataError, ToolError, ToolTimeout
from opensearch_vl.images import ImageBank
from opensearch_vl.protocols import Tool, ToolContext, ToolOutput
from opensearch_vl.tools.offload import offload
from opensearch_vl.types import FailureKind, ImageRef, ToolResult

TIMEOUT_S = 180.0
"""Of one call; longer than any tool's own limit, so that the server's time-out is the one that is told."""


class RemoteFailure(ToolError):
    """A failure that the server reports, of the kind that it names."""

    def __init__(self, kind: FailureKind, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class RemoteArguments(BaseModel):
    """Arguments as they were given, in one order; the server validates them."""

    model_config = ConfigDict(frozen=True, extra="allow")
    schema_: ClassVar[dict[str, Any]] = {}

    @model_validator(mode="before")
    @classmethod
    def _sorted(cls, values: Any) -> Any:
        """The same call is the same text, however its arguments are ordered (`Toolbox.key`)."""
        return dict(sorted(values.items())) if isinstance(values, Mapping) else values

    @classmethod
    def model_json_schema(cls, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """The server's schema."""
        return cls.schema_


@dataclass(slots=True)
class _Session:
    id: str
    sha256: list[str] = field(default_factory=list)  # of the pictures it has, in order
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)  # calls of one rollout see its pictures one after another


class RemoteTools:
    """A connection to a tool server, to be used in one event loop.

    Args:
        url: Its address; the operator's, so it does not pass the address guard.
        token: Its bearer token.
        timeout_s: Longest wait for one request.
        transport: For tests.

    Raises:
        ConfigError: If `url` is not an address.
    """

    def __init__(
        self, url: str, token: str, *, timeout_s: float = TIMEOUT_S, transport: httpx2.AsyncBaseTransport | None = None
    ) -> None:
        address = urlsplit(url)
        if address.scheme not in ("http", "https") or not address.hostname:
            raise ConfigError(f"{url!r} is not the address of a tool server.", "Example: http://127.0.0.1:8765")
        self.url = url.rstrip("/")
        self.timeout_s = timeout_s
        self._client = httpx2.AsyncClient(
            headers={"Authorization": f"Bearer {token}"},
            timeout=timeout_s,
            transport=transport,
            trust_env=not _is_loopback(address.hostname),
        )
        self._sessions: weakref.WeakKeyDictionary[ImageBank, _Session] = weakref.WeakKeyDictionary()
        self._over: deque[_Session] = deque()  # sessions whose rollout is over

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def tools(self) -> list[Tool]:
        """What the server offers.

        Raises:
            BackendDown: If it cannot be asked, or wants another token.
            DataError: If its answer is not a list of tools.
        """
        answer = await self._request("GET", "/tools")
        try:
            return [RemoteTool(self, t["name"], t["description"], dict(t["parameters"])) for t in answer["tools"]]
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f"{self.url} does not answer as a tool server does.") from error

    async def aclose(self) -> None:
        """Close the sessions and the connection."""
        if self._client.is_closed:
            return
        self._over.extend(self._sessions.values())
        self._sessions.clear()
        try:
            await self._end_sessions()
        except ToolError:  # a server that is gone has no sessions left to close
            pass
        finally:
            await self._client.aclose()

    async def call(self, name: str, arguments: dict[str, Any], context: ToolContext) -> ToolOutput:
        """Run one call on the server.

        Raises:
            RemoteFailure: What the server says went wrong, or that it takes no more pictures.
            ToolTimeout, BackendDown: If it cannot be reached, or not in time.
        """
        await self._end_sessions()
        session = await self._session(context.bank)
        async with session.lock:
            answer = await self._answer(session, name, arguments, context)
            try:
                result = ToolResult.model_validate(answer)
            except ValidationError as error:
                raise BackendDown(f"{self.url} did not answer with a tool result.") from error
            if result.failure is not None:
                raise RemoteFailure(result.failure.kind, result.failure.message)
            seen = result.observation
            if seen.image is not None:
                image = await self._fetch(session, seen.image_id or "", context)
                seen = seen.model_copy(update={"image": image, "image_id": None})
        return ToolOutput(seen, provider=result.provider, cost=result.cost)

    async def _answer(self, session: _Session, name: str, arguments: dict[str, Any], context: ToolContext) -> Any:
        """The server's answer; a session that expired there is opened anew, once."""
        call = {"name": name, "arguments": arguments}
        try:
            await self._send_pictures(session, context)
            return await self._request("POST", f"/sessions/{session.id}/call", call)
        except _NoSession:
            session.id, session.sha256 = await self._new_id(), []
            await self._send_pictures(session, context)
            return await self._request("POST", f"/sessions/{session.id}/call", call)

    async def _send_pictures(self, session: _Session, context: ToolContext) -> None:
        """Give the session exactly the pictures of the bank."""
        refs = list(context.bank)
        if [ref.sha256 for ref in refs[: len(session.sha256)]] != session.sha256:
            self._over.append(_Session(session.id))
            session.id, session.sha256 = await self._new_id(), []
        for ref in refs[len(session.sha256) :]:  # one a request: each may be as large as a request may be
            url = await offload(_data_url, ref, context)
            await self._request("POST", f"/sessions/{session.id}/images", {"images": [url]})
            session.sha256.append(ref.sha256)

    async def _fetch(self, session: _Session, image_id: str, context: ToolContext) -> ImageRef:
        """A picture that a call made, put into the store here."""
        response = await self._send("GET", f"/sessions/{session.id}/images/{quote(image_id, safe='')}", None)
        ref = await offload(context.store.put_bytes, response.content)
        session.sha256.append(ref.sha256)
        return ref

    async def _session(self, bank: ImageBank) -> _Session:
        known = self._sessions.get(bank)
        if known is None:
            fresh = _Session(await self._new_id())
            known = self._sessions.setdefault(bank, fresh)
            if known is fresh:
                weakref.finalize(bank, self._over.append, fresh).atexit = False
            else:  # two first calls at once
                self._over.append(fresh)
        return known

    async def _new_id(self) -> str:
        return quote(str((await self._request("POST", "/sessions", {})).get("id", "")), safe="")

    async def _end_sessions(self) -> None:
        while self._over:
            with contextlib.suppress(_NoSession):
                await self._send("DELETE", f"/sessions/{self._over.popleft().id}", None)

    async def _request(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        answer: Any = None
        response = await self._send(method, path, body)
        with contextlib.suppress(ValueError):
            answer = response.json()
        if not isinstance(answer, dict):
            raise BackendDown(f"{self.url} did not answer with a JSON object.")
        return answer

    async def _send(self, method: str, path: str, body: Any) -> httpx2.Response:
        try:
            response = await self._client.request(method, self.url + path, json=body)
        except httpx2.TimeoutException:
            raise ToolTimeout(f"The tool server did not answer within {self.timeout_s:g} s.") from None
        except httpx2.HTTPError as error:
            raise BackendDown(f"The tool server cannot be reached ({type(error).__name__}).") from None
        if response.status_code == 404:
            raise _NoSession("The tool server does not know this session.")
        if response.status_code in (401, 403):
            raise BackendDown("The tool server refuses our token.")
        if response.status_code in (400, 413):
            raise RemoteFailure(FailureKind.TOO_LARGE, "The tool server does not take more, or larger, pictures.")
        if not response.is_success:
            raise BackendDown(f"The tool server answered with HTTP {response.status_code}.")
        return response


class RemoteTool:
    """One tool of the server, as a `Tool`."""

    def __init__(self, server: RemoteTools, name: str, description: str, schema: dict[str, Any]) -> None:
        self.name = name
        self.description = description
        self.aliases: tuple[str, ...] = ()
        self.timeout_s = server.timeout_s
        self.arguments: type[BaseModel] = type("Arguments", (RemoteArguments,), {"schema_": schema})
        self._server = server

    async def run(self, arguments: BaseModel, context: ToolContext) -> ToolOutput:
        """Run it there.

        Raises:
            ToolError: The failure that the server reports, or that it cannot be reached.
        """
        return await self._server.call(self.name, arguments.model_dump(mode="json"), context)


class _NoSession(BackendDown):
    pass


def _data_url(ref: ImageRef, context: ToolContext) -> str:
    return f"data:{ref.mime};base64,{base64.b64encode(context.store.read(ref)).decode('ascii')}"


def _is_loopback(host: str) -> bool:
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"
