"""Other people's questions, read into tasks and merged before the filter (paper, section 3.6).

One tolerant reader for the shapes in which LiveVQA, FVQA, WebQA, InfoSeek and their re-packagings come: JSON, JSON
lines or Parquet; a question, a prompt or a chat turn; one answer, a list, or a JSON text of one; pictures as paths,
bytes, base64, data URLs, dicts or lists. What cannot be read is returned with its reason, never skipped.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import JsonValue

from opensearch_vl.errors import DataError, ImageError, RecordError
from opensearch_vl.images import Fetch, ImageStore, ingest_all
from opensearch_vl.questions.answers import boxed, kind_of
from opensearch_vl.runs import read_json_lines
from opensearch_vl.text import encodable
from opensearch_vl.types import Gold, Provenance, Task

Reason = Literal["no_question", "no_answer", "no_picture", "bad_picture", "bad_row", "other_prompt"]

QUESTION_FIELDS = ("question", "prompt", "query", "problem", "text_q", "Q")
ANSWER_FIELDS = (
    "Ground_Truth_List", "answers", "answer", "gold", "ground_truth", "answer_eval", "solution", "reward_model", "A",
)  # fmt: skip
PICTURE_FIELDS = ("images", "image", "image_path", "img_path", "file_path", "image_url", "img_url", "image_file")
ID_FIELDS = ("id", "question_id", "data_id", "qid", "Guid", "index")
LEVELS = ("level1_qa", "level2_qa")
"""LiveVQA keeps two questions under one picture."""


@dataclass(frozen=True, slots=True)
class Unread:
    """A row that gave no task."""

    row: int
    reason: Reason
    detail: str = ""


def read_corpus(
    file: Path, name: str, store: ImageStore, *, pictures: Path | None = None, fetch: Fetch | None = None
) -> Iterator[Task | Unread]:
    """Tasks of a file, each with the corpus named in its provenance.

    Args:
        file: `.json` (a list, or an object holding one), `.jsonl` or `.parquet`.
        name: Name of the corpus.
        store: Where pictures go.
        pictures: Folder that relative paths start from; the file's own by default.
        fetch: Gets pictures by URL; without it a row whose picture is elsewhere is unread.

    Raises:
        DataError: If the file is missing or of no such form.
    """
    base = pictures or file.parent
    for number, row in enumerate(corpus_rows(file), 1):
        for level in [key for key in LEVELS if isinstance(row.get(key), Mapping)] or [""]:
            inner = {**row, **row[level]} if level else row
            yield _task(inner, number, f"{name}{f'-{level}' if level else ''}", name, store, base, fetch)


def corpus_rows(file: Path) -> Iterator[dict[str, Any]]:
    """The rows of a file as they stand.

    Raises:
        DataError: If the file is missing or of no such form.
    """
    if file.suffix == ".parquet":
        import pyarrow.parquet as pq

        if not file.is_file():
            raise DataError(f"There is no file {file}.")
        for batch in pq.ParquetFile(file).iter_batches(batch_size=256):
            yield from batch.to_pylist()
    elif file.suffix in (".jsonl", ".ndjson"):
        yield from read_json_lines(file)
    elif file.suffix == ".json":
        yield from _json_rows(file)
    else:
        raise DataError(f"{file} is not .json, .jsonl or .parquet.")


def _json_rows(file: Path) -> Iterator[dict[str, Any]]:
    try:
        loaded = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise DataError(f"There is no file {file}.") from error
    except (OSError, ValueError) as error:
        raise RecordError(f"{file} is not JSON: {error}.") from error
    if isinstance(loaded, dict):
        lists = [value for value in loaded.values() if isinstance(value, list)]
        loaded = lists[0] if len(lists) == 1 else [loaded]
    if not isinstance(loaded, list) or not all(isinstance(row, dict) for row in loaded):
        raise RecordError(f"{file} must hold a list of objects.")
    yield from loaded


def _task(
    row: Mapping[str, Any],
    number: int,
    corpus_part: str,
    corpus: str,
    store: ImageStore,
    base: Path,
    fetch: Fetch | None,
) -> Task | Unread:
    question = encodable(_text(_first(row, QUESTION_FIELDS))).replace("<image>", "").strip()
    if not question:
        return Unread(number, "no_question", f"fields: {', '.join(map(str, row))}"[:200])
    answers = _answers(_first(row, ANSWER_FIELDS))
    if not answers:
        return Unread(number, "no_answer")
    try:
        refs = ingest_all(_first(row, PICTURE_FIELDS), store, base=base, fetch=fetch)
    except ImageError as error:
        return Unread(number, "bad_picture", error.message[:300])
    if not refs:
        return Unread(number, "no_picture")
    short = list(dict.fromkeys(boxed(answer) or answer for answer in answers))
    own = encodable(str(_first(row, ID_FIELDS) or number))
    extra: dict[str, JsonValue] = {"source_id": own}
    if short != answers:
        extra["answer_text"] = answers[0]
    identity = hashlib.sha256("\x1f".join((corpus_part, own, question, refs[0].sha256)).encode()).hexdigest()[:16]
    return Task(
        id=f"m{identity}",
        question=question,
        images=refs,
        gold=Gold(answer=short[0], aliases=tuple(short[1:]), kind=kind_of(short[0])),
        provenance=Provenance(corpus=corpus, extra=extra),
    )


def _first(row: Mapping[str, Any], fields: Sequence[str]) -> Any:
    for field in fields:
        value = row.get(field)
        if value is not None and value != "" and value != []:
            return value
    return None


def _text(value: Any) -> str:
    """A question as text; of a chat the last turn that has any."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        for turn in reversed(value):
            if (
                found := _text(turn.get("content", turn.get("value", turn.get("text"))))
                if isinstance(turn, dict)
                else ""
            ):
                return found
    return ""


def _answers(value: Any) -> list[str]:
    """Reference answers, the first one leading; duplicates and empty ones left out."""
    if isinstance(value, Mapping):
        value = _first(value, ("ground_truth", "answer", "answers", "value"))
    if isinstance(value, str) and value.lstrip().startswith("["):
        try:
            value = json.loads(value)
        except ValueError:
            value = [value]
    items = value if isinstance(value, list | tuple) else [value]
    flat = [inner for item in items for inner in (item if isinstance(item, list | tuple) else [item])]
    texts = [
        encodable(str(item)).strip()
        for item in flat
        if isinstance(item, str | int | float) and not isinstance(item, bool)
    ]
    return list(dict.fromkeys(text for text in texts if text))
