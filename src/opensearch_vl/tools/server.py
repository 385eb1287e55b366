"""Tool server: the toolbox over HTTP, for trainers and agents that run elsewhere.

A session owns an image bank, as a rollout does, and so stands in for the environment: it gives out the `img_n` ids.

| request | answer |
|---|---|
| ``GET /tools`` | ``{"tools": [{name, description, parameters}]}`` |
| ``POST /sessions`` ``{"images": ["data:image/png;base64,…"]}`` | ``{"id", "images": ["img_1"]}`` |
| ``POST /sessions/{id}/call`` ``{"name", "arguments"}`` | a `ToolResult` |
| ``GET /sessions/{id}/images/{img_n}`` | the stored bytes |
| ``DELETE /sessions/{id}`` | nothing, status 204 |

Every request needs the bearer token; one with an `Origin` header (a web page) is refused unless that origin is allowed,
so that no page a user visits can reach a server on loopback. Pictures come as data URLs only: the server opens neither
paths nor addresses for a client. What goes wrong inside a tool is a `ToolResult`; errors of the request itself are
``{"error": "…"}`` with status 400, 401, 403, 404, 413 or 503. Importing this module needs the `serve` extra.
"""

from __future__ import annotations

import hmac
import json
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from pydantic import ValidationError

from opensearch_vl.errors import BadInput, ConfigError, ImageError, MissingExtra
from opensearch_vl.images import ImageBank, ingest
from opensearch_vl.tools.offload import offload
from opensearch_vl.tools.toolbox import Toolbox
from opensearch_vl.types import ToolCall

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
"""Sessions unused for longer make room when a new one is asked for."""
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
        idle_s: How long a session may be unused before it makes room for a new one, in seconds.

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

    def app(self) -> web.Application:
        """The application, for `serve` or a test server."""
        app = web.Application(middlewares=[self._guard()], client_max_size=MAX_BODY_BYTES)
        app.add_routes(
            [
                web.get("/tools", self._tools),
                web.post("/sessions", self._open),
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
        images = (await _body(request)).get("images", [])
        if not isinstance(images, list) or len(images) > MAX_SESSION_IMAGES:
            raise _RequestError(400, f"'images' must be a list of at most {MAX_SESSION_IMAGES} data URLs.")
        self._make_room()
        session_id = secrets.token_urlsafe(24)
        bank = ImageBank()
        self._sessions[session_id] = _Session(bank)
        try:
            for image in images:
                if not isinstance(image, str) or not image[:11].lower().startswith("data:image/"):
                    raise _RequestError(400, "Pictures are taken as data URLs only (data:image/png;base64,…).")
                bank.add(await offload(ingest, image, self.toolbox.store))
        except BaseException:
            del self._sessions[session_id]
            raise
        return _json({"id": session_id, "images": bank.ids()}, status=201)

    async def _call(self, request: web.Request) -> web.Response:
        session = self._session(request)
        try:
            call = ToolCall.model_validate(await _body(request))
        except ValidationError as error:
            where = ".".join(str(part) for part in error.errors()[0]["loc"]) or "body"
            raise _RequestError(400, f"A call is {{name, arguments}}; wrong: {where[:80]}.") from error
        result = await self.toolbox.call(call, session.bank)
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
        session = self._sessions.get(request.match_info["id"])
        if session is None:
            raise _RequestError(404, "There is no such session; it may have been closed or unused for too long.")
        session.used_s = time.monotonic()
        return session

    def _make_room(self) -> None:
        if len(self._sessions) < self.max_sessions:
            return
        oldest = time.monotonic() - self.idle_s
        self._sessions = {key: session for key, session in self._sessions.items() if session.used_s >= oldest}
        if len(self._sessions) >= self.max_sessions:
            raise _RequestError(503, f"{self.max_sessions} sessions are open; close some or try later.")

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


def serve(server: ToolServer, host: str = LOOPBACK, port: int = 8765) -> None:
    """Answer requests until interrupted. The traffic is not encrypted: beyond loopback, put a TLS proxy in front."""
    web.run_app(server.app(), host=host, port=port, print=None)


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
