"""Replies that follow a JSON schema: asked for in the strictest form that a server takes.

Servers differ: some hold a reply to a schema, some only to JSON, some refuse a request that mentions either (HTTP 400
or 422). The forms are tried in that order until one is taken, once per client; what was found is remembered. Whatever
the form, the reply is text that its reader still has to check.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any, Literal, TypeVar

from opensearch_vl.errors import ModelRefused

T = TypeVar("T")
Form = Literal["json_schema", "json_object", "text"]
FORMS: tuple[Form, ...] = ("json_schema", "json_object", "text")

_CHECKED_BY_US = frozenset({"title", "default", "maxLength", "minLength", "maxItems", "minItems", "pattern"})
"""Keywords that hosted servers refuse in strict mode. The reader of the reply checks them anyway."""


class ReplyFormat:
    """Finds out, once, how a server is told the form of a reply."""

    def __init__(self) -> None:
        self.form: Form | None = None
        self._probing: tuple[asyncio.AbstractEventLoop, asyncio.Lock] | None = None

    async def ask(self, post: Callable[[dict[str, Any]], Awaitable[T]], schema: str) -> T:
        """Send a request in the strictest form that is taken.

        Args:
            post: Sends the request with further fields.
            schema: The JSON schema, as text.

        Raises:
            ModelRefused: The server refuses the request in every form: the form is not what it minds.
            ModelError: As `post` raises it.
        """
        if self.form is None:
            async with self._lock():  # calls that start together find out once
                if self.form is None:
                    return await self._find_out(post, schema)
        return await post(fields(self.form, schema))

    async def _find_out(self, post: Callable[[dict[str, Any]], Awaitable[T]], schema: str) -> T:
        for form in FORMS:
            try:
                answer = await post(fields(form, schema))
            except ModelRefused:
                if form == FORMS[-1]:
                    raise
            else:
                self.form = form
                return answer
        raise AssertionError("unreachable: the last form returns or raises")

    def _lock(self) -> asyncio.Lock:
        loop = asyncio.get_running_loop()
        if self._probing is None or self._probing[0] is not loop:  # a lock belongs to the loop it was awaited in
            self._probing = loop, asyncio.Lock()
        return self._probing[1]


def fields(form: Form, schema: str) -> dict[str, Any]:
    """The fields of a request that ask for a form."""
    if form == "text":
        return {}
    if form == "json_object":
        return {"response_format": {"type": "json_object"}}
    strict = _strict(json.loads(schema))
    return {
        "response_format": {"type": "json_schema", "json_schema": {"name": "reply", "strict": True, "schema": strict}}
    }


def _strict(schema: Any) -> Any:
    """The schema as strict modes want it: every field required, none besides, no limits on sizes."""
    if isinstance(schema, list):
        return [_strict(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {key: _strict(value) for key, value in schema.items() if key not in _CHECKED_BY_US}
    if isinstance(schema.get("properties"), dict):
        properties = {name: _strict(field) for name, field in schema["properties"].items()}
        kept |= {"properties": properties, "required": list(properties), "additionalProperties": False}
    return kept
