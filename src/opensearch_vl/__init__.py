"""OpenSearch-VL: build, train and evaluate multimodal deep-search agents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from opensearch_vl.agent.agent import Agent, Answer

__version__ = "0.1.0"
__all__ = ["Agent", "Answer", "__version__"]


def __getattr__(name: str) -> Any:
    """`Agent` and `Answer`, loaded when they are first asked for."""
    if name in ("Agent", "Answer"):
        from opensearch_vl.agent import agent

        return getattr(agent, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
