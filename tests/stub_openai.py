"""A stub of an OpenAI-compatible server on loopback: scripted replies, scripted trouble, and a record of requests.

```python
async with StubOpenAI([completion("hello"), Trouble(500), completion("again")]) as server:
    chat = OpenAIChat("stub", base_url=server.url, store=store)
```
The last line is repeated when the script is through. A line may also be a function of the request.
"""

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from aiohttp import web


@dataclass(frozen=True)
class Trouble:
    """An HTTP error, garbage, or silence."""

    status: int = 500
    body: str = '{"error": {"message": "something broke", "type": "server_error", "code": null}}'
    headers: dict[str, str] = field(default_factory=dict)
    delay_s: float = 0.0
    content_type: str = "application/json"
    drop: bool = False  # close the connection without a word
    cut_body: bool = False  # promise the whole body, send half of it, close the connection


def completion(
    content: str | None = "",
    *,
    tool_calls: Sequence[tuple[str, Any]] = (),
    finish_reason: str = "stop",
    prompt_tokens: int = 100,
    completion_tokens: int = 20,
    delay_s: float = 0.0,
    **message: Any,
) -> dict[str, Any]:
    """A chat completion; further fields of the message (`reasoning_content`, …) by keyword."""
    answer: dict[str, Any] = {"role": "assistant", "content": content, **message}
    if tool_calls:
        answer["tool_calls"] = [
            {
                "id": f"srv-{n}",
                "type": "function",
                "function": {"name": name, "arguments": args if isinstance(args, str) else json.dumps(args)},
            }
            for n, (name, args) in enumerate(tool_calls)
        ]
    return {
        "id": "x",
        "object": "chat.completion",
        "created": 0,
        "model": "stub",
        "choices": [{"index": 0, "message": answer, "finish_reason": finish_reason}],
        "usage": {"prompt_tokens": prompt_tokens, "completion_tokens": completion_tokens, "total_tokens": 0},
        "_delay_s": delay_s,
    }


Line = dict[str, Any] | Trouble | Callable[[dict[str, Any]], dict[str, Any] | Trouble]


class StubOpenAI:
    """The server; `url` is its base URL, `requests` the bodies and `headers` the headers it was sent."""

    def __init__(self, script: Sequence[Line], models: Sequence[str] = ("stub",)) -> None:
        self.script = list(script)
        self.models = list(models)
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.url = ""

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=256 * 1024**2)
        app.router.add_post("/v1/chat/completions", self._complete)
        app.router.add_get("/v1/models", self._list)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0, backlog=2048)
        await site.start()
        port = self._runner.addresses[0][1]
        self.url = f"http://127.0.0.1:{port}/v1"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    async def _list(self, request: web.Request) -> web.Response:
        self.headers.append(dict(request.headers))
        return web.json_response({"object": "list", "data": [{"id": name, "object": "model"} for name in self.models]})

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.requests.append(body)
        self.headers.append(dict(request.headers))
        line = self.script[min(len(self.requests), len(self.script)) - 1]
        if callable(line):
            line = line(body)
        if isinstance(line, Trouble):
            await asyncio.sleep(line.delay_s)
            if line.drop and request.transport is not None:
                request.transport.close()
            if line.cut_body and request.transport is not None:
                half = web.StreamResponse(headers={"Content-Length": str(len(line.body)), "Content-Type": "text/json"})
                await half.prepare(request)
                await half.write(line.body.encode()[: len(line.body) // 2])
                request.transport.close()
                return half
            return web.Response(
                status=line.status, text=line.body, headers=line.headers, content_type=line.content_type
            )
        await asyncio.sleep(line.get("_delay_s", 0.0))
        return web.json_response({key: value for key, value in line.items() if key != "_delay_s"})
