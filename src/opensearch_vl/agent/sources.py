"""Which pages a trajectory consulted, read off the blocks that the retrieval tools write.

The values in those blocks are single lines with their markup neutralised (`tools.scrub.scrub_line`), so that no page
can forge a block.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from opensearch_vl.types import Trajectory

_BLOCK = re.compile(
    r"^\[(?:Passage|Match|Page) \d+\]\n(?:Title: (?P<title>.*)\n)?(?:Source: .*\n)?URL: (?P<url>\S+)$", re.MULTILINE
)


@dataclass(frozen=True, slots=True)
class Source:
    """A page that was shown to the agent."""

    title: str
    url: str


def sources_of(trajectory: Trajectory) -> tuple[Source, ...]:
    """The pages of all successful calls, each once, in order of appearance."""
    found: dict[str, Source] = {}
    for step in trajectory.steps:
        if step.observation is None or step.call is None or step.failure is not None:
            continue
        for block in _BLOCK.finditer(step.observation.text):
            url = block["url"]
            if url not in found or not found[url].title:
                found[url] = Source(block["title"] or "", url)
    return tuple(found.values())
