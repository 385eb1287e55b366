"""When a chat server is asked again, and after how long: one pace for all calls of a client.

What passes by itself is tried again: time-outs, broken connections, HTTP 408, 409, 429 and 5xx. A call by itself waits
with a doubling, jittered pause. A `Retry-After` speaks for the server and not for the one call that met it, so it holds
back every call of the client; afterwards they set off spread over a moment, not all at once. Everything is bounded: the
number of tries, each pause, and the longest `Retry-After` that is obeyed at all.
"""

from __future__ import annotations

import asyncio
import email.utils
import math
import random
import time
from collections.abc import Awaitable, Callable, Mapping

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 8.0
"""A call's own pauses double between these; each is shortened at random by up to a quarter (as `openai` does)."""
MAX_RETRY_AFTER_S = 120.0
"""A server that asks for longer is not waited for: the call fails and says so."""
SPREAD_S = 1.0
"""Calls held back by a `Retry-After` set off over at most this time, and over at most a quarter of the pause."""
_PASSING = frozenset({408, 409, 429})

Sleep = Callable[[float], Awaitable[None]]


class Pace:
    """The shared pause of a client.

    Args:
        sleep: Waits; injected by tests.
        clock: Monotonic time in seconds.
    """

    def __init__(self, sleep: Sleep = asyncio.sleep, clock: Callable[[], float] = time.monotonic) -> None:
        self._sleep, self._clock = sleep, clock
        self._until, self._spread = -math.inf, 0.0
        self._jitter = random.Random()

    async def turn(self) -> None:
        """Wait until the server may be asked; returns at once unless a `Retry-After` holds."""
        while (left := self._until - self._clock()) > 0:
            await self._sleep(left + self._jitter.random() * self._spread)

    def hold(self, seconds: float) -> None:
        """Hold every call back for some time; a longer pause that already holds stays."""
        until = self._clock() + seconds
        if until > self._until:
            self._until, self._spread = until, min(SPREAD_S, seconds / 4)

    async def back_off(self, tried: int) -> None:
        """One call's own pause after its `tried`-th failure, counted from 0."""
        pause = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(tried, 30))
        await self._sleep(pause * (1 - self._jitter.random() / 4))


def may_pass(status: int, headers: Mapping[str, str]) -> bool:
    """Whether a refused request is worth another try. `x-should-retry` is the server's own word on it."""
    word = headers.get("x-should-retry", "").lower()
    return word == "true" if word in ("true", "false") else status in _PASSING or status >= 500


def retry_after(headers: Mapping[str, str], now: Callable[[], float] = time.time) -> float | None:
    """Seconds that the server asks to wait: `retry-after-ms`, or `retry-after` in seconds or as a date.

    None where nothing usable is said: no such header, not a number, not positive, a date gone by.
    """
    for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        text = headers.get(name, "").strip()
        try:
            seconds = float(text) / unit
        except ValueError:
            continue
        return seconds if 0 < seconds < math.inf else None
    try:
        date = email.utils.parsedate_tz(headers.get("retry-after"))
        seconds = email.utils.mktime_tz(date) - now() if date is not None else 0.0
    except (TypeError, ValueError, OverflowError, OSError):
        return None
    return seconds if seconds > 0 else None
