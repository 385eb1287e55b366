"""The enhancement subset: pictures damaged so that one known tool repairs them (paper, section 3.7).

Only pictures whose *lettering* identifies the anchor qualify: there a damage provably takes the information away, since
OCR can no longer read the name, and a repair provably gives it back. Each damage is seeded, as strong as its tool can
still undo, and accepted only when the lettering is unreadable before the repair and readable after it, with the repair
tool run exactly as the agent runs it by default. Reading a whole picture is what takes the time, so the search for that
strength reads only the stretch that carries the lettering; what it finds is then read whole, before and after.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from PIL import Image

from opensearch_vl.images import decode, encode_png
from opensearch_vl.protocols import OcrEngine, PartReader, Upscaler
from opensearch_vl.questions.anchor import name_in, reads_name
from opensearch_vl.questions.damages import Box, damage, scaled
from opensearch_vl.questions.repairs import REPAIR, Kind, repair
from opensearch_vl.questions.settings import DegradeSettings
from opensearch_vl.types import Degradation

_MOST_READ_WHOLE = 3
"""How many strengths of one kind of damage are read whole before the kind is given up: near the strongest that can be
undone, what is read comes and goes from one strength to the next."""


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
        The accepted picture, if any, and how each kind of damage came out: at the accepted strength, or at the last
        one that was read whole. A kind that its tool never undoes, however weak, gives no trial.
    """
    search = _Search(decode(data), names, ocr, upscaler, ratio, seed, await _lettering(ocr, data, names, ratio))
    trials: list[Trial] = []
    for kind in kinds:
        if kind == "downsample" and upscaler is None:
            continue
        num_read = 0
        async for strength, damaged in search.undoable(kind, _strengths(settings, kind)):
            trial = await search.tried(kind, strength, damaged)
            num_read += 1
            if trial.accepted:
                found = Degradation(
                    kind=kind, repair_tool=REPAIR[kind], strength=strength, readable_before=False, readable_after=True
                )
                return Degraded(damaged.png, found), (*trials, trial)
            if trial.readable_before or num_read == _MOST_READ_WHOLE:  # weaker damage hides less
                trials.append(trial)
                break
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
    """A damaged picture, as pixels and encoded."""

    image: Image.Image
    png: bytes


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

    async def undoable(self, kind: Kind, strengths: Sequence[float]) -> AsyncIterator[tuple[float, _Damaged]]:
        """Damages whose tool seems to give the lettering back, the strongest first.

        Blur and down-sampling lose more the stronger they are, so the strongest that can be undone is found by halving,
        and every other one below it follows. How well a tilted sheet is found does not depend on its tilt alone, so
        every tilt is tried.
        """
        top = len(strengths)
        if kind != "perspective":
            low = 0
            while low < top:
                middle = (low + top) // 2
                if await self._seems_undone(kind, await self._damaged(kind, strengths[middle])):
                    low = middle + 1
                else:
                    top = middle
        offered = strengths[::-1] if kind == "perspective" else strengths[:top][::-2]
        for strength in offered:
            damaged = await self._damaged(kind, strength)
            if await self._seems_undone(kind, damaged):
                yield strength, damaged

    async def tried(self, kind: Kind, strength: float, damaged: _Damaged) -> Trial:
        """What the whole picture tells; the repair is not tried where the damage hides nothing."""
        if await self._readable(damaged.png):
            return Trial(kind, strength, True, False)
        mended = await self._mended(damaged, kind)
        return Trial(kind, strength, False, mended is not None and await self._readable(mended[0]))

    async def _seems_undone(self, kind: Kind, damaged: _Damaged) -> bool:
        mended = await self._mended(damaged, kind)
        return mended is not None and await self._seems_readable(*mended)

    async def _damaged(self, kind: Kind, strength: float) -> _Damaged:
        def work() -> _Damaged:
            image = damage(self.image, kind, strength, self.seed)
            return _Damaged(image, encode_png(image))

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
