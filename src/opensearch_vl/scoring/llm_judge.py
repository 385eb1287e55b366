"""An LLM as judge of accuracy and of search quality (paper, sections 5 and 6), behind the `ChatModel` seam.

The text under test is fenced by a marker it cannot contain and capped in length, so a response that addresses the judge
or pretends to end early stays inside its fence. Replies go through `replies`; one that cannot be read, or a model that
cannot be reached, is asked again a few times and then reported as unscored.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import TypeVar

from opensearch_vl import prompts
from opensearch_vl.errors import ModelError
from opensearch_vl.protocols import ChatModel, JudgedCase, Message, QueryScore, Sampling, TextPart
from opensearch_vl.scoring.replies import parse_correct, parse_score
from opensearch_vl.seeds import derive
from opensearch_vl.types import Step, Trajectory, Verdict

T = TypeVar("T")

MAX_RESPONSE_CHARS = 4_000
"""Longer responses are cut in the middle: commitments stand at the start or the end."""
MAX_STEP_CHARS = 600
"""How much of each observation the query judge sees."""
MAX_STEPS = 40
"""Steps the query judge sees; of a longer trajectory the first and the last half of this number."""


class LLMJudge:
    """Asks a chat model.

    Args:
        chat: The judge model.
        max_attempts: How often one case is asked before it counts as unscored.
        sampling: Decoding; greedy by default, so a repeated question differs only by its seed.
        max_response_chars: Cap on the response shown to the judge, in characters.
    """

    def __init__(
        self,
        chat: ChatModel,
        *,
        max_attempts: int = 3,
        sampling: Sampling = Sampling(temperature=0.0, max_tokens=1024),
        max_response_chars: int = MAX_RESPONSE_CHARS,
    ) -> None:
        self.chat = chat
        self.name = f"llm:{chat.name}"
        self.max_attempts = max_attempts
        self.sampling = sampling
        self.max_response_chars = max_response_chars

    @property
    def prompt_hash(self) -> str:
        """Identifies the wording of both prompts, for manifests."""
        return prompts.prompt_hash(prompts.template("judge_accuracy"), prompts.template("judge_query"))

    async def accuracy(self, case: JudgedCase) -> Verdict:
        """Whether the response contains the reference; an empty response is wrong without asking."""
        if not case.response.strip():
            return Verdict(correct=False, reason="empty response", judge=self.name)
        response = shorten(case.response, self.max_response_chars)
        prompt = prompts.fill(
            "judge_accuracy",
            question=case.question,
            reference=case.reference,
            aliases="; ".join(case.aliases) or "nothing else",
            marker=_marker(response),
            response=response,
        )
        found, reason = await self._ask(prompt, parse_correct)
        return Verdict(correct=found, reason=reason, judge=self.name)

    async def query(self, case: JudgedCase, trajectory: Trajectory) -> QueryScore:
        """Quality of the searches; 0 without a tool call, without asking."""
        if trajectory.num_calls == 0:
            return QueryScore(0.0, "no tool call", self.name)
        steps = summarise_steps(trajectory)
        response = shorten(case.response, self.max_response_chars) or "(none)"
        prompt = prompts.fill(
            "judge_query",
            question=case.question,
            reference=case.reference,
            marker=_marker(response + steps),
            response=response,
            steps=steps,
        )
        score, reason = await self._ask(prompt, parse_score)
        return QueryScore(score, reason, self.name)

    async def _ask(self, prompt: str, parse: Callable[[str], T | None]) -> tuple[T | None, str]:
        """The parsed finding and the judge's words, or None and why there is none."""
        messages = (Message("user", (TextPart(prompt),)),)
        trouble = "not asked"
        for attempt in range(self.max_attempts):
            try:
                reply = await self.chat.complete(messages, (), self.sampling, derive("judge", prompt, attempt))
            except ModelError as error:
                trouble = f"judge failed: {type(error).__name__}: {error.message}"
                continue
            found = parse(reply.content)
            if found is not None:
                return found, shorten(reply.content.strip(), 1_000)
            trouble = f"judge's reply could not be read: {shorten(reply.content.strip(), 200)!r}"
        return None, trouble


def shorten(text: str, max_chars: int) -> str:
    """The text with its middle left out, if it is longer than `max_chars` characters; says how much is missing."""
    if len(text) <= max_chars:
        return text
    head = max_chars // 2
    tail = max_chars - head
    return f"{text[:head]}\n[… {len(text) - max_chars:,} characters left out …]\n{text[-tail:]}"


def summarise_steps(trajectory: Trajectory) -> str:
    """One entry per call: tool, arguments, and the opening of what came back or the kind of failure."""
    steps = [step for step in trajectory.steps if step.call is not None or step.failure is not None]
    if len(steps) > MAX_STEPS:
        half = MAX_STEPS // 2
        middle = [f"[… {len(steps) - 2 * half} steps left out …]"]
        lines = [*map(_summary, steps[:half]), *middle, *map(_summary, steps[-half:])]
    else:
        lines = list(map(_summary, steps))
    return "\n\n".join(lines)


def _summary(step: Step) -> str:
    if step.call is None:
        head = f"{step.index + 1}. (no valid call)"
    else:
        arguments = json.dumps(step.call.arguments, ensure_ascii=False, default=str)
        head = f"{step.index + 1}. {step.call.name[:80]} {shorten(arguments, 300)}"
    if step.failure is not None:
        return f"{head}\n   failed ({step.failure.kind}): {shorten(step.failure.message, 200)}"
    text = step.observation.text if step.observation is not None else ""
    return f"{head}\n   returned: {shorten(text, MAX_STEP_CHARS)}"


def _marker(text: str) -> str:
    """A line that does not occur in `text`: nobody can write a text that contains its own hash."""
    return f"=== {hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:24]} ==="
