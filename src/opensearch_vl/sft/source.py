"""Training data: runs of trajectories or released ShareGPT files, with their pictures and the layout they are in."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from opensearch_vl.agent.layouts import Layout, build_layout, describe_tools
from opensearch_vl.agent.settings import AgentSettings
from opensearch_vl.agent.transcript import ChatFormat
from opensearch_vl.errors import DataError
from opensearch_vl.images import ImageStore
from opensearch_vl.prompts import prompt_hash
from opensearch_vl.protocols import ToolSchema
from opensearch_vl.runs import read_manifest, read_records, records_digest
from opensearch_vl.sft.examples import Examples, build_examples, texts
from opensearch_vl.sft.renaming import renamed_copies
from opensearch_vl.sft.settings import SftSettings
from opensearch_vl.sft.sharegpt import read_sharegpt, unescape
from opensearch_vl.types import RolloutRecord

TOKENIZER_COPIES = 2
"""Copies under other names that show a tokenizer enough of what names are made of."""


@dataclass(frozen=True, slots=True)
class Source:
    """Trajectories that were rolled out alike.

    Attributes:
        layout: The conversation's layout.
        store: Their pictures.
        records: Reads them, in order; may be called again.
    """

    layout: Layout
    store: ImageStore
    records: Callable[[], Iterator[RolloutRecord]]

    def renamed(self, copies: int, seed: int) -> Source:
        """The same with each trajectory so many times under other names; 0 leaves all as it is. See `sft.renaming`."""
        return replace(self, records=lambda: renamed_copies(self.records, copies, seed))

    def first(self, num: int) -> Source:
        """The first so many of them."""
        return replace(self, records=lambda: islice(self.records(), num))

    def examples(self, settings: SftSettings, chat_format: ChatFormat) -> Examples:
        """What a run of fine-tuning trains on, its first stage included if it has one."""

        def built(source: Source, copies: int, seed: int) -> Examples:
            records = source.renamed(copies, seed).records()
            return build_examples(records, self.layout, chat_format, max_tokens=settings.max_tokens)

        others = built(self, settings.renamed_copies, settings.seed)
        if settings.first is None:
            return others
        few = self.first(settings.first.trajectories)
        return built(few, settings.first.renamed_copies, settings.seed + 1).before(others)

    def tokenizer_texts(self, renamed_copies: int, seed: int) -> Iterator[str]:
        """What a tokenizer learns on: every text, so many times under other names if the policy is to meet others."""
        return texts(self.renamed(renamed_copies, seed).records(), self.layout)


def open_source(data: Sequence[Path], pictures: Path) -> Source:
    """Open run folders of `osvl data synthesise`, or one ShareGPT file (.json or .jsonl).

    Args:
        data: The runs, or the file.
        pictures: Folder that pictures of a ShareGPT file are copied to.

    Raises:
        DataError: Without data, if something in it is neither, or if it was not rolled out alike.
    """
    if not data:
        raise DataError("There is no run to train on.", "Name a run folder of: osvl data synthesise")
    if any(path.is_file() for path in data):
        if len(data) > 1:
            raise DataError(f"A ShareGPT file is trained on alone; {len(data)} inputs were given.")
        return open_sharegpt(data[0], pictures)
    layouts = [layout_of(run) for run in data]
    for run, layout in zip(data, layouts, strict=True):
        if layout.hash != layouts[0].hash:
            raise DataError(f"{run} was rolled out with another prompt, layout or set of tools than {data[0]}.")
    first, *others = (ImageStore(run / "images") for run in data)

    def records() -> Iterator[RolloutRecord]:
        for run in data:
            yield from read_records(run, RolloutRecord)

    return Source(layouts[0], ImageStore(first.root, tuple(others)), records)


def data_digest(data: Sequence[Path]) -> str:
    """Twelve hex digits over what `open_source` opens, so that a resumed run can tell that it is the same."""
    hasher = hashlib.sha256()
    for path in data:
        hasher.update(hashlib.sha256(path.read_bytes()).digest() if path.is_file() else records_digest(path).encode())
    return hasher.hexdigest()[:12]


def open_sharegpt(file: Path, pictures: Path) -> Source:
    """Open a file in the released format; its rows are laid out as the released fine-tuning data is.

    Raises:
        DataError: If the file is not of the format, or its rows differ in system prompt or tools.
    """
    try:
        text = file.read_text(encoding="utf-8")
        rows = [json.loads(line) for line in text.splitlines() if line.strip()] if file.suffix == ".jsonl" else None
        rows = rows if rows is not None else json.loads(text)
        told = {(unescape(row.get("system") or ""), row.get("tools") or "[]") for row in rows}
        system, tools = told.pop()
        functions = [item.get("function", item) for item in json.loads(tools)]
        schemas = [ToolSchema(f["name"], f.get("description", ""), f.get("parameters", {})) for f in functions]
    except (OSError, ValueError, AttributeError, KeyError, TypeError) as error:
        raise DataError(f"{file} is not a ShareGPT file of trajectories: {error!r}.") from error
    if told:
        raise DataError(f"The rows of {file} differ in system prompt or tools; split the file.")
    layout = Layout(
        name="sft",
        system=system,
        tools=describe_tools(schemas) if schemas else "",
        schemas=(),
        list_pictures=False,
        hash=prompt_hash("sft", system, tools),
    )
    store = ImageStore(pictures)
    return Source(layout, store, lambda: read_sharegpt(file, store, corpus=file.stem))


def layout_of(run: Path) -> Layout:
    """The layout that a run's trajectories were rolled out in.

    Raises:
        DataError: If the manifest does not say, or this version of the project would now write another prompt.
    """
    manifest = read_manifest(run)
    told = manifest.get("agent")
    if not isinstance(told, dict) or "prompt_hash" not in told:
        raise DataError(f"{run} is not a run of trajectories: its manifest does not say what the policy was told.")
    stated = told.get("settings") or manifest["config"].get("agent")  # runs of earlier versions have them there only
    if not isinstance(stated, dict):
        raise DataError(f"{run} cannot be trained on: its manifest does not hold the agent's settings.")
    settings = AgentSettings.model_validate(stated)
    schemas = [ToolSchema(tool["name"], tool["description"], tool["parameters"]) for tool in told["tools"]]
    layout = build_layout(settings, schemas)
    if layout.hash != told["prompt_hash"]:
        raise DataError(
            f"{run} was rolled out with a prompt that this version would write otherwise.",
            "Synthesise it again, or use the version that wrote it.",
        )
    return layout
