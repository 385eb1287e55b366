"""Every seam to a model, a tool or the network. Rooms depend on these protocols; only `backends` implements them.

Values that cross a seam are small frozen dataclasses. Pictures cross as encoded bytes (PNG or JPEG), so that a local
index and a remote service look the same. Everything that may wait is `async`; an implementation that computes for
more than a few milliseconds does so in a thread. Backends raise `errors.ToolError` (tools) or `errors.ModelError`
(models) and nothing else on purpose.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

from PIL.Image import Image
from pydantic import BaseModel

from opensearch_vl.images import ImageBank, ImageStore
from opensearch_vl.types import (
    ImageRef,
    Observation,
    Sampled,
    TaskView,
    Trajectory,
    Usage,
    Verdict,
)

# ------------------------------------------------------------------------------------------ chat models


@dataclass(frozen=True, slots=True)
class TextPart:
    """A run of text inside a message."""

    text: str


@dataclass(frozen=True, slots=True)
class ImagePart:
    """A picture inside a message."""

    image: ImageRef


Part = TextPart | ImagePart


@dataclass(frozen=True, slots=True)
class Message:
    """One chat message. `tool_calls` is set on assistant turns in native mode, `tool_call_id` on `tool` turns."""

    role: Literal["system", "user", "assistant", "tool"]
    parts: tuple[Part, ...]
    tool_calls: tuple[NativeCall, ...] = ()
    tool_call_id: str = ""

    @property
    def text(self) -> str:
        """All text of the message, pictures left out."""
        return "".join(part.text for part in self.parts if isinstance(part, TextPart))

    @property
    def images(self) -> tuple[ImageRef, ...]:
        """The pictures of the message, in order."""
        return tuple(part.image for part in self.parts if isinstance(part, ImagePart))


@dataclass(frozen=True, slots=True)
class NativeCall:
    """A tool call that the server parsed out of the reply. `arguments` is the raw JSON text, not yet trusted."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class ToolSchema:
    """What a model is told about a tool: JSON schema of the arguments, as in the OpenAI function format."""

    name: str
    description: str
    parameters: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Sampling:
    """Decoding settings. `max_tokens` counts one reply; `stop` strings are kept in the text where one is hit.

    `schema` is a JSON schema, as text, for models that can hold their reply to one; others ignore it, so whoever sets
    it still has to read the reply with care.
    """

    temperature: float = 0.7
    top_p: float = 1.0
    max_tokens: int = 4096
    stop: tuple[str, ...] = ()
    schema: str = ""


@dataclass(frozen=True, slots=True)
class Reply:
    """A model's turn. Servers with parsers move parts of the text into `reasoning` and `tool_calls`."""

    content: str
    reasoning: str = ""
    tool_calls: tuple[NativeCall, ...] = ()
    usage: Usage = Usage()
    finish_reason: str = "stop"
    sampled: Sampled | None = None


@runtime_checkable
class ChatModel(Protocol):
    """A model that is spoken to in messages.

    `tools` non-empty means native mode: the server is told the tools and may answer with `tool_calls`; empty means
    that the tools, if any, are described in the prompt and calls come back as tags in the text.
    Raises `errors.ModelError`.
    """

    name: str

    async def complete(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSchema] = (),
        sampling: Sampling = Sampling(),
        seed: int = 0,
    ) -> Reply:
        """Return the next assistant turn."""
        ...


@runtime_checkable
class Policy(Protocol):
    """A model that is spoken to in token ids, so that the sampled ids are the trained ids."""

    name: str

    async def generate(self, token_ids: Sequence[int], images: Sequence[ImageRef], sampling: Sampling) -> Sampled:
        """Continue `token_ids` (image placeholders already expanded); `images` in order of appearance."""
        ...


# ------------------------------------------------------------------------------------------- retrieval


@dataclass(frozen=True, slots=True)
class Passage:
    """A hit of a text search. `text` is the passage itself, not yet summarised."""

    title: str
    url: str
    text: str
    score: float = 0.0


class SearchEngine(Protocol):
    """Text search."""

    name: str

    async def search(self, query: str, top_k: int, lang: str = "en") -> list[Passage]:
        """At most `top_k` passages, best first; an empty list when nothing fits (not an error)."""
        ...


@dataclass(frozen=True, slots=True)
class VisualMatch:
    """A hit of a reverse image search.

    Attributes:
        title: Title of the page that shows the picture.
        url: Address of that page.
        source: Name of the site or file the picture comes from.
        snippet: The opening of that page.
        score: Similarity in [0, 1].
        exact: Whether geometry confirms that the same picture is shown (as opposed to a look-alike).
    """

    title: str
    url: str
    source: str
    snippet: str = ""
    score: float = 0.0
    exact: bool = False


