"""The vocabulary of the whole package; read this file first.

A `Task` (picture + question + hidden gold answer) is given to a policy as a `TaskView`. The policy's reply at step
`l` is the action ``a_l = [z_l, c_l]``: a thought and one `ToolCall`, or a final response. The environment answers a
call with a `ToolResult` whose `Observation` extends the history. The whole is a `Trajectory` of `Step`s, judged by a
`Verdict` and rewarded with `RewardParts` (paper, sections 2 and 5).

Everything here is a frozen pydantic model; what is stored carries `schema_version`. Imports nothing of ours.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, JsonValue, StringConstraints, model_validator

SCHEMA_VERSION: Literal[1] = 1

Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]


class Frozen(BaseModel):
    """Base of all stored models: immutable, unknown fields refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="constants")


# ---------------------------------------------------------------------------------------------- tasks


class ImageRef(Frozen):
    """A picture in a content-addressed store, named by the SHA-256 of its stored bytes."""

    sha256: Sha256
    mime: Literal["image/png", "image/jpeg"]
    width_px: int = Field(gt=0)
    height_px: int = Field(gt=0)


class Gold(Frozen):
    """The reference answer; never shown to an agent or a tool server.

    Attributes:
        answer: The short reference answer.
        aliases: Other strings that are equally right.
        kind: How the answer is compared: free text, a date, a number, or a name.
    """

    answer: str
    aliases: tuple[str, ...] = ()
    kind: Literal["text", "name", "date", "number"] = "text"


class PathHop(Frozen):
    """One edge of a sampled path and the relation it stands for.

    Attributes:
        source: Title of the page nearer the anchor.
        target: Title of the page nearer the answer.
        relation: Infobox key that states the edge, or the anchor text where only prose states it.
        direction: `forward` if the key is in the source's infobox and its value is the target; `inverse` if it is in
            the target's infobox and its value is the source; `prose` if no infobox states it.
        phrase: How the relation is worded in the question.
        written: How the infobox writes the page that its key names, where that differs from the page's title (a piped
            link, a redirect); else empty.
    """

    source: str
    target: str
    relation: str
    direction: Literal["forward", "inverse", "prose"]
    phrase: str = ""
    written: str = ""


class Predicate(Frozen):
    """One checkable condition of a descriptor: `attr` (key has value) or `rel` (key points to a node).

    For `rel`, `value` is the title of the node, and `inverse` says that the node's own infobox holds the key.
    """

    kind: Literal["attr", "rel"]
    key: str
    value: str
    inverse: bool = False


class Descriptor(Frozen):
    """What a name was replaced by: a phrase, the predicates it states, and how both uniqueness checks came out.

    Attributes:
        entity: Title of the entity that the phrase stands for.
        phrase: The wording used in the question.
        predicates: A conjunction; empty for a descriptor drawn from prose alone.
        matches: How many entities satisfy the conjunction; None when the check is not applicable.
        judged_unique: What an LLM evaluator said, where one was asked.
    """

    entity: str
    phrase: str
    predicates: tuple[Predicate, ...] = ()
    matches: int | None = None
    judged_unique: bool | None = None


class Degradation(Frozen):
    """A seeded damage done to the anchor picture, and the tool that repairs it (paper, section 3.7)."""

    kind: Literal["blur", "downsample", "perspective"]
    repair_tool: Literal["sharpen", "super_resolution", "perspective_correct"]
    strength: float
    readable_before: bool
    readable_after: bool


class PictureSource(Frozen):
    """Where a picture comes from and on what terms."""

    file: str
    page: str
    licence: str = ""
    author: str = ""
    similarity: float | None = None
    identified_by: Literal["appearance", "lettering", "unknown"] = "unknown"


class Provenance(Frozen):
    """Why a task exists: everything needed to audit it. Agents never receive it.

    Attributes:
        corpus: Where the question comes from: `wiki`, or the name of an external dataset.
        path: Titles ``v0 … vh``; empty for external corpora.
        hops: One entry per edge of the path.
        attribute: Infobox key of the answer page that is asked for.
        canonical: The canonical question ``q_t``, before fuzzing.
        descriptors: One per fuzzed entity, in the order in which they were rewritten.
        picture: The anchor's picture.
        degradation: Set on the enhancement subset.
        domain: Seed domain of the anchor.
        seed: Seed of the walk.
        extra: Anything a plug-in wants to keep.
    """

    corpus: str = "wiki"
    path: tuple[str, ...] = ()
    hops: tuple[PathHop, ...] = ()
    attribute: str = ""
    canonical: str = ""
    descriptors: tuple[Descriptor, ...] = ()
    picture: PictureSource | None = None
    degradation: Degradation | None = None
    domain: str = ""
    seed: int | None = None
    extra: dict[str, JsonValue] = Field(default_factory=dict)


