"""Which entity has which pictures: painter, size, lettering, file name, caption, author and licence.

About one pictured entity in five belongs to a *series*: six to ten entities share one drawing to the pixel and differ
in the lettering alone, so that only reading tells them apart. Some lettering is small, blurred or on a skewed plaque;
these are the pictures that the enhancement subset needs (paper, section 3.7).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from opensearch_vl.seeds import derive, generator
from opensearch_vl.wiki.miniature import names

if TYPE_CHECKING:
    from opensearch_vl.wiki.miniature.world import World

Lettering = Literal["", "clean", "small", "blurred", "skewed"]

PICTURE_SHARE = 0.95
"""Scales the `pictured` share of every kind: a world of 2,000 pages gets about 600 pictures."""
SECOND_SHARE = 0.12
"""Pictured entities with a second view in a gallery."""
SMALL_SHARE = 0.05
"""Pictures under 512 pixels: their entities are not eligible as seeds (paper, section 3.1)."""
SERIES_SHARE = {"station": 1.0, "town": 0.7, "relic": 0.6, "clock": 0.6, "artwork": 0.5, "museum": 0.6, "hall": 0.3}
"""Kinds that have lettering series, and how many of their pictured entities are in one."""
SERIES_SIZE = (6, 10)
SCENES = {"station": "station_sign", "town": "road_sign", "museum": "plaque", "hall": "plaque"}
"""Painter of a series by kind; artefacts stand beside a museum label."""

LETTERINGS: tuple[Lettering, ...] = ("clean", "small", "blurred", "skewed")

_SIZES = ((640, 512), (512, 640), (576, 576), (720, 540), (540, 720), (768, 512), (512, 512))
_UPRIGHT = {"portrait": ((512, 640), (540, 720), (512, 512)), "lighthouse": ((512, 640), (540, 720)),
            "vessel": ((512, 640), (576, 576)), "mask": ((512, 640), (576, 576)), "flower": ((512, 640), (576, 576)),
            "town": ((720, 540), (768, 512)), "bridge": ((720, 540), (768, 512), (640, 512))}  # fmt: skip
_LICENCES = ("cc-by-sa-4.0", "cc-by-sa-4.0", "cc-by-4.0", "cc0", "PD-self")


@dataclass(frozen=True, slots=True)
class PictureSpec:
    """Everything needed to draw and to credit one picture; plain values, so that it travels to a worker process."""

    file: str
    painter: str
    seed: int
    width_px: int
    height_px: int
    text: str
    lettering: Lettering
    view: int
    caption: str
    caption_plain: str
    author: str
    licence: str


class Album:
    """The pictures of a world.

    Args:
        world: The entities.
        max_pictures: At most about this many pictured entities; a larger world has relatively fewer.
    """

    def __init__(self, world: World, max_pictures: int) -> None:
        self._world = world
        rng = generator(world.seed, "album")
        wanted = [entity for entity in world if not world.stub[entity] and rng.random() < self._chance(entity)]
        keep = min(1.0, max_pictures / len(wanted)) if wanted else 0.0
        self._pictured = [entity for entity in wanted if keep == 1.0 or rng.random() < keep]
        self._series: dict[int, int] = {}
        waiting: dict[str, list[int]] = {kind: [] for kind in SERIES_SHARE}
        for entity in self._pictured:
            kind = world.kind(entity).name
            if rng.random() < SERIES_SHARE.get(kind, 0.0) and world.name(entity).isascii():
                waiting[kind].append(entity)
        number = 0
        for members in waiting.values():
            while len(members) >= SERIES_SIZE[0]:
                size = rng.randint(*SERIES_SIZE)
                if len(members) - size < SERIES_SIZE[0]:
                    size = len(members)
                self._series.update(dict.fromkeys(members[:size], number))
                del members[:size]
                number += 1
        self._member = set(self._pictured)

    def _chance(self, entity: int) -> float:
        """Well-connected entities are pictured more often, as on Wikipedia: seeds need links."""
        links = len(self._world.relations_of(entity)) + len(self._world.mentions_of(entity))
        return self._world.kind(entity).pictured * PICTURE_SHARE * min(1.3, max(0.15, 0.25 * (links - 1)))

    def __len__(self) -> int:
        return len(self._pictured)

    def series_of(self, entity: int) -> int | None:
        """Number of the lettering series the entity belongs to."""
        return self._series.get(entity)

    def of(self, entity: int) -> tuple[PictureSpec, ...]:
        """The entity's pictures, the infobox picture first; empty for most."""
        if entity not in self._member:
            return ()
        world, rng = self._world, generator(self._world.seed, "picture", entity)
        kind, name = world.kind(entity), world.name(entity)
        series = self._series.get(entity)
        language = world.language(entity)
        author = f"{names.given(rng, language, rng.random() < 0.5)} {names.surname(rng, language)}"
        licence = rng.choice(_LICENCES)
        view = "Portrait of" if kind.domain == "Person" else "View of"
        if series is not None:
            shared = generator(world.seed, "series", series)
            scene = SCENES.get(kind.name, "museum_label")
            lettering = rng.choices(LETTERINGS, (50, 17, 16, 17))[0]
            width_px, height_px = shared.choice(((640, 512), (720, 540), (768, 576)))
            seed = derive(world.seed, "drawing", "series", series)
            return (
                PictureSpec(f"{world.titles[entity]}.png", scene, seed, width_px, height_px, name, lettering, 0,
                            f"{name}, with lettering", f"{name}, with lettering", author, licence),
            )  # fmt: skip
        painter = rng.choice(kind.drawings)
        sizes = _UPRIGHT.get(painter, _SIZES)
        found = []
        for nth in range(2 if rng.random() < SECOND_SHARE else 1):
            width_px, height_px = rng.choice(sizes)
            if nth == 0 and rng.random() < SMALL_SHARE:
                width_px, height_px = width_px // 2, height_px // 2
            file = f"{world.titles[entity]}.png" if nth == 0 else f"{world.titles[entity]} (second view).png"
            caption = f"{view} ''{name}''" if rng.random() < 0.4 else f"{view} {name}"
            drawn = kind.drawings[(kind.drawings.index(painter) + nth) % len(kind.drawings)]
            found.append(
                PictureSpec(file, drawn, derive(world.seed, "drawing", entity), width_px, height_px, "", "", nth,
                            caption, f"{view} {name}", author, licence)
            )  # fmt: skip
        return tuple(found)

    def specs(self) -> Iterator[PictureSpec]:
        """All pictures, in entity order."""
        for entity in self._pictured:
            yield from self.of(entity)
