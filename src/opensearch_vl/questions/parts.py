"""Disjoint sets of questions written as run folders, each ready for synthesis, training or export.

```
OUT/sft/, OUT/rl/, …    run folders: manifest, records, the pictures that the records name
OUT/dropped.jsonl       every question that is in no set: its id, the reason, its entities on either side
OUT/manifest.json       sizes, what was dropped, the entities that most of it hung on
```
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from opensearch_vl.config import Config
from opensearch_vl.errors import DataError
from opensearch_vl.images import ImageStore
from opensearch_vl.questions.split import Split, entities, split_by_entity
from opensearch_vl.runs import RunFolder, origin_of, read_records
from opensearch_vl.types import QuestionRecord
from opensearch_vl.wiki.writing import new_folder


class SplitConfig(Config):
    """Configuration of a split.

    Attributes:
        questions: The run folder that was split.
        sizes: Exact size by name of the set.
        rest: Name of the set that takes what remains.
        seed: Same seed, same sets.
        named: Whether pages that only a description names are kept apart as well.
    """

    questions: str
    sizes: dict[str, int]
    rest: str
    seed: int
    named: bool = False


def write_split(
    questions: Path, out: Path, sizes: Mapping[str, int], *, rest: str, seed: int, named: bool = False
) -> dict[str, Any]:
    """Split the finished questions of a run by entity and write every set; nothing of `out` exists until all does.

    Args:
        questions: Run folder of the questions.
        out: The folder, which must not exist.
        sizes: Exact size by name of the set.
        rest: Name of the remaining set.
        seed: Same seed, same sets.
        named: Whether pages that only a description names are kept apart as well.

    Returns:
        The report: sizes, shares by hop count, domain and corpus, what was dropped and on which entities it hung, and
        how many pages descriptions of several sets name.

    Raises:
        DataError: If there are too few questions, or a picture is missing.
        RunExists: If `out` exists.
    """
    records = [record for record in read_records(questions, QuestionRecord) if record.task is not None]
    if not records:
        raise DataError(f"{questions} holds no finished question.", "Build some with: osvl questions build")
    tasks = [record.task for record in records if record.task is not None]
    split = split_by_entity(tasks, sizes, rest=rest, seed=seed, named=named)
    config = SplitConfig(questions=str(questions), sizes=dict(sizes), rest=rest, seed=seed, named=named)
    summary = {"sets": {name: len(members) for name, members in split.sets.items()}, "dropped": split.reasons()}
    origin, store = origin_of(questions), ImageStore(questions / "images")
    with new_folder(out) as folder:
        for name, members in split.sets.items():
            with RunFolder(folder / name, config, {"set": name, "split": summary, "origin": origin}) as run:
                for member in members:
                    for image in tasks[member].images:
                        run.images.adopt(image, store)
                    run.append(records[member])
        with open(folder / "dropped.jsonl", "w", encoding="utf-8") as handle:
            for lost in split.dropped:
                row = {
                    "id": tasks[lost.index].id,
                    "reason": lost.reason,
                    "inside": lost.inside,
                    "outside": lost.outside,
                }
                handle.write(json.dumps(row, ensure_ascii=False) + "\n")
        report = {**summary, **_report(split, records)}
        manifest = {"schema_version": 1, "config": config.model_dump(mode="json"), **report, "origin": origin}
        (folder / "manifest.json").write_text(json.dumps(manifest, indent=2, ensure_ascii=False) + "\n", "utf-8")
    return report


def _report(split: Split, records: Sequence[QuestionRecord]) -> dict[str, Any]:
    """What a reader needs to judge a split: whether the sets are alike, and what the dropped questions hung on."""
    shares: dict[str, dict[str, dict[str, int]]] = {"hops": {}, "domains": {}, "corpora": {}}
    for name, members in split.sets.items():
        for kind in shares:
            shares[kind][name] = {}
        for member in members:
            task = records[member].task
            assert task is not None
            known = task.provenance
            values = (("hops", str(len(known.hops))), ("domains", known.domain), ("corpora", known.corpus))
            for kind, value in values:
                counts = shares[kind][name]
                counts[value] = counts.get(value, 0) + 1
    owners: Counter[str] = Counter()
    for members in split.sets.values():
        tasks = (records[member].task for member in members)
        owners.update(set().union(*(entities(task, named=True) for task in tasks if task is not None)))
    return {
        "named_in_several_sets": sum(num > 1 for num in owners.values()),
        "largest_component": split.largest,
        "bridges": [{"entity": entity, "dropped": num} for entity, num in split.bridges()],
        **{kind: {name: dict(sorted(c.items())) for name, c in sets.items()} for kind, sets in shares.items()},
    }