class TaskView(Frozen):
    """What agents, tools and tool servers are allowed to see of a task."""

    id: str
    question: str
    images: tuple[ImageRef, ...] = ()


class Task(Frozen):
    """A question about a picture with its hidden gold answer and provenance."""

    schema_version: Literal[1] = SCHEMA_VERSION
    id: str
    question: str
    images: tuple[ImageRef, ...] = ()
    gold: Gold
    provenance: Provenance = Provenance()

    def view(self) -> TaskView:
        """The task without gold and provenance."""
        return TaskView(id=self.id, question=self.question, images=self.images)


# ---------------------------------------------------------------------------------------------- tools


class FailureKind(StrEnum):
    """Why a step failed. The dialect makes the first two, the toolbox the rest."""

    MALFORMED_CALL = "malformed_call"
    NO_ACTION = "no_action"
    UNKNOWN_TOOL = "unknown_tool"
    BAD_ARGUMENTS = "bad_arguments"
    BAD_INPUT = "bad_input"
    REPEATED_CALL = "repeated_call"
    BLOCKED = "blocked"
    TOO_LARGE = "too_large"
    TIMEOUT = "timeout"
    RATE_LIMITED = "rate_limited"
    BACKEND_DOWN = "backend_down"
    INTERNAL = "internal"


COUNTS_TOWARDS_FATAL: dict[FailureKind, bool] = {
    FailureKind.MALFORMED_CALL: True,
    FailureKind.NO_ACTION: True,
    FailureKind.UNKNOWN_TOOL: True,
    FailureKind.BAD_ARGUMENTS: True,
    FailureKind.BAD_INPUT: True,
    FailureKind.REPEATED_CALL: True,
    FailureKind.BLOCKED: True,
    FailureKind.TOO_LARGE: True,
    FailureKind.TIMEOUT: True,
    FailureKind.RATE_LIMITED: True,
    FailureKind.BACKEND_DOWN: True,
    FailureKind.INTERNAL: True,
}
"""The one table that says which failures count towards a fatal step (paper, section 5: time-outs, malformed
payloads and argument errors all count). A search that finds nothing is not a failure at all. Settings override it."""


class ToolCall(Frozen):
    """One call the policy asked for."""

    name: str
    arguments: dict[str, Any] = Field(default_factory=dict)


class Observation(Frozen):
    """What the environment shows the policy after a call.

    `image_id` (``img_n``) is given out by the environment alone; tools leave it None.
    """

    text: str
    image: ImageRef | None = None
    image_id: str | None = None


class ToolFailure(Frozen):
    """A failure the model must see. Only the dialect and the toolbox create these."""

    kind: FailureKind
    message: str


class ToolResult(Frozen):
    """Outcome of one call: an observation, plus the failure if there was one.

    Attributes:
        seconds: Wall-clock time of the call.
        provider: Name of the backend that answered.
        cost: Money spent, in US dollars; 0 for local backends.
    """

    observation: Observation
    failure: ToolFailure | None = None
    seconds: float = 0.0
    provider: str = ""
    cost: float = 0.0


# --------------------------------------------------------------------------------------- trajectories


class Sampled(Frozen):
    """What a policy emitted at one step, token by token.

    Attributes:
        prompt_len: Number of tokens of context the policy was conditioned on.
        token_ids: ``[T]`` sampled ids, stop tokens included where they were sampled.
        logprobs: ``[T]`` log-probabilities under the sampling policy.
        finish_reason: `stop`, `length`, …
    """

    prompt_len: int = Field(ge=0)
    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish_reason: str = "stop"

    @model_validator(mode="after")
    def _same_length(self) -> Self:
        if len(self.token_ids) != len(self.logprobs):
            raise ValueError(f"{len(self.token_ids)} token ids but {len(self.logprobs)} log-probabilities")
        return self


class Step(Frozen):
    """One turn: ``a_l`` and what came back.

    Attributes:
        index: Position in the trajectory, from 0.
        text: The reply exactly as the policy emitted it (tags included; empty under native tool calls).
        thought: The reasoning ``z_l``.
        call: The tool call ``c_l``, if there was one.
        response: The final response, if this is the last step.
        well_formed: Whether the reply had exactly the strict form that `r_fmt` asks for (paper, section 5).
        observation: What came back; None for a response.
        failure: The failure of the call or of its parsing.
        sampled: Token ids and log-probabilities, where a policy sampled them.
        seconds: Time spent in the tool.
        generation_seconds: Time spent in the model.
    """

    index: int = Field(ge=0)
    text: str = ""
    thought: str = ""
    call: ToolCall | None = None
    response: str | None = None
    well_formed: bool = False
    observation: Observation | None = None
    failure: ToolFailure | None = None
    sampled: Sampled | None = None
    seconds: float = 0.0
    generation_seconds: float = 0.0

    @model_validator(mode="after")
    def _one_action(self) -> Self:
        if self.call is not None and self.response is not None:
            raise ValueError("a step is either a call or a response, never both")
        return self


