"""A world of made-up entities in memory: tasks with pictures, expert trajectories, and tools to roll them out with.

Every entity has a picture (a coloured pattern), a name and a founding year. A task shows the picture, sharp or blurred,
and asks for the year; the expert sharpens a blurred picture, searches for it, searches for the name, and answers.
"""

import asyncio
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass

from PIL import Image, ImageFilter

from opensearch_vl.agent.environment import Environment
from opensearch_vl.agent.settings import AgentSettings, SamplingSettings
from opensearch_vl.images import ImageBank, ImageStore
from opensearch_vl.protocols import ImagePart, Message, TextPart, ToolSchema
from opensearch_vl.types import (
    FailureKind,
    Gold,
    ImageRef,
    Observation,
    RolloutRecord,
    Step,
    Task,
    TaskView,
    Termination,
    ToolCall,
    ToolFailure,
    ToolResult,
    Trajectory,
    Verdict,
)

SYSTEM = "Find the answer with tools.\n<tools>\nimage_search(url)\ntext_search(q)\nsharpen(image)\n</tools>"
_SYLLABLES = [
    "ba",
    "be",
    "bo",
    "da",
    "de",
    "do",
    "fa",
    "fe",
    "ka",
    "ke",
    "ko",
    "la",
    "le",
    "lo",
    "ma",
    "me",
    "mo",
    "na",
    "ne",
    "no",
    "ra",
    "re",
    "ro",
    "sa",
    "se",
    "so",
    "ta",
    "te",
    "to",
    "va",
    "ve",
]


@dataclass(frozen=True)
class Entity:
    name: str
    year: int
    picture: ImageRef
    blurred: ImageRef


class Rendering:
    """A layout in the manner of the released one."""

    def opening(self, task: TaskView) -> Sequence[Message]:
        shown = [ImagePart(image) for image in task.images]
        return [Message("system", (TextPart(SYSTEM),)), Message("user", (*shown, TextPart(task.question)))]

    def answer(self, step: Step) -> Sequence[Message]:
        if step.observation is None:
            return []
        parts: list[TextPart | ImagePart] = [TextPart("<tool_response>")]
        if step.observation.image is not None:
            parts.append(ImagePart(step.observation.image))
        parts.append(TextPart(f"{step.observation.text}</tool_response>"))
        return [Message("user", tuple(parts))]


def entities(store: ImageStore, num: int, seed: int = 0) -> list[Entity]:
    rng = random.Random(seed)
    made = []
    for _ in range(num):
        name = "".join(rng.choice(_SYLLABLES) for _ in range(3)).capitalize()
        small = Image.new("RGB", (8, 8))
        for x in range(8):
            for y in range(8):
                small.putpixel((x, y), tuple(rng.randrange(256) for _ in range(3)))
        sharp = small.resize((64, 64), Image.Resampling.NEAREST)
        blurred = sharp.filter(ImageFilter.GaussianBlur(6))
        made.append(Entity(name, rng.randint(1500, 1999), store.put(sharp), store.put(blurred)))
    return made


def task_of(entity: Entity, blurred: bool) -> Task:
    return Task(
        id=f"{entity.name}-{'b' if blurred else 's'}",
        question="When was it founded?",
        images=(entity.blurred if blurred else entity.picture,),
        gold=Gold(answer=str(entity.year)),
    )


def call(name: str, arguments: dict[str, str]) -> ToolCall:
    return ToolCall(name=name, arguments=arguments)


def expert(entity: Entity, blurred: bool) -> RolloutRecord:
    """The record of an expert's rollout."""
    task = task_of(entity, blurred)
    steps: list[Step] = []
    shown = "img_1"
    if blurred:
        observation = Observation(text="Sharpened.\nNew image ID: img_2", image=entity.picture, image_id="img_2")
        steps.append(_call_step(0, "It is blurred.", call("sharpen", {"image": "img_1"}), observation))
        shown = "img_2"
    found = Observation(text=f"[Match 1]\nTitle: {entity.name}")
    steps.append(_call_step(len(steps), "What is shown?", call("image_search", {"url": shown}), found))
    page = Observation(text=f"[Passage 1]\nTitle: {entity.name}\nSummary: Founded in {entity.year}.")
    steps.append(_call_step(len(steps), f"It is {entity.name}.", call("text_search", {"q": entity.name}), page))
    answer = str(entity.year)
    text = f"<think>Found.</think><response>{answer}</response>"
    steps.append(Step(index=len(steps), text=text, thought="Found.", response=answer, well_formed=True))
    trajectory = Trajectory(
        id=f"{task.id}#0", task_id=task.id, steps=tuple(steps), termination=Termination.ANSWERED, model="expert"
    )
    return RolloutRecord(
        id=trajectory.id, task=task, trajectory=trajectory, verdict=Verdict(correct=True), accepted=True
    )


