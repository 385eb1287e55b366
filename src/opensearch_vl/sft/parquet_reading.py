"""Parquet of `parquet` back into our records: every row checked against its own record, every picture against its hash.

Files may have been torn, edited or made up; what is wrong is named with file and row, and nothing is read past it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import ValidationError

from opensearch_vl.errors import DataError, ImageError, RecordError
from opensearch_vl.images import ImageStore
from opensearch_vl.sft.parquet import ABOUT, Exported
from opensearch_vl.types import ImageRef, QuestionRecord, RolloutRecord

BATCH_ROWS = 64
"""Rows read at a time; files of others may have all their rows in one group."""

_SHARD = re.compile(r"(.+)-(\d{5})-of-(\d{5})\.parquet")


def is_ours(source: Path) -> bool:
    """Whether a Parquet file or folder was written here.

    Raises:
        DataError: If there is no file.
        RecordError: If it cannot be read.
    """
    file = parquet_files(source)[0]
    with _readable(file):
        return "record" in pq.read_schema(file).names


def read_about(source: Path) -> dict[str, Any]:
    """What was noted beside the rows of an exported folder or file; nothing in files of others.

    Raises:
        DataError: If there is no file.
        RecordError: If it cannot be read.
    """
    file = parquet_files(source)[0]
    with _readable(file):
        noted = json.loads((pq.read_schema(file).metadata or {}).get(ABOUT.encode(), b"{}"))
        return noted if isinstance(noted, dict) else {}


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
