"""Tool server: the toolbox over HTTP, for trainers and agents that run elsewhere.

A session owns an image bank, as a rollout does, and so stands in for the environment: it gives out the `img_n` ids.

| request | answer |
|---|---|
| ``GET /tools`` | ``{"tools": [{name, description, parameters}]}`` |
| ``POST /sessions`` ``{"images": ["data:image/png;base64,…"]}`` | ``{"id", "images": ["img_1"]}`` |
| ``POST /sessions/{id}/images`` ``{"images": [data URL, …]}`` | ``{"images": ["img_2", …]}``, the ids of all |
| ``POST /sessions/{id}/call`` ``{"name", "arguments"}`` | a `ToolResult` |
| ``GET /sessions/{id}/images/{img_n}`` | the stored bytes |
| ``DELETE /sessions/{id}`` | nothing, status 204 |

Every request needs the bearer token; one with an `Origin` header (a web page) is refused unless that origin is allowed,
so that no page a user visits can reach a server on loopback. Pictures come as data URLs only: the server opens neither
paths nor addresses for a client. A session that is unused for `idle_s` is gone. What goes
wrong inside a tool is a `ToolResult`; errors of the request itself are
``{"error": "…"}`` with status 400, 401, 403, 404, 413 or 503. `osvl serve tools` starts it, `tools.remote` is its
client. Importing this module needs the `serve` extra.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import secrets
import signal
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from pydantic import ValidationError

from opensearch_vl.errors import BadInput, ConfigError, ImageError, MissingExtra
from opensearch_vl.images import ImageBank, ingest
from opensearch_vl.tools.offload import offload
from opensearch_vl.tools.toolbox import Toolbox, failed
from opensearch_vl.types import FailureKind, ToolCall

try:
    from aiohttp import web
except ImportError as error:
    raise MissingExtra("aiohttp", "serve") from error

_log = logging.getLogger(__name__)

LOOPBACK = "127.0.0.1"
MIN_TOKEN_CHARS = 16
MAX_SESSIONS = 4_096
"""Open sessions; twice the paper's 2,048 parallel tool calls (section 5)."""
IDLE_S = 3_600.0
"""Sessions unused for longer are dropped."""
SWEEP_S = 60.0
"""How often unused sessions are looked for at most; when all places are taken it is done at once."""
GRACE_S = 5.0
"""How long requests under way may go on after the server was told to stop."""
MAX_BODY_BYTES = 64_000_000
"""Of one request; the base64 text of the largest picture that is accepted fits."""
MAX_SESSION_IMAGES = 64


@dataclass(slots=True)
class _Session:
    bank: ImageBank
    used_s: float = field(default_factory=time.monotonic)


