"""Tools that return a picture: crop, sharpen, super-resolution, perspective correction (paper, section 2).

They work on the stored original, whatever size the model was shown. The picture goes to the store; its `img_n` id is
given out by the environment, which also appends it to the observation.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image
from pydantic import AliasChoices, BaseModel, Field

from opensearch_vl.errors import TooLarge
from opensearch_vl.images import ImageStore
from opensearch_vl.prompts import fill, template
from opensearch_vl.protocols import ToolContext, ToolOutput, Upscaler
from opensearch_vl.tools.arguments import Arguments, Number, Text, Whole
from opensearch_vl.tools.offload import offload
from opensearch_vl.tools.pixels import Box, Coordinates, correct_perspective, crop_box, resolve_box, sharpen
from opensearch_vl.types import ImageRef, Observation

MAX_OUTPUT_PX = 16_777_216
"""Most pixels a derived picture may have (4096 × 4096); far above what any model is shown (262,144, section 4)."""
VISUAL_TIMEOUT_S = 60.0
SMALL_SIDE_PX = 56
"""Below this a crop is said to be small: two patches of 28 pixels, the least a Qwen-VL encoder tells apart."""

IMAGE_NAMES = ("image", "img", "image_id", "img_id", "img_path", "image_path", "image_url", "url")
_ID = re.compile(r"\W{0,2}(?:image|img)?[ _-]?(\d{1,5})(?:\.(?:png|jpe?g))?\W{0,2}", re.IGNORECASE | re.ASCII)


def image_field() -> Any:
    """The `image` argument: an id of the bank, under any of the names that models use for it."""
    return Field(
        validation_alias=AliasChoices(*IMAGE_NAMES), description="Id of a picture in this conversation, such as img_1."
    )


def find_image(written: str, context: ToolContext) -> ImageRef:
    """The picture that a model means by `img_2`, `2`, `image 2` or `img_2.png`; no file or address is ever opened.

    Raises:
        BadInput: If the bank has no such picture; the message lists those there are.
    """
    number = _ID.fullmatch(written)
    return context.bank.get(f"img_{number[1]}" if number else written)


@dataclass(frozen=True, slots=True)
class _Result:
    pixels: Image.Image
    text: str


async def _derive(
    context: ToolContext, ref: ImageRef, work: Callable[[Image.Image], _Result], provider: str = ""
) -> ToolOutput:
    """Decode, compute and store in a thread."""

    def in_thread(store: ImageStore) -> tuple[ImageRef, str]:
        result = work(store.open(ref))
        return store.put(result.pixels), result.text

    image, text = await offload(in_thread, context.store)
    return ToolOutput(Observation(text=text, image=image), provider=provider)


def _size(image: Image.Image) -> str:
    return f"{image.width}×{image.height} pixels"


class CropArguments(Arguments):
    """Arguments of `crop`."""

    image: Text = image_field()
    x: Number = Field(validation_alias=AliasChoices("x", "left", "x1", "xmin"), description="Left edge of the box.")
    y: Number = Field(validation_alias=AliasChoices("y", "top", "y1", "ymin"), description="Top edge of the box.")
    width: Number = Field(validation_alias=AliasChoices("width", "w"), description="Width of the box, above 0.")
    height: Number = Field(validation_alias=AliasChoices("height", "h"), description="Height of the box, above 0.")


class CropTool:
    """Cut a box out of a picture.

    Args:
        coordinates: Units that the model writes boxes in; the description says so.
        timeout_s: Time limit of a call in seconds.
    """

    name = "crop"
    aliases: tuple[str, ...] = ("image_crop", "zoom_in", "image_zoom_in_tool")
    arguments: type[BaseModel] = CropArguments

    def __init__(self, coordinates: Coordinates = "pixels", timeout_s: float = VISUAL_TIMEOUT_S) -> None:
        self.coordinates: Coordinates = coordinates
        self.timeout_s = timeout_s
        self.description = fill("tool_crop", units=_UNITS[coordinates])

    async def run(self, arguments: CropArguments, context: ToolContext) -> ToolOutput:
        """Crop; what lies outside the picture is left out and reported."""
        ref = find_image(arguments.image, context)
        size = ref.width_px, ref.height_px
        box = resolve_box(size, arguments.x, arguments.y, arguments.width, arguments.height, self.coordinates)

        def work(image: Image.Image) -> _Result:
            return _Result(Image.fromarray(crop_box(np.asarray(image), box)), _describe_crop(box, size))

        return await _derive(context, ref, work)


_UNITS: dict[Coordinates, str] = {
    "pixels": "pixels of the full-size picture, whose size is given with it, with 0, 0 at the top left",
    "grid_1000": "thousandths of the picture's width and height, with 0, 0 at the top left and 1000, 1000 opposite",
}


def _describe_crop(box: Box, size: tuple[int, int]) -> str:
    width, height = box.size
    text = (
        f"Cropped {width}×{height} pixels at x={box.left}, y={box.top} "
        f"out of the {size[0]}×{size[1]} pixels of the picture."
    )
    if box.clipped:
        text += " The box reached beyond the picture and was clipped to it."
    if min(width, height) < SMALL_SIDE_PX:
        text += " The crop is small; super_resolution may help to read it."
    return text


class SharpenArguments(Arguments):
    """Arguments of `sharpen`."""

    image: Text = image_field()
    amount: Number = Field(
        default=1.5,
        ge=0,
        le=10,
        validation_alias=AliasChoices("amount", "alpha", "strength"),
        description="Strength from 0 to 10.",
    )


class SharpenTool:
    """Unsharp mask (paper, section 2)."""

    name = "sharpen"
    aliases: tuple[str, ...] = ("image_sharpen",)
    arguments: type[BaseModel] = SharpenArguments

    def __init__(self, timeout_s: float = VISUAL_TIMEOUT_S) -> None:
        self.timeout_s = timeout_s
        self.description = template("tool_sharpen")

    async def run(self, arguments: SharpenArguments, context: ToolContext) -> ToolOutput:
        """Sharpen."""
        ref = find_image(arguments.image, context)

        def work(image: Image.Image) -> _Result:
            sharp = Image.fromarray(sharpen(np.asarray(image), arguments.amount))
            return _Result(sharp, f"Sharpened with amount {arguments.amount:g}; {_size(sharp)} as before.")

        return await _derive(context, ref, work)


class SuperResolutionArguments(Arguments):
    """Arguments of `super_resolution`."""

    image: Text = image_field()
    scale: Whole = Field(
        default=4,
        ge=2,
        le=4,
        validation_alias=AliasChoices("scale", "factor", "upscale", "scale_factor"),
        description="How many times as wide and high: 2, 3 or 4.",
    )


class SuperResolutionTool:
    """Enlarge a picture; the observation says honestly by what means."""

    name = "super_resolution"
    aliases: tuple[str, ...] = ("image_super_resolution", "upscale")
    arguments: type[BaseModel] = SuperResolutionArguments

    def __init__(
        self, upscaler: Upscaler, timeout_s: float = VISUAL_TIMEOUT_S, max_output_px: int = MAX_OUTPUT_PX
    ) -> None:
        self.upscaler = upscaler
        self.timeout_s = timeout_s
        self.max_output_px = max_output_px
        self.description = template("tool_super_resolution")

    async def run(self, arguments: SuperResolutionArguments, context: ToolContext) -> ToolOutput:
        """Enlarge.

        Raises:
            TooLarge: If the result would have more than `max_output_px` pixels.
        """
        ref = find_image(arguments.image, context)
        width, height = ref.width_px * arguments.scale, ref.height_px * arguments.scale
        if width * height > self.max_output_px:
            raise TooLarge(
                f"{arguments.scale} times {ref.width_px}×{ref.height_px} would be {width}×{height} pixels; at most "
                f"{self.max_output_px:,} are made. Crop the part you need first."
            )

        def work(image: Image.Image) -> _Result:
            large = self.upscaler.upscale(image, arguments.scale)
            return _Result(large, f"Enlarged from {_size(image)} to {_size(large)} by {self.upscaler.describes}.")

        return await _derive(context, ref, work, self.upscaler.name)


class PerspectiveArguments(Arguments):
    """Arguments of `perspective_correct`."""

    image: Text = image_field()


class PerspectiveTool:
    """Straighten a page, sign or screen that was photographed at an angle (paper, section 2)."""

    name = "perspective_correct"
    aliases: tuple[str, ...] = ("perspective_correction", "image_perspective_correct")
    arguments: type[BaseModel] = PerspectiveArguments

    def __init__(self, timeout_s: float = VISUAL_TIMEOUT_S) -> None:
        self.timeout_s = timeout_s
        self.description = template("tool_perspective_correct")

    async def run(self, arguments: PerspectiveArguments, context: ToolContext) -> ToolOutput:
        """Straighten; without a quadrilateral the original comes back with a warning."""
        ref = find_image(arguments.image, context)

        def work(image: Image.Image) -> _Result:
            pixels, found = correct_perspective(np.asarray(image))
            if not found:
                return _Result(image, "Warning: no four-sided outline was found; the picture is returned unchanged.")
            flat = Image.fromarray(pixels)
            return _Result(flat, f"Straightened the largest four-sided outline of the picture to {_size(flat)}.")

        return await _derive(context, ref, work)
