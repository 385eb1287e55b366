"""The offline expert (paper, section 3.8): a scripted stand-in for the strong model that writes trajectories.

It is a `ChatModel` for one task. On every turn it replays its plan against the observations in the messages, so it
holds no state: the same messages give the same reply, and one instance may serve any number of rollouts at once.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence

from opensearch_vl.agent.dialect import render_call, render_response
from opensearch_vl.protocols import Message, NativeCall, Reply, Sampling, ToolSchema
from opensearch_vl.seeds import derive
from opensearch_vl.sft.mistakes import with_mistakes
from opensearch_vl.sft.phrases import Voice
from opensearch_vl.sft.plan import Broken, Investigator, Move, Plan, Say
from opensearch_vl.types import Task


class ScriptedExpert:
    """Follows the path of one task and copies the answer out of an observation.

    Args:
        task: The task with its provenance.
        noise: Probability, in [0, 1], of a mistake before each move.
        seed: Picks the wording of thoughts and queries, and the mistakes.
        brief: Short thoughts, for policies with a small context (prompt profile `miniature`).
        can_visit: Whether the `visit` tool is on offer.

    Raises:
        ValueError: If `noise` is outside [0, 1].
    """

    name = "scripted-expert"

    def __init__(
        self, task: Task, noise: float = 0.0, seed: int = 0, *, brief: bool = False, can_visit: bool = False
    ) -> None:
        if not 0 <= noise <= 1:
            raise ValueError(f"noise must lie in [0, 1], got {noise}.")
        self.task = task
        self.noise = noise
        self.seed = seed
        self.brief = brief
        self.can_visit = can_visit

    async def complete(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSchema] = (),
        sampling: Sampling = Sampling(),
        seed: int = 0,
    ) -> Reply:
        """The next turn, as tags in the text, or as a native call when `tools` are given. `seed` is not used."""
        move = self._replay(observations(messages))
        return _native(move, len(messages)) if tools else Reply(content=_tagged(move))

    def _plan(self) -> Plan:
        voice = Voice(random.Random(derive("expert", self.task.id, self.seed)), brief=self.brief)
        words = random.Random(derive("queries", self.task.id, self.seed))
        mishaps = random.Random(derive("mistakes", self.task.id, self.seed))
        investigation = Investigator(self.task, voice, words, self.can_visit, self.brief).run()
        return with_mistakes(investigation, self.noise, mishaps, voice)

    def _replay(self, seen: Sequence[str]) -> Move:
        plan = self._plan()
        move = next(plan)
        for text in seen:
            if isinstance(move, Say):
                break
            move = plan.send(text)
        return move


def observations(messages: Sequence[Message]) -> list[str]:
    """What came back after each assistant turn: the text of the messages up to the next one."""
    seen: list[str] = []
    for message in messages:
        if message.role == "assistant":
            seen.append("")
        elif seen:
            seen[-1] = f"{seen[-1]}\n{message.text}" if seen[-1] else message.text
    return seen


def _tagged(move: Move) -> str:
    if isinstance(move, Say):
        return render_response(move.thought, move.text)
    whole = render_call(move.thought, move.call)
    return whole.replace("}}</tool_call>", "</tool_call>") if isinstance(move, Broken) else whole


def _native(move: Move, turn: int) -> Reply:
    if isinstance(move, Say):
        return Reply(content=move.text, reasoning=move.thought)
    arguments = json.dumps(move.call.arguments, ensure_ascii=False)
    arguments = arguments[:-4] if isinstance(move, Broken) else arguments
    call = NativeCall(f"call_{turn}", move.call.name, arguments)
    return Reply(content="", reasoning=move.thought, tool_calls=(call,), finish_reason="tool_calls")
