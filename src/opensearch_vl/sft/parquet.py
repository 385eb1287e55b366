"""Questions and trajectories as Parquet that carries its pictures: for `datasets`, and back into our records.

```
OUT/data/train-00000-of-00002.parquet    one row per question or trajectory
```

Pictures are stored as `datasets` stores them, a struct of `bytes` and `path`, and the schema's metadata says so:
whoever loads the file gets decoded pictures without being told. The plain columns are for people and trainers; the
column `record` holds the whole record as JSON, and reading back gives exactly it. What the policy was told, without
which trajectories cannot be trained on, stands in the metadata as well.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyarrow as pa

from opensearch_vl.errors import ImageError
from opensearch_vl.images import ImageStore
from opensearch_vl.protocols import ToolSchema
from opensearch_vl.sft.sharegpt import to_row
from opensearch_vl.types import ImageRef, QuestionRecord, RolloutRecord, Task
from opensearch_vl.wiki.writing import TableWriter

SHARD_BYTES = 500_000_000
"""Size at which a new file is begun (the default of `datasets` when it pushes to a hub)."""
GROUP_BYTES = 16_000_000
"""Size at which a row group ends; what is held in memory at once."""
_TEXT, _TEXTS = pa.string(), pa.list_(pa.string())
_PICTURE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
_COMMON = [
    ("question", _TEXT), ("answer", _TEXT), ("aliases", _TEXTS), ("answer_kind", _TEXT), ("images", pa.list_(_PICTURE)),
    ("corpus", _TEXT), ("domain", _TEXT), ("num_hops", pa.int64()), ("path", _TEXTS), ("degradation", _TEXT),
    ("picture_file", _TEXT), ("picture_licence", _TEXT), ("picture_author", _TEXT),
]  # fmt: skip
_COLUMNS = {
    QuestionRecord: [("id", _TEXT), *_COMMON, ("record", _TEXT)],
    RolloutRecord: [
        ("id", _TEXT), ("task_id", _TEXT), *_COMMON,
        ("conversations", pa.list_(pa.struct([("from", _TEXT), ("value", _TEXT)]))), ("system", _TEXT),
        ("tools", _TEXT), ("response", _TEXT), ("num_calls", pa.int64()), ("termination", _TEXT), ("model", _TEXT),
        ("accepted", pa.bool_()), ("reason", _TEXT), ("correct", pa.bool_()), ("reward", pa.float64()),
        ("record", _TEXT),
    ],
}  # fmt: skip
Exported = QuestionRecord | RolloutRecord
ABOUT = "opensearch_vl"
"""Key of the schema's metadata under which stands what reading back needs beside the rows."""


def schema_of(kind: type[Exported], about: Mapping[str, Any] | None = None) -> Any:
    """The Arrow schema of a kind of record, with the metadata that tells `datasets` which column holds pictures.

    Args:
        kind: The kind of record.
        about: What `read_about` gives back.
    """
    schema = pa.schema(_COLUMNS[kind])
    features = {field.name: _feature(field.type) for field in schema}
    told = {"huggingface": json.dumps({"info": {"features": features}}), ABOUT: json.dumps(about or {})}
    return schema.with_metadata(told)


def _feature(kind: Any) -> Any:
    """A column's type in the words of `datasets`; lists in the notation that all its versions read."""
    if kind == _PICTURE:
        return {"_type": "Image"}
    if pa.types.is_list(kind):
        return [_feature(kind.value_type)]
    if pa.types.is_struct(kind):
        return {kind.field(n).name: _feature(kind.field(n).type) for n in range(kind.num_fields)}
    return {"dtype": {"double": "float64"}.get(str(kind), str(kind)), "_type": "Value"}


