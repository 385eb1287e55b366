"""The run folder: what every long command writes, resumes from, and is compared by.

```
RUN/manifest.json   what was run: config, prompt hashes, tools, model, data revision, seeds, versions, counts, cost
RUN/config.yaml     the resolved configuration
RUN/records.jsonl   one record a line, appended; a torn last line is cut off on resume
RUN/metrics.jsonl   one row of figures per training or evaluation step
RUN/images/         content-addressed pictures
```

A record counts as written once its line ends in a newline; `kill -9` loses at most the record in flight. One process
writes at a time (an advisory lock). `digest` hashes the records sorted by id with volatile fields dropped, so that two
runs that did the same work are equal whatever their order and speed.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.metadata
import json
import os
import platform
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from pydantic import BaseModel, ValidationError

from opensearch_vl.config import dump_yaml
from opensearch_vl.errors import DataError, RecordError, RunExists, RunLocked, RunMismatch, StorageFull
from opensearch_vl.images import ImageStore
from opensearch_vl.redaction import redact, redact_tree

VOLATILE = frozenset(
    {
        "seconds",
        "generation_seconds",
        "started",
        "finished",
        "cost",
        "host",
        "provider",
        "usage",
        "tokens_per_s",
        "wall_s",
    }
)
"""Keys that may differ between equal runs, wherever they occur in a record."""
FIXED = ("wiki", "seed", "model", "questions_digest", "data_digest")
"""Facts of the manifest that decide what is recorded: a resumed run must share them. None: done without it."""

M = TypeVar("M", bound=BaseModel)


class RunFolder:
    """A run folder open for writing; use as a context manager.

    Args:
        path: The folder.
        config: The resolved configuration, written to `config.yaml` and compared on resume.
        manifest: Further facts for `manifest.json`.
        resume: Continue a run that is already there.

    Raises:
        RunExists: The folder holds records and `resume` is False.
        RunMismatch: The folder was started with another configuration, seed or wiki.
        RunLocked: Another process holds it.
    """

    def __init__(
        self,
        path: Path | str,
        config: BaseModel,
        manifest: dict[str, Any] | None = None,
        *,
        resume: bool = False,
    ) -> None:
        self.path = Path(path)
        self.images = ImageStore(self.path / "images")
        self._config_text = redact(dump_yaml(config))
        self._manifest: dict[str, Any] = {
            "schema_version": 1,
            "config": redact_tree(config.model_dump(mode="json")),
            "versions": package_versions(),
            **redact_tree(manifest or {}),
        }
        _guard_write(self.path, lambda: self.path.mkdir(parents=True, exist_ok=True))
        self._lock = self._take_lock()
        try:
            self.done = self._start(resume)
        except BaseException:
            self._lock.close()
            raise

    def _take_lock(self) -> Any:
        handle = open(self.path / ".lock", "a")  # noqa: SIM115 - held for the life of the run
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            handle.close()
            raise RunLocked(
                f"Another process is writing to {self.path}.", "Wait for it or choose another --out."
            ) from error
        return handle

    def _start(self, resume: bool) -> set[str]:
        records = self.path / "records.jsonl"
        config_file = self.path / "config.yaml"
        done: set[str] = set()
        if config_file.exists() or records.exists():
            if not resume:
                raise RunExists(
                    f"{self.path} already holds a run.",
                    "Add --resume to continue it, or choose another --out.",
                )
            if config_file.exists() and config_file.read_text(encoding="utf-8") != self._config_text:
                raise RunMismatch(
                    f"{self.path} was started with other settings than these.",
                    f"Compare with {config_file}, or choose another --out.",
                )
            self._check_fixed_facts()
            for name in ("records.jsonl", "metrics.jsonl"):
                _cut_torn_line(self.path / name)
            done = {record["id"] for record in read_json_lines(records)} if records.exists() else set()
        _write_atomic(config_file, self._config_text)
        self.write_manifest(status="running")
        return done

    def _check_fixed_facts(self) -> None:
        before = read_manifest(self.path) if (self.path / "manifest.json").exists() else {}
        for name in FIXED:
            if name in before and name in self._manifest and before[name] != self._manifest[name]:
                started, now = ("none" if fact is None else repr(fact) for fact in (before[name], self._manifest[name]))
                raise RunMismatch(
                    f"{self.path} was started with {name} {started}, not {now}.",
                    "Give the same, or choose another --out.",
                )

    def append(self, record: BaseModel) -> None:
        """Append one record. A record whose id is already there is refused: ids are never written twice."""
        row = record.model_dump(mode="json")
        if row["id"] in self.done:
            raise RecordError(f"Record {row['id']!r} is already in {self.path}.")
        _append_line(self.path / "records.jsonl", row)
        self.done.add(row["id"])

    def metric(self, row: dict[str, Any]) -> None:
        """Append one row of figures to `metrics.jsonl`."""
        _append_line(self.path / "metrics.jsonl", row)

    def keep_metrics(self, keep: Callable[[dict[str, Any]], bool]) -> None:
        """Drop the rows of `metrics.jsonl` for which `keep` is false.

        A resumed training run goes on from its last checkpoint; rows written after it would otherwise come twice.
        """
        _keep_lines(self.path / "metrics.jsonl", keep)

    def keep_records(self, keep: Callable[[dict[str, Any]], bool]) -> None:
        """Drop the records for which `keep` is false, and forget that they were done; see `keep_metrics`."""
        self.done = {row["id"] for row in _keep_lines(self.path / "records.jsonl", keep)}

    def write_manifest(self, **facts: Any) -> None:
        """Merge `facts` into `manifest.json` and write it atomically."""
        self._manifest.update(redact_tree(facts))
        _write_atomic(self.path / "manifest.json", json.dumps(self._manifest, indent=2, ensure_ascii=False) + "\n")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self.write_manifest(status="done")
            elif not isinstance(error, StorageFull):
                self.write_manifest(status="interrupted")
        finally:
            self._lock.close()


def read_manifest(run: Path | str) -> dict[str, Any]:
    """The manifest of a run.

    Raises:
        DataError: If `run` is not a run folder.
    """
    file = Path(run) / "manifest.json"
    try:
        loaded = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise DataError(f"{run} is not a run folder: it has no manifest.json.") from error
    except (OSError, ValueError) as error:
        raise DataError(f"{file} cannot be read: {error}.") from error
    if not isinstance(loaded, dict):
        raise DataError(f"{file} must hold one JSON object.")
    return loaded


def origin_of(run: Path | str) -> dict[str, Any]:
    """What a run's manifest says of how it was made, for the manifest of what is made from it; lists of ids left out.

    Empty for a file of records, which has none.
    """
    if not (Path(run) / "manifest.json").exists():
        return {}
    return {key: value for key, value in read_manifest(run).items() if key not in ("task_ids", "status")}


def read_records(path: Path | str, model: type[M]) -> Iterator[M]:
    """Records of a run folder or of a JSONL file, validated. A torn last line is left out.

    Raises:
        DataError: If the file is missing.
        RecordError: If a line is not a record of this type; names file, line and field.
    """
    file = Path(path)
    file = file / "records.jsonl" if file.is_dir() else file
    for number, row in enumerate(read_json_lines(file), 1):
        try:
            yield model.model_validate(row)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"])
            raise RecordError(
                f"{file}, line {number}: {where}: {first['msg']}.", "Was it written by another version?"
            ) from error


def read_json_lines(file: Path) -> Iterator[dict[str, Any]]:
    """Objects of a JSONL file; a last line without a newline is a torn write and is left out."""
    try:
        handle = open(file, "rb")  # noqa: SIM115 - closed by the with below
    except FileNotFoundError as error:
        raise DataError(f"There is no file {file}.") from error
    except OSError as error:
        raise DataError(f"Cannot read {file}: {error.strerror}.") from error
    with handle:
        for number, line in enumerate(handle, 1):
            if not line.endswith(b"\n"):
                return
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except ValueError as error:
                raise RecordError(f"{file}, line {number} is not JSON: {error}.") from error
            if not isinstance(row, dict):
                raise RecordError(f"{file}, line {number} holds a {type(row).__name__}, not an object.")
            yield row


def digest(run: Path | str) -> str:
    """SHA-256 over a run's records (sorted by id), metrics, and the runs inside it; volatile fields dropped."""
    folder = Path(run)
    read_manifest(folder)
    hasher = hashlib.sha256()
    records = folder / "records.jsonl"
    rows = [_stable(row) for row in read_json_lines(records)] if records.exists() else []
    for row in sorted(rows, key=lambda row: str(row.get("id"))):
        hasher.update(_canonical(row))
    metrics = folder / "metrics.jsonl"
    if metrics.exists():
        for row in read_json_lines(metrics):
            hasher.update(_canonical(_stable(row)))
    for part in sorted(folder.iterdir()):
        if (part / "manifest.json").is_file():
            hasher.update(f"{part.name} {digest(part)}\n".encode())
    return hasher.hexdigest()


