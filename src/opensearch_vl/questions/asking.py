"""Structured answers from a chat model: asked once, checked against a schema, paid for once.

The schema is part of the prompt and the reply is searched for an object that fits it, so servers with and without a
JSON mode work alike. Every reply is kept in a SQLite cache keyed by model, prompt and attempt: a resumed run pays for
nothing twice. Rate limits and unreachable servers are waited out with growing pauses; a reply that does not fit is
asked for again; what still fails is a `StageFailed` that the caller turns into a rejection with its reason.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import sqlite3
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from opensearch_vl.errors import ModelError, ModelRateLimited, ModelReplyInvalid, ModelUnreachable
from opensearch_vl.protocols import ChatModel, Message, Reply, Sampling, TextPart
from opensearch_vl.seeds import derive, generator
from opensearch_vl.types import Usage

M = TypeVar("M", bound=BaseModel)
Sleep = Callable[[float], Awaitable[None]]

_MAX_REPLY_CHARS = 200_000
_MAX_OBJECTS = 200
"""Opening braces tried in one reply; a reply of nothing but braces stays cheap."""


class BudgetSpent(ModelError):
    """The money set aside for a run is used up; everything so far is kept."""


class StageFailed(Exception):
    """A stage got no usable answer. `reason` is `model_unreachable` or `reply_invalid`."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason, self.detail = reason, detail


@dataclass(slots=True)
class Ledger:
    """What was asked and spent, by stage."""

    calls: Counter[str] = field(default_factory=Counter)
    cached: Counter[str] = field(default_factory=Counter)
    invalid: Counter[str] = field(default_factory=Counter)
    waits: Counter[str] = field(default_factory=Counter)
    usage: dict[str, Usage] = field(default_factory=dict)

    @property
    def cost(self) -> float:
        """US dollars spent by this process."""
        return sum(usage.cost for usage in self.usage.values())

    def as_dict(self) -> dict[str, dict[str, float]]:
        """One row per stage."""
        return {
            stage: {
                "calls": self.calls[stage],
                "cached": self.cached[stage],
                "invalid": self.invalid[stage],
                "waits": self.waits[stage],
                "prompt_tokens": self.usage.get(stage, Usage()).prompt_tokens,
                "completion_tokens": self.usage.get(stage, Usage()).completion_tokens,
                "cost": self.usage.get(stage, Usage()).cost,
            }
            for stage in sorted({*self.calls, *self.cached})
        }


class ReplyCache:
    """Replies on disk, in SQLite; one process writes at a time."""

    def __init__(self, path: Path | str) -> None:
        self._path = Path(path)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with closing(self._connect()) as db, db:
            db.execute("CREATE TABLE IF NOT EXISTS replies (key TEXT PRIMARY KEY, content TEXT NOT NULL)")

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self._path, timeout=30)

    def get(self, key: str) -> str | None:
        """The reply kept under a key."""
        with closing(self._connect()) as db:
            row = db.execute("SELECT content FROM replies WHERE key = ?", (key,)).fetchone()
        return None if row is None else str(row[0])

    def put(self, key: str, content: str) -> None:
        """Keep a reply."""
        with closing(self._connect()) as db, db:
            db.execute("INSERT OR REPLACE INTO replies VALUES (?, ?)", (key, content))


class Asker:
    """Puts prompts to a chat model and returns objects of a given shape.

    Args:
        chat: The model.
        cache: Where replies are kept; None keeps none.
        max_attempts: Replies asked for until one fits; connection troubles count separately.
        max_waits: Pauses before an unreachable or limiting server counts as failed.
        parallel: Requests under way at once.
        budget_usd: Money that may be spent; None sets no limit.
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
        self.chat, self.ledger = chat, Ledger()
        self._cache, self._sampling, self._sleep = cache, sampling, sleep
        self._max_attempts, self._max_waits, self._budget = max_attempts, max_waits, budget_usd
        self._slots = asyncio.Semaphore(parallel)

    async def ask(self, stage: str, prompt: str, shape: type[M]) -> M:
        """The model's answer as an object of `shape`.

        Raises:
            StageFailed: No usable answer.
            BudgetSpent: The next call might cost more than is left.
            ModelError: The server refuses the key or the request; no question could be written at all.
        """
        text = f"{prompt}\n\nReply with one JSON object of this schema and nothing else:\n{_schema(shape)}"
        trouble = ""
        for attempt in range(self._max_attempts):
            found, trouble = fit(await self._reply(stage, text, attempt), shape)
            if found is not None:
                return found
            self.ledger.invalid[stage] += 1
        raise StageFailed("reply_invalid", trouble)

    async def _reply(self, stage: str, text: str, attempt: int) -> str:
        key = hashlib.sha256(json.dumps([self.chat.name, text, attempt]).encode()).hexdigest()
        if self._cache is not None and (kept := self._cache.get(key)) is not None:
            self.ledger.cached[stage] += 1
            return kept
        reply = await self._complete(stage, text, attempt)
        self.ledger.usage[stage] = self.ledger.usage.get(stage, Usage()) + reply.usage
        content = reply.content if reply.finish_reason != "length" else ""  # a truncated reply never fits
        if self._cache is not None:
            self._cache.put(key, content)
        return content

    async def _complete(self, stage: str, text: str, attempt: int) -> Reply:
        message = Message("user", (TextPart(text),))
        seed = derive("ask", text, attempt)
        pauses = generator(seed, "pause")
        for wait in range(self._max_waits):
            if self._budget is not None and self.ledger.cost >= self._budget:
                raise BudgetSpent(
                    f"The budget of {self._budget:.2f} US dollars is spent.",
                    "Raise --budget and continue with --resume.",
                )
            try:
                async with self._slots:
                    self.ledger.calls[stage] += 1
                    return await self.chat.complete((message,), (), self._sampling, seed)
            except (ModelRateLimited, ModelUnreachable):
                self.ledger.waits[stage] += 1
                await self._sleep(min(60.0, 2.0**wait) * (0.5 + pauses.random()))
            except ModelReplyInvalid:
                return Reply(content="")
        raise StageFailed("model_unreachable", f"{self._max_waits} tries")


def fit(text: str, shape: type[M]) -> tuple[M | None, str]:
    """The last object in a reply that fits a shape, and what was wrong if none does.

    Reasoning blocks, code fences and chatter around the object do not matter; of several objects that fit the last one
    counts, since models restate the schema before they answer.
    """
    text = text[-_MAX_REPLY_CHARS:].rpartition("</think>")[2]
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