class ImageIndex(Protocol):
    """Reverse image search."""

    name: str

    async def search(self, image: bytes, top_k: int) -> list[VisualMatch]:
        """Confident matches only, best first; an empty list means "no confident match"."""
        ...


@dataclass(frozen=True, slots=True)
class Page:
    """A page as text."""

    title: str
    url: str
    text: str


class PageReader(Protocol):
    """Turns an address into text."""

    name: str

    async def read(self, url: str) -> Page:
        """Read a page; raises `BadInput` for an unknown local page, `Blocked` for a forbidden address."""
        ...


class Summariser(Protocol):
    """Condenses a page towards a query (2-4 sentences) or a goal (longer)."""

    name: str

    async def summarise(self, page: Page, query: str, max_sentences: int = 4) -> str:
        """The sentences of `page` that bear on `query`, in the page's order."""
        ...


@dataclass(frozen=True, slots=True)
class TextBlock:
    """A recognised block: text, layout label, and its box ``(left, top, right, bottom)`` in pixels."""

    text: str
    label: str
    box_px: tuple[int, int, int, int]
    confidence: float


class OcrEngine(Protocol):
    """Reads text off a picture."""

    name: str

    async def read(self, image: bytes, *, orient: bool = False, charts: bool = False) -> list[TextBlock]:
        """Blocks in reading order; `orient` first turns a rotated page upright."""
        ...


@runtime_checkable
class PartReader(Protocol):
    """An OCR engine that can also read a part of a picture for a part of the work."""

    async def read_part(self, image: bytes, box_px: tuple[int, int, int, int]) -> list[TextBlock]:
        """Blocks within a box, at the scale at which the whole picture would be read; boxes in the whole's pixels.

        What lies round the part is not seen, so a finding is a good guess and no proof of what `read` finds.
        """
        ...


class Upscaler(Protocol):
    """Enlarges a picture. `describes` says honestly what it is (a network, or plain interpolation)."""

    name: str
    describes: str

    def upscale(self, image: Image, scale: int) -> Image:
        """Return the picture `scale` times as wide and high. May compute for seconds; call it in a thread."""
        ...


class ImageEmbedder(Protocol):
    """A CLIP-class model: pictures and texts in one space, both L2-normalised."""

    name: str

    def embed_images(self, images: Sequence[bytes]) -> Any:
        """``[N, D]`` float32."""
        ...

    def embed_texts(self, texts: Sequence[str]) -> Any:
        """``[N, D]`` float32."""
        ...


# ----------------------------------------------------------------------------------------------- tools


@dataclass(frozen=True, slots=True)
class ToolContext:
    """What a tool may reach: the rollout's own image bank and the store behind it."""

    bank: ImageBank
    store: ImageStore


@dataclass(frozen=True, slots=True)
class ToolOutput:
    """What a tool returns on success."""

    observation: Observation
    provider: str = ""
    cost: float = 0.0


class Tool(Protocol):
    """One tool. `arguments` is the pydantic model its call is validated against; `aliases` are other names for it."""

    name: str
    description: str
    arguments: type[BaseModel]
    aliases: tuple[str, ...]
    timeout_s: float

    async def run(self, arguments: Any, context: ToolContext) -> ToolOutput:
        """Do the work; raise `errors.ToolError` on a failure the model should see."""
        ...


# ------------------------------------------------------------------------------------ solvers and judges


class Solver(Protocol):
    """Anything that turns a task into a trajectory: an agent, a direct answerer, a handicapped baseline."""

    name: str

    async def solve(self, task: TaskView, seed: int) -> Trajectory:
        """Always returns a valid trajectory; a failure is its `termination`."""
        ...


@dataclass(frozen=True, slots=True)
class QueryScore:
    """A judge's score of the sequence of searches, in [0, 1]; None when the judge failed."""

    score: float | None
    reason: str = ""
    judge: str = ""


@dataclass(frozen=True, slots=True)
class JudgedCase:
    """What a judge is given. `aliases` are other right answers."""

    question: str
    reference: str
    response: str
    aliases: tuple[str, ...] = ()
    answer_kind: str = "text"
    extra: dict[str, Any] = field(default_factory=dict)


class Judge(Protocol):
    """Decides whether a response contains the reference answer, and scores the searches. Never raises."""

    name: str

    async def accuracy(self, case: JudgedCase) -> Verdict:
        """`Verdict(correct=None)` when it cannot decide."""
        ...

    async def query(self, case: JudgedCase, trajectory: Trajectory) -> QueryScore:
        """`QueryScore(None)` when it cannot decide; 0.0 for a trajectory without tool calls."""
        ...
