"""Chat models behind any OpenAI-compatible server: vLLM, SGLang, llama.cpp, Ollama, or a hosted one.

Both ways of calling tools work: as tags in the text (no tools are sent with the request), and as the server's own tool
calls. Keys come from the environment or `.env`: ``OSVL_API_KEY``, else ``OPENAI_API_KEY``; a server that wants none
gets a dummy. Failures that may pass are tried again at the pace of `pacing`; a reply that is to follow a schema is
asked for in the strictest form that the server takes (`structured`).
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from opensearch_vl.backends.chat_wire import DataUrls, from_wire, to_wire, tools_to_wire
from opensearch_vl.backends.pacing import MAX_RETRY_AFTER_S, Pace, may_pass, retry_after
from opensearch_vl.backends.structured import ReplyFormat
from opensearch_vl.errors import ConfigError, ModelError, ModelKeyRefused
from opensearch_vl.images import ImageStore
from opensearch_vl.protocols import Message, Reply, Sampling, ToolSchema
from opensearch_vl.redaction import env, redact
from opensearch_vl.types import Usage

if TYPE_CHECKING:
    import httpx2
    import openai

OPENAI_URL = "https://api.openai.com/v1"
MAX_PIXELS = 1_048_576
"""A megapixel: what hosted models look at closely. Checkpoints trained on less (paper, section 4) are given less."""
TIMEOUT_S = 600.0
CONNECT_TIMEOUT_S = 30.0
"""Generous: hundreds of rollouts connect at once, on a machine that may be busy with other things."""
MAX_RETRIES = 4
"""With doubling waits from half a second, some eight seconds in all; `pacing` tells of a server's own `Retry-After`."""
_SEED_BITS = 0x7FFF_FFFF  # some servers keep seeds in 32 bits, signed


@dataclass(frozen=True, slots=True)
class Price:
    """US dollars per million tokens."""

    prompt: float
    completion: float

    def of(self, usage: Usage) -> float:
        """Cost of some tokens."""
        return (usage.prompt_tokens * self.prompt + usage.completion_tokens * self.completion) / 1_000_000


