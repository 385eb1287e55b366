"""Structured answers from a chat model: asked once, checked against a schema, paid for once.

The schema is part of the prompt, and also of the request for servers that can hold a reply to it; the reply is searched
for an object that fits, so servers with and without a JSON mode work alike. Every reply is kept in a cache keyed by
model, prompt and attempt: a resumed run pays for nothing twice, and a prompt that two walks need at once is asked once.
Rate limits and unreachable servers are waited out with growing pauses; a reply that does not fit is asked for again;
what still fails is a `StageFailed` that the caller turns into a rejection with its reason.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from typing import Any, ClassVar, TypeVar

from pydantic import BaseModel, ValidationError

from opensearch_vl.errors import ModelError, ModelRateLimited, ModelRefused, ModelReplyInvalid, ModelUnreachable
from opensearch_vl.protocols import ChatModel, Message, Reply, Sampling, TextPart
from opensearch_vl.questions.paid import Ledger, ReplyCache
from opensearch_vl.seeds import derive, generator

M = TypeVar("M", bound=BaseModel)
Sleep = Callable[[float], Awaitable[None]]

_MAX_REPLY_CHARS = 200_000
_MAX_OBJECTS = 200
"""Opening braces tried in one reply; a reply of nothing but braces stays cheap."""


class BudgetSpent(ModelError):
    """The money set aside for a run is used up; everything so far is kept (exit 3: a part is done)."""

    exit_code: ClassVar[int] = 3


class StageFailed(Exception):
    """A stage got no usable answer: `model_unreachable`, `model_refused`, `reply_invalid`, or the caller's reason."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason, self.detail = reason, detail


class Asker:
    """Puts prompts to a chat model and returns objects of a given shape.

    Args:
        chat: The model.
        cache: Where replies are kept; None keeps none.
        max_attempts: Replies asked for until one fits; connection troubles count separately.
        max_waits: Pauses before an unreachable or limiting server counts as failed.
        parallel: Requests under way at once.
        budget_usd: Money that the run may spend, earlier sittings included; None sets no limit. It is kept as long as
            no call costs more than the dearest one so far; before the first reply, at most `parallel` calls are made.
        sampling: Decoding; greedy by default.
        sleep: Waits; injected by tests.
    """

    def __init__(
        self,
        chat: ChatModel,
        cache: ReplyCache | None = None,
        *,
        max_attempts: int = 3,
        max_waits: int = 6,
        parallel: int = 8,
        budget_usd: float | None = None,
        sampling: Sampling = Sampling(temperature=0.0, max_tokens=1024),
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        before, self._dearest = cache.spent() if cache is not None else (0.0, 0.0)
        self.chat, self.ledger = chat, Ledger(before=before)
        self._cache, self._sampling, self._sleep = cache, sampling, sleep
        self._max_attempts, self._max_waits, self._budget = max_attempts, max_waits, budget_usd
        self._slots = asyncio.Semaphore(parallel)
        self._asking: dict[str, asyncio.Lock] = {}
        self._under_way = 0

    async def ask(self, stage: str, prompt: str, shape: type[M]) -> M:
        """The model's answer as an object of `shape`.

        Raises:
            StageFailed: No usable answer.
            BudgetSpent: The next call might cost more than is left.
            ModelError: The server refuses the key; no question could be written at all.
        """
        schema = _schema(shape)
        text = f"{prompt}\n\nReply with one JSON object of this schema and nothing else:\n{schema}"
        sampling = replace(self._sampling, schema=schema)
        trouble = ""
        for attempt in range(self._max_attempts):
            found, trouble = fit(await self._reply(stage, text, attempt, sampling), shape)
            if found is not None:
                return found
            self.ledger.invalid[stage] += 1
        raise StageFailed("reply_invalid", trouble)

    async def aclose(self) -> None:
        """Close the model's connections, which do not outlive the event loop they were made in."""
        close = getattr(self.chat, "aclose", None)
        if close is not None:
            await close()

    async def _reply(self, stage: str, text: str, attempt: int, sampling: Sampling) -> str:
        key = hashlib.sha256(json.dumps([self.chat.name, text, attempt]).encode()).hexdigest()
        lock = self._asking.setdefault(key, asyncio.Lock())
        try:
            async with lock:  # whoever needs the same reply meanwhile finds it in the cache
                if self._cache is not None and (kept := self._cache.get(key)) is not None:
                    self.ledger.cached[stage] += 1
                    return kept
                reply = await self._complete(stage, text, attempt, sampling)
                content = reply.content if reply.finish_reason != "length" else ""  # a truncated reply never fits
                if self._cache is not None:
                    self._cache.put(key, content, stage, reply.usage)
                return content
        finally:
            if not lock.locked():
                self._asking.pop(key, None)

    async def _complete(self, stage: str, text: str, attempt: int, sampling: Sampling) -> Reply:
        message = Message("user", (TextPart(text),))
        seed = derive("ask", text, attempt)
        pauses = generator(seed, "pause")
        for wait in range(self._max_waits):
            try:
                async with self._slots:
                    return await self._paid(stage, self.chat.complete((message,), (), sampling, seed))
            except (ModelRateLimited, ModelUnreachable):
                self.ledger.waits[stage] += 1
                await self._sleep(min(60.0, 2.0**wait) * (0.5 + pauses.random()))
            except ModelReplyInvalid:
                return Reply(content="")
            except ModelRefused as error:
                raise StageFailed("model_refused", error.message) from error
        raise StageFailed("model_unreachable", f"{self._max_waits} tries")

    async def _paid(self, stage: str, call: Coroutine[Any, Any, Reply]) -> Reply:
        """Make a call if the budget allows it beside those under way, and note what it cost."""
        spent = self.ledger.before + self.ledger.cost + (self._under_way + 1) * self._dearest
        if self._budget is not None and (spent > self._budget + 1e-9 or self._budget <= 0):
            call.close()
            raise BudgetSpent(
                f"The budget of {self._budget:g} US dollars is spent.", "Raise --budget and continue with --resume."
            )
        self.ledger.calls[stage] += 1
        self._under_way += 1
        try:
            reply = await call
        finally:
            self._under_way -= 1
        self.ledger.pay(stage, reply.usage)
        self._dearest = max(self._dearest, reply.usage.cost)
        return reply


def fit(text: str, shape: type[M]) -> tuple[M | None, str]:
    """The last object in a reply that fits a shape, and what was wrong if none does.

    Reasoning blocks, finished or cut off, code fences and chatter around the object do not matter; of several objects
    that fit the last one counts, since models restate the schema before they answer.
    """
    text = text[-_MAX_REPLY_CHARS:].rpartition("</think>")[2].partition("<think>")[0]
    decoder = json.JSONDecoder()
    found: M | None = None
    trouble = "there is no JSON object in the reply"
    place, tried = text.find("{"), 0
    while place >= 0 and tried < _MAX_OBJECTS:
        tried += 1
        try:
            value, end = decoder.raw_decode(text, place)
        except (ValueError, RecursionError):
            place = text.find("{", place + 1)
            continue
        try:
            found = shape.model_validate(value)
        except ValidationError as error:
            first = error.errors()[0]
            trouble = f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}"
        place = text.find("{", end)
    return found, trouble


def _schema(shape: type[BaseModel]) -> str:
    schema: dict[str, Any] = shape.model_json_schema()
    fields = {
        name: {key: value for key, value in field.items() if key != "title"}
        for name, field in schema["properties"].items()
    }
    return json.dumps({"type": "object", "properties": fields, "required": list(fields)}, ensure_ascii=False)
