"""Local reverse image search: which page shows this picture? (the offline stand-in for a visual search service)

Two stages: visual words propose pictures (`vocabulary`), geometry confirms them (`geometry`); what geometry does not
confirm is not returned, so an empty answer means "no confident match". Pictures of one template that differ only in
lettering are confirmed together with close scores: an honest ambiguity that the agent has to resolve by reading.

On disk: ``index.json`` (the only file that says what counts; switched atomically), ``descriptors.u8`` and
``points.f32`` (append-only), ``pictures.db`` (what each picture is and which pages show it) and ``words-N/`` (the
inverted file of generation N, made anew by every append).
"""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import os
import shutil
import sqlite3
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opensearch_vl.backends import features, geometry, vocabulary
from opensearch_vl.backends.caching import Memo
from opensearch_vl.backends.corpus import Progress, WikiPages, building, read_manifest, write_manifest
from opensearch_vl.backends.features import DESCRIPTOR_SIZE, Features
from opensearch_vl.errors import BadInput, DataError, ImageError, StorageFull
from opensearch_vl.images import decode
from opensearch_vl.protocols import VisualMatch
from opensearch_vl.runs import read_json_lines

NUM_CANDIDATES = 24
"""Pictures whose geometry is checked; above this many look-alikes some go unseen."""
SNIPPET_CHARS = 600
CACHED_QUERIES = 256
PATIENCE = 8
"""Candidates in a row that geometry does not confirm, after one that it did, before the rest are left unchecked."""
MIN_SHARE = 0.06
"""Share of the query's features inside the stored picture's frame that must be confirmed. Right pictures reach 0.09
under every listed distortion, chance fits between regular facades 0.03 (docs/log.md)."""
MIN_COVERAGE = 0.1
"""Share of the query's area that the confirmed features must span: a shared word of lettering is no match."""
STRONG_SHARE, MIN_STRONG_COVERAGE = 0.15, 0.01
"""Where so much is confirmed, the picture may be small in the query: a poster on a wall."""
MIN_OF_BEST = 0.4
"""Matches with fewer confirmed features than this share of the best one's are dropped: pictures of one template keep
more than 0.6, pictures that share a sign-board reach 0.3."""
HALF_SCORE_INLIERS = 10.0
"""Confirmed features that give a score of one half."""
RETRAIN_GROWTH = 4
"""The vocabulary is trained anew once the collection has this many times the features it was trained on."""
_KIND = "image"
_BATCH = 64
_SCHEMA = """
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
class _Opened:
    postings: vocabulary.Postings
    descriptors: NDArray[np.uint8]
    points: NDArray[np.float32]
    sizes: NDArray[np.int32]  # [P, 2] width, height at working size
    starts: NDArray[np.int64]  # [P + 1] first feature of each picture


class LocalImageIndex:
    """Reverse image search over a folder made by `build` or `build_from_pictures`.

    Opens the folder on the first search; searches run in a thread and may overlap.

    Args:
        path: The index.
        exclude: Pages that must not be found: page ids or addresses.

    Raises:
        DataError: `path` is not an image index.
    """

    name = "local_image_index"

    def __init__(self, path: Path | str, *, exclude: Iterable[int | str] = ()) -> None:
        self.path = Path(path)
        read_manifest(self.path, _KIND)
        self._hidden = frozenset(exclude)
        self._opened: _Opened | None = None
        self._lock = threading.Lock()
        self._memo: Memo[list[VisualMatch]] = Memo(CACHED_QUERIES)

    # ------------------------------------------------------------------------------------- building

    @classmethod
    def build(
        cls, wiki: WikiPages, out: Path | str, *, seed: int = 0, progress: Progress | None = None
    ) -> LocalImageIndex:
        """Index the pictures of every page of `wiki` into the folder `out`, atomically."""
        return cls.build_from_pictures(_wiki_pictures(wiki, progress), out, seed=seed)

    @classmethod
    def build_from_pictures(
        cls, pictures: Iterable[tuple[bytes, Showing]], out: Path | str, *, seed: int = 0
    ) -> LocalImageIndex:
        """Index any encoded pictures with what each is shown as (see `picture_folder` for a folder of files).

        Raises:
            DataError: `out` holds something else than an older image index; or a picture cannot be decoded.
            StorageFull: The disk is full.
        """
        with building(Path(out), _KIND) as scratch, _guarded(Path(out)):
            with closing(sqlite3.connect(scratch / "pictures.db")) as db:
                db.executescript(_SCHEMA)
            for name in ("descriptors.u8", "points.f32"):
                (scratch / name).touch()
            facts = {"pictures": 0, "features": 0, "generation": 0, "trained_on": 0, "words": 0, "seed": seed}
            write_manifest(scratch, _KIND, facts)
            _append(scratch, pictures)
        return cls(out)

    def append(self, pictures: Iterable[tuple[bytes, Showing]]) -> int:
        """Add pictures; returns how many were new. A crash leaves the index as it was.

        Raises:
            DataError: A picture cannot be decoded.
            StorageFull: The disk is full.
        """
        with _locked(self.path), _guarded(self.path):
            added = _append(self.path, pictures)
        with self._lock:
            self._opened = None
            self._memo.clear()
        return added

    # ------------------------------------------------------------------------------------- searching

    def __len__(self) -> int:
        return int(read_manifest(self.path, _KIND)["pictures"])

    async def search(self, image: bytes, top_k: int) -> list[VisualMatch]:
        """Pages showing this very picture, best first; empty means no confident match.

        Raises:
            BadInput: `image` cannot be decoded.
        """
        return await asyncio.to_thread(self.search_now, image, top_k)

    def search_now(self, image: bytes, top_k: int) -> list[VisualMatch]:
        """`search` for callers without an event loop."""
        key = hashlib.sha256(image).hexdigest()
        return self._memo.get(key, lambda: self._search(image))[: max(0, top_k)]

    def _search(self, image: bytes) -> list[VisualMatch]:
        try:
            query = features.extract(decode(image))
        except ImageError as error:
            raise BadInput(error.message) from error
        opened = self._open()
        vectors = features.unit(query.descriptors)
        fits: list[tuple[geometry.Fit, int]] = []
        misses = 0
        for number in map(int, opened.postings.vote(query.descriptors, NUM_CANDIDATES)):
            stored = _features_of(opened, number)
            rows, columns = geometry.tentative(vectors @ features.unit(stored.descriptors).T)
            fit = geometry.fit(query, stored, rows, columns)
            if fit is not None and confident(fit):
                fits.append((fit, number))
                misses = 0
            else:
                misses += 1
                if fits and misses >= PATIENCE:
                    break
        most = max((fit.inliers for fit, _ in fits), default=0)
        found = [(score(fit), number) for fit, number in fits if fit.inliers >= MIN_OF_BEST * most]
        found.sort(key=lambda item: (-item[0], item[1]))
        return list(self._matches(found))

    def _matches(self, found: list[tuple[float, int]]) -> Iterator[VisualMatch]:
        seen: set[str] = set()
        with closing(sqlite3.connect(f"file:{self.path / 'pictures.db'}?mode=ro", uri=True)) as db:
            for score, number in found:
                rows = db.execute(
                    "SELECT page_id, title, url, source, snippet FROM shown WHERE picture_id = ? ORDER BY rowid",
                    (number,),
                )
                for page_id, title, url, source, snippet in rows:
                    page = url or source
                    if page in seen or page_id in self._hidden or url in self._hidden:
                        continue
                    seen.add(page)
                    yield VisualMatch(title, url, source, snippet, round(score, 4), exact=True)

    def _open(self) -> _Opened:
        with self._lock:
            if self._opened is None:
                self._opened = _open(self.path)
            return self._opened


def confident(fit: geometry.Fit) -> bool:
    """Whether a geometric fit is a match: enough of what should be confirmed is, over enough of the query."""
    share = fit.inliers / max(1, fit.expected)
    if fit.inliers < geometry.MIN_INLIERS or share < MIN_SHARE:
        return False
    return fit.coverage >= (MIN_COVERAGE if share < STRONG_SHARE else MIN_STRONG_COVERAGE)


def score(fit: geometry.Fit) -> float:
    """Score in [0, 1) of a match: grows with the confirmed features and saturates, so that equals lie close."""
    return fit.inliers / (fit.inliers + HALF_SCORE_INLIERS)


def picture_folder(folder: Path | str) -> Iterator[tuple[bytes, Showing]]:
    """Pictures of a plain folder for `build_from_pictures`, in order of their names.

    ``metadata.jsonl`` in the folder may say more about a file: ``{"file", "title", "url", "source", "snippet"}``. A
    picture without a line there is titled by its file name.

    Raises:
        DataError: No such folder, no pictures, or a bad line in the metadata.
    """
    root = Path(folder)
    if not root.is_dir():
        raise DataError(f"There is no folder {root}.")
    about: dict[str, dict[str, Any]] = {}
    if (root / "metadata.jsonl").exists():
        for line, row in enumerate(read_json_lines(root / "metadata.jsonl"), 1):
            if not isinstance(row.get("file"), str):
                raise DataError(f'{root / "metadata.jsonl"}, line {line} needs a "file".')
            about[row["file"]] = row
    files = sorted(path for path in root.rglob("*") if path.suffix.lower() in _SUFFIXES and path.is_file())
    if not files:
        raise DataError(f"{root} holds no pictures ({', '.join(sorted(_SUFFIXES))}).")
    for path in files:
        name = path.relative_to(root).as_posix()
        row = about.get(name, {})
        try:
            data = path.read_bytes()
        except OSError as error:
            raise DataError(f"Cannot read the picture {path}: {error.strerror}.") from error
        yield (
            data,
            Showing(
                title=str(row.get("title", path.stem)),
                url=str(row.get("url", "")),
                source=str(row.get("source", name)),
                snippet=str(row.get("snippet", ""))[:SNIPPET_CHARS],
            ),
        )


_SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".webp", ".gif", ".bmp", ".tif", ".tiff"})


def _wiki_pictures(wiki: WikiPages, progress: Progress | None) -> Iterator[tuple[bytes, Showing]]:
    for done, page in enumerate(wiki.pages(), 1):
        pictures = wiki.page_images(page.page_id)
        if pictures:
            url = wiki.url(page.page_id)
            snippet = wiki.document(page.page_id)[:SNIPPET_CHARS]
            for picture in pictures:
                yield (
                    wiki.images.read(picture.ref),
                    Showing(page.title, url, picture.file, snippet, page.page_id),
                )
        if progress is not None and (done % 64 == 0 or done == len(wiki)):
            progress(done, len(wiki))


# --------------------------------------------------------------------------------------- the folder


def _open(path: Path) -> _Opened:
    facts = read_manifest(path, _KIND)
    try:
        postings = vocabulary.Postings.load(path / f"words-{facts['generation']}", facts["seed"])
        count = int(facts["features"])
        with closing(sqlite3.connect(f"file:{path / 'pictures.db'}?mode=ro", uri=True)) as db:
            rows = db.execute(
                "SELECT width_px, height_px FROM pictures WHERE id < ? ORDER BY id", (facts["pictures"],)
            ).fetchall()
        return _Opened(
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


def _features_of(opened: _Opened, number: int) -> Features:
    block = slice(int(opened.starts[number]), int(opened.starts[number + 1]))
    width, height = opened.sizes[number]
    return Features(np.asarray(opened.points[block]), np.asarray(opened.descriptors[block]), int(width), int(height))


def _append(path: Path, pictures: Iterable[tuple[bytes, Showing]]) -> int:
    """Append pictures and switch the manifest to them; everything past the old manifest's counts is dropped first."""
    facts = read_manifest(path, _KIND)
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
            number = _known(db, sha256)
            if number is None:
                number, total = total, total + 1
                db.execute(
                    "INSERT INTO pictures VALUES (?, ?, ?, ?, ?)",
                    (number, sha256, found.width_px, found.height_px, len(found)),
                )
                found.descriptors.tofile(descriptors)
                found.points.tofile(points)
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
    write_manifest(path, _KIND, {**facts, "pictures": pictures, "features": count, "generation": old + 1})
    for folder in path.glob("words-*"):  # a reader may just be opening the last generation: keep it
        if folder.name not in (f"words-{old}", f"words-{old + 1}"):
            shutil.rmtree(folder, ignore_errors=True)


