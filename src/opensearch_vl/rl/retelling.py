"""Rollouts under other names: each group meets its task, and the whole encyclopedia, under names of its own.

A small policy that is rewarded on the same few hundred questions learns their answers by heart: the reward climbs, and
nothing of it is left on another encyclopedia (docs/log.md). Here question, answer and everything the tools say are told
under names that are drawn anew for every group of every step, and what the policy asks is told back before a tool sees
it. Pictures stay as they are; see `sft.renaming`.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

from opensearch_vl.agent.environment import Environment, Tools
from opensearch_vl.images import ImageBank
from opensearch_vl.seeds import generator
from opensearch_vl.sft.renaming import Names, Telling, each_text, renamed_task
from opensearch_vl.types import Task, ToolCall, ToolResult


class RetoldTools:
    """Tools of one conversation: calls are told back to the original names, results under the new ones."""

    def __init__(self, tools: Tools, telling: Telling) -> None:
        self.tools = tools
        self.telling = telling

    def __getattr__(self, name: str) -> Any:
        return getattr(self.tools, name)

    async def call(self, call: ToolCall, bank: ImageBank) -> ToolResult:
        """As the tools', told back and forth."""
        meant = call.model_copy(update={"arguments": each_text(call.arguments, self.telling.original)})
        result = await self.tools.call(meant, bank)
        told = result.observation.model_copy(update={"text": self.telling(result.observation.text)})
        return result.model_copy(update={"observation": told})


@dataclass(frozen=True, slots=True)
class Retelling:
    """Gives a conversation other names.

    Attributes:
        names: What is a name in this encyclopedia, and what new ones are made of.
    """

    names: Names

    def under(self, task: Task, env: Environment, seed: int) -> tuple[Task, Environment]:
        """Task and environment under the names of a seed. Conversations of one seed share their names."""
        telling = Telling(self.names, lambda word: generator("retelling", seed, word))
        told = copy.copy(env)
        told.toolbox = RetoldTools(env.toolbox, telling)
        return renamed_task(task, telling), told
