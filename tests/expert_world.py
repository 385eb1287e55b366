"""A world of five pages with fake tools behind the tool texts, and a loop that drives an expert through it."""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import dataclass, field
from pathlib import Path

from PIL import Image
from scoring_samples import hits, matches

from opensearch_vl.images import ImageBank, ImageStore
from opensearch_vl.protocols import ChatModel, Message, TextPart, ToolSchema
from opensearch_vl.text import words
from opensearch_vl.types import (
    Degradation,
    Descriptor,
    FailureKind,
    Gold,
    ImageRef,
    Observation,
    PathHop,
    PictureSource,
    Predicate,
    Provenance,
    Task,
    ToolCall,
    ToolFailure,
    ToolResult,
)

PHOTO = ImageRef(sha256="a" * 64, mime="image/png", width_px=640, height_px=480)

PAGES = {
    "Grand Hall": "Architect: Ana Boro\nHeight: 35 m\n\nGrand Hall is a hall.",
    "Ana Boro": "Birth date: 15 May 1931\nSpouse: Ilja Rest, Óla Vik\n\nAna Boro built Grand Hall.",
    "Óla Vik (sculptor)": "Occupation: sculptor\nBirth date: 2 March 1900\n\nÓla Vik knew Ana Boro.",
    "Ilja Rest": "Occupation: painter\nBirth date: 1 March 1901\n\nIlja Rest.",
    "Blue Horse": "Creator: Óla Vik\nCatalogue number: 7-B\n\nBlue Horse is a sculpture. It weighs much.",
    "Red Horse": "Creator: Óla Vik\nCatalogue number: 9-C\n\nRed Horse is a sculpture.",
}  # fmt: skip


def hop(source: str, target: str, relation: str, direction: str = "forward") -> PathHop:
    return PathHop(source=source, target=target, relation=relation, direction=direction)  # type: ignore[arg-type]


PATHS = {
    2: (hop("Grand Hall", "Ana Boro", "architect"),),
    3: (hop("Grand Hall", "Ana Boro", "architect"), hop("Ana Boro", "Óla Vik (sculptor)", "spouse")),
    4: (
        hop("Grand Hall", "Ana Boro", "architect"),
        hop("Ana Boro", "Óla Vik (sculptor)", "spouse"),
        hop("Óla Vik (sculptor)", "Blue Horse", "creator", "inverse"),
    ),
}
ASKED = {
    2: ("birth_date", "15 May 1931", "date"),
    3: ("birth_date", "2 March 1900", "date"),
    4: ("catalogue_number", "7-B", "text"),
}


def make_task(
    nodes: int = 4, *, lettering: bool = False, repair: str | None = None, images: tuple[ImageRef, ...] = (PHOTO,)
) -> Task:
    hops = PATHS[nodes]
    key, answer, kind = ASKED[nodes]
    kinds = {"sharpen": "blur", "super_resolution": "downsample", "perspective_correct": "perspective"}
    damage = None
    if repair is not None:
        damage = Degradation(
            kind=kinds[repair],
            repair_tool=repair,
            strength=1.0,
            readable_before=False,
            readable_after=True,  # type: ignore[arg-type]
        )
    details = (Predicate(kind="attr", key="catalogue_number", value="7-B"),)
    return Task(
        id=f"task-{nodes}-{lettering}-{repair}",
        question="What is the thing in the picture about?",
        images=images,
        gold=Gold(answer=answer, kind=kind),  # type: ignore[arg-type]
        provenance=Provenance(
            path=(hops[0].source, *(h.target for h in hops)),
            hops=hops,
            attribute=key,
            descriptors=(Descriptor(entity="Blue Horse", phrase="the work", predicates=details),),
            picture=PictureSource(
                file="f.png", page="Grand Hall", identified_by="lettering" if lettering else "appearance"
            ),
            degradation=damage,
        ),
    )


