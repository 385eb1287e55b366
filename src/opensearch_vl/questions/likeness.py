"""Near-duplicate pictures, told by what they show and not by their file.

Two pages may carry one picture as two files: rescaled, recompressed, trimmed by a few pixels. Two questions about it
would count one anchor twice. A 64-bit hash of the coarsest frequencies tells such pairs. It cannot tell apart members
of a series that share a scene and differ in the lettering of a sign, so pictures whose lettering was read are never
taken for duplicates of one another: each shows its own anchor's name.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt
from PIL import Image

from opensearch_vl.images import decode
from opensearch_vl.types import Task

HASH_BITS = 64
_SIDE_PX, _FREQUENCIES = 32, 8


def picture_hash(image: Image.Image) -> int:
    """64 bits: which of the 8 × 8 lowest frequencies of the picture, grey and 32 × 32, lie above their median."""
    grey = np.asarray(image.convert("L").resize((_SIDE_PX, _SIDE_PX), Image.Resampling.BOX), dtype=np.float64)
    waves = _waves()
    low = (waves @ grey @ waves.T).ravel()
    low[0] = 0.0  # the mean brightness says nothing of what is shown
    return int.from_bytes(np.packbits(low > np.median(low)).tobytes(), "big")


@cache
def _waves() -> npt.NDArray[np.float64]:
    """``[8, 32]`` the lowest rows of the cosine transform (DCT-II)."""
    place = np.arange(_SIDE_PX) + 0.5
    return np.cos(np.pi / _SIDE_PX * np.outer(np.arange(_FREQUENCIES), place))


def distance(one: int, other: int) -> int:
    """In how many bits two hashes differ, 0 to 64."""
    return (one ^ other).bit_count()


def look_of(data: bytes) -> str:
    """The hash of an encoded picture as 16 hexadecimal digits, as provenance keeps it under `picture_hash`."""
    return f"{picture_hash(decode(data)):016x}"


def noted_look(task: Task) -> tuple[str, str, bool] | None:
    """What provenance says of a task's picture before any damage, as `Looks` takes it; None where it says nothing."""
    look, picture = task.provenance.extra.get("picture_hash"), task.provenance.picture
    if picture is None or not isinstance(look, str):
        return None
    return picture.file, look, picture.identified_by == "lettering"


class Looks:
    """Hashes of the pictures used so far.

    Args:
        max_distance: Hashes that differ in so many bits or fewer belong to near-duplicates; below 0 none do.
    """

    def __init__(self, max_distance: int) -> None:
        self._max_distance = max_distance
        self._places: dict[str, int] = {}
        self._files: list[str] = []
        self._hashes = np.empty(64, dtype=np.uint64)
        self._lettered = np.empty(64, dtype=np.bool_)

    def add(self, file: str, look: str, lettered: bool) -> None:
        """Note a picture, once a file: its hash, and whether the lettering read on it tells what it shows."""
        if file in self._places:
            return
        size = len(self._files)
        if size == len(self._hashes):
            self._hashes = np.concatenate((self._hashes, np.empty_like(self._hashes)))
            self._lettered = np.concatenate((self._lettered, np.empty_like(self._lettered)))
        self._hashes[size], self._lettered[size] = int(look, 16), lettered
        self._places[file] = size
        self._files.append(file)

    def near(self, file: str, look: str, lettered: bool) -> str:
        """The nearest file noted whose picture is a near-duplicate of this one, the first of equals; empty if none is.

        The same file is not its own duplicate: how often it may be used is another rule.
        """
        size = len(self._files)
        if not size:
            return ""
        bits = np.bitwise_count(self._hashes[:size] ^ np.uint64(int(look, 16))).astype(np.int16)
        if lettered:
            bits[self._lettered[:size]] = HASH_BITS + 1
        if file in self._places:
            bits[self._places[file]] = HASH_BITS + 1
        place = int(np.argmin(bits))
        return self._files[place] if bits[place] <= min(self._max_distance, HASH_BITS) else ""
