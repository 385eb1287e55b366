"""The enhancement subset: seeded damages, accepted only when the repair provably gives the lettering back."""

import numpy as np
import pytest
from PIL import Image, ImageDraw

from opensearch_vl.images import decode, encode_png
from opensearch_vl.protocols import TextBlock
from opensearch_vl.questions.damages import damage
from opensearch_vl.questions.degrade import degrade, wants_another
from opensearch_vl.questions.repairs import repair
from opensearch_vl.questions.settings import DegradeSettings


@pytest.fixture(scope="module")
def sign() -> Image.Image:
    image = Image.new("RGB", (520, 400), "white")
    draw = ImageDraw.Draw(image)
    for x in range(40, 480, 24):
        draw.rectangle((x, 150, x + 11, 250), fill="black")
    return image


def contrast(image: Image.Image) -> float:
    return float(np.asarray(image.convert("L"), dtype=float).std())


class SeesContrast:
    """Reads the name where fine detail has at least the given strength (standard deviation of grey levels)."""

    name = "sees-contrast"

    def __init__(self, least, upright_only=False):
        self.least, self.upright_only = least, upright_only

    async def read(self, image, *, orient=False, charts=False):
        shown = decode(image)
        if self.upright_only:  # the four corners of an upright sheet are white
            grey = np.asarray(shown.convert("L"))
            readable = min(grey[8, 8], grey[8, -9], grey[-9, 8], grey[-9, -9]) > 200
        else:
            readable = contrast(shown) >= self.least
        return [TextBlock("ORLA ZOO", "text", (0, 0, 1, 1), 0.9)] if readable else []


class Nearest:
    name, describes = "nearest", "repeats pixels"

    def upscale(self, image, scale):
        return image.resize((image.width * scale, image.height * scale), Image.Resampling.NEAREST)


COARSE = DegradeSettings(blur_sigma_px=(2.0, 3.0, 3.5, 4.0, 5.0), downsample=(2.0, 4.0), perspective=(0.25, 0.4, 0.6))


async def run(sign, kinds, ocr, upscaler=None, seed=4, settings=COARSE):
    return await degrade(
        encode_png(sign),
        ["Orla Zoo"],
        kinds,
        settings=settings,
        ocr=ocr,
        upscaler=upscaler,
        ratio=0.85,
        seed=seed,
    )


async def test_blur_is_raised_until_unreadable_and_sharpening_brings_it_back(sign) -> None:
    least = (contrast(damage(sign, "blur", 4.0, 0)) + contrast(damage(sign, "blur", 3.5, 0))) / 2
    made, trials = await run(sign, ["blur"], SeesContrast(least))
    assert made is not None
    assert (made.degradation.kind, made.degradation.repair_tool, made.degradation.strength) == ("blur", "sharpen", 4.0)
    assert made.degradation.readable_after
    assert not made.degradation.readable_before
    assert decode(made.png).size == sign.size
    assert len(trials) == 1


async def test_what_cannot_be_repaired_is_not_accepted(sign) -> None:
    made, trials = await run(sign, ["blur", "downsample"], SeesContrast(1000.0), Nearest())
    assert made is None
    assert trials == ()  # not even the weakest damage is undone


async def test_what_stays_readable_is_not_accepted(sign) -> None:
    made, trials = await run(sign, ["blur", "downsample", "perspective"], SeesContrast(0.0), Nearest())
    assert made is None
    assert [(t.kind, t.readable_before, t.accepted) for t in trials] == [
        ("blur", True, False), ("downsample", True, False), ("perspective", True, False),
    ]  # fmt: skip


async def test_a_skewed_sheet_is_found_and_straightened(sign) -> None:
    made, _ = await run(sign, ["perspective"], SeesContrast(0, upright_only=True))
    assert made is not None
    assert made.degradation.repair_tool == "perspective_correct"


async def test_downsampling_needs_an_upscaler(sign) -> None:
    made, trials = await run(sign, ["downsample"], SeesContrast(1000.0))
    assert (made, trials) == (None, ())


@pytest.mark.parametrize("kind", ["blur", "downsample", "perspective"])
def test_damage_is_seeded(sign, kind) -> None:
    strength = {"blur": 2.0, "downsample": 3.0, "perspective": 0.3}[kind]
    first, again = damage(sign, kind, strength, 5), damage(sign, kind, strength, 5)
    assert first.tobytes() == again.tobytes()
    other = damage(sign, kind, strength, 6)
    assert (first.tobytes() != other.tobytes()) is (kind == "perspective")


