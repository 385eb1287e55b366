"""The PP-StructureV3 client against a recorded answer."""

import base64
import json
from typing import Any

import httpx2
import pytest

from opensearch_vl.backends.pp_structure import PpStructureClient
from opensearch_vl.errors import BackendDown, BadInput, RateLimited, TooLarge, ToolError
from opensearch_vl.protocols import TextBlock

ANSWER: dict[str, Any] = {
    "logId": "0f0d4e52-0000-0000-0000-000000000000",
    "errorCode": 0,
    "errorMsg": "Success",
    "result": {
        "layoutParsingResults": [
            {
                "prunedResult": {
                    "model_settings": {"use_doc_preprocessor": True},
                    "parsing_res_list": [
                        {
                            "block_label": "doc_title",
                            "block_content": "Menu",
                            "block_bbox": [10, 8, 190, 40],
                            "block_id": 0,
                            "block_order": 1,
                        },
                        {
                            "block_label": "text",
                            "block_content": "Soup 4.50\nBread 2.00",
                            "block_bbox": [10.4, 60, 200, 110.6],
                            "block_id": 1,
                        },
                        {"block_label": "image", "block_content": "", "block_bbox": [0, 0, 5, 5]},
                        {
                            "block_label": "vision_footnote",
                            "block_content": "VAT included",
                            "block_bbox": [10, 280, 120, 292],
                        },
                        {"block_label": "text", "block_content": "no box"},
                    ],
                    "overall_ocr_res": {
                        "rec_texts": ["Menu", "Soup 4.50", "Bread 2.00"],
                        "rec_scores": [0.99, 0.9, 0.8],
                        "rec_boxes": [[12, 10, 180, 38], [11, 61, 180, 82], [11, 86, 180, 108]],
                    },
                },
                "markdown": {"text": "# Menu", "images": {}},
                "outputImages": None,
            }
        ],
        "dataInfo": {"width": 400, "height": 300, "type": "image"},
    },
}


def client(answer: Any, status: int = 200) -> tuple[PpStructureClient, list[httpx2.Request]]:
    seen: list[httpx2.Request] = []

    def handle(request: httpx2.Request) -> httpx2.Response:
        seen.append(request)
        return httpx2.Response(status, json=answer)

    return PpStructureClient("http://localhost:8080/", transport=httpx2.MockTransport(handle)), seen


async def test_blocks_in_the_services_order() -> None:
    engine, seen = client(ANSWER)
    assert await engine.read(b"picture", orient=True, charts=True) == [
        TextBlock("Menu", "title", (10, 8, 190, 40), 0.99),
        TextBlock("Soup 4.50\nBread 2.00", "text", (10, 60, 200, 111), 0.85),
        TextBlock("VAT included", "footnote", (10, 280, 120, 292), 0.0),
    ]
    assert str(seen[0].url) == "http://localhost:8080/layout-parsing"
    sent = json.loads(seen[0].content)
    assert base64.b64decode(sent["file"]) == b"picture" and sent["fileType"] == 1
    assert sent["useDocOrientationClassify"] is True and sent["useChartRecognition"] is True


async def test_the_same_picture_is_sent_once_per_way_of_reading() -> None:
    engine, seen = client(ANSWER)
    for orient in (False, False, True):
        await engine.read(b"picture", orient=orient)
    assert len(seen) == 2


@pytest.mark.parametrize(
    ("status", "kind"), [(422, BadInput), (413, TooLarge), (429, RateLimited), (500, BackendDown), (503, BackendDown)]
)
async def test_status_codes_become_kinds(status: int, kind: type[ToolError]) -> None:
    engine, _ = client({"errorCode": status, "errorMsg": "x"}, status)
    with pytest.raises(kind):
        await engine.read(b"x")


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"result": None},
        {"errorCode": 500},
        {"errorCode": 0, "result": {"layoutParsingResults": [{"prunedResult": []}]}},
    ],
)
async def test_unknown_forms_are_refused(answer: Any) -> None:
    engine, _ = client(answer)
    with pytest.raises(BackendDown):
        await engine.read(b"x")


async def test_an_empty_page_has_no_blocks() -> None:
    engine, _ = client(
        {"errorCode": 0, "result": {"layoutParsingResults": [{"prunedResult": {"parsing_res_list": []}}]}}
    )
    assert await engine.read(b"x") == []
