"""The seven tools of the paper, assembled from whatever engines the caller has (paper, section 2)."""

from __future__ import annotations

from pydantic import Field

from opensearch_vl.config import Config
from opensearch_vl.protocols import ImageIndex, OcrEngine, PageReader, SearchEngine, Summariser, Tool, Upscaler
from opensearch_vl.tools.ocr import OCR_TIMEOUT_S, LayoutParsingTool
from opensearch_vl.tools.pixels import Coordinates
from opensearch_vl.tools.retrieval import (
    RETRIEVAL_TIMEOUT_S,
    ImageFetch,
    ImageSearchTool,
    TextSearchTool,
    VisitTool,
)
from opensearch_vl.tools.visual import (
    MAX_OUTPUT_PX,
    VISUAL_TIMEOUT_S,
    CropTool,
    PerspectiveTool,
    SharpenTool,
    SuperResolutionTool,
)


class ToolSettings(Config):
    """Settings of the standard tools.

    Attributes:
        coordinates: Units that the model writes boxes in: `pixels` (paper) or `grid_1000` (Qwen-VL's habit).
        visual_timeout_s: Time limit of the tools that return a picture.
        retrieval_timeout_s: Time limit of searches and page visits.
        ocr_timeout_s: Time limit of text recognition.
        max_output_px: Most pixels of an enlarged picture.
        brief: For models with little room (prompt profile `miniature`): few results in short, without addresses, and so
            without `visit`.
    """

    coordinates: Coordinates = "pixels"
    visual_timeout_s: float = Field(default=VISUAL_TIMEOUT_S, gt=0)
    retrieval_timeout_s: float = Field(default=RETRIEVAL_TIMEOUT_S, gt=0)
    ocr_timeout_s: float = Field(default=OCR_TIMEOUT_S, gt=0)
    max_output_px: int = Field(default=MAX_OUTPUT_PX, gt=0)
    brief: bool = False


def standard_tools(
    search: SearchEngine,
    image_index: ImageIndex,
    ocr: OcrEngine,
    upscaler: Upscaler,
    summariser: Summariser,
    reader: PageReader | None = None,
    *,
    fetch_image: ImageFetch | None = None,
    settings: ToolSettings | None = None,
) -> tuple[Tool, ...]:
    """The seven tools, and `visit` when there is a reader.

    Args:
        search: Text search.
        image_index: Reverse image search.
        ocr: Text recognition.
        upscaler: What `super_resolution` enlarges with.
        summariser: Condenses passages and pages.
        reader: Reads pages; None leaves `visit` out.
        fetch_image: Gets pictures by address for `image_search`, behind the address guard; None refuses addresses.
        settings: Units and limits; None for the defaults.
    """
    settings = settings or ToolSettings()
    visual_s, retrieval_s = settings.visual_timeout_s, settings.retrieval_timeout_s
    tools: list[Tool] = [
        TextSearchTool(search, summariser, retrieval_s, brief=settings.brief),
        ImageSearchTool(image_index, fetch_image, retrieval_s, brief=settings.brief),
        LayoutParsingTool(ocr, settings.ocr_timeout_s),
        CropTool(settings.coordinates, visual_s),
        SharpenTool(visual_s),
        SuperResolutionTool(upscaler, visual_s, settings.max_output_px),
        PerspectiveTool(visual_s),
    ]
    if reader is not None and not settings.brief:
        tools.append(VisitTool(reader, summariser, retrieval_s))
    return tuple(tools)
