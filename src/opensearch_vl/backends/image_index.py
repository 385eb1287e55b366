"""Local reverse image search: which page shows this picture? (the offline stand-in for a visual search service)

Two stages: visual words propose pictures (`vocabulary`), geometry confirms them (`geometry`); what geometry does not
confirm is not returned, so an empty answer means "no confident match". Pictures of one template that differ only in
lettering are confirmed together with close scores: an honest ambiguity that the agent has to resolve by reading.
"""

from __future__ import annotations

import asyncio
import hashlib
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from opensearch_vl.backends import features, geometry
from opensearch_vl.backends.caching import Memo
from opensearch_vl.backends.corpus import Progress, WikiPages, building, read_manifest
from opensearch_vl.backends.image_folder import (
    KIND,
    Opened,
    Showing,
    append,
    create,
    features_of,
    guarded,
    locked,
    open_index,
    showings,
)
from opensearch_vl.errors import BadInput, DataError, ImageError
from opensearch_vl.images import decode
from opensearch_vl.protocols import VisualMatch
from opensearch_vl.runs import read_json_lines

__all__ = ["LocalImageIndex", "Showing", "confident", "picture_folder", "score", "wiki_pictures"]

NUM_CANDIDATES = 24
"""Pictures whose geometry is checked; above this many look-alikes some go unseen."""
SNIPPET_CHARS = 600
CACHED_QUERIES = 4096
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
        read_manifest(self.path, KIND)
        self._hidden = frozenset(exclude)
        self._opened: Opened | None = None
        self._lock = threading.Lock()
        self._memo: Memo[list[VisualMatch]] = Memo(CACHED_QUERIES)

    # ------------------------------------------------------------------------------------- building

    @classmethod
    def build(
        cls, wiki: WikiPages, out: Path | str, *, seed: int = 0, progress: Progress | None = None
    ) -> LocalImageIndex:
        """Index the pictures of every page of `wiki` into the folder `out`, atomically."""
        return cls.build_from_pictures(wiki_pictures(wiki, progress), out, seed=seed)

    @classmethod
    def build_from_pictures(
        cls, pictures: Iterable[tuple[bytes, Showing]], out: Path | str, *, seed: int = 0
    ) -> LocalImageIndex:
        """Index any encoded pictures with what each is shown as (see `picture_folder` for a folder of files).

        Raises:
            DataError: `out` holds something else than an older image index; or a picture cannot be decoded.
            StorageFull: The disk is full.
        """
        with building(Path(out), KIND) as scratch, guarded(Path(out)):
            create(scratch, seed)
            append(scratch, pictures)
        return cls(out)

    def append(self, pictures: Iterable[tuple[bytes, Showing]]) -> int:
        """Add pictures; returns how many were new. A crash leaves the index as it was.

        Raises:
            DataError: A picture cannot be decoded.
            StorageFull: The disk is full.
        """
        with locked(self.path), guarded(self.path):
            added = append(self.path, pictures)
        with self._lock:
            self._opened = None
            self._memo.clear()
        return added

    # ------------------------------------------------------------------------------------- searching

    def __len__(self) -> int:
        return int(read_manifest(self.path, KIND)["pictures"])

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
            stored = features_of(opened, number)
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
        for points, number in found:
            for shown in showings(self.path, number):
                page = shown.url or shown.source
                if page in seen or shown.page_id in self._hidden or shown.url in self._hidden:
                    continue
                seen.add(page)
                yield VisualMatch(shown.title, shown.url, shown.source, shown.snippet, round(points, 4), exact=True)

    def _open(self) -> Opened:
        with self._lock:
            if self._opened is None:
                self._opened = open_index(self.path)
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


def wiki_pictures(wiki: WikiPages, progress: Progress | None) -> Iterator[tuple[bytes, Showing]]:
    """Every picture of a wiki's pages, as an index takes it."""
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
