"""Talking JSON to a service whose address and key the operator set: one place for time-outs, status codes and errors.

Such addresses do not pass the address guard (the operator vouches for them). Nothing of a request or of an error body
gets into an error message, so that no key can.
"""

from __future__ import annotations

from typing import Any, Literal

import httpx2

from opensearch_vl import redaction
from opensearch_vl.errors import BackendDown, ConfigError, RateLimited, TooLarge, ToolError, ToolTimeout

TIMEOUT_S = 30.0


def key_from_env(variable: str, service: str) -> str:
    """A key from the environment or `.env`.

    Raises:
        ConfigError: It is not set.
    """
    key = redaction.env(variable)
    if not key:
        raise ConfigError(f"{service} needs a key.", f"Set {variable} in the environment or in .env.")
    return key


class JsonService:
    """A service that answers requests with JSON.

    Args:
        name: What it is called in messages.
        base_url: Its address.
        headers: Sent with every request; keys go here.
        timeout_s: For one request.
        rejects: What a request the service finds faulty (HTTP 400, 404, 422) becomes.
        transport: Replaces the network, in tests.
    """

    def __init__(
        self,
        name: str,
        base_url: str,
        *,
        headers: dict[str, str] | None = None,
        timeout_s: float = TIMEOUT_S,
        rejects: type[ToolError] = BackendDown,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        if not base_url.startswith(("http://", "https://")):
            raise ConfigError(f"The address of {name} must start with http:// or https://.")
        self.name = name
        self._base_url = base_url.rstrip("/")
        self._headers = {"Accept": "application/json", **(headers or {})}
        self._timeout_s = timeout_s
        self._rejects = rejects
        self._transport = transport

    async def call(
        self,
        method: Literal["GET", "POST"],
        path: str,
        *,
        params: dict[str, str] | None = None,
        body: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        """One request; returns the JSON object of the answer.

        Raises:
            ToolTimeout, RateLimited, TooLarge, BackendDown: As they say; and what `rejects` names.
        """
        try:
            async with httpx2.AsyncClient(transport=self._transport, timeout=self._timeout_s) as client:
                response = await client.request(
                    method, self._base_url + path, params=params, json=body, headers=self._headers
                )
        except httpx2.TimeoutException:
            raise ToolTimeout(f"{self.name} did not answer within {self._timeout_s:g} s.") from None
        except httpx2.HTTPError as error:
            raise BackendDown(f"{self.name} cannot be reached ({type(error).__name__}).") from None
        self._check(response.status_code)
        try:
            answer = response.json()
        except ValueError:
            raise BackendDown(f"{self.name} did not answer with JSON.") from None
        if not isinstance(answer, dict):
            raise BackendDown(f"{self.name} answered with a {type(answer).__name__}, not with an object.")
        return answer

    def _check(self, status: int) -> None:
        if status == 429:
            raise RateLimited(f"{self.name} asks to slow down (HTTP 429).")
        if status in (401, 402, 403):
            raise BackendDown(f"{self.name} refuses our key or has none left to spend (HTTP {status}).")
        if status in (408, 504):
            raise ToolTimeout(f"{self.name} ran out of time (HTTP {status}).")
        if status == 413:
            raise TooLarge(f"{self.name} finds the request too large (HTTP 413).")
        if status in (400, 404, 422):
            raise self._rejects(f"{self.name} rejects the request (HTTP {status}).")
        if not 200 <= status < 300:
            raise BackendDown(f"{self.name} answered with HTTP {status}.")


def objects(value: Any) -> list[dict[str, Any]]:
    """The objects in a JSON list; anything else in it, or a value that is no list, counts for nothing."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def text_of(item: dict[str, Any], *keys: str) -> str:
    """The first non-empty string under one of `keys`, else ""."""
    for key in keys:
        value = item.get(key)
        if isinstance(value, str) and value.strip():
            return value.strip()
    return ""
