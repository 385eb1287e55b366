"""Data sets into run folders: our own Parquet exactly as it was exported, and the released formats as far as they go.

| source | becomes |
|---|---|
| folder or file written by `osvl data export --format parquet` | the same records |
| ShareGPT rows (`conversations`) | trajectories |
| RL rows (`question`, `answer`, `images`, `dataset`) | questions |
| any other corpus that `questions.corpora` reads | questions |
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from opensearch_vl.config import Config
from opensearch_vl.errors import DataError, ImageError, RecordError
from opensearch_vl.images import ImageStore
from opensearch_vl.questions.corpora import Unread, read_corpus
from opensearch_vl.runs import RunFolder, read_json_lines
from opensearch_vl.sft.parquet_reading import is_ours, read_about, read_parquet
from opensearch_vl.sft.rl_rows import FIELDS, read_rl
from opensearch_vl.sft.sharegpt import from_row, sharegpt_rows, unescape
from opensearch_vl.types import QuestionRecord, RolloutRecord, Task

Form = Literal["parquet", "sharegpt", "rl", "corpus"]


class ImportConfig(Config):
    """Configuration of a run that was read from a data set.

    Attributes:
        source: What was read.
        form: How it was read.
        name: Name of the corpus, for rows that do not say theirs.
    """

    source: str
    form: Form
    name: str


@dataclass(slots=True)
class ImportReport:
    """What came in.

    Attributes:
        form: How the source was read.
        num_read: Records now in the run.
        repeated: Rows whose id was there already.
        unread: Rows that could not be read, by reason.
        examples: One message for each reason.
    """

    form: Form
    num_read: int = 0
    repeated: int = 0
    unread: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)


def form_of(source: Path) -> Form:
    """How a source should be read, by its first row.

    Raises:
        DataError: If it is missing or of no known form.
    """
    if not source.exists():
        raise DataError(f"There is no {source}.")
    if source.is_dir():
        if is_ours(source):
            return "parquet"
        raise DataError(
            f"{source} was not written by osvl data export.", "Name one of its files to read it as a corpus."
        )
    if source.suffix == ".parquet":
        return "parquet" if is_ours(source) else "corpus"
    first = _first_row(source)
    if isinstance(first, Mapping) and "conversations" in first:
        return "sharegpt"
    released = isinstance(first, Mapping) and all(name in first for name in FIELDS)
    return "rl" if released and source.suffix == ".jsonl" else "corpus"


def _first_row(source: Path) -> Any:
    """The first row of a JSON or JSONL file; None where there is none to be read, which the corpus reader explains."""
    try:
        if source.suffix == ".jsonl":
            return next(read_json_lines(source), None)
        return next(sharegpt_rows(source), None) if source.suffix == ".json" else None
    except RecordError:
        return None


def import_run(
    source: Path, out: Path, *, name: str = "", resume: bool = False, progress: Callable[[], None] | None = None
) -> ImportReport:
    """Read a data set into a run folder; rows that are there already are skipped.

    Args:
        source: A folder or a file.
        out: The run folder.
        name: Name of the corpus; the file's own name by default.
        resume: Continue in a folder that was begun.
        progress: Called after every row.

    Raises:
        DataError: If the source is missing or of no known form.
        RecordError: If a file cannot be read at all.
    """
    form = form_of(source)
    about = read_about(source) if form == "parquet" else _told(source) if form == "sharegpt" else {}
    config = ImportConfig(source=str(source), form=form, name=name or source.stem)
    manifest = {key: about[key] for key in ("agent", "origin") if about.get(key)}
    report = ImportReport(form)
    with RunFolder(out, config, manifest, resume=resume) as run:
        seen = set[str]()
        for found in _read(source, config, run.images):
            if isinstance(found, Unread):
                report.unread[found.reason] += 1
                report.examples.setdefault(found.reason, f"row {found.row}: {found.detail}")
            elif found.id in seen:
                report.repeated += 1
            else:
                seen.add(found.id)
                if found.id not in run.done:
                    run.append(found)
                report.num_read += 1
            if progress is not None:
                progress()
        if not report.num_read:
            raise DataError(f"No row of {source} could be read: {report.examples or 'it holds none'}.")
        run.write_manifest(imported=report.num_read, unread=dict(report.unread), repeated=report.repeated)
    return report


def _read(source: Path, config: ImportConfig, store: ImageStore) -> Iterator[QuestionRecord | RolloutRecord | Unread]:
    match config.form:
        case "parquet":
            yield from read_parquet(source, store)
        case "sharegpt":
            yield from _trajectories(source, config.name, store)
        case "rl":
            yield from map(_question, read_rl(source, store))
        case "corpus":
            yield from map(_question, read_corpus(source, config.name, store))


def _question(found: Task | Unread) -> QuestionRecord | Unread:
    return found if isinstance(found, Unread) else QuestionRecord(id=found.id, task=found)


def _trajectories(source: Path, name: str, store: ImageStore) -> Iterator[RolloutRecord | Unread]:
    """Rows as records; a row that was told something else than the first cannot share a run with it."""
    first: tuple[Any, Any] | None = None
    samples: Counter[str] = Counter()
    for number, row in enumerate(sharegpt_rows(source), 1):
        try:
            record = from_row(row, store, base=source.parent, corpus=name)
        except RecordError as error:
            yield Unread(number, "bad_row", error.message[:300])
            continue
        except ImageError as error:
            yield Unread(number, "bad_picture", error.message[:300])
            continue
        told = (row.get("system"), row.get("tools"))
        first = first or told
        if told != first:
            yield Unread(number, "other_prompt", "its system prompt or tools are not those of the first row")
            continue
        sample = samples[record.task.id]
        samples[record.task.id] += 1
        if sample:  # several trajectories of one question
            identity = f"{record.task.id}#{sample}"
            trajectory = record.trajectory.model_copy(update={"id": identity, "sample": sample})
            record = record.model_copy(update={"id": identity, "trajectory": trajectory})
        yield record


def _told(source: Path) -> dict[str, Any]:
    """System prompt and tools of the first row, as the manifest of a run of trajectories holds them."""
    row: Any = next(sharegpt_rows(source), {})
    try:
        listed = json.loads(row.get("tools") or "[]")
        functions = [item.get("function", item) for item in listed]
        tools = [
            {"name": f["name"], "description": f.get("description", ""), "parameters": f.get("parameters", {})}
            for f in functions
        ]
    except (ValueError, RecursionError, AttributeError, KeyError, TypeError) as error:
        raise RecordError(f"{source}, row 0: tools is not a JSON list of functions: {error!r}.") from error
    return {"agent": {"system": unescape(row.get("system") or ""), "tools": tools}}
