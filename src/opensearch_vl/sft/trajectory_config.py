"""One configuration for a run of trajectory synthesis: how the agent is run, by whom, and what is kept."""

from __future__ import annotations

from pydantic import Field

from opensearch_vl.agent.settings import AgentSettings
from opensearch_vl.config import Config
from opensearch_vl.sft.synthesis import SynthesisSettings


class ExpertSettings(Config):
    """The policy that writes trajectories.

    Attributes:
        model: Name of a served model; empty takes the scripted expert.
        base_url: Its server.
        noise: How often the scripted expert errs before a move, in [0, 1].
    """

    model: str = ""
    base_url: str | None = None
    noise: float = Field(default=0.0, ge=0, le=1)


class JudgeSettings(Config):
    """The judge of answers and searches.

    Attributes:
        model: Name of a served model; empty takes the exact judge.
        base_url: Its server.
        max_candidates: The exact judge finds a response wrong that offers more candidates; None only counts them.
    """

    model: str = ""
    base_url: str | None = None
    max_candidates: int | None = Field(default=None, ge=1)


class TrajectoryConfig(Config):
    """Configuration of `osvl data synthesise`."""

    agent: AgentSettings = AgentSettings()
    expert: ExpertSettings = ExpertSettings()
    judge: JudgeSettings = JudgeSettings()
    synthesis: SynthesisSettings = SynthesisSettings()