def records(store: ImageStore, num: int, seed: int = 0) -> list[RolloutRecord]:
    return [expert(entity, bool(n % 2)) for n, entity in enumerate(entities(store, num, seed))]


def _call_step(index: int, thought: str, made: ToolCall, observation: Observation) -> Step:
    body = json.dumps({"name": made.name, "arguments": made.arguments})
    text = f"<think>{thought}</think><tool_call>{body}</tool_call>"
    return Step(index=index, text=text, thought=thought, call=made, well_formed=True, observation=observation)


class Tools:
    """The three tools of the world, as an environment needs them.

    Args:
        entities: Who can be found.
        broken: Names of tools that always fail.
        seconds: How long a call takes.
    """

    def __init__(self, entities: Sequence[Entity], broken: frozenset[str] = frozenset(), seconds: float = 0.0) -> None:
        self.by_picture = {entity.picture.sha256: entity for entity in entities}
        self.by_blur = {entity.blurred.sha256: entity for entity in entities}
        self.by_name = {entity.name: entity for entity in entities}
        self.broken = broken
        self.seconds = seconds
        self.num_calls = 0

    names = ("image_search", "text_search", "sharpen")

    def schemas(self) -> tuple[ToolSchema, ...]:
        arguments = {"image_search": "url", "text_search": "q", "sharpen": "image"}
        return tuple(
            ToolSchema(name, f"{name} of the world", {"type": "object", "required": [arguments[name]]})
            for name in self.names
        )

    def key(self, made: ToolCall) -> str:
        return json.dumps([made.name, made.arguments], sort_keys=True)

    async def call(self, made: ToolCall, bank: ImageBank) -> ToolResult:
        self.num_calls += 1
        await asyncio.sleep(self.seconds)
        if made.name in self.broken:
            return _failed(FailureKind.BACKEND_DOWN, "The service is down.")
        if made.name not in self.names:
            return _failed(FailureKind.UNKNOWN_TOOL, "There is no such tool.")
        value = str(next(iter(made.arguments.values()), ""))
        if made.name == "text_search":
            found = self.by_name.get(value)
            text = f"[Passage 1]\nTitle: {found.name}\nSummary: Founded in {found.year}." if found else "No results."
            return ToolResult(observation=Observation(text=text))
        shown = dict(zip(bank.ids(), bank, strict=True)).get(value)
        if shown is None:
            return _failed(FailureKind.BAD_INPUT, "There is no such picture.")
        if made.name == "sharpen":
            blurred = self.by_blur.get(shown.sha256)
            return ToolResult(observation=Observation(text="Sharpened.", image=blurred.picture if blurred else shown))
        entity = self.by_picture.get(shown.sha256)
        return ToolResult(
            observation=Observation(text=f"[Match 1]\nTitle: {entity.name}" if entity else "No confident match.")
        )


def environment(
    store: ImageStore, tools: Tools, temperature: float = 1.0, reply_tokens: int = 48, **changes: object
) -> Environment:
    """A real environment, profile `miniature`, around the world's tools."""
    sampling = SamplingSettings(temperature=temperature, max_tokens=reply_tokens)
    base: dict[str, object] = {"profile": "miniature", "parsing": "strict", "max_turns": 5, "list_pictures": False}
    return Environment(tools, AgentSettings.model_validate(base | {"sampling": sampling} | changes), store)


def _failed(kind: FailureKind, text: str) -> ToolResult:
    return ToolResult(observation=Observation(text=text), failure=ToolFailure(kind=kind, message=text))
