"""Messages to the JSON of the chat-completions interface, and back.

Kept apart from the client so that the two directions can be read, and tested, without a server. Pictures travel as data
URLs. A `tool` message cannot carry a picture there, so the pictures of tool results follow in a user message.
"""

from __future__ import annotations

import base64
import json
import math
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

from PIL import Image
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from opensearch_vl.errors import ModelReplyInvalid
from opensearch_vl.images import ImageStore, encode_jpeg, encode_png
from opensearch_vl.protocols import ImagePart, Message, NativeCall, Part, Reply, TextPart, ToolSchema
from opensearch_vl.types import ImageRef, Usage

_CACHED_BYTES = 64_000_000
_CUT_OFF = frozenset({"length", "max_tokens", "max_output_tokens"})  # as different servers call it
_TOOL_PICTURE = "The picture that the tool returned:"


class DataUrls:
    """Pictures as data URLs, shrunk to what the model is to see. The latest are kept: each turn sends them all again.

    Args:
        store: Where the pictures lie.
        max_pixels: Larger pictures are scaled down to this area, their proportions kept.
    """

    def __init__(self, store: ImageStore, max_pixels: int) -> None:
        self.store = store
        self.max_pixels = max_pixels
        self._cache: OrderedDict[str, str] = OrderedDict()
        self._size = 0

    def cached(self, ref: ImageRef) -> str | None:
        """The data URL if it is at hand."""
        url = self._cache.get(ref.sha256)
        if url is not None:
            self._cache.move_to_end(ref.sha256)
        return url

    def encode(self, ref: ImageRef) -> str:
        """Make the data URL; takes a while for large pictures, so call it in a thread.

        Raises:
            ImageError: If the store does not have the picture.
        """
        width, height = fit_area(ref.width_px, ref.height_px, self.max_pixels)
        if (width, height) == (ref.width_px, ref.height_px):
            data = self.store.read(ref)
        else:
            small = self.store.open(ref).resize((width, height), Image.Resampling.LANCZOS)
            data = encode_png(small) if ref.mime == "image/png" else encode_jpeg(small)
        return f"data:{ref.mime};base64,{base64.b64encode(data).decode('ascii')}"

    def keep(self, ref: ImageRef, url: str) -> None:
        """Remember a data URL, and forget the ones unused for longest."""
        if ref.sha256 in self._cache:
            return
        self._cache[ref.sha256] = url
        self._size += len(url)
        while self._size > _CACHED_BYTES and len(self._cache) > 1:
            _, dropped = self._cache.popitem(last=False)
            self._size -= len(dropped)


def fit_area(width_px: int, height_px: int, max_pixels: int) -> tuple[int, int]:
    """The largest size of the same proportions with at most `max_pixels` pixels; never larger than the original."""
    if width_px * height_px <= max_pixels:
        return width_px, height_px
    scale = math.sqrt(max_pixels / (width_px * height_px))
    return max(1, math.floor(width_px * scale)), max(1, math.floor(height_px * scale))


def to_wire(messages: Sequence[Message], urls: dict[str, str]) -> list[dict[str, Any]]:
    """Messages as the interface wants them; `urls` maps a picture's SHA-256 to its data URL."""
    wire: list[dict[str, Any]] = []
    waiting: list[Part] = []  # pictures of tool results, to follow the last of them
    for message in messages:
        if waiting and message.role != "tool":
            wire.append({"role": "user", "content": _content((TextPart(_TOOL_PICTURE), *waiting), urls)})
            waiting = []
        if message.role == "tool":
            waiting += [part for part in message.parts if isinstance(part, ImagePart)]
            wire.append({"role": "tool", "tool_call_id": message.tool_call_id, "content": message.text})
            continue
        row: dict[str, Any] = {"role": message.role, "content": _content(message.parts, urls)}
        if message.tool_calls:
            row["tool_calls"] = [
                {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
                for call in message.tool_calls
            ]
            row["content"] = row["content"] or None
        wire.append(row)
    if waiting:
        wire.append({"role": "user", "content": _content((TextPart(_TOOL_PICTURE), *waiting), urls)})
    return wire


def tools_to_wire(tools: Sequence[ToolSchema]) -> list[dict[str, Any]]:
    """Tools in the function format."""
    return [
        {
            "type": "function",
            "function": {"name": tool.name, "description": tool.description, "parameters": tool.parameters},
        }
        for tool in tools
    ]


def _content(parts: Sequence[Part], urls: dict[str, str]) -> str | list[dict[str, Any]]:
    if all(isinstance(part, TextPart) for part in parts):
        return "".join(part.text for part in parts if isinstance(part, TextPart))
    return [
        {"type": "text", "text": part.text}
        if isinstance(part, TextPart)
        else {"type": "image_url", "image_url": {"url": urls[part.image.sha256]}}
        for part in parts
    ]


# ---------------------------------------------------------------------------------------------- replies


class _Wire(BaseModel):
    """Base of what comes over the wire: unknown fields are left alone, and null means "not given"."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class _Function(_Wire):
    name: str = ""
    arguments: str = ""

    @field_validator("arguments", mode="before")
    @classmethod
    def _as_text(cls, value: Any) -> Any:
        """Some servers send the arguments decoded."""
        return json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else value or ""


class _Call(_Wire):
    id: str | None = None
    function: _Function


class _ContentPart(_Wire):
    text: str | None = None


class _Answer(_Wire):
    content: str | list[_ContentPart] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: str | None = None
    tool_calls: list[_Call] | None = None

    def text(self) -> str:
        if isinstance(self.content, list):
            return "".join(part.text or "" for part in self.content)
        return self.content or self.refusal or ""


class _Choice(_Wire):
    message: _Answer
    finish_reason: str | None = None
    stop_reason: str | int | None = None


class _Usage(_Wire):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class _Completion(_Wire):
    choices: list[_Choice] = Field(min_length=1)
    usage: _Usage | None = None


def from_wire(body: bytes, stop: Sequence[str] = ()) -> Reply:
    """The reply in the body of a chat completion.

    A stop string that the server says it cut off is put back, because the text of a turn includes it.

    Raises:
        ModelReplyInvalid: If the body is not a chat completion.
    """
    try:
        completion = _Completion.model_validate_json(body)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the body"
        raise ModelReplyInvalid(
            f"The server's reply is not a chat completion ({where}: {first['msg']}); "
            f"it begins {body[:120].decode('utf-8', 'replace')!r}.",
            "Does the base URL end in /v1, and is it a chat model?",
        ) from error
    choice = completion.choices[0]
    content = choice.message.text()
    if isinstance(choice.stop_reason, str) and choice.stop_reason in stop and not content.endswith(choice.stop_reason):
        content += choice.stop_reason
    calls = tuple(
        NativeCall(call.id or f"call{n}", call.function.name, call.function.arguments)
        for n, call in enumerate(choice.message.tool_calls or ())
    )
    counted = completion.usage or _Usage()
    return Reply(
        content=content,
        reasoning=choice.message.reasoning_content or choice.message.reasoning or "",
        tool_calls=calls,
        usage=Usage(prompt_tokens=counted.prompt_tokens or 0, completion_tokens=counted.completion_tokens or 0),
        finish_reason="length" if (choice.finish_reason or "").lower() in _CUT_OFF else choice.finish_reason or "stop",
    )