@dataclass
class World:
    """Fake tools. `look_alikes` are the titles an image search gives; `readable` the pictures whose sign can be read."""

    pages: dict[str, str] = field(default_factory=lambda: dict(PAGES))
    look_alikes: tuple[str, ...] = ("Grand Hall",)
    sign: str = "GRAND HALL"
    readable: tuple[str, ...] = ("img_1",)
    repairs: dict[str, str] = field(default_factory=dict)  # tool -> whether its picture is readable is in `readable`
    num_images: int = 1
    calls: list[tuple[str, dict]] = field(default_factory=list)
    show: int = 10_000
    ambiguous: bool = False
    time_outs: int = 0

    def answer(self, name: str, arguments: dict) -> str:
        self.calls.append((name, arguments))
        if self.time_outs > 0:
            self.time_outs -= 1
            return "The tool call failed (timeout)."
        match name:
            case "text_search":
                return self._search(arguments["q"], arguments.get("top_k", 5))
            case "image_search":
                note = f"\n\nNote: {len(self.look_alikes)} pictures match about equally well." if self.ambiguous else ""
                return matches(*self.look_alikes) + note
            case "layout_parsing" if arguments["image"] in self.readable:
                return f'[Text Block 1] (text) "{self.sign}"\n\nAll text:\n{self.sign}'
            case "layout_parsing":
                return "No text found."
            case "sharpen" | "super_resolution" | "perspective_correct":
                self.num_images += 1
                made = f"img_{self.num_images}"
                if self.repairs.get(name) == "good":
                    self.readable = (*self.readable, made)
                return f"Done. New image ID: {made}"
            case "visit":
                title = next(t for n, t in enumerate(self.pages, 1) if arguments["url"].endswith(f"/{n}"))
                return self.pages[title]
        return f"There is no tool {name!r}."

    def _search(self, query: str, top_k: int) -> str:
        asked = set(words(query))

        def score(item: tuple[str, str]) -> int:
            return 3 * len(asked & set(words(item[0]))) + len(asked & set(words(item[1])))

        ranked = [item for item in sorted(self.pages.items(), key=score, reverse=True) if score(item) > 0]
        return hits(*((title, text[: self.show]) for title, text in ranked[:top_k])) or "Nothing found."


async def drive(
    expert: ChatModel, world: World, max_turns: int = 40, layout: str = "<tool_response>{}</tool_response>"
) -> list[str]:
    """Run an expert in the world; returns its replies, the response last."""
    messages = [Message("system", (TextPart("…"),)), Message("user", (TextPart("question"),))]
    replies: list[str] = []
    for _ in range(max_turns):
        reply = (await expert.complete(messages)).content
        replies.append(reply)
        if "<response>" in reply:
            return replies
        found = re.search(r"<tool_call>(.*)</tool_call>", reply, re.DOTALL)
        assert found is not None, reply
        try:
            call = json.loads(found[1])
        except ValueError:
            text = "The call is not valid JSON."
        else:
            text = world.answer(call["name"], call["arguments"])
        messages += [Message("assistant", (TextPart(reply),)), Message("user", (TextPart(layout.format(text)),))]
    raise AssertionError("no response within the turns")


class WorldTools:
    """The world behind the interface that an environment needs of a toolbox.

    Pictures made by `good_repairs` can be read; `delay_s` makes every call wait.
    """

    names = ("text_search", "image_search", "layout_parsing", "sharpen", "super_resolution", "perspective_correct")

    def __init__(
        self, store: ImageStore, world: World | None = None, good_repairs: tuple[str, ...] = (), delay_s: float = 0
    ) -> None:
        self.store = store
        self.world = world or World()
        self.good_repairs = good_repairs
        self.delay_s = delay_s
        self.num_calls = 0
        self._readable: set[str] = set()

    def schemas(self) -> tuple[ToolSchema, ...]:
        return tuple(ToolSchema(name, name, {"type": "object", "properties": {}}) for name in self.names)

    def key(self, call: ToolCall) -> str:
        return json.dumps([call.name, call.arguments], sort_keys=True)

    async def call(self, call: ToolCall, bank: ImageBank) -> ToolResult:
        self.num_calls += 1
        await asyncio.sleep(self.delay_s)
        if call.name not in self.names:
            return _failed(FailureKind.UNKNOWN_TOOL, f"There is no tool {call.name!r}.")
        name = call.arguments.get("image") or call.arguments.get("url")
        if name is not None and name not in bank.ids():
            return _failed(FailureKind.BAD_INPUT, f"There is no picture {name!r}.")
        if call.name in ("sharpen", "super_resolution", "perspective_correct"):
            shade = self.names.index(call.name) * 20
            ref = self.store.put(Image.new("RGB", (40, 30), (shade, 90, 160)))
            if call.name in self.good_repairs:
                self._readable.add(ref.sha256)
            return ToolResult(observation=Observation(text="Done.", image=ref))
        if call.name == "layout_parsing" and name != "img_1" and bank.get(name).sha256 in self._readable:
            return ToolResult(observation=Observation(text=f'[Text Block 1] (text) "{self.world.sign}"'))
        return ToolResult(observation=Observation(text=self.world.answer(call.name, call.arguments)))


def _failed(kind: FailureKind, message: str) -> ToolResult:
    return ToolResult(observation=Observation(text=message), failure=ToolFailure(kind=kind, message=message))


def store_with_photo(root: Path) -> tuple[ImageStore, ImageRef]:
    """A store that holds one photo."""
    store = ImageStore(root)
    image = Image.new("RGB", (64, 48), (200, 180, 90))
    image.paste((60, 90, 150), (10, 10, 40, 40))
    return store, store.put(image)