class ToolServer:
    """The state behind the HTTP interface: open sessions, and what each may do.

    Args:
        toolbox: The tools on offer.
        token: What clients must present; at least `MIN_TOKEN_CHARS` characters.
        allowed_origins: Web origins that may call, such as ``https://demo.example``.
        max_sessions: Open sessions at once.
        idle_s: How long a session may be unused before it is dropped, in seconds.

    Raises:
        ConfigError: If the token is too short to keep anyone out.
    """

    def __init__(
        self,
        toolbox: Toolbox,
        token: str,
        *,
        allowed_origins: Sequence[str] = (),
        max_sessions: int = MAX_SESSIONS,
        idle_s: float = IDLE_S,
    ) -> None:
        if len(token) < MIN_TOKEN_CHARS:
            raise ConfigError(f"The token of a tool server needs at least {MIN_TOKEN_CHARS} characters.")
        self.toolbox = toolbox
        self.max_sessions = max_sessions
        self.idle_s = idle_s
        self._token = token
        self._origins = frozenset(allowed_origins)
        self._sessions: dict[str, _Session] = {}
        self._swept_s = time.monotonic()

    def __len__(self) -> int:
        """Sessions open at the moment."""
        return len(self._sessions)

    def app(self) -> web.Application:
        """The application, for `serve` or a test server."""
        app = web.Application(middlewares=[self._guard()], client_max_size=MAX_BODY_BYTES)
        app.add_routes(
            [
                web.get("/tools", self._tools),
                web.post("/sessions", self._open),
                web.post("/sessions/{id}/images", self._show),
                web.post("/sessions/{id}/call", self._call),
                web.get("/sessions/{id}/images/{image}", self._image),
                web.delete("/sessions/{id}", self._close),
            ]
        )
        return app

    # ------------------------------------------------------------------------------------------ handlers

    async def _tools(self, request: web.Request) -> web.Response:
        return _json({"tools": [asdict(schema) for schema in self.toolbox.schemas()]})

    async def _open(self, request: web.Request) -> web.Response:
        body = await _body(request)
        self._make_room()
        session_id = secrets.token_urlsafe(24)
        session = self._sessions[session_id] = _Session(ImageBank())
        try:
            await self._take_images(body, session)
        except BaseException:
            del self._sessions[session_id]
            raise
        return _json({"id": session_id, "images": session.bank.ids()}, status=201)

    async def _show(self, request: web.Request) -> web.Response:
        session = self._session(request)
        await self._take_images(await _body(request), session)
        return _json({"images": session.bank.ids()})

    async def _take_images(self, body: dict[str, Any], session: _Session) -> None:
        """Put the pictures of a request into the bank: all of them, or on an error none."""
        images = body.get("images", [])
        if not isinstance(images, list) or len(session.bank) + len(images) > MAX_SESSION_IMAGES:
            raise _RequestError(400, f"'images' must be a list; a session has at most {MAX_SESSION_IMAGES} pictures.")
        for image in images:
            if not isinstance(image, str) or not image[:11].lower().startswith("data:image/"):
                raise _RequestError(400, "Pictures are taken as data URLs only (data:image/png;base64,…).")
        for ref in [await offload(ingest, image, self.toolbox.store) for image in images]:
            session.bank.add(ref)

    async def _call(self, request: web.Request) -> web.Response:
        session = self._session(request)
        try:
            call = ToolCall.model_validate(await _body(request))
        except ValidationError as error:
            where = ".".join(str(part) for part in error.errors()[0]["loc"]) or "body"
            raise _RequestError(400, f"A call is {{name, arguments}}; wrong: {where[:80]}.") from error
        result = await self.toolbox.call(call, session.bank)
        if result.observation.image is not None and len(session.bank) >= MAX_SESSION_IMAGES:
            result = failed(FailureKind.TOO_LARGE, f"The session already has {MAX_SESSION_IMAGES} pictures.")
        if result.observation.image is not None:
            image_id = session.bank.add(result.observation.image)
            observation = result.observation.model_copy(update={"image_id": image_id})
            result = result.model_copy(update={"observation": observation})
        return _json(result.model_dump(mode="json"))

    async def _image(self, request: web.Request) -> web.Response:
        try:
            ref = self._session(request).bank.get(request.match_info["image"])
        except BadInput as error:
            raise _RequestError(404, error.message) from error
        data = await offload(self.toolbox.store.read, ref)
        return web.Response(body=data, content_type=ref.mime, headers=_HEADERS)

    async def _close(self, request: web.Request) -> web.Response:
        self._session(request)
        del self._sessions[request.match_info["id"]]
        return web.Response(status=204)

    # ------------------------------------------------------------------------------------------- plumbing

    def _session(self, request: web.Request) -> _Session:
        if time.monotonic() - self._swept_s >= SWEEP_S:
            self._sweep()
        session = self._sessions.get(request.match_info["id"])
        if session is None or time.monotonic() - session.used_s > self.idle_s:
            raise _RequestError(404, "There is no such session; it may have been closed or unused for too long.")
        session.used_s = time.monotonic()
        return session

    def _make_room(self) -> None:
        if len(self._sessions) >= self.max_sessions or time.monotonic() - self._swept_s >= SWEEP_S:
            self._sweep()
        if len(self._sessions) >= self.max_sessions:
            raise _RequestError(503, f"{self.max_sessions} sessions are open; close some or try later.")

    def _sweep(self) -> None:
        self._swept_s = time.monotonic()
        oldest = self._swept_s - self.idle_s
        self._sessions = {key: session for key, session in self._sessions.items() if session.used_s >= oldest}

    def _guard(self) -> Callable[..., Awaitable[web.StreamResponse]]:
        @web.middleware
        async def guard(request: web.Request, handler: Any) -> web.StreamResponse:
            try:
                self._admit(request)
                answer: web.StreamResponse = await handler(request)
                return answer
            except _RequestError as error:
                return _json({"error": error.message}, status=error.status)
            except ImageError as error:
                return _json({"error": error.message}, status=400)
            except web.HTTPException as error:  # aiohttp's own: unknown route, wrong method, body too large
                return _json({"error": error.reason}, status=error.status)
            except Exception:  # the boundary of a request: a fault of ours must not show its insides
                _log.exception("%s %s failed", request.method, request.rel_url.path)
                return _json({"error": "The server failed."}, status=500)

        return guard

    def _admit(self, request: web.Request) -> None:
        origin = request.headers.get("Origin")
        if origin is not None and origin not in self._origins:
            raise _RequestError(403, "Requests from this origin are not allowed.")
        scheme, _, given = request.headers.get("Authorization", "").partition(" ")
        known = hmac.compare_digest(given.strip().encode(), self._token.encode())
        if scheme.lower() != "bearer" or not known:
            raise _RequestError(401, "A valid bearer token is needed.")


def serve(
    server: ToolServer, host: str = LOOPBACK, port: int = 8765, ready: Callable[[str], None] | None = None
) -> None:
    """Answer requests until SIGINT or SIGTERM; requests under way get `GRACE_S` to finish.

    The traffic is not encrypted: beyond loopback, put a TLS proxy in front.

    Args:
        server: What answers.
        host: Address to listen on.
        port: Port; 0 takes any that is free.
        ready: Called with the server's address once it listens.

    Raises:
        OSError: If the address cannot be listened on.
    """
    asyncio.run(_serve(server, host, port, ready))


async def _serve(server: ToolServer, host: str, port: int, ready: Callable[[str], None] | None) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    runner = web.AppRunner(server.app(), shutdown_timeout=GRACE_S, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
        if ready is not None:
            ready(f"http://{f'[{host}]' if ':' in host else host}:{runner.addresses[0][1]}")
        await stop.wait()
    finally:
        await runner.cleanup()


class _RequestError(Exception):
    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


_HEADERS = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"}


def _json(value: Any, status: int = 200) -> web.Response:
    headers = {**_HEADERS, **({"WWW-Authenticate": "Bearer"} if status == 401 else {})}
    return web.json_response(value, status=status, headers=headers)


async def _body(request: web.Request) -> dict[str, Any]:
    """The JSON object of a request; an empty body is an empty object."""
    raw = await request.read()
    try:
        value = json.loads(raw) if raw.strip() else {}
    except (ValueError, RecursionError) as error:
        raise _RequestError(400, "The body is not valid JSON.") from error
    if not isinstance(value, dict):
        raise _RequestError(400, "The body must be a JSON object.")
    return value
