"""The folder of an image index: what lies where, how it grows, and how it is opened.

``index.json`` (the only file that says what counts; switched atomically), ``descriptors.u8`` and ``points.f32``
(append-only), ``pictures.db`` (what each picture is and which pages show it) and ``words-N/`` (the inverted file of
generation N, made anew by every append). A crash leaves the old manifest, and what lies beyond its counts is dropped by
the next append.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import sqlite3
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opensearch_vl.backends import features, vocabulary
from opensearch_vl.backends.corpus import read_manifest, write_failure, write_manifest
from opensearch_vl.backends.features import DESCRIPTOR_SIZE, Features
from opensearch_vl.errors import DataError, ImageError, StorageFull
from opensearch_vl.images import decode

KIND = "image"
RETRAIN_GROWTH = 4
"""The vocabulary is trained anew once the collection has this many times the features it was trained on."""
_BATCH = 64
SCHEMA = """
CREATE TABLE pictures (id INTEGER PRIMARY KEY, sha256 TEXT UNIQUE,
                       width_px INTEGER, height_px INTEGER, features INTEGER);
CREATE TABLE shown (picture_id INTEGER, page_id INTEGER, title TEXT, url TEXT, source TEXT, snippet TEXT,
                    UNIQUE (picture_id, url, source));
"""


@dataclass(frozen=True, slots=True)
class Showing:
    """A page that shows a picture. `page_id` is -1 for pictures that belong to no encyclopedia."""

    title: str
    url: str
    source: str
    snippet: str = ""
    page_id: int = -1


@dataclass(frozen=True, slots=True)
class Opened:
    """An index open for searching."""

    postings: vocabulary.Postings
    descriptors: NDArray[np.uint8]
    points: NDArray[np.float32]
    sizes: NDArray[np.int32]  # [P, 2] width, height at working size
    starts: NDArray[np.int64]  # [P + 1] first feature of each picture


def create(folder: Path, seed: int) -> None:
    """Write an empty index into an empty folder."""
    with closing(sqlite3.connect(folder / "pictures.db")) as db:
        db.executescript(SCHEMA)
    for name in ("descriptors.u8", "points.f32"):
        (folder / name).touch()
    facts = {"pictures": 0, "features": 0, "generation": 0, "trained_on": 0, "words": 0, "seed": seed}
    write_manifest(folder, KIND, facts)


def showings(folder: Path, number: int) -> list[Showing]:
    """The pages that show a picture, in the order they were added."""
    with closing(sqlite3.connect(f"file:{folder / 'pictures.db'}?mode=ro", uri=True)) as db:
        rows = db.execute(
            "SELECT title, url, source, snippet, page_id FROM shown WHERE picture_id = ? ORDER BY rowid", (number,)
        )
        return [Showing(*row) for row in rows]


def open_index(path: Path) -> Opened:
    """Open an index for searching; the large arrays stay on disk.

    Raises:
        DataError: It is damaged.
    """
    facts = read_manifest(path, KIND)
    try:
        postings = vocabulary.Postings.load(path / f"words-{facts['generation']}", facts["seed"])
        count = int(facts["features"])
        with closing(sqlite3.connect(f"file:{path / 'pictures.db'}?mode=ro", uri=True)) as db:
            rows = db.execute(
                "SELECT width_px, height_px FROM pictures WHERE id < ? ORDER BY id", (facts["pictures"],)
            ).fetchall()
        return Opened(
            postings=postings,
            descriptors=_mapped(path / "descriptors.u8", np.uint8, (count, DESCRIPTOR_SIZE)),
            points=_mapped(path / "points.f32", np.float32, (count, 4)),
            sizes=np.array(rows, np.int32).reshape(-1, 2),
            starts=np.concatenate([[0], np.cumsum(postings.num_features, dtype=np.int64)]),
        )
    except (OSError, ValueError, KeyError, sqlite3.Error) as error:
        raise DataError(f"The image index {path} is damaged: {error}.", "Build it again.") from error


def _mapped(file: Path, kind: type[Any], shape: tuple[int, int]) -> NDArray[Any]:
    if shape[0] == 0:
        return np.zeros(shape, kind)
    return np.memmap(file, dtype=kind, mode="r", shape=shape)


def features_of(opened: Opened, number: int) -> Features:
    """The features of one stored picture."""
    block = slice(int(opened.starts[number]), int(opened.starts[number + 1]))
    width, height = opened.sizes[number]
    return Features(np.asarray(opened.points[block]), np.asarray(opened.descriptors[block]), int(width), int(height))


def append(path: Path, pictures: Iterable[tuple[bytes, Showing]]) -> int:
    """Append pictures and switch the manifest to them; everything past the old manifest's counts is dropped first."""
    facts = read_manifest(path, KIND)
    before, num_features = int(facts["pictures"]), int(facts["features"])
    os.truncate(path / "descriptors.u8", num_features * DESCRIPTOR_SIZE)
    os.truncate(path / "points.f32", num_features * 16)
    with (
        closing(sqlite3.connect(path / "pictures.db")) as db,
        open(path / "descriptors.u8", "ab") as descriptors,
        open(path / "points.f32", "ab") as points,
    ):
        db.execute("DELETE FROM pictures WHERE id >= ?", (before,))
        db.execute("DELETE FROM shown WHERE picture_id >= ?", (before,))
        total = before
        for sha256, showings, found in _extracted(pictures, db):
            number = number_of(db, sha256)
            if number is None:
                number, total = total, total + 1
                db.execute(
                    "INSERT INTO pictures VALUES (?, ?, ?, ?, ?)",
                    (number, sha256, found.width_px, found.height_px, len(found)),
                )
                descriptors.write(
                    found.descriptors.tobytes()
                )  # not tofile: its errors do not say that the disk is full
                points.write(found.points.tobytes())
                num_features += len(found)
            db.executemany(
                "INSERT OR IGNORE INTO shown VALUES (?, ?, ?, ?, ?, ?)",
                [(number, s.page_id, s.title, s.url, s.source, s.snippet) for s in showings],
            )
        counts = np.array([row[0] for row in db.execute("SELECT features FROM pictures ORDER BY id")], np.int32)
        for handle in (descriptors, points):
            handle.flush()
            os.fsync(handle.fileno())
        db.commit()
    _index_words(path, facts, total, num_features, counts)
    return total - before