def _known(db: sqlite3.Connection, sha256: str) -> int | None:
    row = db.execute("SELECT id FROM pictures WHERE sha256 = ?", (sha256,)).fetchone()
    return None if row is None else int(row[0])


def _extracted(
    pictures: Iterable[tuple[bytes, Showing]], db: sqlite3.Connection
) -> Iterator[tuple[str, list[Showing], Features]]:
    """Features of pictures, in order, a batch at a time over the cores; known pictures are not decoded again."""
    empty = Features(np.zeros((0, 4), np.float32), np.zeros((0, DESCRIPTOR_SIZE), np.uint8), 0, 0)
    with ThreadPoolExecutor(max_workers=min(8, os.cpu_count() or 1)) as pool:
        for batch in _batched(pictures):
            grouped: dict[str, tuple[bytes, list[Showing]]] = {}
            for data, showing in batch:
                grouped.setdefault(hashlib.sha256(data).hexdigest(), (data, []))[1].append(showing)
            fresh = [sha256 for sha256 in grouped if _known(db, sha256) is None]
            results = dict(zip(fresh, pool.map(_read, [grouped[key] for key in fresh]), strict=True))
            for sha256, (_, showings) in grouped.items():
                yield sha256, showings, results.get(sha256, empty)


def _read(item: tuple[bytes, list[Showing]]) -> Features:
    data, showings = item
    try:
        return features.extract(decode(data))
    except ImageError as error:
        raise ImageError(f"{showings[0].source}: {error.message}", error.fix) from error


def _batched(items: Iterable[tuple[bytes, Showing]]) -> Iterator[list[tuple[bytes, Showing]]]:
    batch: list[tuple[bytes, Showing]] = []
    for item in items:
        batch.append(item)
        if len(batch) == _BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """One writer at a time."""
    with open(path / ".lock", "a") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise DataError(f"Another process is adding to {path}.", "Wait for it to finish.") from error
        yield


@contextmanager
def _guarded(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, sqlite3.OperationalError) as error:
        raise StorageFull(f"Could not write the image index {path}: {error}.", "Free some space.") from error
