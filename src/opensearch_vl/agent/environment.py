"""The environment: takes replies, runs calls, keeps the pictures, and decides when a trajectory is over.

An `Episode` is one rollout's state: history ``h_l``, the bank of pictures, the counter of failures in a row, and the
limits (paper, sections 2 and 5). It knows nothing of where replies come from, so a served model, a policy in training
and a script all step through the same code.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

from opensearch_vl.agent.dialect import Parsed, parse
from opensearch_vl.agent.layouts import Layout, build_layout
from opensearch_vl.agent.settings import AgentSettings
from opensearch_vl.images import ImageBank, ImageStore
from opensearch_vl.protocols import Message, Reply, Sampling, ToolSchema
from opensearch_vl.tools.scrub import cap
from opensearch_vl.tools.toolbox import repeated_call
from opensearch_vl.types import (
    Observation,
    Step,
    TaskView,
    Termination,
    ToolCall,
    ToolFailure,
    ToolResult,
)

NEAR = 0.9
"""Share of the token and time limits at which the final response is asked for."""
CHARS_PER_TOKEN = 4
"""Rule of thumb where a server reports no token counts."""
TOKENS_PER_IMAGE = 256
"""A picture of 262,144 pixels at 32×32 pixels a token; for the same rule of thumb."""
MIN_REPLY_TOKENS = 256
"""A reply gets at least so many tokens, however little of the budget is left."""

_FINAL = "No more calls: give the final response now, from the evidence at hand."


@runtime_checkable
class Tools(Protocol):
    """What an episode needs of a toolbox; `tools.toolbox.Toolbox` is one."""

    store: ImageStore

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the tools."""
        ...

    def schemas(self) -> tuple[ToolSchema, ...]:
        """What a model is told about them."""
        ...

    def key(self, call: ToolCall) -> str:
        """The same text for any two calls that mean the same."""
        ...

    async def call(self, call: ToolCall, bank: ImageBank) -> ToolResult:
        """Run one call; never raises."""
        ...