def _index_words(path: Path, facts: dict[str, Any], pictures: int, count: int, counts: NDArray[np.int32]) -> None:
    seed, old = int(facts["seed"]), int(facts["generation"])
    descriptors = _mapped(path / "descriptors.u8", np.uint8, (count, DESCRIPTOR_SIZE))
    if facts["words"] == 0 or count > RETRAIN_GROWTH * facts["trained_on"]:
        centres = vocabulary.train(descriptors, vocabulary.num_words(count), seed)
        facts = {**facts, "trained_on": count, "words": len(centres)}
    else:
        centres = vocabulary.Postings.load(path / f"words-{old}", seed).centres
    fresh = path / f"words-{old + 1}"
    shutil.rmtree(fresh, ignore_errors=True)  # left by an append that was cut off
    vocabulary.Postings.make(centres, descriptors, counts, seed).save(fresh)
    write_manifest(path, KIND, {**facts, "pictures": pictures, "features": count, "generation": old + 1})
    for folder in path.glob("words-*"):  # a reader may just be opening the last generation: keep it
        if folder.name not in (f"words-{old}", f"words-{old + 1}"):
            shutil.rmtree(folder, ignore_errors=True)


def number_of(db: sqlite3.Connection, sha256: str) -> int | None:
    """The number of a stored picture; None for one that is not stored."""
    row = db.execute("SELECT id FROM pictures WHERE sha256 = ?", (sha256,)).fetchone()
    return None if row is None else int(row[0])


def _extracted(
    pictures: Iterable[tuple[bytes, Showing]], db: sqlite3.Connection
) -> Iterator[tuple[str, list[Showing], Features]]:
    """Features of pictures, in order, a batch at a time over the cores; known pictures are not decoded again."""
    empty = Features(np.zeros((0, 4), np.float32), np.zeros((0, DESCRIPTOR_SIZE), np.uint8), 0, 0)
    with ThreadPoolExecutor(max_workers=min(8, os.cpu_count() or 1)) as pool:
        for batch in batched(pictures):
            grouped: dict[str, tuple[bytes, list[Showing]]] = {}
            for data, showing in batch:
                grouped.setdefault(hashlib.sha256(data).hexdigest(), (data, []))[1].append(showing)
            fresh = [sha256 for sha256 in grouped if number_of(db, sha256) is None]
            results = dict(zip(fresh, pool.map(_read, [grouped[key] for key in fresh]), strict=True))
            for sha256, (_, showings) in grouped.items():
                yield sha256, showings, results.get(sha256, empty)


def _read(item: tuple[bytes, list[Showing]]) -> Features:
    data, showings = item
    try:
        return features.extract(decode(data))
    except ImageError as error:
        raise ImageError(f"{showings[0].source}: {error.message}", error.fix) from error


def batched(items: Iterable[tuple[bytes, Showing]]) -> Iterator[list[tuple[bytes, Showing]]]:
    """Pictures in lists of at most `_BATCH`."""
    batch: list[tuple[bytes, Showing]] = []
    for item in items:
        batch.append(item)
        if len(batch) == _BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """One writer at a time."""
    with open(path / ".lock", "a") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise DataError(f"Another process is adding to {path}.", "Wait for it to finish.") from error
        yield


@contextmanager
def guarded(path: Path) -> Iterator[None]:
    """Turn errors of the file system into ours."""
    try:
        yield
    except OSError as error:
        raise write_failure(path, error) from error
    except sqlite3.OperationalError as error:  # a write that sqlite could not finish
        raise StorageFull(f"Could not write the image index {path}: {error}.", "Free some space.") from error