def test_repairs_have_the_sizes_of_the_tools(sign) -> None:
    assert repair(sign, "blur", None).size == sign.size
    assert repair(damage(sign, "downsample", 4, 0), "downsample", Nearest()).size == sign.size
    assert repair(Image.new("RGB", (64, 64), "grey"), "perspective", None) is None


STRETCH = (0, 100, 520, 300)
"""The lettering's box with half its height as room, within the picture."""


def least_between(sign, weaker, stronger, box=None):
    """A contrast that blur of the weaker σ keeps and that of the stronger loses."""
    kept, lost = (contrast(damage(sign, "blur", sigma, 0).crop(box)) for sigma in (weaker, stronger))
    return (kept + lost) / 2


class ReadsParts(SeesContrast):
    """The same, and parts as well, by the contrast of that part alone."""

    def __init__(self, least, part_least):
        super().__init__(least)
        self.part_least, self.wholes, self.parts = part_least, 0, set()

    async def read(self, image, *, orient=False, charts=False):
        self.wholes += 1
        blocks = await super().read(image)
        return [TextBlock(block.text, "text", (40, 150, 480, 250), 0.9) for block in blocks]

    async def read_part(self, image, box_px):
        self.parts.add(box_px)
        readable = contrast(decode(image).crop(STRETCH)) >= self.part_least
        return [TextBlock("ORLA ZOO", "text", box_px, 0.9)] if readable else []


async def test_the_search_reads_the_lettering_alone_and_the_whole_confirms(sign) -> None:
    ocr = ReadsParts(least_between(sign, 3.5, 4.0), least_between(sign, 3.5, 4.0, STRETCH))
    made, trials = await run(sign, ["blur"], ocr)
    assert made is not None
    assert (made.degradation.strength, [trial.strength for trial in trials]) == (4.0, [4.0])
    assert ocr.parts == {(-10, 100, 530, 300)}
    assert ocr.wholes == 3  # the clean picture, then the proposal before and after the repair


async def test_weaker_damage_is_taken_where_the_whole_does_not_bear_out_the_strongest(sign) -> None:
    """By the part alone even σ 9 is undone; by the whole, σ 4 is."""
    ocr = ReadsParts(least_between(sign, 3.5, 4.0), 0.0)
    found = []
    for blurs in [(2.0, 4.0, 8.0, 9.0), (2.0, 4.0, 7.0, 7.5, 8.0, 8.5, 8.8, 9.0)]:
        made, trials = await run(sign, ["blur"], ocr, settings=DegradeSettings(blur_sigma_px=blurs))
        found.append((made and made.degradation.strength, [trial.strength for trial in trials]))
    assert found == [(4.0, [4.0]), (None, [7.5])]  # 9, 4; and 9, 8.5, 7.5, where it gives up


async def test_what_only_the_part_hides_is_not_accepted(sign) -> None:
    ocr = ReadsParts(0.0, least_between(sign, 3.5, 4.0, STRETCH))  # the whole picture is always readable
    made, trials = await run(sign, ["blur"], ocr)
    assert made is None
    assert ocr.parts
    assert not any(trial.accepted for trial in trials)


@pytest.mark.parametrize(
    ("degraded", "so_far", "num", "wanted"),
    [
        (0, 0, None, True),  # the first question is a tenth of ten
        (1, 8, None, False),
        (1, 10, None, True),
        (1, 4, 150, False),  # a known number lets the quota run ahead, at twice the share
        (1, 5, 150, True),
        (14, 80, 150, True),
        (15, 140, 150, False),  # and stops at the share of the whole
        (0, 0, 0, False),
    ],
)
def test_the_quota(degraded, so_far, num, wanted) -> None:
    assert wants_another(degraded, so_far, num, 0.1) is wanted


def test_the_quota_is_met_as_long_as_enough_qualify() -> None:
    """One question in eight qualifies, none of them among the last third: a quota without lead would end short."""
    degraded = 0
    for so_far in range(150):
        degraded += so_far < 100 and so_far % 6 == 0 and wants_another(degraded, so_far, 150, 0.1)
    assert degraded == 15
