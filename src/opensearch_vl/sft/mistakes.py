"""Mistakes on request: before a move of the plan the noisy expert may do something useless or wrong, then recovers.

Such rollouts show what errors look like from inside the environment: rejection has something to reject, and training
has something to recover from.
"""

from __future__ import annotations

import dataclasses
import random

from opensearch_vl.sft.phrases import Voice
from opensearch_vl.sft.plan import Ask, Broken, Move, Plan
from opensearch_vl.types import ToolCall

MISTAKES = ("useless_query", "malformed_call", "unknown_tool", "wrong_image", "repeated_call")
_IDLE_QUERIES = ("history of art", "famous people", "interesting facts", "list of towns", "weather today", "old maps")
_NO_SUCH_TOOLS = ("web_lookup", "google", "zoom", "open_page")


def with_mistakes(plan: Plan, noise: float, rng: random.Random, voice: Voice) -> Plan:
    """The plan with a mistake put before each move with probability `noise`, in [0, 1]."""
    move = next(plan)
    last: ToolCall | None = None
    while True:
        if noise > 0 and rng.random() < noise:
            yield _mistake(last, rng, voice)
            move = dataclasses.replace(move, thought=f"{voice.say('recover')} {move.thought}")
        if isinstance(move, Ask):
            last = move.call
        seen = yield move
        try:
            move = plan.send(seen)
        except StopIteration:
            return


def _mistake(last: ToolCall | None, rng: random.Random, voice: Voice) -> Move:
    idle = ToolCall(name="text_search", arguments={"q": rng.choice(_IDLE_QUERIES), "top_k": 5})
    match rng.choice(MISTAKES):
        case "malformed_call":
            return Broken(voice.say("noise_call"), idle)
        case "unknown_tool":
            call = ToolCall(name=rng.choice(_NO_SUCH_TOOLS), arguments={"q": idle.arguments["q"]})
            return Ask(voice.say("noise_call"), call)
        case "wrong_image":
            return Ask(voice.say("noise_call"), ToolCall(name="layout_parsing", arguments={"image": "img_99"}))
        case "repeated_call" if last is not None:
            return Ask(voice.say("noise_call"), last)
        case _:
            return Ask(voice.say("noise_useless"), idle)
