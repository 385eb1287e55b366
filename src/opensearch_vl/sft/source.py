"""Runs of trajectories as training data: their records, their pictures, and the layout they were rolled out in."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from opensearch_vl.agent.layouts import Layout, build_layout
from opensearch_vl.agent.settings import AgentSettings
from opensearch_vl.errors import DataError
from opensearch_vl.images import ImageStore
from opensearch_vl.protocols import ToolSchema
from opensearch_vl.runs import read_manifest, read_records
from opensearch_vl.types import RolloutRecord


@dataclass(frozen=True, slots=True)
class Source:
    """Runs that were rolled out alike, read as one.

    Attributes:
        runs: Their folders.
        layout: The conversation's layout, rebuilt from the first run's manifest.
        store: Pictures of all of them.
    """

    runs: tuple[Path, ...]
    layout: Layout
    store: ImageStore

    def records(self) -> Iterator[RolloutRecord]:
        """Records of all runs, in order."""
        for run in self.runs:
            yield from read_records(run, RolloutRecord)


def open_source(runs: Sequence[Path]) -> Source:
    """Open run folders of `osvl data synthesise`.

    Raises:
        DataError: Without runs, if one holds no trajectories, or if they were not rolled out alike.
    """
    if not runs:
        raise DataError("There is no run to train on.", "Name a run folder of: osvl data synthesise")
    layouts = [layout_of(run) for run in runs]
    for run, layout in zip(runs, layouts, strict=True):
        if layout.hash != layouts[0].hash:
            raise DataError(f"{run} was rolled out with another prompt, layout or set of tools than {runs[0]}.")
    first, *others = (ImageStore(run / "images") for run in runs)
    return Source(tuple(runs), layouts[0], ImageStore(first.root, tuple(others)))


def layout_of(run: Path) -> Layout:
    """The layout that a run's trajectories were rolled out in.

    Raises:
        DataError: If the manifest does not say, or this version of the project would now write another prompt.
    """
    manifest = read_manifest(run)
    told = manifest.get("agent")
    if not isinstance(told, dict) or "prompt_hash" not in told:
        raise DataError(f"{run} is not a run of trajectories: its manifest does not say what the policy was told.")
    settings = AgentSettings.model_validate(manifest["config"]["agent"])
    schemas = [ToolSchema(tool["name"], tool["description"], tool["parameters"]) for tool in told["tools"]]
    layout = build_layout(settings, schemas)
    if layout.hash != told["prompt_hash"]:
        raise DataError(
            f"{run} was rolled out with a prompt that this version would write otherwise.",
            "Synthesise it again, or use the version that wrote it.",
        )
    return layout
