"""Settings of the agent: how it is spoken to, and when it has to stop."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from opensearch_vl.config import Config
from opensearch_vl.protocols import Sampling
from opensearch_vl.types import COUNTS_TOWARDS_FATAL, FailureKind

LayoutName = Literal["sft", "rl", "infer", "native_tools"]
ProfileName = Literal["full", "miniature"]


@dataclass(frozen=True, slots=True)
class Profile:
    """Sizes of a conversation.

    Attributes:
        suffix: Ending of the names of the prompts that belong to it.
        observation_chars: Longest observation text.
        image_max_pixels: How much of a picture a model is shown; tools work on the original.
        signatures: Tools are described by one short line each instead of a JSON schema.
        brief: Tools are to answer in short (`tools.standard.ToolSettings.brief`).
    """

    suffix: str
    observation_chars: int
    image_max_pixels: int
    signatures: bool
    brief: bool


PROFILES: dict[ProfileName, Profile] = {
    # 262,144 pixels are what released checkpoints were trained on (paper, section 4: fine-tuning).
    "full": Profile("", observation_chars=20_000, image_max_pixels=262_144, signatures=False, brief=False),
    # For models of a million parameters: system prompt ≤ 200 tokens, observation ≤ 120, picture ≤ 64. A token of a
    # small vocabulary has about four characters; a picture token of Qwen3-VL covers 32×32 pixels.
    "miniature": Profile(
        "_miniature", observation_chars=360, image_max_pixels=64 * 32 * 32, signatures=True, brief=True
    ),
}


class SamplingSettings(Config):
    """Decoding. The temperature is the paper's (section 5); `max_tokens` bounds one reply."""

    temperature: float = Field(default=0.7, ge=0, le=2)
    top_p: float = Field(default=1.0, gt=0, le=1)
    max_tokens: int = Field(default=4096, gt=0)
    stop: tuple[str, ...] = ()


class AgentSettings(Config):
    """How an agent is run.

    Attributes:
        layout: Shape of the conversation; the first three are those of released checkpoints, the last one leaves calls
            to the server.
        profile: Prompt and sizes.
        prefill: What the chat template of a served checkpoint writes at the head of an assistant turn, often
            ``<think>`` and a line break: its replies begin inside the thought. It is put back before a reply is read;
            the line break may be left out (``--set 'prefill=<think>'``). A local checkpoint's is read off its template
            (`transcript.ChatFormat`).
        parsing: `strict` turns every reply that is not in exact form into a failure.
        max_turns: Replies per trajectory, the final response included.
        max_tokens: How much a conversation may grow after its opening (paper, section 5: 70,000).
        max_seconds: Wall-clock time of a trajectory.
        max_images: Pictures per trajectory, those of the question included.
        fatal_after: K of the paper: so many counted failures in a row end the trajectory.
        repeat_limit: The n-th identical call is a failure; None allows any number.
        observation_chars: Longest observation text; None takes the profile's.
        list_pictures: The first turn states the id and size of each picture, which pixel coordinates need. Released
            checkpoints were trained without.
        forced_final: Near a limit, ask once for the final response instead of breaking off.
        fold_after_tokens: Show observations older than the last `fold_keep` in short once the conversation has grown
            by so many tokens; None never does. What is stored stays whole, and so do all picture ids.
        fold_keep: How many of the latest observations stay whole.
        counts: Which failures count towards a fatal step.
        date: Today's date as the model is told it; empty tells it nothing. Never taken from the clock.
        sampling: Decoding.
    """

    layout: LayoutName = "sft"
    profile: ProfileName = "full"
    prefill: str = ""
    parsing: Literal["strict", "lenient"] = "lenient"
    max_turns: int = Field(default=20, gt=0)
    max_tokens: int = Field(default=70_000, gt=0)
    max_seconds: float = Field(default=900.0, gt=0)
    max_images: int = Field(default=16, gt=0)
    fatal_after: int = Field(default=3, gt=0)
    repeat_limit: int | None = Field(default=3, gt=1)
    observation_chars: int | None = Field(default=None, gt=0)
    list_pictures: bool = True
    forced_final: bool = True
    fold_after_tokens: int | None = Field(default=None, gt=0)
    fold_keep: int = Field(default=2, ge=0)
    counts: dict[FailureKind, bool] = Field(default_factory=lambda: dict(COUNTS_TOWARDS_FATAL))
    date: str = ""
    sampling: SamplingSettings = SamplingSettings()

    @property
    def sizes(self) -> Profile:
        """Sizes of the chosen profile."""
        return PROFILES[self.profile]

    @property
    def observation_limit(self) -> int:
        """Longest observation text, in characters."""
        return self.observation_chars or self.sizes.observation_chars

    def decoding(self, max_tokens: int | None = None) -> Sampling:
        """Decoding of one reply, with at most `max_tokens` tokens."""
        s = self.sampling
        limit = s.max_tokens if max_tokens is None else min(s.max_tokens, max_tokens)
        return Sampling(temperature=s.temperature, top_p=s.top_p, max_tokens=limit, stop=s.stop)

    def counts_towards_fatal(self, kind: FailureKind) -> bool:
        """Whether a failure of this kind counts; kinds left out of the table count as they do by default."""
        return self.counts.get(kind, COUNTS_TOWARDS_FATAL[kind])
