"""Tools that fail now and then, for measuring training under faults.

Two kinds, drawn conversation by conversation: *transient* faults, where a call times out and the next one may work, and
*permanent* ones, where one of the two searches is down for the rest of the conversation.
"""

import random
import weakref
from typing import Any

from opensearch_vl.images import ImageBank
from opensearch_vl.tools.toolbox import Toolbox, failed
from opensearch_vl.types import FailureKind, ToolCall, ToolResult


class FaultyToolbox:
    """A toolbox some of whose calls fail before they reach a tool; everything else is the toolbox's own."""

    def __init__(self, toolbox: Toolbox, transient: float, permanent: float, seed: int) -> None:
        self.toolbox = toolbox
        self.transient = transient
        self.permanent = permanent
        self.draws = random.Random(seed)
        self.states: weakref.WeakKeyDictionary[ImageBank, tuple[random.Random, str]] = weakref.WeakKeyDictionary()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.toolbox, name)

    async def call(self, call: ToolCall, bank: ImageBank) -> ToolResult:
        if bank not in self.states:
            own = random.Random(self.draws.getrandbits(64))
            down = own.choice(["text_search", "image_search"]) if own.random() < self.permanent else ""
            self.states[bank] = own, down
        own, down = self.states[bank]
        if call.name == down:
            return failed(FailureKind.BACKEND_DOWN, "The service is down.")
        if own.random() < self.transient:
            return failed(FailureKind.TIMEOUT, "The service did not answer in time.")
        return await self.toolbox.call(call, bank)
