"""The pace of a client: what is tried again, how long pauses are, and that a `Retry-After` holds for every call."""

import asyncio
import email.utils

import pytest
from stub_openai import StubOpenAI, Trouble, completion

from opensearch_vl.backends.openai_chat import OpenAIChat
from opensearch_vl.backends.pacing import FIRST_PAUSE_S, LONGEST_PAUSE_S, SPREAD_S, Pace, may_pass, retry_after
from opensearch_vl.errors import ModelRateLimited
from opensearch_vl.images import ImageStore
from opensearch_vl.protocols import Message, TextPart

HELLO = (Message("user", (TextPart("hello"),)),)


class Clock:
    """Time that only passes while somebody sleeps."""

    def __init__(self) -> None:
        self.now, self.slept = 100.0, []

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds
        await asyncio.sleep(0)

    def pace(self) -> Pace:
        return Pace(self.sleep, lambda: self.now)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": " 2.5 "}, 2.5),
        ({"retry-after-ms": "120", "retry-after": "9"}, 0.12),
        ({"retry-after-ms": "soon", "retry-after": "9"}, 9.0),
        ({"retry-after": email.utils.formatdate(1_000_030, usegmt=True)}, 30.0),
        ({"retry-after": email.utils.formatdate(999_000, usegmt=True)}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "-3"}, None),
        ({"retry-after": "0"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "9" * 400}, None),
        ({"retry-after": ""}, None),
        ({}, None),
    ],
)
def test_what_a_server_asks_for(headers, seconds) -> None:
    assert retry_after(headers, lambda: 1_000_000.0) == seconds


@pytest.mark.parametrize(
    ("status", "word", "passing"),
    [(400, "", False), (401, "", False), (404, "", False), (408, "", True), (409, "", True), (422, "", False),
     (429, "", True), (500, "", True), (503, "", True), (503, "false", False), (400, "true", True), (400, "maybe", False)],
)  # fmt: skip
def test_what_is_tried_again(status, word, passing) -> None:
    assert may_pass(status, {"x-should-retry": word}) is passing


async def test_a_calls_own_pauses_double_are_jittered_and_bounded() -> None:
    clock = Clock()
    pace = clock.pace()
    for tried in range(12):
        await pace.back_off(tried)
    for tried, slept in enumerate(clock.slept):
        whole = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2**tried)
        assert 0.75 * whole <= slept <= whole
    assert len(set(clock.slept)) == 12


async def test_a_hold_is_for_everybody_and_a_shorter_one_does_not_end_it() -> None:
    clock = Clock()
    pace = clock.pace()
    await pace.turn()
    assert clock.slept == []
    pace.hold(20)
    pace.hold(1)
    await asyncio.gather(*(pace.turn() for _ in range(5)))
    assert clock.now >= 120
    assert all(slept <= 20 + SPREAD_S for slept in clock.slept)


async def test_one_refused_call_holds_back_all_others(tmp_path) -> None:
    clock = Clock()
    held_until = []

    def refuse_first(body):
        if len(server.requests) == 1:
            return Trouble(429, headers={"retry-after": "30"})
        held_until.append(clock.now)
        return completion("ok")

    async with StubOpenAI([refuse_first]) as server:
        chat = OpenAIChat("stub", base_url=server.url, store=ImageStore(tmp_path), pace=clock.pace())
        first = await chat.complete(HELLO)
        chat.pace.hold(30)
        others = await asyncio.gather(*(chat.complete(HELLO) for _ in range(4)))
        await chat.aclose()
    assert {reply.content for reply in (first, *others)} == {"ok"}
    assert held_until[0] >= 130
    assert min(held_until[1:]) >= held_until[0] + 30


async def test_a_pause_of_hours_is_not_waited_for(tmp_path) -> None:
    clock = Clock()
    async with StubOpenAI([Trouble(429, headers={"retry-after": "7200"})]) as server:
        chat = OpenAIChat("stub", base_url=server.url, store=ImageStore(tmp_path), pace=clock.pace())
        with pytest.raises(ModelRateLimited, match="7200 s"):
            await chat.complete(HELLO)
        await chat.aclose()
    assert clock.slept == []
    assert len(server.requests) == 1
