"""Which stored pictures are worth a geometric check: an inverted file over visual words with binary signatures.

The words are k-means centres of descriptors (seeded, stored with the index); each feature also keeps 64 signs of its
residual on seeded random axes, so that two features vote for each other only when they share a word *and* nearly all
signs (Hamming embedding, Jégou et al., 2008). One query touches a few hundred postings per feature, whatever the
number of pictures, because the number of words grows with the collection.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opensearch_vl.backends.features import DESCRIPTOR_SIZE, unit
from opensearch_vl.seeds import derive

Floats = NDArray[np.float32]

FEATURES_PER_WORD = 256
MIN_WORDS, MAX_WORDS = 32, 8192
NUM_NEAREST = 3  # words a query feature looks in
_SAMPLES_PER_WORD = 32
_ROUNDS = 8
_BITS = 64
_MAX_HAMMING = 22
_CHUNK = 20_000


def num_words(num_features: int) -> int:
    """Size of the vocabulary for a collection: a power of two near one word per 256 features."""
    wanted = max(1, num_features // FEATURES_PER_WORD)
    return int(np.clip(1 << (wanted.bit_length() - 1), MIN_WORDS, MAX_WORDS))


def train(descriptors: NDArray[np.uint8], words: int, seed: int) -> Floats:
    """Centres, ``[words, 128]``, by seeded k-means on a sample of the descriptors."""
    rng = np.random.default_rng(derive("visual vocabulary", seed))
    if len(descriptors) == 0:
        return np.zeros((words, DESCRIPTOR_SIZE), np.float32)
    size = min(len(descriptors), words * _SAMPLES_PER_WORD)
    sample = unit(descriptors[np.sort(rng.choice(len(descriptors), size, replace=False))])
    centres = sample[rng.choice(size, words, replace=size < words)].copy()
    for _ in range(_ROUNDS):
        nearest = _nearest(sample, centres, 1)[:, 0]
        counts = np.bincount(nearest, minlength=words)
        order = np.argsort(nearest, kind="stable")
        filled = np.flatnonzero(counts)
        starts = np.concatenate([[0], np.cumsum(counts[filled])[:-1]])
        centres[filled] = np.add.reduceat(sample[order], starts, axis=0) / counts[filled, None]
        empty = np.flatnonzero(counts == 0)
        centres[empty] = sample[rng.choice(size, len(empty))]
    return centres


def _nearest(vectors: Floats, centres: Floats, count: int) -> NDArray[np.intp]:
    """Nearest centres of each vector, ``[N, count]``, nearest first."""
    half_norms = 0.5 * np.einsum("ij,ij->i", centres, centres)
    parts = []
    for start in range(0, len(vectors), _CHUNK):
        closeness = vectors[start : start + _CHUNK] @ centres.T - half_norms
        if count == 1:
            parts.append(closeness.argmax(axis=1)[:, None])
            continue
        top = np.argpartition(-closeness, count - 1, axis=1)[:, :count]
        order = np.argsort(-np.take_along_axis(closeness, top, axis=1), axis=1, kind="stable")
        parts.append(np.take_along_axis(top, order, axis=1))
    return np.concatenate(parts) if parts else np.zeros((0, count), np.intp)


@cache
def _axes(seed: int) -> Floats:
    rng = np.random.default_rng(derive("signature axes", seed))
    orthogonal, _ = np.linalg.qr(rng.standard_normal((DESCRIPTOR_SIZE, DESCRIPTOR_SIZE)))
    return np.asarray(orthogonal[:, :_BITS], np.float32)


def _signatures(residuals: Floats, axes: Floats) -> NDArray[np.uint64]:
    bits = np.packbits(residuals @ axes > 0, axis=-1)
    return np.ascontiguousarray(bits).view(np.uint64)[..., 0]


@dataclass(frozen=True, slots=True)
class Postings:
    """The inverted file.

    Attributes:
        centres: ``[W, 128]`` float32 visual words.
        starts: ``[W + 1]`` int64: postings of word w lie at ``starts[w]:starts[w+1]``.
        pictures: ``[F]`` uint32 picture of each posting, ascending within a word.
        signatures: ``[F]`` uint64.
        num_features: ``[P]`` int32 features per picture.
        seed: Seed of the axes.
    """

    centres: Floats
    starts: NDArray[np.int64]
    pictures: NDArray[np.uint32]
    signatures: NDArray[np.uint64]
    num_features: NDArray[np.int32]
    seed: int

    @classmethod
    def make(
        cls, centres: Floats, descriptors: NDArray[np.uint8], num_features: NDArray[np.int32], seed: int
    ) -> Postings:
        """Sort all features of a collection by visual word."""
        axes = _axes(seed)
        words = np.empty(len(descriptors), np.int64)
        signatures = np.empty(len(descriptors), np.uint64)
        for start in range(0, len(descriptors), _CHUNK):
            block = slice(start, start + _CHUNK)
            vectors = unit(descriptors[block])
            words[block] = _nearest(vectors, centres, 1)[:, 0]
            signatures[block] = _signatures(vectors - centres[words[block]], axes)
        order = np.argsort(words, kind="stable")
        pictures = np.repeat(np.arange(len(num_features), dtype=np.uint32), num_features)
        starts = np.searchsorted(words[order], np.arange(len(centres) + 1)).astype(np.int64)
        return cls(centres, starts, pictures[order], signatures[order], num_features, seed)

    def save(self, folder: Path) -> None:
        """Write one ``.npy`` per array."""
        folder.mkdir(parents=True)
        for name in ("centres", "starts", "pictures", "signatures", "num_features"):
            np.save(folder / f"{name}.npy", getattr(self, name))

    @classmethod
    def load(cls, folder: Path, seed: int) -> Postings:
        """Open what `save` wrote; postings stay on disk, memory-mapped."""

        def array(name: str, mode: Any = None) -> Any:
            return np.load(folder / f"{name}.npy", mmap_mode=mode, allow_pickle=False)

        return cls(
            array("centres"),
            array("starts"),
            array("pictures", "r"),
            array("signatures", "r"),
            array("num_features"),
            seed,
        )

    def vote(self, descriptors: NDArray[np.uint8], count: int) -> NDArray[np.intp]:
        """The pictures most likely to share features with a query.

        Args:
            descriptors: ``[Q, 128]`` of the query.
            count: How many pictures at most.

        Returns:
            Picture numbers, best first; ties in order of number.
        """
        num_pictures = len(self.num_features)
        if len(descriptors) == 0 or num_pictures == 0:
            return np.zeros(0, np.intp)
        vectors = unit(descriptors)
        words = _nearest(vectors, self.centres, min(NUM_NEAREST, len(self.centres)))
        residuals = vectors[:, None, :] - self.centres[words]
        signatures = _signatures(residuals, _axes(self.seed))
        # Every posting of every word looked in, at once: which query feature asks, and which posting answers.
        lengths = (self.starts[words + 1] - self.starts[words]).ravel()
        asking = np.repeat(np.arange(words.size), lengths)
        within = np.arange(len(asking)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        answering = self.starts[words].ravel()[asking] + within
        distance = np.bitwise_count(self.signatures[answering] ^ signatures.ravel()[asking])
        near = np.flatnonzero(distance <= _MAX_HAMMING)
        idf = np.log1p(num_pictures / (1.0 + lengths))
        weights = idf[asking[near]] * (1.0 - distance[near] / (_MAX_HAMMING + 8.0)) ** 2
        # A feature votes once per picture, with its best posting, or brickwork would outvote everything.
        ballots = (asking[near] // words.shape[1]).astype(np.int64) * num_pictures + self.pictures[answering[near]]
        order = np.lexsort((-weights, ballots))
        first = np.ones(len(order), np.bool_)
        first[1:] = ballots[order][1:] != ballots[order][:-1]
        counted = order[first]
        votes = np.bincount(ballots[counted] % num_pictures, weights[counted], minlength=num_pictures)
        scores = votes / np.sqrt(np.maximum(self.num_features, 50))
        best = np.argsort(-scores, kind="stable")[:count]
        return np.asarray(best[scores[best] > 0])
