from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tool_fakes import NearestUpscaler, context, picture

from opensearch_vl.protocols import ToolContext
from opensearch_vl.tools.pixels import sharpen
from opensearch_vl.tools.toolbox import Toolbox
from opensearch_vl.tools.visual import CropTool, PerspectiveTool, SharpenTool, SuperResolutionTool
from opensearch_vl.types import FailureKind, ToolCall, ToolResult


async def use(ctx: ToolContext, name: str, **arguments: Any) -> ToolResult:
    tools = [CropTool(), SharpenTool(), SuperResolutionTool(NearestUpscaler()), PerspectiveTool()]
    return await Toolbox(tools, ctx.store).call(ToolCall(name=name, arguments=arguments), ctx.bank)


def pixels(ctx: ToolContext, result: ToolResult) -> np.ndarray:
    assert result.failure is None, result
    assert result.observation.image is not None and result.observation.image_id is None, (
        "only the environment gives ids"
    )
    return np.asarray(ctx.store.open(result.observation.image))


async def test_crop_returns_the_pixels_and_says_what_they_are(tmp_path: Path) -> None:
    source = picture()
    ctx = context(tmp_path, source)
    result = await use(ctx, "crop", image="img_1", x=30, y=40, width=100, height=60)
    assert np.array_equal(pixels(ctx, result), np.asarray(source)[40:100, 30:130])
    assert result.observation.text == "Cropped 100×60 pixels at x=30, y=40 out of the 320×200 pixels of the picture."
    assert len(ctx.bank) == 1, "a tool does not add to the bank"


async def test_crop_reports_a_clip_and_a_small_crop(tmp_path: Path) -> None:
    ctx = context(tmp_path)
    result = await use(ctx, "crop", image="img_1", x=300, y=-10, width=100, height=30)
    assert pixels(ctx, result).shape == (20, 20, 3)
    assert "clipped" in result.observation.text and "small" in result.observation.text


async def test_crop_on_the_grid(tmp_path: Path) -> None:
    ctx = context(tmp_path)
    tool = CropTool(coordinates="grid_1000")
    result = await Toolbox([tool], ctx.store).call(
        ToolCall(name="crop", arguments={"image": "img_1", "x": 500, "y": 500, "width": 500, "height": 500}), ctx.bank
    )
    assert pixels(ctx, result).shape == (100, 160, 3)
    assert "thousandths" in tool.description and "thousandths" not in CropTool().description


@pytest.mark.parametrize(
    "written", ["img_1", "IMG_1", "1", 1, "image_1", "Image 1", "img1", "img_1.png", "<img_1>", "[img_1]", " img_1 "]
)
async def test_an_id_is_understood_however_it_is_written(tmp_path: Path, written: Any) -> None:
    ctx = context(tmp_path)
    assert (await use(ctx, "sharpen", image=written)).failure is None


@pytest.mark.parametrize("name", ["image", "img", "image_id", "img_path", "image_path", "url"])
async def test_the_image_argument_goes_by_many_names(tmp_path: Path, name: str) -> None:
    ctx = context(tmp_path)
    assert (await use(ctx, "sharpen", **{name: "img_1"})).failure is None


@pytest.mark.parametrize(
    "written",
    [
        "img_2", "img_0", "img_-1", "img_99999999999999", "/etc/passwd", "../secret.png", "file:///etc/passwd",
        "http://127.0.0.1/x.png", "data:image/png;base64,AAAA", "img_1; rm", "img_１x", "~/.ssh/id_rsa", "img_1/../../x",
    ],
)  # fmt: skip
@pytest.mark.parametrize("tool", ["crop", "sharpen", "super_resolution", "perspective_correct"])
async def test_nothing_but_ids_of_the_bank_is_opened(tmp_path: Path, tool: str, written: str) -> None:
    ctx = context(tmp_path)
    box = {"x": 0, "y": 0, "width": 50, "height": 50} if tool == "crop" else {}
    result = await use(ctx, tool, image=written, **box)
    assert result.failure is not None and result.failure.kind is FailureKind.BAD_INPUT
    assert "Pictures in this conversation: img_1" in result.failure.message
    assert result.observation.image is None


async def test_sharpen(tmp_path: Path) -> None:
    source = picture(64, 48)
    ctx = context(tmp_path, source)
    result = await use(ctx, "sharpen", image="img_1", amount="2.5")
    assert np.array_equal(pixels(ctx, result), sharpen(np.asarray(source), 2.5))
    assert result.observation.text == "Sharpened with amount 2.5; 64×48 pixels as before."
    for amount in (-1, 11, "nan"):
        failure = (await use(ctx, "sharpen", image="img_1", amount=amount)).failure
        assert failure is not None and failure.kind is FailureKind.BAD_ARGUMENTS


async def test_super_resolution_says_what_it_is(tmp_path: Path) -> None:
    ctx = context(tmp_path, picture(40, 30))
    result = await use(ctx, "super_resolution", image="img_1")
    assert pixels(ctx, result).shape == (120, 160, 3)
    assert result.observation.text == "Enlarged from 40×30 pixels to 160×120 pixels by nearest-neighbour copying."
    assert result.provider == "nearest"


@pytest.mark.parametrize("scale", [0, 1, 5, -2, 1000000])
async def test_super_resolution_bounds_its_scale(tmp_path: Path, scale: int) -> None:
    failure = (await use(context(tmp_path), "super_resolution", image="img_1", scale=scale)).failure
    assert failure is not None and failure.kind is FailureKind.BAD_ARGUMENTS


async def test_super_resolution_refuses_an_enormous_result_before_making_it(tmp_path: Path) -> None:
    ctx = context(tmp_path, Image.new("RGB", (3000, 2000)))
    result = await use(ctx, "super_resolution", image="img_1", scale=4)
    assert result.failure is not None and result.failure.kind is FailureKind.TOO_LARGE
    assert "12000×8000" in result.failure.message and result.seconds < 1


async def test_perspective_correct_warns_when_there_is_no_outline(tmp_path: Path) -> None:
    source = Image.new("RGB", (200, 150), (90, 120, 60))
    ctx = context(tmp_path, source)
    result = await use(ctx, "perspective_correct", image="img_1")
    assert result.observation.text.startswith("Warning: no four-sided outline")
    assert result.observation.image == ctx.bank.get("img_1")


async def test_perspective_correct_straightens(tmp_path: Path) -> None:
    frame = np.full((300, 400, 3), 40, np.uint8)
    frame[50:250, 80:320] = 230
    ctx = context(tmp_path, Image.fromarray(frame))
    result = await use(ctx, "perspective_correct", image="img_1")
    height, width = pixels(ctx, result).shape[:2]
    assert abs(height - 200) <= 2 and abs(width - 240) <= 2
    assert result.observation.text.startswith("Straightened the largest four-sided outline")


async def test_a_picture_that_went_missing_is_a_failure_not_a_crash(tmp_path: Path) -> None:
    ctx = context(tmp_path)
    ctx.store.path(ctx.bank.get("img_1")).write_bytes(b"damaged")
    result = await use(ctx, "sharpen", image="img_1")
    assert result.failure is not None and result.failure.kind is FailureKind.BAD_INPUT
    ctx.store.path(ctx.bank.get("img_1")).unlink()
    result = await use(ctx, "sharpen", image="img_1")
    assert result.failure is not None and result.failure.kind is FailureKind.BAD_INPUT
    assert str(tmp_path) not in result.failure.message
