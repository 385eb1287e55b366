"""The released ShareGPT format of trajectories, both ways: one row per trajectory.

```
{"conversations": [{"from": "human" | "gpt" | "observation", "value": str}, …], "images": [path, …],
 "system": str, "tools": JSON text}
```

``<image>`` markers in the values consume `images` in order, so a literal ``<image>`` in anybody's text would shift
every later picture: literal markers are escaped with an invisible character on the way out and restored on the way in.
What a row does not hold is lost on the way back: verdicts, timings, and which calls failed.

Rows of others word the frame of a turn otherwise (a line break after the marker, no closing tag, a bare user turn for a
format error). Such turns are kept with the task as they stood, so that a row read and written again is the same row.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from opensearch_vl.agent.dialect import parse, render_call, render_response
from opensearch_vl.errors import ImageError, RecordError
from opensearch_vl.images import ImageStore, ingest
from opensearch_vl.protocols import Reply, ToolSchema
from opensearch_vl.seeds import derive
from opensearch_vl.text import encodable
from opensearch_vl.types import (
    Gold,
    ImageRef,
    Observation,
    Provenance,
    RolloutRecord,
    Step,
    Task,
    Termination,
    Trajectory,
)

MARKER = "<image>"
_LITERAL = re.compile(r"<(\u2060*)(image|video|audio)>")  # trainers count all three
_ESCAPED = re.compile(r"<\u2060(\u2060*)(image|video|audio)>")
_OPEN, _CLOSE = "<observation>\n", "\n</observation>"
_OBSERVATION = re.compile(r"\s*<observation>\n?(.*?)\n?(?:</observation>)?\s*", re.DOTALL)
_IMAGE_ID = re.compile(r"New image ID: (img_\d{1,5})")
_AS_READ = "sharegpt_turns"
"""Key in a task's provenance: turns, by number, that `to_row` would word otherwise."""


def escape(text: str) -> str:
    """Text in which no media marker is left."""
    return _LITERAL.sub(lambda found: f"<\u2060{found[1]}{found[2]}>", text)


def unescape(text: str) -> str:
    """The inverse of `escape`."""
    return _ESCAPED.sub(lambda found: f"<{found[1]}{found[2]}>", text)


def to_row(
    record: RolloutRecord, *, system: str, schemas: Sequence[ToolSchema]
) -> tuple[dict[str, Any], list[ImageRef]]:
    """A record as a row whose `images` is still empty, and the pictures that belong there, in order.

    Args:
        record: The trajectory with its task.
        system: System prompt, without the description of the tools.
        schemas: The tools that were on offer.
    """
    images = list(record.task.images)
    images += [s.observation.image for s in record.trajectory.steps if s.observation and s.observation.image]
    turns = _turns_of(record)
    as_read = record.task.provenance.extra.get(_AS_READ)
    if isinstance(as_read, dict):
        for number, turn in enumerate(turns):
            other = as_read.get(str(number))
            if isinstance(other, list) and str(other[1]).count(MARKER) == turn[1].count(MARKER):
                turns[number] = (str(other[0]), str(other[1]))
    tools = [
        {"type": "function", "function": {"name": s.name, "description": s.description, "parameters": s.parameters}}
        for s in schemas
    ]
    row = {
        "conversations": [{"from": role, "value": value} for role, value in turns],
        "images": [],
        "system": escape(system),
        "tools": json.dumps(tools, ensure_ascii=False),
    }
    return row, images


def _turns_of(record: RolloutRecord) -> list[tuple[str, str]]:
    """Role and value of every turn, in the form that we write."""
    turns = [("human", MARKER * len(record.task.images) + escape(record.task.question))]
    for step in record.trajectory.steps:
        turns.append(("gpt", escape(_reply(step))))
        if step.observation is not None:
            marker = MARKER if step.observation.image is not None else ""
            turns.append(("observation", f"{marker}{_OPEN}{escape(step.observation.text)}{_CLOSE}"))
    return turns


def _reply(step: Step) -> str:
    """The reply as written; in the exact form where its text does not say it all.

    That is so where the server took thought or call out of the text, or where untagged text was the final response, as
    under native tool calls.
    """
    if step.call is None and step.response is None:
        return step.text or step.thought
    read = parse(Reply(content=step.text))
    if (read.thought, read.call, read.response) == (step.thought, step.call, step.response):
        return step.text
    if step.call is not None:
        return render_call(step.thought, step.call)
    return render_response(step.thought, step.response or "")


def read_sharegpt(file: Path | str, store: ImageStore, *, corpus: str = "sharegpt") -> Iterator[RolloutRecord]:
    """Rows of a JSON array or JSONL file in the released format, as records.

    Picture paths are looked up beside the file and must not lead out of its folder.

    Args:
        file: The file.
        store: Where the pictures go.
        corpus: Name of the data set, for ids and provenance.

    Raises:
        RecordError: If the file or a row is not of the format; names the row.
    """
    file = Path(file)
    for number, row in enumerate(sharegpt_rows(file)):
        try:
            yield from_row(row, store, base=file.parent, corpus=corpus)
        except (RecordError, ImageError) as error:
            raise RecordError(f"{file}, row {number}: {error.message}", error.fix) from error


def sharegpt_rows(file: Path) -> Iterator[Any]:
    """The rows of a JSON array or JSONL file, unread.

    Raises:
        RecordError: If the file is neither.
    """
    try:
        with open(file, encoding="utf-8") as handle:
            if file.suffix == ".jsonl":
                yield from (json.loads(line) for line in handle if line.strip())
                return
            rows = json.load(handle)
    except (OSError, ValueError) as error:
        raise RecordError(f"Cannot read {file}: {error}.") from error
    if not isinstance(rows, list):
        raise RecordError(f"{file} must hold a JSON array, not a {type(rows).__name__}.")
    yield from rows


