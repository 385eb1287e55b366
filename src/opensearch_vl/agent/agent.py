"""The agent as one object: a model, tools, and `ask`.

```python
from opensearch_vl import Agent

agent = Agent(model="Qwen/Qwen3-VL-8B-Instruct", base_url="http://localhost:8000/v1", tools=my_tools)
print(agent.ask("bridge.jpg", "In what year did this bridge open?").text)
```
"""

from __future__ import annotations

import asyncio
import hashlib
import shutil
import tempfile
import weakref
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Self, TypeVar

from opensearch_vl import registry
from opensearch_vl.agent.environment import Environment, Tools
from opensearch_vl.agent.rollout import OnStep, rollout
from opensearch_vl.agent.settings import AgentSettings
from opensearch_vl.agent.sources import Source, sources_of
from opensearch_vl.errors import UsageError
from opensearch_vl.images import Fetch, ImageStore, ingest_all
from opensearch_vl.protocols import ChatModel, Tool
from opensearch_vl.tools.toolbox import Toolbox
from opensearch_vl.types import ImageRef, TaskView, Trajectory, Usage

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of a question.

    Attributes:
        text: The final response; None if there is none (`trajectory.termination` says why).
        trajectory: Everything that happened.
        sources: Pages that were consulted.
        usage: Tokens and, where prices are known, cost.
    """

    text: str | None
    trajectory: Trajectory
    sources: tuple[Source, ...]
    usage: Usage

    def __str__(self) -> str:
        return self.text or ""


class Agent:
    """A visual investigation agent.

    Args:
        model: A `ChatModel`, or the name of a model on an OpenAI-compatible server. ``provider:name`` picks another
            provider registered under ``opensearch_vl.chat_models``.
        tools: A toolbox, or tools; a text is the name of a tool registered under ``opensearch_vl.tools``.
        settings: Layout, profile and limits.
        store: Where pictures are kept; default: the toolbox's, or a temporary folder that lives as long as the agent.
        fetch: How to get a picture by URL, if URLs are to be accepted. It has to guard against private addresses.
        model_options: Passed to the provider: ``base_url``, ``api_key``, ``max_pixels``, ``timeout_s``, ``price``, …

    Raises:
        ConfigError: If a provider or tool is not registered.
        UsageError: If options are given that a ready-made model cannot take.
    """

    def __init__(
        self,
        model: ChatModel | str,
        tools: Tools | Sequence[Tool | str] = (),
        *,
        settings: AgentSettings | None = None,
        store: ImageStore | None = None,
        fetch: Fetch | None = None,
        **model_options: Any,
    ) -> None:
        settings = settings or AgentSettings()
        if isinstance(tools, Tools):
            self.store = tools.store
            toolbox: Tools = tools
        else:
            self.store = store or self._temporary_store()
            toolbox = Toolbox([_registered(t) if isinstance(t, str) else t for t in tools], self.store)
        self.env = Environment(toolbox, settings, self.store)
        self.model = self._model(model, {k: v for k, v in model_options.items() if v is not None})
        self._fetch = fetch

    def ask(self, image: Any, question: str, *, on_step: OnStep | None = None, seed: int = 0) -> Answer:
        """Answer a question about a picture; waits until it is done.

        Args:
            image: Path, bytes, decoded picture, data URL or URL; a list of these for several; None for no picture.
            question: The question.
            on_step: Called after each step.
            seed: For sampling.

        Raises:
            ImageError: If a picture cannot be used.
        """
        return _run(lambda: self._ask_and_close(image, question, on_step, seed))

    async def aask(self, image: Any, question: str, *, on_step: OnStep | None = None, seed: int = 0) -> Answer:
        """`ask` for programs with an event loop of their own; call `aclose`, or use ``async with``, when through.

        Raises:
            ImageError: If a picture cannot be used.
        """
        images = await asyncio.to_thread(ingest_all, image, self.store, fetch=self._fetch)
        task = TaskView(id=_task_id(question, images), question=question, images=images)
        trajectory = await rollout(task, self.model, self.env, seed=seed, on_step=on_step)
        return Answer(trajectory.response, trajectory, sources_of(trajectory), trajectory.usage)

    async def aclose(self) -> None:
        """Close the model's connections."""
        close = getattr(self.model, "aclose", None)
        if close is not None:
            await close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def _ask_and_close(self, image: Any, question: str, on_step: OnStep | None, seed: int) -> Answer:
        try:
            return await self.aask(image, question, on_step=on_step, seed=seed)
        finally:
            await self.aclose()  # connections do not outlive the event loop they were made in

    def _model(self, model: ChatModel | str, options: dict[str, Any]) -> ChatModel:
        if not isinstance(model, str):
            if options:
                raise UsageError(f"A ready-made model takes no {', '.join(sorted(options))}.", "Give its name instead.")
            return model
        provider, colon, name = model.partition(":")
        if not colon or provider not in registry.names("chat_models"):
            provider, name = "openai", model  # a colon may also be part of a model's name
        options.setdefault("max_pixels", self.env.settings.sizes.image_max_pixels)
        made: ChatModel = registry.load("chat_models", provider)(name, store=self.store, **options)
        return made

    def _temporary_store(self) -> ImageStore:
        folder = tempfile.mkdtemp(prefix="osvl-")
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        return ImageStore(folder)


def _registered(name: str) -> Tool:
    made: Tool = registry.load("tools", name)()
    return made


def _task_id(question: str, images: Sequence[ImageRef]) -> str:
    parts = "\x1f".join([question, *(image.sha256 for image in images)])
    return f"ask-{hashlib.sha256(parts.encode('utf-8', 'replace')).hexdigest()[:12]}"


def _run(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine to its end, from a program with or without an event loop (a notebook has one)."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work())
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(lambda: asyncio.run(work())).result()
