"""The enhancement subset: pictures damaged so that one known tool repairs them (paper, section 3.7).

Only pictures whose *lettering* identifies the anchor qualify: there a damage provably takes the information away, since
OCR can no longer read the name, and a repair provably gives it back. Each damage is seeded, as weak as suffices,
and accepted only when the lettering is unreadable before the repair and readable after it, with the repair tool run
exactly as the agent runs it by default. Reading a whole picture is what takes the time, so the search for a strength
reads only the stretch that carries the lettering; what it proposes is then read whole, before and after the repair.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from PIL import Image

from opensearch_vl.images import decode, encode_png
from opensearch_vl.protocols import OcrEngine, PartReader, Upscaler
from opensearch_vl.questions.anchor import name_in, reads_name
from opensearch_vl.questions.damages import Box, carried, damage, scaled
from opensearch_vl.questions.repairs import REPAIR, Kind, repair
from opensearch_vl.questions.settings import DegradeSettings
from opensearch_vl.types import Degradation

_WEAKER, _STRONGER = 2, 4
"""How many strengths next to the weakest that hides the lettering are looked at: near it, what can be read comes and
goes from one strength to the next."""
_MOST_CONFIRMED = 3
"""How many proposals of one kind of damage are read whole before the kind is given up."""


@dataclass(frozen=True, slots=True)
class Degraded:
    """An accepted damage."""

    png: bytes
    degradation: Degradation


@dataclass(frozen=True, slots=True)
class Trial:
    """One damage tried on one picture, and how it came out."""

    kind: Kind
    strength: float
    readable_before: bool
    readable_after: bool

    def as_dict(self) -> dict[str, str | float | bool]:
        """Plain data for a record."""
        return {
            "kind": self.kind,
            "strength": self.strength,
            "readable_before": self.readable_before,
            "readable_after": self.readable_after,
        }

    @property
    def accepted(self) -> bool:
        """Unreadable as it is, readable after repair."""
        return self.readable_after and not self.readable_before


def wants_another(num_degraded: int, num_so_far: int, num: int | None, fraction: float) -> bool:
    """Whether one more picture should be damaged: a quota that depends on what came before alone.

    Pictures that qualify come unevenly, and one passed over early is missed at the end. So where the number of
    questions is known, the quota may run ahead, up to twice the share, until the whole number has its share.

    Args:
        num_degraded: Damaged ones so far.
        num_so_far: Final questions so far, the one in question not counted.
        num: Questions wanted; None if nobody knows.
        fraction: Share wanted, in [0, 1].
    """
    share = fraction * (num_so_far + 1)
    return num_degraded < (share if num is None else min(2 * share, fraction * num))


async def degrade(
    data: bytes,
    names: Sequence[str],
    kinds: Sequence[Kind],
    *,
    settings: DegradeSettings,
    ocr: OcrEngine,
    upscaler: Upscaler | None,
    ratio: float,
    seed: int,
) -> tuple[Degraded | None, tuple[Trial, ...]]:
    """Find a damage that takes the lettering away and that its tool gives back.

    Args:
        data: The picture, whose lettering OCR reads.
        names: Title and aliases of the anchor.
        kinds: Damages to try, the preferred first.
        settings: Strengths, weak to strong.
        ocr: Decides what is readable; a `PartReader` spares most of the reading.
        upscaler: Repairs down-sampling; without one that damage is not tried.
        ratio: Share of a name's letters that must be read.
        seed: Seed of the damage.

    Returns:
        The accepted picture, if any, and how each damage tried came out: the accepted strength, or the last one that
        was looked at. A damage that leaves the lettering readable at every strength gives no trial.
    """
    search = _Search(decode(data), names, ocr, upscaler, ratio, seed, await _lettering(ocr, data, names, ratio))
    trials: list[Trial] = []
    for kind in kinds:
        if kind == "downsample" and upscaler is None:
            continue
        trial: Trial | None = None
        num_confirmed = 0
        async for trial, damaged in search.proposals(kind, _strengths(settings, kind)):
            if not trial.accepted:
                continue
            trial = await search.confirmed(trial, damaged)
            if trial.accepted:
                found = Degradation(
                    kind=kind,
                    repair_tool=REPAIR[kind],
                    strength=trial.strength,
                    readable_before=False,
                    readable_after=True,
                )
                return Degraded(damaged.png, found), (*trials, trial)
            num_confirmed += 1
            if num_confirmed == _MOST_CONFIRMED:
                break
        trials += [trial] if trial is not None else []
    return None, tuple(trials)


async def _lettering(ocr: OcrEngine, data: bytes, names: Sequence[str], ratio: float) -> Box | None:
    """The stretch of the picture that carries a name, with room round it; None where only the whole can be read."""
    if not isinstance(ocr, PartReader):
        return None
    blocks = await ocr.read(data)
    carrying = [block for block in blocks if name_in([block.text], names, ratio)] or blocks
    if not carrying:
        return None
    lefts, tops, rights, bottoms = zip(*(block.box_px for block in carrying), strict=True)
    left, top, right, bottom = min(lefts), min(tops), max(rights), max(bottoms)
    room = max(16, (bottom - top) // 2)
    return left - room, top - room, right + room, bottom + room


@dataclass(frozen=True, slots=True)
class _Damaged:
    """A damaged picture, as pixels and encoded, and where its lettering lies."""

    image: Image.Image
    png: bytes
    box: Box | None


@dataclass(frozen=True, slots=True)
class _Search:
    """The search for strengths on one picture; `box` is where its lettering lies, if a part can be read."""

    image: Image.Image
    names: Sequence[str]
    ocr: OcrEngine
    upscaler: Upscaler | None
    ratio: float
    seed: int
    box: Box | None

    async def proposals(self, kind: Kind, strengths: Sequence[float]) -> AsyncIterator[tuple[Trial, _Damaged]]:
        """Damages that seem to hide the lettering, the likeliest to be repaired first, each with its outlook.

        Blur and down-sampling lose more the stronger they are, so the weakest that suffices and its neighbours are
        worth repairing; it is found by halving. How well a tilted sheet is found does not depend on its tilt, so every
        tilt that suffices counts.
        """
        if kind == "perspective":
            places = range(len(strengths))
        else:
            weakest = await self._weakest(kind, strengths)
            if weakest == len(strengths):
                return
            near = (_WEAKER, _STRONGER) if self.box is not None else (0, 1)
            places = range(max(0, weakest - near[0]), min(len(strengths), weakest + near[1]))
        for place in places:
            damaged = await self._damaged(kind, strengths[place])
            if not await self._seems_readable(damaged.png, damaged.box):
                mended = await self._mended(damaged, kind)
                after = mended is not None and await self._seems_readable(*mended)
                yield Trial(kind, strengths[place], False, after), damaged

    async def confirmed(self, trial: Trial, damaged: _Damaged) -> Trial:
        """The trial as the whole picture tells it."""
        if self.box is None:  # that is what was read
            return trial
        before = await self._readable(damaged.png)
        mended = None if before else await self._mended(damaged, trial.kind)
        after = mended is not None and await self._readable(mended[0])
        return Trial(trial.kind, trial.strength, before, after)

    async def _weakest(self, kind: Kind, strengths: Sequence[float]) -> int:
        """Place of the weakest strength that seems to hide the lettering; one past the last if none does."""
        low, high = 0, len(strengths)
        while low < high:
            middle = (low + high) // 2
            damaged = await self._damaged(kind, strengths[middle])
            if await self._seems_readable(damaged.png, damaged.box):
                low = middle + 1
            else:
                high = middle
        return low

    async def _damaged(self, kind: Kind, strength: float) -> _Damaged:
        def work() -> _Damaged:
            image = damage(self.image, kind, strength, self.seed)
            box = (
                None if self.box is None else carried(self.box, self.image.size, kind, strength, self.seed, image.size)
            )
            return _Damaged(image, encode_png(image), box)

        return await asyncio.to_thread(work)

    async def _mended(self, damaged: _Damaged, kind: Kind) -> tuple[bytes, Box | None] | None:
        def work() -> tuple[bytes, Box | None] | None:
            mended = repair(damaged.image, kind, self.upscaler)
            if mended is None:
                return None
            return encode_png(mended), None if self.box is None else scaled(self.box, self.image.size, mended.size)

        return await asyncio.to_thread(work)

    async def _seems_readable(self, png: bytes, box: Box | None) -> bool:
        if box is None or not isinstance(self.ocr, PartReader):
            return await self._readable(png)
        return name_in([block.text for block in await self.ocr.read_part(png, box)], self.names, self.ratio)

    async def _readable(self, png: bytes) -> bool:
        return await reads_name(self.ocr, png, self.names, self.ratio)


def _strengths(settings: DegradeSettings, kind: Kind) -> tuple[float, ...]:
    if kind == "blur":
        return settings.blur_sigma_px
    return settings.downsample if kind == "downsample" else settings.perspective
