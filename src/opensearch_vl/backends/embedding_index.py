"""Reverse image search by look: embeddings of a CLIP-class model instead of local features.

An alternative to `image_index` for collections whose pictures show the same things in other pictures. It cannot confirm
that two pictures are the same, so no match is `exact`; and since what counts as similar differs from model to model and
from collection to collection, the threshold is taken from the collection itself: a match must be more similar to the
query than nearly all of the stored pictures are to their nearest other one. Below that, nothing is returned.

``index.json`` says what counts, ``vectors.f32`` is append-only, ``pictures.db`` says which pages show a picture. The
search is exact; where `usearch` is installed, a graph proposes the candidates of collections over `GRAPH_FROM`.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import sqlite3
import threading
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from opensearch_vl.backends.caching import Memo
from opensearch_vl.backends.corpus import WikiPages, building, read_manifest, write_manifest
from opensearch_vl.backends.image_folder import SCHEMA, Showing, batched, guarded, locked, number_of, showings
from opensearch_vl.errors import BadInput, DataError, ImageError
from opensearch_vl.protocols import VisualMatch

KIND = "image_embedding"
NUM_CANDIDATES = 24
CACHED_QUERIES = 4096
GRAPH_FROM = 200_000
"""Pictures from which a graph pays: below, comparing with all takes under a tenth of a second."""
CALIBRATED_ON = 2_000
QUANTILE = 0.95
"""Share of the stored pictures whose nearest other one a match has to beat. Ours; there is no value in the paper."""
UNCALIBRATED = 0.9
"""Threshold of a collection with fewer than two pages, which says nothing about itself."""

_ROUNDING = 1e-6


class Embedder(Protocol):
    """An `ImageEmbedder` that can be told from others."""

    name: str
    fingerprint: str
    checkpoint: Path

    def embed_images(self, images: list[bytes]) -> NDArray[np.float32]:
        """``[N, D]`` unit vectors."""
        ...


@dataclass(frozen=True, slots=True)
class _Opened:
    vectors: NDArray[np.float32]  # [P, D]
    threshold: float
    graph: Any  # a usearch index, or None


class EmbeddingImageIndex:
    """Reverse image search over a folder made by `build` or `build_from_pictures`.

    Args:
        path: The index.
        embedder: The model it was built with.
        exclude: Pages that must not be found: page ids or addresses.
        min_similarity: Cosine below which nothing is a match; None takes the collection's own threshold.

    Raises:
        DataError: `path` is not such an index, or was built with another model.
    """

    name = "embedding_image_index"

    def __init__(
        self,
        path: Path | str,
        embedder: Embedder,
        *,
        exclude: Iterable[int | str] = (),
        min_similarity: float | None = None,
    ) -> None:
        self.path = Path(path)
        facts = read_manifest(self.path, KIND)
        if facts.get("embedder") != embedder.fingerprint:
            raise DataError(
                f"{self.path} was built with another model than {embedder.name}.", "Build it again, or use that model."
            )
        self.embedder = embedder
        self.min_similarity = min_similarity
        self._hidden = frozenset(exclude)
        self._opened: _Opened | None = None
        self._lock = threading.Lock()
        self._memo: Memo[list[VisualMatch]] = Memo(CACHED_QUERIES)

    # ------------------------------------------------------------------------------------- building

    @classmethod
    def build(cls, wiki: WikiPages, out: Path | str, embedder: Embedder) -> EmbeddingImageIndex:
        """Index the pictures of every page of `wiki` into the folder `out`, atomically."""
        from opensearch_vl.backends.image_index import wiki_pictures

        return cls.build_from_pictures(wiki_pictures(wiki, None), out, embedder)

    @classmethod
    def build_from_pictures(
        cls, pictures: Iterable[tuple[bytes, Showing]], out: Path | str, embedder: Embedder
    ) -> EmbeddingImageIndex:
        """Index any encoded pictures with what each is shown as.

        Raises:
            DataError: `out` holds something else than an older index of this kind; or a picture cannot be decoded.
            StorageFull: The disk is full.
        """
        with building(Path(out), KIND) as scratch, guarded(Path(out)):
            with closing(sqlite3.connect(scratch / "pictures.db")) as db:
                db.executescript(SCHEMA)
            (scratch / "vectors.f32").touch()
            facts = {"embedder": embedder.fingerprint, "checkpoint": str(embedder.checkpoint.resolve())}
            write_manifest(scratch, KIND, {**facts, "pictures": 0, "dimensions": 0, "threshold": None, "graph": ""})
            _append(scratch, pictures, embedder)
        return cls(out, embedder)

    def append(self, pictures: Iterable[tuple[bytes, Showing]]) -> int:
        """Add pictures; returns how many were new. A crash leaves the index as it was.

        Raises:
            DataError: A picture cannot be decoded.
            StorageFull: The disk is full.
        """
        with locked(self.path), guarded(self.path):
            added = _append(self.path, pictures, self.embedder)
        with self._lock:
            self._opened = None
            self._memo.clear()
        return added

    # ------------------------------------------------------------------------------------- searching

    def __len__(self) -> int:
        return int(read_manifest(self.path, KIND)["pictures"])

    @property
    def threshold(self) -> float:
        """Cosine that a match must reach."""
        return self._open().threshold if self.min_similarity is None else self.min_similarity

    async def search(self, image: bytes, top_k: int) -> list[VisualMatch]:
        """Pages whose picture looks like this one, best first; empty means no confident match.

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
            query = self.embedder.embed_images([image])[0]
        except ImageError as error:
            raise BadInput(error.message) from error
        opened = self._open()
        if not len(opened.vectors):
            return []
        rows = _candidates(opened, query)
        cosines = np.asarray(opened.vectors[rows]) @ query
        found: dict[str, VisualMatch] = {}
        for at in np.argsort(-cosines, kind="stable"):
            cosine = float(cosines[at])
            if cosine < self.threshold - _ROUNDING:
                break
            for shown in showings(self.path, int(rows[at])):
                page = shown.url or shown.source
                if page not in found and shown.page_id not in self._hidden and shown.url not in self._hidden:
                    score = round(min(1.0, max(0.0, cosine)), 4)
                    found[page] = VisualMatch(shown.title, shown.url, shown.source, shown.snippet, score, exact=False)
        return list(found.values())

    def _open(self) -> _Opened:
        with self._lock:
            if self._opened is None:
                self._opened = _open(self.path)
            return self._opened


