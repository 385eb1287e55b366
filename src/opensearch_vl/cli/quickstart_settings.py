"""Settings of `osvl quickstart`: the short part, and the training that follows it, sized for two cores."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from opensearch_vl.agent.settings import AgentSettings, LayoutName, ProfileName, SamplingSettings
from opensearch_vl.config import Config
from opensearch_vl.questions.settings import FuzzSettings, QuestionSettings
from opensearch_vl.rl.settings import Optimizer, RlSettings
from opensearch_vl.scoring.score import RewardSettings
from opensearch_vl.sft.model_init import MiniatureShape
from opensearch_vl.sft.settings import FirstStage, Schedule, SftSettings
from opensearch_vl.sft.synthesis import SynthesisSettings
from opensearch_vl.wiki.walks import WalkRules


class StatedWalks(WalkRules):
    """Walks for the rule-based writer, which can word no other links than those that an infobox states."""

    edges: Literal["any", "stated"] = "stated"


class RuleWritten(QuestionSettings):
    """Question building as the quickstart does it: by rules alone, and in a newcomer's time."""

    walks: StatedWalks = StatedWalks()
    parallel: int = Field(4, ge=1)


class TwoHopWalks(StatedWalks):
    """Two hops alone: what a policy of a million parameters can follow."""

    hop_probs: tuple[float, float, float] = (1.0, 0.0, 0.0)
    walks_per_seed: int = Field(30, ge=1)


class PlainFuzz(FuzzSettings):
    """Descriptors that fit by their relation alone."""

    max_attributes: int = Field(0, ge=0)


class TwoHopQuestions(RuleWritten):
    """Questions to train on: many, of two hops, without second conditions."""

    walks: TwoHopWalks = TwoHopWalks()
    fuzz: PlainFuzz = PlainFuzz()
    shallow_first_hop: bool = True
    max_per_picture: int = Field(30, ge=1)
    max_per_answer_page: int = Field(30, ge=1)


class OneRollout(SynthesisSettings):
    """The expert words everything one way in the miniature profile, so that a second rollout would repeat the first."""

    samples: int = Field(1, ge=1)


class MiniatureSampling(SamplingSettings):
    """Decoding while training."""

    temperature: float = Field(1.0, ge=0, le=2)
    max_tokens: int = Field(96, gt=0)


class MiniatureAgent(AgentSettings):
    """The agent that is trained; the expert that it learns from is run alike."""

    profile: ProfileName = "miniature"
    layout: LayoutName = "rl"
    list_pictures: bool = False
    parsing: Literal["strict", "lenient"] = "strict"
    max_turns: int = Field(8, gt=0)
    max_tokens: int = Field(1500, gt=0)
    sampling: MiniatureSampling = MiniatureSampling()


class QuickFirst(FirstStage):
    """Few trajectories under many names: until names are copied, which comes after 900 steps or later."""

    trajectories: int = Field(600, gt=0)
    renamed_copies: int = Field(14, ge=0)
    steps: int = Field(1060, gt=0)


class QuickSft(SftSettings):
    """Fine-tuning of the miniature policy; `model` is filled in."""

    first: QuickFirst | None = QuickFirst()
    renamed_copies: int = Field(6, ge=0)
    max_tokens: int = Field(2048, gt=0)
    image_max_pixels: int | None = Field(None, gt=0)
    optimizer: Literal["adamw", "muon_adamw"] = "muon_adamw"
    learning_rate: float = Field(3e-3, gt=0)
    schedule: Schedule = "warmup_stable_decay"
    warmup: float = Field(0.03, ge=0, lt=1)
    decay: float = Field(0.45, gt=0, le=1)
    max_steps: int | None = Field(1860, gt=0)
    batch_size: int = Field(8, gt=0)
    per_device: int = Field(8, gt=0)
    weight_decay: float = Field(0.01, ge=0)
    beta2: float = Field(0.98, gt=0, lt=1)
    precision: Literal["bf16", "fp32"] = "fp32"
    gradient_checkpointing: bool = False
    save_every: int = Field(100, gt=0)
    log_every: int = Field(20, gt=0)


class QuickRl(RlSettings):
    """GRPO from the fine-tuned checkpoint; `model` is filled in."""

    prompts_per_step: int = Field(32, gt=0)
    minibatches: int = Field(1, gt=0)
    steps: int = Field(6, gt=0)
    optimizer: Optimizer = "sgd"
    learning_rate: float = Field(3.0, gt=0)
    retold: bool = True
    per_device: int = Field(32, gt=0)
    max_tokens: int | None = Field(2048, gt=0)
    image_max_pixels: int | None = Field(None, gt=0)
    precision: Literal["bf16", "fp32"] = "fp32"
    gradient_checkpointing: bool = False
    save_every: int = Field(2, gt=0)


class TrainingSettings(Config):
    """The training part: questions of two hops, an expert to learn from, and an encyclopedia to be measured on.

    Attributes:
        num: Questions to train on; None takes as many as there are.
        noise: How often the expert errs before a move, in [0, 1].
        rl_pool: Training questions that GRPO's are chosen from.
        rl_samples: Samples of each by which they are chosen.
        heldout_pages: Size of the second miniature, whose entities are not trained on.
        heldout_num: Questions about it.
        questions: How both sets of questions are built.
        agent: The agent, in training and measurement; measured at temperature 0.
        synthesis: The expert's rollouts and their review.
        shape: Sizes of the policy.
        sft: Fine-tuning.
        rl: GRPO.
        reward: How rollouts are scored.
    """

    num: int | None = Field(1200, ge=1)
    noise: float = Field(0.0, ge=0, le=1)
    rl_pool: int = Field(64, ge=1)
    rl_samples: int = Field(4, ge=2)
    heldout_pages: int = Field(600, ge=100)
    heldout_num: int = Field(100, ge=1)
    questions: TwoHopQuestions = TwoHopQuestions()
    agent: MiniatureAgent = MiniatureAgent()
    synthesis: OneRollout = OneRollout()
    shape: MiniatureShape = MiniatureShape()
    sft: QuickSft = QuickSft()
    rl: QuickRl = QuickRl()
    reward: RewardSettings = RewardSettings()


class QuickstartSettings(Config):
    """Settings of the whole run.

    Attributes:
        pages: Size of the miniature encyclopedia.
        num: Final questions to stop at; None goes through every seed.
        num_blinded: How many of them the blinded expert tries.
        seed: Seed of everything.
        noise: How often the expert makes a mistake before a move, in [0, 1].
        questions: Question building.
        agent: The environment that experts act in.
        synthesis: Rollouts and their review.
        training: What comes after.
    """

    pages: int = Field(2000, ge=100)
    num: int | None = Field(150, ge=1)
    num_blinded: int = Field(60, ge=0)
    seed: int = 0
    noise: float = Field(0.1, ge=0, le=1)
    questions: RuleWritten = RuleWritten()
    agent: AgentSettings = AgentSettings()
    synthesis: SynthesisSettings = SynthesisSettings()
    training: TrainingSettings = TrainingSettings()