def from_row(row: Any, store: ImageStore, *, base: Path, corpus: str = "sharegpt") -> RolloutRecord:
    """One row as a record. The final response stands in for the reference answer, which rows do not hold.

    Raises:
        RecordError: If the row is not of the format, or markers and pictures do not agree in number.
        ImageError: If a picture is missing, not a picture, or outside `base`.
    """
    turns = _turns(row)
    paths = row.get("images") or []
    if not isinstance(paths, list):
        raise RecordError(f"images should be a list of paths, not a {type(paths).__name__}.")
    wanted, given = sum(value.count(MARKER) for _, value in turns), len(paths)
    if wanted != given:
        raise RecordError(f"{wanted} {MARKER} markers but {given} pictures.")
    pictures = iter([picture_beside(path, store, base) for path in paths])
    question, images = _take(turns[0][1], pictures)
    steps: list[Step] = []
    for role, value in turns[1:]:
        text, seen = _take(value, pictures)
        if role == "gpt":
            steps.append(_step(len(steps), text))
        elif steps:
            steps[-1] = _observed(steps[-1], text, seen)
    response = steps[-1].response if steps else None
    task = _task(question, images, response or "", corpus)
    trajectory = Trajectory(
        id=f"{task.id}#0",
        task_id=task.id,
        steps=tuple(steps),
        termination=Termination.TURNS if response is None else Termination.ANSWERED,
        tools=_tool_names(row.get("tools")),
        model=corpus,
    )
    record = RolloutRecord(id=trajectory.id, task=task, trajectory=trajectory, accepted=True)
    ours = _turns_of(record)
    other: dict[str, JsonValue] = {str(n): list(turn) for n, turn in enumerate(turns) if turn != ours[n]}
    if not other:
        return record
    known = task.provenance.model_copy(update={"extra": {_AS_READ: other}})
    return record.model_copy(update={"task": task.model_copy(update={"provenance": known})})


def _turns(row: Any) -> list[tuple[str, str]]:
    conversations = row.get("conversations") if isinstance(row, dict) else None
    if not isinstance(conversations, list) or not conversations:
        raise RecordError("It has no conversations.")
    turns: list[tuple[str, str]] = []
    for number, turn in enumerate(conversations):
        role, value = (turn.get("from"), turn.get("value")) if isinstance(turn, dict) else (None, None)
        expected = ("human",) if number == 0 else ("gpt",) if number % 2 else ("observation", "human")
        if role not in expected or not isinstance(value, str):
            raise RecordError(f"Turn {number} should be from {' or '.join(expected)}, with text; it is from {role!r}.")
        if number and value.count(MARKER) > (most := 0 if role == "gpt" else 1):
            raise RecordError(
                f"Turn {number} holds {value.count(MARKER)} {MARKER} markers; at most {most} can be shown."
            )
        turns.append((str(role), encodable(value)))
    return turns


def picture_beside(path: Any, store: ImageStore, base: Path) -> ImageRef:
    """Store the picture that a row names by its path; links and `..` must not lead out of `base`.

    Raises:
        ImageError: If it is missing, not a picture, or outside `base`.
    """
    if not isinstance(path, str):
        raise ImageError(f"A picture should be given by its path, not by a {type(path).__name__}.")
    try:
        full = (base / path).resolve()
    except (OSError, ValueError) as error:  # too long, a loop of links, a null character
        raise ImageError(f"{path[:120]!r} is no path.") from error
    if not full.is_relative_to(base.resolve()):
        raise ImageError(f"The picture {path!r} lies outside the folder of the file.")
    return ingest(full, store)


def _take(value: str, pictures: Iterator[ImageRef]) -> tuple[str, tuple[ImageRef, ...]]:
    """A value without its markers, and the pictures they stand for."""
    taken = tuple(next(pictures) for _ in range(value.count(MARKER)))
    return unescape(value.replace(MARKER, "")), taken


def _step(index: int, text: str) -> Step:
    parsed = parse(Reply(content=text))
    return Step(
        index=index,
        text=text,
        thought=parsed.thought,
        call=parsed.call,
        response=parsed.response,
        well_formed=parsed.well_formed,
        failure=parsed.failure,
    )


def _observed(step: Step, text: str, images: tuple[ImageRef, ...]) -> Step:
    inner = _OBSERVATION.fullmatch(text)
    shown = inner[1] if inner is not None else text
    image = images[0] if images else None
    named = _IMAGE_ID.search(shown) if image is not None else None
    observation = Observation(text=shown, image=image, image_id=named[1] if named is not None else None)
    return step.model_copy(update={"observation": observation})


def _task(question: str, images: tuple[ImageRef, ...], answer: str, corpus: str) -> Task:
    identity = derive(corpus, question, *(image.sha256 for image in images))
    return Task(
        id=f"{corpus}-{identity:016x}",
        question=question,
        images=images,
        gold=Gold(answer=answer),
        provenance=Provenance(corpus=corpus),
    )


def _tool_names(tools: Any) -> tuple[str, ...]:
    """Names out of the `tools` field: JSON text of functions, bare or wrapped."""
    try:
        listed = json.loads(tools) if isinstance(tools, str) and tools.strip() else tools or []
    except (ValueError, RecursionError) as error:
        raise RecordError(f"tools is not JSON: {error}.") from error
    functions = [item.get("function", item) for item in listed if isinstance(item, dict)]
    return tuple(str(item["name"]) for item in functions if isinstance(item, dict) and "name" in item)