def _candidates(opened: _Opened, query: NDArray[np.float32]) -> NDArray[np.int64]:
    if opened.graph is not None:
        return np.sort(np.asarray(opened.graph.search(query, NUM_CANDIDATES).keys, dtype=np.int64))
    cosines = opened.vectors @ query
    most = min(NUM_CANDIDATES, len(cosines))
    return np.sort(np.argpartition(-cosines, most - 1)[:most])


def _open(path: Path) -> _Opened:
    facts = read_manifest(path, KIND)
    try:
        vectors = _vectors(path, int(facts["pictures"]), int(facts["dimensions"]))
        threshold = UNCALIBRATED if facts["threshold"] is None else float(facts["threshold"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"The image index {path} is damaged: {error}.", "Build it again.") from error
    usearch = _usearch()
    graph = usearch.Index.restore(path / facts["graph"], view=True) if facts.get("graph") and usearch else None
    return _Opened(vectors, threshold, graph)


def _vectors(path: Path, pictures: int, dimensions: int) -> NDArray[np.float32]:
    if pictures == 0:
        return np.zeros((0, dimensions), np.float32)
    return np.memmap(path / "vectors.f32", dtype=np.float32, mode="r", shape=(pictures, dimensions))


def _append(path: Path, pictures: Iterable[tuple[bytes, Showing]], embedder: Embedder) -> int:
    """Append pictures and switch the manifest to them; everything past the old manifest's counts is dropped first."""
    facts = read_manifest(path, KIND)
    before, dimensions = int(facts["pictures"]), int(facts["dimensions"])
    os.truncate(path / "vectors.f32", before * dimensions * 4)
    with closing(sqlite3.connect(path / "pictures.db")) as db, open(path / "vectors.f32", "ab") as handle:
        db.execute("DELETE FROM pictures WHERE id >= ?", (before,))
        db.execute("DELETE FROM shown WHERE picture_id >= ?", (before,))
        total = before
        for batch in batched(pictures):
            fresh = {}
            for data, _ in batch:
                sha256 = hashlib.sha256(data).hexdigest()
                if number_of(db, sha256) is None:
                    fresh[sha256] = data
            if fresh:
                rows = _embedded(embedder, fresh, batch)
                dimensions = dimensions or rows.shape[1]
                handle.write(np.ascontiguousarray(rows, dtype=np.float32).tobytes())
                db.executemany(
                    "INSERT INTO pictures VALUES (?, ?, 0, 0, 0)", [(total + n, key) for n, key in enumerate(fresh)]
                )
                total += len(fresh)
            for data, shown in batch:
                number = number_of(db, hashlib.sha256(data).hexdigest())
                row = (number, shown.page_id, shown.title, shown.url, shown.source, shown.snippet)
                db.execute("INSERT OR IGNORE INTO shown VALUES (?, ?, ?, ?, ?, ?)", row)
        handle.flush()
        os.fsync(handle.fileno())
        db.commit()
        pages = dict(db.execute("SELECT picture_id, MIN(url || source) FROM shown GROUP BY picture_id").fetchall())
    vectors = _vectors(path, total, dimensions)
    changed = {"pictures": total, "dimensions": dimensions, "threshold": _calibrate(vectors, pages)}
    write_manifest(path, KIND, {**facts, **changed, "graph": _write_graph(path, vectors)})
    return total - before


def _embedded(embedder: Embedder, fresh: dict[str, bytes], batch: list[tuple[bytes, Showing]]) -> NDArray[np.float32]:
    try:
        return embedder.embed_images(list(fresh.values()))
    except ImageError as error:
        names = ", ".join(shown.source for _, shown in batch[:3])
        raise ImageError(f"One of the pictures {names}, … : {error.message}", error.fix) from error


def _calibrate(vectors: NDArray[np.float32], pages: dict[int, str]) -> float | None:
    """How similar a stored picture's nearest one of another page is, at `QUANTILE`; None if there is no other page."""
    rows = np.unique(np.linspace(0, len(vectors) - 1, min(len(vectors), CALIBRATED_ON)).astype(np.int64))
    _, page = np.unique([pages.get(int(row), str(row)) for row in rows], return_inverse=True)
    if len(set(page.tolist())) < 2:
        return None
    some = np.asarray(vectors[rows])
    cosines = some @ some.T
    cosines[page[:, None] == page[None, :]] = -1.0
    return float(np.quantile(cosines.max(axis=1), QUANTILE))


def _write_graph(path: Path, vectors: NDArray[np.float32]) -> str:
    """The file name of the graph; empty where none is needed or `usearch` is not installed."""
    usearch = _usearch()
    if usearch is None or len(vectors) < GRAPH_FROM:
        return ""
    name = f"graph-{len(vectors)}.usearch"
    graph = usearch.Index(ndim=vectors.shape[1], metric="cos", dtype="f32")
    graph.add(np.arange(len(vectors)), np.asarray(vectors))
    graph.save(path / name)
    return name


def _usearch() -> Any:
    try:
        from usearch import index
    except ImportError:
        return None
    return index