class Environment:
    """Tools and rules, shared by any number of episodes at once.

    Args:
        toolbox: The tools.
        settings: Layout, profile and limits.
        store: Where the pictures of tasks and tools lie.
        clock: Seconds, for the time limit.
    """

    def __init__(
        self,
        toolbox: Tools,
        settings: AgentSettings,
        store: ImageStore,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.toolbox = toolbox
        self.settings = settings
        self.store = store
        self.clock = clock
        self.layout: Layout = build_layout(settings, toolbox.schemas())

    @property
    def prompt_hash(self) -> str:
        """Hash of everything a model is told before the task."""
        return self.layout.hash

    @property
    def tools(self) -> tuple[str, ...]:
        """Names of the tools on offer."""
        return self.toolbox.names

    def reset(self, task: TaskView) -> Episode:
        """Begin a rollout."""
        return Episode(self, task)


class Episode:
    """One rollout in progress.

    Attributes:
        task: The task.
        bank: Its pictures so far.
        steps: The steps taken.
        termination: Why it is over; None while it goes on.
        num_tokens: How much the conversation has grown since its opening.
        tool_cost: Money that the calls cost, in US dollars.
    """

    def __init__(self, env: Environment, task: TaskView) -> None:
        self.task = task
        self.bank = ImageBank(task.images)
        self.steps: list[Step] = []
        self.termination: Termination | None = None
        self.num_tokens = 0
        self.tool_cost = 0.0
        self._env = env
        self._settings = env.settings
        self._messages: list[Message] = list(env.layout.opening(task))
        self._started = env.clock()
        self._opening_tokens: int | None = None
        self._errors_in_a_row = 0
        self._call_keys: list[str] = []
        self._asked: Termination | None = None
        self._num_folded = 0

    @property
    def messages(self) -> Sequence[Message]:
        """The conversation as it is sent: older observations folded if the settings ask for it."""
        return tuple(self._messages) if self._num_folded == 0 else self._folded()

    @property
    def schemas(self) -> tuple[ToolSchema, ...]:
        """Tools to send with the request; empty unless calls are native."""
        return self._env.layout.schemas

    def sampling(self) -> Sampling:
        """Decoding of the next reply, within what is left of the token budget."""
        left = self._settings.max_tokens - self.num_tokens
        return self._settings.decoding(max(left, MIN_REPLY_TOKENS))

    async def step(self, reply: Reply, generation_seconds: float = 0.0) -> Step:
        """Take the policy's turn and answer it.

        Args:
            reply: The turn.
            generation_seconds: How long the policy took.

        Raises:
            RuntimeError: If the episode is over.
        """
        if self.termination is not None:
            raise RuntimeError(f"The episode is over: {self.termination}.")
        parsed = parse(
            reply, self._settings.parsing, plain_answer=self._env.layout.native, prefill=self._settings.prefill
        )
        result = await self._act(parsed)
        failure = result.failure if result is not None else None
        self._count_tokens(reply, parsed)
        ending = self._count_failure(failure) if parsed.response is None else Termination.ANSWERED
        observation = None
        if result is not None:
            observation, overflow = self._observe(result, parsed.note)
            if ending is None:
                ending, notice = self._check_limits(overflow)
                if notice:
                    observation = observation.model_copy(update={"text": f"{observation.text}\n{notice}"})
        step = Step(
            index=len(self.steps),
            text=parsed.text,
            thought=parsed.thought,
            call=parsed.call,
            response=parsed.response,
            well_formed=parsed.well_formed,
            observation=observation,
            failure=failure,
            sampled=reply.sampled,
            seconds=result.seconds if result is not None else 0.0,
            generation_seconds=generation_seconds,
        )
        self.steps.append(step)
        self._messages += [self._env.layout.reply(step), *self._env.layout.answer(step)]
        self.tool_cost += result.cost if result is not None else 0.0
        self._fold_if_long()
        self.termination = ending
        return step

    async def _act(self, parsed: Parsed) -> ToolResult | None:
        """Run the call, or say why there is none; None for a response."""
        if parsed.failure is not None:
            return _refusal(parsed.failure, "The reply could not be used")
        if parsed.call is None:
            return None
        key = self._env.toolbox.key(parsed.call)
        repeated = repeated_call(self._call_keys, key, self._settings.repeat_limit)
        self._call_keys.append(key)
        if repeated is not None:
            return _refusal(repeated, "The tool call failed")
        return await self._env.toolbox.call(parsed.call, self.bank)

    def _observe(self, result: ToolResult, note: str) -> tuple[Observation, bool]:
        """What the policy is shown, and whether a picture had to be left out."""
        lines = [cap(result.observation.text, self._settings.observation_limit)]
        image, image_id, overflow = result.observation.image, None, False
        if image is not None and len(self.bank) >= self._settings.max_images:
            image, overflow = None, True
            lines.append(f"Not shown: the conversation already has {self._settings.max_images} pictures.")
        elif image is not None:
            image_id = self.bank.add(image)
            lines.append(f"New image ID: {image_id}")
        if note:
            lines.append(f"Note: {note}")
        return Observation(text="\n".join(lines), image=image, image_id=image_id), overflow

    def _count_failure(self, failure: ToolFailure | None) -> Termination | None:
        counted = failure is not None and self._settings.counts_towards_fatal(failure.kind)
        self._errors_in_a_row = self._errors_in_a_row + 1 if counted else 0
        return Termination.FATAL if self._errors_in_a_row >= self._settings.fatal_after else None

    def _count_tokens(self, reply: Reply, parsed: Parsed) -> None:
        """Exact where the policy or the server counts; otherwise estimated from the text."""
        if reply.sampled is not None:
            before, after = reply.sampled.prompt_len, len(reply.sampled.token_ids)
        elif reply.usage.prompt_tokens:
            before, after = reply.usage.prompt_tokens, reply.usage.completion_tokens
        else:
            grown = self._messages[2:]
            chars = sum(len(message.text) for message in grown) + len(parsed.text or parsed.thought)
            images = sum(len(message.images) for message in grown)
            self.num_tokens = chars // CHARS_PER_TOKEN + images * TOKENS_PER_IMAGE
            return
        if self._opening_tokens is None:
            self._opening_tokens = before
        self.num_tokens = max(before - self._opening_tokens, 0) + after

    def _check_limits(self, overflow: bool) -> tuple[Termination | None, str]:
        """Why the episode ends after this step, or the notice that its next turn is the last."""
        if self._asked is not None:
            return self._asked, ""
        s = self._settings
        share = NEAR if s.forced_final else 1.0
        turns_left = s.max_turns - len(self.steps) - 1
        reached: Termination | None = None
        if turns_left <= (1 if s.forced_final else 0):
            reached = Termination.TURNS
        elif overflow:
            reached = Termination.IMAGES
        elif self.num_tokens >= share * s.max_tokens:
            reached = Termination.TOKENS
        elif self._env.clock() - self._started >= share * s.max_seconds:
            reached = Termination.TIME
        if reached is not None and s.forced_final and turns_left > 0:
            self._asked = reached
            return None, _FINAL
        return reached, ""

    def _fold_if_long(self) -> None:
        """What is folded stays folded, so that the conversation changes as rarely as can be (servers cache it)."""
        limit = self._settings.fold_after_tokens
        if limit is not None and self.num_tokens >= limit:
            self._num_folded = max(self._num_folded, len(self.steps) - self._settings.fold_keep)

    def _folded(self) -> Sequence[Message]:
        """The conversation with the observations of the first steps cut to their first line."""
        layout = self._env.layout
        folded = list(layout.opening(self.task))
        for step in self.steps:
            shown = step
            if step.observation is not None and step.index < self._num_folded:
                shown = step.model_copy(update={"observation": _fold(step.observation)})
            folded += [layout.reply(step), *layout.answer(shown)]
        return folded


def _refusal(failure: ToolFailure, what: str) -> ToolResult:
    text = f"{what} ({failure.kind}).\n{failure.message}"
    return ToolResult(observation=Observation(text=text), failure=failure)


def _fold(observation: Observation) -> Observation:
    """The first line of an observation; a picture stays, so that its id keeps its place."""
    first, _, rest = observation.text.partition("\n")
    if not rest:
        return observation
    kept = f"\nNew image ID: {observation.image_id}" if observation.image_id else ""
    return observation.model_copy(update={"text": f"{cap(first, 200)}\n[folded to save room]{kept}"})