class Termination(StrEnum):
    """Why a trajectory ended."""

    ANSWERED = "answered"
    FATAL = "fatal"
    TURNS = "turns"
    TOKENS = "tokens"
    TIME = "time"
    IMAGES = "images"
    CANCELLED = "cancelled"
    ERROR = "error"


class Usage(Frozen):
    """Tokens and money, summed over calls. `cost` is in US dollars."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float = 0.0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            prompt_tokens=self.prompt_tokens + other.prompt_tokens,
            completion_tokens=self.completion_tokens + other.completion_tokens,
            cost=self.cost + other.cost,
        )


class Trajectory(Frozen):
    """One rollout of one task. Observation text is stored after scrubbing, so ids and viewer agree.

    Attributes:
        sample: Which of the G rollouts of the task this is, from 0.
        seed: Seed of the rollout.
        prompt_hash: Hash of the system prompt and the layout it was rolled out with.
        tools: Names of the tools on offer.
        error: What stopped the rollout when `termination` is `error`, or `tokens` by a server's refusal.
    """

    schema_version: Literal[1] = SCHEMA_VERSION
    id: str
    task_id: str
    sample: int = 0
    seed: int = 0
    steps: tuple[Step, ...] = ()
    termination: Termination
    prompt_hash: str = ""
    tools: tuple[str, ...] = ()
    model: str = ""
    usage: Usage = Usage()
    error: str = ""

    @property
    def response(self) -> str | None:
        """The final response, or None if the trajectory was cut off before one."""
        return self.steps[-1].response if self.steps else None

    @property
    def num_calls(self) -> int:
        """How many tool calls the policy made, failed ones included."""
        return sum(step.call is not None for step in self.steps)


# -------------------------------------------------------------------------------------------- scoring


class Verdict(Frozen):
    """A judge's finding. `correct` is None when the judge failed: unscored, never a zero."""

    correct: bool | None
    reason: str = ""
    judge: str = ""

    @property
    def unscored(self) -> bool:
        """Whether the judge failed to decide."""
        return self.correct is None


class RewardParts(Frozen):
    """``r = r_fmt · [α·r_acc + (1−α)·r_query]``; None means unscored (paper, section 5). All lie in [0, 1]."""

    fmt: float = Field(ge=0, le=1)
    acc: float | None = Field(default=None, ge=0, le=1)
    query: float | None = Field(default=None, ge=0, le=1)
    total: float | None = Field(default=None, ge=0, le=1)


# ------------------------------------------------------------------------- records of the run folders


class TrainingFacts(Frozen):
    """What reinforcement learning made of a rollout.

    Attributes:
        step: Optimiser step before which it was rolled out, from 0.
        group: Which prompt of the step it belongs to.
        fatal: The fatal step f, or None.
        relative: Reward relative to the group, before the clamp.
        advantage: What the loss was weighted with.
        trained_tokens: Tokens under the loss mask, per step of the trajectory.
    """

    step: int = Field(ge=0)
    group: int = Field(ge=0)
    fatal: int | None = None
    relative: float = 0.0
    advantage: float = 0.0
    trained_tokens: tuple[int, ...] = ()


class RolloutRecord(Frozen):
    """A line of `records.jsonl` in a run of rollouts (synthesis, evaluation, training)."""

    schema_version: Literal[1] = SCHEMA_VERSION
    kind: Literal["rollout"] = "rollout"
    id: str
    task: Task
    trajectory: Trajectory
    verdict: Verdict | None = None
    reward: RewardParts | None = None
    accepted: bool | None = None
    reason: str = ""
    training: TrainingFacts | None = None


class QuestionRecord(Frozen):
    """A line of `records.jsonl` in a run of question building: one walk and what became of it.

    Attributes:
        task: The finished task; None when it was rejected.
        stage: The stage that rejected it, or `final`.
        reason: Why it was rejected; empty for a finished task.
        draft: The task as far as it got, for the trace and the counterfactuals.
    """

    schema_version: Literal[1] = SCHEMA_VERSION
    kind: Literal["question"] = "question"
    id: str
    task: Task | None = None
    stage: str = "final"
    reason: str = ""
    draft: dict[str, JsonValue] = Field(default_factory=dict)