def records_digest(path: Path | str) -> str:
    """Twelve hex digits over the records of a run folder or JSONL file, whatever their order; volatile fields dropped.

    Raises:
        DataError: If there are none.
    """
    file = Path(path)
    rows = read_json_lines(file / "records.jsonl" if file.is_dir() else file)
    hasher = hashlib.sha256()
    for row in sorted(_canonical(_stable(row)) for row in rows):
        hasher.update(row)
    return hasher.hexdigest()[:12]


def package_versions() -> dict[str, str]:
    """Versions of what a result depends on, as installed."""
    names = (
        "opensearch-vl",
        "numpy",
        "pillow",
        "opencv-python-headless",
        "rapidocr",
        "tantivy",
        "torch",
        "transformers",
        "trl",
    )
    found = {"python": platform.python_version()}
    for name in names:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _stable(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _stable(item) for key, item in value.items() if key not in VOLATILE}
    if isinstance(value, list):
        return [_stable(item) for item in value]
    return value


def _canonical(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def _append_line(file: Path, row: dict[str, Any]) -> None:
    line = json.dumps(redact_tree(row), ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace") + b"\n"

    def write() -> None:
        fd = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            size = os.fstat(fd).st_size
            try:
                done = 0
                while done < len(line):  # one call in practice; a full disk may take part of the line
                    done += os.write(fd, line[done:])
            except OSError:
                os.ftruncate(fd, size)
                raise
        finally:
            os.close(fd)

    _guard_write(file, write)


def _keep_lines(file: Path, keep: Callable[[dict[str, Any]], bool]) -> list[dict[str, Any]]:
    """Drop the lines of a JSONL file for which `keep` is false; returns the others. The file is replaced as a whole."""
    if not file.exists():
        return []
    rows = list(read_json_lines(file))
    kept = [row for row in rows if keep(row)]
    if len(kept) < len(rows):
        lines = (json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n" for row in kept)
        _write_atomic(file, "".join(lines))
    return kept


def _write_atomic(file: Path, text: str) -> None:
    def write() -> None:
        scratch = file.with_name(f".{file.name}.{os.getpid()}")
        try:
            scratch.write_text(text, encoding="utf-8")
            scratch.replace(file)
        finally:
            scratch.unlink(missing_ok=True)

    _guard_write(file, write)


def _guard_write(where: Path, write: Any) -> None:
    try:
        write()
    except OSError as error:
        raise StorageFull(
            f"Cannot write to {where}: {error.strerror}.",
            "Free some space or choose another --out; nothing written so far is lost, continue with --resume.",
        ) from error


def _cut_torn_line(file: Path) -> None:
    """Drop what follows the last newline: the remains of a write that was cut off."""
    if not file.exists():
        return
    with open(file, "r+b") as handle:
        size = handle.seek(0, os.SEEK_END)
        position = size
        while position > 0:
            step = min(65536, position)
            handle.seek(position - step)
            block = handle.read(step)
            newline = block.rfind(b"\n")
            if newline >= 0:
                position = position - step + newline + 1
                break
            position -= step
        if position < size:
            handle.truncate(position)
