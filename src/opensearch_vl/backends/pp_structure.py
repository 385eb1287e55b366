"""PP-StructureV3 over HTTP: the document parser of the paper, as PaddleX and PaddleOCR serve it.

``POST /layout-parsing`` with the picture in base64; the answer lists layout blocks in reading order. Tables come as
HTML and charts as text when `charts` is asked for.
"""

from __future__ import annotations

import base64
import hashlib
import statistics
from typing import Any

import httpx2

from opensearch_vl.backends.caching import Recent
from opensearch_vl.backends.http_service import JsonService, objects, text_of
from opensearch_vl.errors import BackendDown, BadInput
from opensearch_vl.protocols import TextBlock

LABELS = {"doc_title": "title", "paragraph_title": "title", "vision_footnote": "footnote"}
"""Labels of its layout model that we call otherwise; all others are kept (`text`, `table`, `formula`, `header`, …)."""
CACHED_PAGES = 128


class PpStructureClient:
    """A PP-StructureV3 service.

    Args:
        base_url: Where it listens, such as ``http://localhost:8080``.
        timeout_s: For one picture.
        transport: Replaces the network, in tests.
    """

    name = "pp_structure_v3"

    def __init__(
        self, base_url: str, *, timeout_s: float = 120.0, transport: httpx2.AsyncBaseTransport | None = None
    ) -> None:
        self._service = JsonService(
            "PP-StructureV3", base_url, timeout_s=timeout_s, rejects=BadInput, transport=transport
        )
        self._recent: Recent[tuple[TextBlock, ...]] = Recent(CACHED_PAGES)

    async def read(self, image: bytes, *, orient: bool = False, charts: bool = False) -> list[TextBlock]:
        """See `protocols.OcrEngine`. `confidence` is the mean over a block's lines, 0 where the service tells none."""
        key = f"{hashlib.sha256(image).hexdigest()}:{orient}:{charts}"
        known = self._recent.get(key)
        if known is None:
            body = {
                "file": base64.b64encode(image).decode("ascii"),
                "fileType": 1,
                "useDocOrientationClassify": orient,
                "useDocUnwarping": False,
                "useChartRecognition": charts,
                "visualize": False,
            }
            known = tuple(_blocks(await self._service.call("POST", "/layout-parsing", body=body)))
            self._recent.put(key, known)
        return list(known)


def _blocks(answer: dict[str, Any]) -> list[TextBlock]:
    if answer.get("errorCode", 0) != 0:
        raise BackendDown("PP-StructureV3 could not parse the picture.")
    result = answer.get("result")
    pages = objects(result.get("layoutParsingResults")) if isinstance(result, dict) else None
    if pages is None:
        raise BackendDown("PP-StructureV3 answered in a form we do not know.")
    found: list[TextBlock] = []
    for page in pages:
        pruned = page.get("prunedResult")
        if not isinstance(pruned, dict):
            raise BackendDown("PP-StructureV3 answered in a form we do not know.")
        lines = _scored_lines(pruned.get("overall_ocr_res"))
        for item in objects(pruned.get("parsing_res_list")):
            text, box = text_of(item, "block_content"), _box(item.get("block_bbox"))
            if text and box is not None:
                label = text_of(item, "block_label") or "text"
                inside = [score for middle, score in lines if _holds(box, middle)]
                confidence = round(statistics.fmean(inside), 4) if inside else 0.0
                found.append(TextBlock(text, LABELS.get(label, label), box, confidence))
    return found


def _box(value: Any) -> tuple[int, int, int, int] | None:
    if not isinstance(value, list) or len(value) != 4 or not all(isinstance(side, int | float) for side in value):
        return None
    left, top, right, bottom = (round(side) for side in value)
    return left, top, right, bottom


def _scored_lines(ocr: Any) -> list[tuple[tuple[float, float], float]]:
    """Middle and score of every recognised line."""
    if not isinstance(ocr, dict):
        return []
    boxes, scores = ocr.get("rec_boxes"), ocr.get("rec_scores")
    if not isinstance(boxes, list) or not isinstance(scores, list) or len(boxes) != len(scores):
        return []
    found = []
    for raw, score in zip(boxes, scores, strict=True):
        box = _box(raw)
        if box is not None and isinstance(score, int | float):
            found.append((((box[0] + box[2]) / 2, (box[1] + box[3]) / 2), float(score)))
    return found


def _holds(box: tuple[int, int, int, int], point: tuple[float, float]) -> bool:
    return box[0] <= point[0] <= box[2] and box[1] <= point[1] <= box[3]
