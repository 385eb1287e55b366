"""A run, or several as splits, written as one data set that `datasets.load_dataset(FOLDER)` opens.

```
OUT/README.md                             the card (`card`), with the splits' files in its YAML
OUT/ATTRIBUTION.csv                       file, page, licence and author of every picture
OUT/data/train-00000-of-00002.parquet     the rows with their pictures (`parquet`)
```
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

from opensearch_vl.errors import DataError, ImageError, UsageError
from opensearch_vl.images import ImageStore
from opensearch_vl.runs import read_json_lines, read_manifest, read_records
from opensearch_vl.sft.card import Attribution, SplitFacts, render_card
from opensearch_vl.sft.export import accepted, told
from opensearch_vl.sft.parquet import SHARD_BYTES, SplitWriter, question_row, rollout_row
from opensearch_vl.types import QuestionRecord, RolloutRecord
from opensearch_vl.wiki.writing import new_folder

Kind = Literal["questions", "trajectories"]


def kind_of_run(run: Path) -> Kind:
    """What a run folder holds, by its first record.

    Raises:
        DataError: If it holds no record, or records of another kind.
    """
    first = next(read_json_lines(run / "records.jsonl"), None)
    kinds: dict[object, Kind] = {"question": "questions", "rollout": "trajectories"}
    if first is None or first.get("kind") not in kinds:
        raise DataError(f"{run} holds neither questions nor trajectories.", "Was it built to the end?")
    return kinds[first["kind"]]


def export_parquet(
    splits: Mapping[str, Path],
    out: Path,
    *,
    name: str,
    everything: bool = False,
    shard_bytes: int = SHARD_BYTES,
    progress: Callable[[], None] | None = None,
) -> list[SplitFacts]:
    """Write run folders of questions or of trajectories as one data set with a card, a split for each.

    Rejected walks are no questions, and of trajectories only what synthesis kept is written; both are counted.

    Args:
        splits: Run folders by name of the split; all of one kind.
        out: The folder, which must not exist.
        name: Name of the data set on its card.
        everything: Write trajectories that were not kept as well.
        shard_bytes: Size at which a new file is begun.
        progress: Called after every row.

    Raises:
        UsageError: If a split's name is not one that `datasets` takes, or the runs differ in kind.
        DataError: If a folder is no run, or a split would have no row.
        RunExists: If `out` exists.
        StorageFull: If the disk is full.
    """
    for split in splits:
        if not re.fullmatch(r"\w+(\.\w+)*", split):
            raise UsageError(f"{split!r} cannot be the name of a split.", "Use letters, digits and underscores.")
    kinds = {split: kind_of_run(run) for split, run in splits.items()}
    if len(set(kinds.values())) > 1:
        raise UsageError(f"One data set holds questions or trajectories, not both: {kinds}.")
    with new_folder(out) as folder:
        (folder / "data").mkdir()
        with Attribution.into(folder) as attribution:
            facts = [
                _write_split(split, run, kinds[split], folder / "data", attribution, everything, shard_bytes, progress)
                for split, run in splits.items()
            ]
        (folder / "README.md").write_text(render_card(name, kinds[facts[0].name], facts), encoding="utf-8")
    return facts


def _write_split(
    split: str,
    run: Path,
    kind: Kind,
    folder: Path,
    attribution: Attribution,
    everything: bool,
    shard_bytes: int,
    progress: Callable[[], None] | None,
) -> SplitFacts:
    manifest, store = read_manifest(run), ImageStore(run / "images")
    facts = SplitFacts(split, manifest)
    model: type[QuestionRecord | RolloutRecord] = QuestionRecord if kind == "questions" else RolloutRecord
    system, schemas = told(run, manifest) if kind == "trajectories" else ("", [])
    with SplitWriter(folder, split, model, shard_bytes, about=_about(manifest)) as writer:
        for record in read_records(run, model):
            if reason := _left_out(record, everything):
                facts.left_out[reason] += 1
                continue
            try:
                if isinstance(record, RolloutRecord):
                    row = rollout_row(record, store, system=system, schemas=schemas)
                else:
                    row = question_row(record, store)
            except ImageError:
                facts.left_out["picture_missing"] += 1  # or damaged
                continue
            writer.add(row)
            facts.add(record, attribution)
            if progress is not None:
                progress()
    if not facts.num_rows:
        raise DataError(
            f"Nothing of {run} can be written to the split {split}: {dict(facts.left_out) or 'it has no records'}.",
            "`datasets` opens no split without rows.",
        )
    facts.files = writer.names
    return facts


def _about(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """What reading back needs of a manifest beside the records."""
    config, told = manifest.get("config"), manifest.get("agent")
    if isinstance(told, dict) and isinstance(config, dict):
        told = {"settings": config.get("agent"), **told}
    return {"agent": told, "origin": manifest.get("origin")}


def _left_out(record: QuestionRecord | RolloutRecord, everything: bool) -> str:
    """Why a record is no row; empty if it is one."""
    if isinstance(record, QuestionRecord):
        return "" if record.task is not None else f"rejected at {record.stage}: {record.reason}"
    if everything or accepted(record):
        return ""
    return "unscored" if record.accepted is None else f"rejected: {record.reason or 'no reason recorded'}"
