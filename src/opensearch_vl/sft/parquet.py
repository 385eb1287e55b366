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
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import ValidationError

from opensearch_vl.errors import DataError, ImageError, RecordError
from opensearch_vl.images import ImageStore
from opensearch_vl.protocols import ToolSchema
from opensearch_vl.sft.sharegpt import to_row
from opensearch_vl.types import ImageRef, QuestionRecord, RolloutRecord, Task
from opensearch_vl.wiki.writing import TableWriter

SHARD_BYTES = 500_000_000
"""Size at which a new file is begun (the default of `datasets` when it pushes to a hub)."""
GROUP_BYTES = 16_000_000
"""Size at which a row group ends; what is held in memory at once."""
BATCH_ROWS = 64
"""Rows read at a time; files of others may have all their rows in one group."""

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
_ABOUT = "opensearch_vl"
_SHARD = re.compile(r"(.+)-(\d{5})-of-(\d{5})\.parquet")


def schema_of(kind: type[Exported], about: Mapping[str, Any] | None = None) -> Any:
    """The Arrow schema of a kind of record, with the metadata that tells `datasets` which column holds pictures.

    Args:
        kind: The kind of record.
        about: What `read_about` gives back.
    """
    schema = pa.schema(_COLUMNS[kind])
    features = {field.name: _feature(field.type) for field in schema}
    told = {"huggingface": json.dumps({"info": {"features": features}}), _ABOUT: json.dumps(about or {})}
    return schema.with_metadata(told)


def read_about(source: Path) -> dict[str, Any]:
    """What was noted beside the rows of an exported folder or file; nothing in files of others.

    Raises:
        DataError: If there is no file.
        RecordError: If it cannot be read.
    """
    file = parquet_files(source)[0]
    with _readable(file):
        noted = json.loads((pq.read_schema(file).metadata or {}).get(_ABOUT.encode(), b"{}"))
        return noted if isinstance(noted, dict) else {}


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


def is_ours(source: Path) -> bool:
    """Whether a Parquet file or folder was written here.

    Raises:
        DataError: If there is no file.
        RecordError: If it cannot be read.
    """
    file = parquet_files(source)[0]
    with _readable(file):
        return "record" in pq.read_schema(file).names


def parquet_files(source: Path) -> list[Path]:
    """The Parquet files of an exported folder, or the one file named, in order.

    Raises:
        DataError: If there is none, or a file of a split that says how many it has is missing.
    """
    if source.is_file():
        return [source]
    files = sorted(source.glob("data/*.parquet")) or sorted(source.glob("*.parquet"))
    if not files:
        raise DataError(f"There is no Parquet file in {source}.")
    for file in files:
        if (named := _SHARD.fullmatch(file.name)) is not None:
            for number in range(int(named[3])):
                other = file.with_name(f"{named[1]}-{number:05d}-of-{named[3]}.parquet")
                if not other.exists():
                    raise DataError(f"{other} is missing: its split has {int(named[3])} files.", "Copy it as well.")
    return files


def read_parquet(source: Path, store: ImageStore) -> Iterator[Exported]:
    """The records of an exported folder or file, a few rows in memory at a time; their pictures go into `store`.

    Raises:
        DataError: If there is no file.
        RecordError: If a file is torn or not of this form, a row was edited, or a picture is not the one that its
            record names; says which file and row.
    """
    for file in parquet_files(source):
        with _readable(file):
            yield from _read_file(file, store)


@contextmanager
def _readable(file: Path) -> Iterator[None]:
    """What Arrow says of a file that is no whole Parquet file, as an error of ours."""
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        raise RecordError(f"{file} cannot be read as Parquet: {error}.", "Was it copied whole?") from error


def _read_file(file: Path, store: ImageStore) -> Iterator[Exported]:
    found = set(pq.read_schema(file).names)
    kind: type[Exported] = RolloutRecord if "conversations" in found else QuestionRecord
    wanted = ["id", "question", "answer", "images", "record"]
    if missing := [name for name in wanted if name not in found]:
        raise RecordError(f"{file} has no column {', '.join(missing)}: it was not written by osvl data export.")
    number = 0
    with pq.ParquetFile(file) as opened:
        for batch in opened.iter_batches(batch_size=BATCH_ROWS, columns=wanted):
            for row in batch.to_pylist():
                number += 1
                try:
                    yield _record(row, kind, store)
                except (RecordError, ImageError) as error:
                    raise RecordError(f"{file}, row {number}: {error.message}", error.fix) from error


def _record(row: Mapping[str, Any], kind: type[Exported], store: ImageStore) -> Exported:
    try:
        record = kind.model_validate_json(row["record"] if isinstance(row["record"], str | bytes) else "")
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "record"
        raise RecordError(f"{where}: {first['msg']}.", "Was it written by another version?") from error
    task = record.task
    if task is None:
        raise RecordError("Its record holds no question.")
    shown = {"id": record.id, "question": task.question, "answer": task.gold.answer}
    for name, value in shown.items():
        if row[name] != value:
            raise RecordError(
                f"{name} is {str(row[name])[:80]!r}, but its record says {value[:80]!r}.",
                "Records are read as they were exported; drop the column `record` to read edited questions.",
            )
    named = list(task.images)
    if isinstance(record, RolloutRecord):
        seen = [step.observation.image for step in record.trajectory.steps if step.observation is not None]
        named += [image for image in seen if image is not None]
    pictures = row["images"] or []
    if len(pictures) != len(named):
        raise RecordError(f"It holds {len(pictures)} pictures; its record names {len(named)}.")
    for place, (picture, ref) in enumerate(zip(pictures, named, strict=True), 1):
        _keep(picture, ref, place, store)
    return record


def _keep(picture: Any, ref: ImageRef, place: int, store: ImageStore) -> None:
    """Store a picture; what is stored already is not decoded again."""
    data = picture.get("bytes") if isinstance(picture, Mapping) else None
    if not isinstance(data, bytes):
        raise RecordError(f"Picture {place} has no bytes.")
    if hashlib.sha256(data).hexdigest() != ref.sha256:
        raise RecordError(f"Picture {place} is not the one that the record names, {ref.sha256[:12]}….")
    if ref not in store and store.put_bytes(data) != ref:
        raise RecordError(f"Picture {place} is not of the size or type that the record names.")