class OpenAIChat:
    """A `ChatModel` on a chat-completions server.

    Args:
        model: Name of the model as the server knows it.
        store: Where the pictures of messages lie.
        base_url: Address of the server, up to and including ``/v1``; default ``OSVL_BASE_URL``, then OpenAI's.
        api_key: For tests and embedding programs; normally left to the environment.
        max_pixels: Pictures are scaled down to this area before they are sent.
        timeout_s: Longest wait for one reply.
        max_retries: How often a request is tried again after 408, 409, 429, 5xx or a broken connection.
        pace: The pauses between tries, shared by all calls; by default a pace of its own.
        price: What tokens cost, if the costs are to be summed.
        extra_body: Further fields of every request, such as ``{"chat_template_kwargs": {"enable_thinking": False}}``; a
            field set to None is left out, for models that refuse, say, a temperature.

    Raises:
        ConfigError: If the address is not one.
        ModelKeyRefused: If OpenAI's own server is to be used and there is no key.
    """

    def __init__(
        self,
        model: str,
        *,
        store: ImageStore,
        base_url: str | None = None,
        api_key: str | None = None,
        max_pixels: int = MAX_PIXELS,
        timeout_s: float = TIMEOUT_S,
        max_retries: int = MAX_RETRIES,
        pace: Pace | None = None,
        price: Price | None = None,
        extra_body: Mapping[str, Any] | None = None,
    ) -> None:
        self.name = model
        self.base_url = base_url or env("OSVL_BASE_URL") or OPENAI_URL
        address = urlsplit(self.base_url)
        if address.scheme not in ("http", "https") or not address.hostname:
            raise ConfigError(
                f"{redact(self.base_url)!r} is not the address of a server.", "Example: http://localhost:8000/v1"
            )
        self._host = address.hostname
        self._hosted = self._host == "api.openai.com"
        key = api_key or env("OSVL_API_KEY") or env("OPENAI_API_KEY")
        if key is None and self._hosted:
            raise ModelKeyRefused(
                "There is no key for api.openai.com.", "Put OPENAI_API_KEY=… into .env, or give --base-url."
            )
        self._key = key or "none"
        self.timeout_s = timeout_s
        self.max_retries = max_retries
        self.pace = pace or Pace()
        self.format = ReplyFormat()
        self.price = price
        self.extra_body = dict(extra_body or {})
        self._urls = DataUrls(store, max_pixels)
        self._client: openai.AsyncOpenAI | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def complete(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSchema] = (),
        sampling: Sampling = Sampling(),
        seed: int = 0,
    ) -> Reply:
        """Return the next assistant turn.

        Raises:
            ModelError: One of its children, saying what happened and how to mend it.
            ImageError: If a picture of the messages is not in the store.
        """
        request: dict[str, Any] = {
            "model": self.name,
            "messages": to_wire(messages, await self._data_urls(messages)),
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "max_completion_tokens" if self._hosted else "max_tokens": sampling.max_tokens,
            "seed": seed & _SEED_BITS,
        }
        if sampling.stop:
            request["stop"] = list(sampling.stop)
        if tools:
            request |= {"tools": tools_to_wire(tools), "parallel_tool_calls": False}
        body = {key: value for key, value in (request | self.extra_body).items() if value is not None}
        if sampling.schema and "response_format" not in self.extra_body:
            response = await self.format.ask(lambda extra: self._post(body | extra), sampling.schema)
        else:
            response = await self._post(body)
        reply = from_wire(response.content, sampling.stop)
        if self.price is None:
            return reply
        return replace(reply, usage=reply.usage.model_copy(update={"cost": self.price.of(reply.usage)}))

    async def _post(self, body: dict[str, Any]) -> httpx2.Response:
        """One answer to a request, tried again while the trouble may pass."""
        import httpx2
        import openai

        for tried in range(self.max_retries + 1):
            await self.pace.turn()
            last = tried == self.max_retries
            try:
                # The bare request: same errors as `chat.completions.create`, half the processor time, since the
                # messages are not walked through and typed once more.
                return await self._open().post("/chat/completions", cast_to=httpx2.Response, body=body)
            except openai.APIStatusError as error:
                asked = retry_after(error.response.headers)
                passing = may_pass(error.status_code, error.response.headers) and error.code != "insufficient_quota"
                if passing and asked is not None and asked <= MAX_RETRY_AFTER_S:
                    self.pace.hold(asked)  # also after the last try: others would only run into the same answer
                if last or not passing or (asked is not None and asked > MAX_RETRY_AFTER_S):
                    raise self._explain(error) from error
                if asked is None:
                    await self.pace.back_off(tried)
            except openai.APIConnectionError as error:  # time-outs included
                if last:
                    raise self._explain(error) from error
                await self.pace.back_off(tried)
            except openai.OpenAIError as error:
                raise self._explain(error) from error
        raise AssertionError("unreachable: the last try returns or raises")

    async def models(self) -> list[str]:
        """Names of the models that the server offers.

        Raises:
            ModelError: If it cannot be asked.
        """
        import openai

        try:
            server = self._open().with_options(max_retries=self.max_retries)
            return sorted([model.id async for model in server.models.list()])
        except openai.OpenAIError as error:
            raise self._explain(error) from error

    async def aclose(self) -> None:
        """Close the connections; the next request opens new ones."""
        client, self._client = self._client, None
        if client is not None and self._loop is asyncio.get_running_loop():
            await client.close()

    def _open(self) -> openai.AsyncOpenAI:
        """The client of this event loop: connections cannot be used from another one."""
        import httpx2
        import openai

        loop = asyncio.get_running_loop()
        if self._client is None or self._loop is not loop:
            # A server on this machine is spoken to directly, whatever proxy the environment names.
            direct = openai.DefaultAsyncHttpxClient(trust_env=False) if _is_loopback(self._host) else None
            self._client = openai.AsyncOpenAI(
                api_key=self._key,
                base_url=self.base_url,
                max_retries=0,  # `_post` tries again, at the pace of all calls
                timeout=httpx2.Timeout(self.timeout_s, connect=CONNECT_TIMEOUT_S),
                http_client=direct,
            )
            self._loop = loop
        return self._client

    def _explain(self, error: openai.OpenAIError) -> ModelError:
        from opensearch_vl.backends.chat_errors import Limits, explain

        limits = Limits(self.timeout_s, CONNECT_TIMEOUT_S, self.max_retries)
        return explain(error, self.name, self.base_url, limits)

    async def _data_urls(self, messages: Sequence[Message]) -> dict[str, str]:
        urls: dict[str, str] = {}
        for message in messages:
            for ref in message.images:
                url = urls.get(ref.sha256) or self._urls.cached(ref)
                if url is None:
                    url = await asyncio.to_thread(self._urls.encode, ref)
                    self._urls.keep(ref, url)
                urls[ref.sha256] = url
        return urls


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
