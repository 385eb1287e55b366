"""`layout_parsing`: reads the text of a picture, block by block in reading order (paper, section 2)."""

from __future__ import annotations

from pydantic import AliasChoices, BaseModel, Field

from opensearch_vl.prompts import template
from opensearch_vl.protocols import OcrEngine, TextBlock, ToolContext, ToolOutput
from opensearch_vl.tools.arguments import Arguments, Text
from opensearch_vl.tools.offload import offload
from opensearch_vl.tools.scrub import scrub_line
from opensearch_vl.tools.visual import find_image, image_field
from opensearch_vl.types import Observation

OCR_TIMEOUT_S = 120.0
MAX_BLOCKS = 200
UNSURE = 0.6
"""Blocks read with less confidence than this are marked."""
_BLOCK_CHARS = 2_000


class LayoutParsingArguments(Arguments):
    """Arguments of `layout_parsing`."""

    image: Text = image_field()
    use_chart_recognition: bool = Field(
        default=False,
        validation_alias=AliasChoices("use_chart_recognition", "useChartRecognition", "charts"),
        description="Also read the values of charts, where the service can.",
    )
    use_doc_orientation_classify: bool = Field(
        default=False,
        validation_alias=AliasChoices("use_doc_orientation_classify", "useDocOrientationClassify", "orient"),
        description="First turn a sideways or upside-down page upright.",
    )


class LayoutParsingTool:
    """Read the text of a picture."""

    name = "layout_parsing"
    aliases: tuple[str, ...] = ("ocr", "paddle_ocr")
    arguments: type[BaseModel] = LayoutParsingArguments

    def __init__(self, engine: OcrEngine, timeout_s: float = OCR_TIMEOUT_S) -> None:
        self.engine = engine
        self.timeout_s = timeout_s
        self.description = template("tool_layout_parsing")

    async def run(self, arguments: LayoutParsingArguments, context: ToolContext) -> ToolOutput:
        """Read. A picture without text is not a failure."""
        image = await offload(context.store.read, find_image(arguments.image, context))
        blocks = await self.engine.read(
            image, orient=arguments.use_doc_orientation_classify, charts=arguments.use_chart_recognition
        )
        return ToolOutput(Observation(text=_describe(blocks)), provider=self.engine.name)


def _describe(blocks: list[TextBlock]) -> str:
    texts = [scrub_line(block.text, _BLOCK_CHARS) for block in blocks]
    kept = [(block, text) for block, text in zip(blocks, texts, strict=True) if text]
    if not kept:
        return "No text was found in the picture."
    shown = kept[:MAX_BLOCKS]
    lines = [f'[Text Block {number}] ({_label(block)}) "{text}"' for number, (block, text) in enumerate(shown, 1)]
    if len(kept) > len(shown):
        lines.append(f"[{len(kept) - len(shown)} more blocks left out]")
    return "\n".join([*lines, "All text:", *(text for _, text in shown)])


def _label(block: TextBlock) -> str:
    return scrub_line(block.label, 40) + (", unsure" if block.confidence < UNSURE else "")
