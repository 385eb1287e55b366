"""Exports for trainers outside the project, pictures beside the rows; each file appears whole or not at all.

```
OUT/opensearch_vl_sft.json    ShareGPT rows of trajectories (format: `sharegpt`), ready for LLaMA-Factory
OUT/dataset_info.json         what LLaMA-Factory needs to read them
OUT/rl_data.jsonl             questions for reinforcement learning in the released form (format: `rl_rows`)
OUT/images/ab/<sha256>.png    pictures of either; rows name them relative to OUT
```
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from opensearch_vl.errors import DataError, ImageError, StorageFull
from opensearch_vl.images import ImageStore
from opensearch_vl.protocols import ToolSchema
from opensearch_vl.runs import read_manifest, read_records
from opensearch_vl.sft.rl_rows import to_rl_row
from opensearch_vl.sft.sharegpt import to_row
from opensearch_vl.types import ImageRef, RolloutRecord, Task

NAME = "opensearch_vl_sft"
RL_FILE = "rl_data.jsonl"
DATASET_INFO = {
    NAME: {
        "file_name": f"{NAME}.json",
        "formatting": "sharegpt",
        "columns": {"messages": "conversations", "images": "images", "system": "system", "tools": "tools"},
        "tags": {
            "role_tag": "from",
            "content_tag": "value",
            "user_tag": "human",
            "assistant_tag": "gpt",
            "observation_tag": "observation",
            "function_tag": "function_call",
            "system_tag": "system",
        },
    }
}


@dataclass(slots=True)
class ExportReport:
    """What was written and what was left out.

    Attributes:
        exported: Rows written.
        calls: Tool calls in them.
        images: Distinct pictures in them.
        left_out: Records left out, by reason.
    """

    exported: int = 0
    calls: int = 0
    images: int = 0
    left_out: Counter[str] = field(default_factory=Counter)


def accepted(record: RolloutRecord) -> bool:
    """The default choice: what synthesis kept."""
    return record.accepted is True


def sharegpt(
    records: Iterable[RolloutRecord],
    store: ImageStore,
    out: Path | str,
    *,
    system: str,
    schemas: Sequence[ToolSchema],
    choose: Callable[[RolloutRecord], bool] = accepted,
) -> ExportReport:
    """Write the chosen trajectories to the folder `out`; its JSON appears whole or not at all.

    Args:
        records: Rollouts with their tasks, read lazily.
        store: Their pictures.
        out: The folder; files of an earlier export are replaced.
        system: System prompt, without the description of the tools (`environment.layout.system`).
        schemas: The tools on offer (`toolbox.schemas()`).
        choose: Which records are exported.

    Raises:
        StorageFull: If the disk is full.
    """
    out = Path(out)
    pictures = ImageStore(out / "images")
    report = ExportReport()
    seen: set[str] = set()
    with _whole_file(out / f"{NAME}.json") as handle:
        handle.write("[")
        for record in records:
            text = _row_text(record, store, pictures, system, schemas, choose, report, seen)
            if text is not None:
                handle.write(("\n" if report.exported == 1 else ",\n") + text)
        handle.write("\n]\n")
    with _whole_file(out / "dataset_info.json") as handle:
        handle.write(json.dumps(DATASET_INFO, indent=2) + "\n")
    report.images = len(seen)
    return report


def export_run(run: Path | str, out: Path | str) -> ExportReport:
    """Export what a synthesis run kept; everything needed lies in its folder.

    Raises:
        DataError: If `run` is not a folder of synthesised trajectories.
    """
    system, schemas = told(run, read_manifest(run))
    store = ImageStore(Path(run) / "images")
    return sharegpt(read_records(run, RolloutRecord), store, out, system=system, schemas=schemas)


def told(run: Path | str, manifest: Mapping[str, Any]) -> tuple[str, list[ToolSchema]]:
    """System prompt and tools of a run of trajectories."""
    agent = manifest.get("agent")
    if not isinstance(agent, dict) or "system" not in agent:
        raise DataError(f"{run} holds no synthesised trajectories: its manifest does not say what the agent was told.")
    schemas = [ToolSchema(tool["name"], tool["description"], tool["parameters"]) for tool in agent.get("tools", ())]
    return agent["system"], schemas


def export_rl(tasks: Iterable[Task], store: ImageStore, out: Path | str) -> ExportReport:
    """Write questions with one picture each in the released form for reinforcement learning.

    Questions without a picture, or with several, are left out: readers of the form take exactly one.

    Raises:
        StorageFull: If the disk is full.
    """
    out = Path(out)
    pictures = ImageStore(out / "images")
    report = ExportReport()
    seen: set[str] = set()
    with _whole_file(out / RL_FILE) as handle:
        for task in tasks:
            if len(task.images) != 1:
                report.left_out["several_pictures" if task.images else "no_picture"] += 1
                continue
            paths = _copied(task.images, store, pictures, report, seen)
            if paths is not None:
                handle.write(json.dumps(to_rl_row(task, paths[0]), ensure_ascii=False) + "\n")
                report.exported += 1
    report.images = len(seen)
    return report


@contextmanager
def _whole_file(target: Path) -> Iterator[IO[str]]:
    """A text file that appears whole when the block ends, or not at all; its folder is made.

    Raises:
        StorageFull: If it cannot be written.
    """
    scratch = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with open(scratch, "w", encoding="utf-8", errors="replace") as handle:
            yield handle
        scratch.replace(target)
    except OSError as error:
        raise StorageFull(
            f"Cannot write to {target.parent}: {error.strerror}.", "Free some space or choose another --out."
        ) from error
    finally:
        scratch.unlink(missing_ok=True)


def _copied(
    images: Sequence[ImageRef], store: ImageStore, pictures: ImageStore, report: ExportReport, seen: set[str]
) -> list[str] | None:
    """Paths of pictures as rows name them, their files copied; None, and counted, if one is in no store."""
    try:
        for ref in images:
            pictures.adopt(ref, store)
    except ImageError:
        report.left_out["picture_missing"] += 1
        return None
    seen.update(ref.sha256 for ref in images)
    return [pictures.path(ref).relative_to(pictures.root.parent).as_posix() for ref in images]


def _row_text(
    record: RolloutRecord,
    store: ImageStore,
    pictures: ImageStore,
    system: str,
    schemas: Sequence[ToolSchema],
    choose: Callable[[RolloutRecord], bool],
    report: ExportReport,
    seen: set[str],
) -> str | None:
    """The JSON text of a row, its pictures copied; None if the record is left out."""
    if not choose(record):
        report.left_out["not_chosen"] += 1
        return None
    if not record.trajectory.steps:
        report.left_out["no_steps"] += 1
        return None
    row, images = to_row(record, system=system, schemas=schemas)
    if [turn["from"] == "gpt" for turn in row["conversations"]] != [False, True] * len(record.trajectory.steps):
        report.left_out["no_response"] += 1  # LLaMA-Factory skips a row whose last turn is not the model's
        return None
    paths = _copied(images, store, pictures, report, seen)
    if paths is None:
        return None
    row["images"] = paths
    report.exported += 1
    report.calls += record.trajectory.num_calls
    return json.dumps(row, ensure_ascii=False)