class SplitWriter:
    """Writes the rows of one split into files of bounded size; use as a context manager.

    Files get their final names, which say how many there are, when the block ends without an error.

    Args:
        folder: Where the files go.
        split: Name of the split.
        kind: What is written.
        shard_bytes: Size at which a new file is begun.
        about: Noted beside the rows.
    """

    def __init__(
        self,
        folder: Path,
        split: str,
        kind: type[Exported],
        shard_bytes: int = SHARD_BYTES,
        about: Mapping[str, Any] | None = None,
    ) -> None:
        self._folder, self._split, self._schema = folder, split, schema_of(kind, about)
        self._shard_bytes = shard_bytes
        self._open: TableWriter | None = None
        self._sizes: list[int] = []
        self.num_rows = 0
        self.names: list[str] = []

    def add(self, row: Mapping[str, Any]) -> None:
        """Write a row; every column must be given."""
        pictures = sum(len(picture["bytes"]) for picture in row["images"])
        size = pictures + sum(len(value) for value in row.values() if isinstance(value, str))
        if self._open is None or self._sizes[-1] + size > self._shard_bytes:
            self._next()
        assert self._open is not None
        self._open.add(*(row[name] for name in self._schema.names), chars=size)
        self._open.end_key()
        self._sizes[-1] += size
        self.num_rows += 1

    def _next(self) -> None:
        if self._open is not None:
            self._open.close()
        self._sizes.append(0)
        self._open = TableWriter(self._scratch(len(self._sizes) - 1), self._schema, GROUP_BYTES)

    def _scratch(self, number: int) -> Path:
        return self._folder / f".{self._split}-{number:05d}"

    def close(self) -> None:
        """Finish the files and set `names`. A split without rows is one file without rows."""
        if self._open is None:
            self._next()
        assert self._open is not None
        self._open.close()
        total = len(self._sizes)
        self.names = [f"{self._split}-{number:05d}-of-{total:05d}.parquet" for number in range(total)]
        for number, name in enumerate(self.names):
            self._scratch(number).rename(self._folder / name)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        elif self._open is not None:
            self._open.__exit__(kind, error, trace)


def question_row(record: QuestionRecord, store: ImageStore) -> dict[str, Any]:
    """A finished question as a row.

    Raises:
        ImageError: If a picture is not in the store.
    """
    assert record.task is not None
    columns = _task_columns(record.task, record.task.images, store)
    return {"id": record.id, **columns, "record": record.model_dump_json()}


def rollout_row(
    record: RolloutRecord, store: ImageStore, *, system: str, schemas: Sequence[ToolSchema]
) -> dict[str, Any]:
    """A trajectory as a row; `images` are those that the markers in `conversations` stand for, in order.

    Raises:
        ImageError: If a picture is not in the store.
    """
    row, images = to_row(record, system=system, schemas=schemas)
    trajectory, verdict, reward = record.trajectory, record.verdict, record.reward
    return {
        "id": record.id,
        "task_id": record.task.id,
        **_task_columns(record.task, images, store),
        "conversations": row["conversations"],
        "system": row["system"],
        "tools": row["tools"],
        "response": trajectory.response,
        "num_calls": trajectory.num_calls,
        "termination": str(trajectory.termination),
        "model": trajectory.model,
        "accepted": record.accepted,
        "reason": record.reason,
        "correct": None if verdict is None else verdict.correct,
        "reward": None if reward is None else reward.total,
        "record": record.model_dump_json(),
    }


def _task_columns(task: Task, images: Sequence[ImageRef], store: ImageStore) -> dict[str, Any]:
    known = task.provenance
    picture = known.picture
    return {
        "question": task.question,
        "answer": task.gold.answer,
        "aliases": list(task.gold.aliases),
        "answer_kind": task.gold.kind,
        "images": [{"bytes": _bytes(ref, store), "path": store.path(ref).name} for ref in images],
        "corpus": known.corpus,
        "domain": known.domain,
        "num_hops": len(known.hops),
        "path": list(known.path),
        "degradation": known.degradation.kind if known.degradation is not None else "",
        "picture_file": picture.file if picture is not None else "",
        "picture_licence": picture.licence if picture is not None else "",
        "picture_author": picture.author if picture is not None else "",
    }


def _bytes(ref: ImageRef, store: ImageStore) -> bytes:
    data = store.read(ref)
    if hashlib.sha256(data).hexdigest() != ref.sha256:
        raise ImageError(f"{store.path(ref)} no longer holds the picture it is named after.")
    return data
