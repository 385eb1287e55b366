"""The page graph: redirects followed to pages, and out-links as a CSR matrix (paper, section 3.1)."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

MAX_REDIRECTS = 16
"""Redirects followed in a row; MediaWiki follows one, bots mend longer chains."""


def follow_redirects(pages: Mapping[str, int], redirects: Mapping[str, str]) -> tuple[dict[str, int], Counter[str]]:
    """The page each redirect ends at, and why others were dropped (`redirect_cycle`, `…_missing`, `…_too_long`)."""
    found: dict[str, int] = {}
    dropped: Counter[str] = Counter()
    for title, target in redirects.items():
        seen = {title}
        for _ in range(MAX_REDIRECTS):
            if target in pages:
                found[title] = pages[target]
                break
            if target in seen:
                dropped["redirect_cycle"] += 1
                break
            if target not in redirects:
                dropped["redirect_missing"] += 1
                break
            seen.add(target)
            target = redirects[target]
        else:
            dropped["redirect_too_long"] += 1
    return found, dropped


class CsrWriter:
    """Builds the CSR matrix while links stream by in ascending order of source; memory is O(pages).

    Args:
        folder: Where `indptr.npy` and `indices.npy` go.
        num_pages: N.
    """

    def __init__(self, folder: Path, num_pages: int) -> None:
        self._folder = folder
        self._scratch = open(folder / "indices.raw", "wb")  # noqa: SIM115 - closed by finish
        self._degree = np.zeros(num_pages, dtype=np.int64)
        self.in_degree: npt.NDArray[np.int64] = np.zeros(num_pages, dtype=np.int64)

    def add(self, src: npt.NDArray[np.int32], dst: npt.NDArray[np.int32]) -> None:
        """Add links; all links of a source come in one call."""
        pairs = np.unique((src.astype(np.int64) << 32) | dst.astype(np.int64))
        sources, targets = pairs >> 32, (pairs & 0xFFFFFFFF).astype(np.int32)
        np.add.at(self._degree, sources, 1)
        np.add.at(self.in_degree, targets, 1)
        self._scratch.write(targets.astype("<i4").tobytes())

    def finish(self) -> int:
        """Write the two files; returns E, the number of edges."""
        self._scratch.close()
        indptr = np.zeros(len(self._degree) + 1, dtype=np.int64)
        np.cumsum(self._degree, out=indptr[1:])
        np.save(self._folder / "indptr.npy", indptr)
        num_edges = int(indptr[-1])
        raw = self._folder / "indices.raw"
        header = {"descr": "<i4", "fortran_order": False, "shape": (num_edges,)}
        with open(raw, "rb") as source, open(self._folder / "indices.npy", "wb") as target:
            np.lib.format.write_array_header_1_0(target, header)
            shutil.copyfileobj(source, target)  # not a memory map: a full disk would kill the process
        raw.unlink()
        return num_edges

    def close(self) -> None:
        """Let go of the scratch file; for work that is given up."""
        self._scratch.close()


def title_index(titles: Mapping[str, int], hash_of: Any) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.int32]]:
    """Sorted hashes of titles and the pages they mean, both ``[M]``."""
    hashes = np.fromiter((hash_of(title) for title in titles), dtype=np.uint64, count=len(titles))
    pages = np.fromiter(titles.values(), dtype=np.int32, count=len(titles))
    order = np.argsort(hashes, kind="stable")
    return hashes[order], pages[order]
