"""`osvl ask`: a photo, a question, and any OpenAI-compatible vision-language server.

The steps stream to the terminal (stderr) as they happen; the answer goes to stdout, its sources and cost after it.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from opensearch_vl.cli.common import (
    EXIT_DONE,
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    ConfigOption,
    IndexOption,
    JsonOption,
    SeedOption,
    SetOption,
    ToolsFor,
    WebOption,
    WikiOption,
    console,
    emit,
    fail,
)

if TYPE_CHECKING:
    from rich.console import Console

    from opensearch_vl.agent.agent import Agent, Answer
    from opensearch_vl.agent.settings import AgentSettings
    from opensearch_vl.backends.openai_chat import OpenAIChat
    from opensearch_vl.images import ImageStore
    from opensearch_vl.protocols import ChatModel
    from opensearch_vl.tools.toolbox import Toolbox
    from opensearch_vl.types import Step

_SHOWN_CHARS = 1_200


def register(app: typer.Typer, tools_for: ToolsFor) -> None:
    """Add the verb to the command tree."""

    @app.command()
    def ask(
        image: Annotated[str, typer.Argument(help="The picture: a file.")],
        question: Annotated[str, typer.Argument(help="The question about it.")],
        more: Annotated[list[str] | None, typer.Option("--image", help="A further picture; repeatable.")] = None,
        base_url: Annotated[
            str | None, typer.Option(help="Model server, up to /v1; default: OSVL_BASE_URL, then OpenAI.")
        ] = None,
        model: Annotated[
            str | None,
            typer.Option(
                help="Name of the model, or a checkpoint folder to run here; default: OSVL_MODEL, or the server's only."
            ),
        ] = None,
        wiki: WikiOption = None,
        index: IndexOption = None,
        web: WebOption = False,
        mode: Annotated[
            str | None, typer.Option(help="How tools are called: tags (in the text) or native (by the server).")
        ] = None,
        layout: Annotated[
            str | None, typer.Option(help="sft, rl, infer (as released checkpoints were trained) or native_tools.")
        ] = None,
        max_pixels: Annotated[int | None, typer.Option(help="Pictures are scaled down to this area.", min=1)] = None,
        price: Annotated[
            str | None, typer.Option(help="Dollars per million tokens in and out, as 0.4,1.6; for the cost.")
        ] = None,
        extra: Annotated[
            str | None,
            typer.Option(help="More fields of the request, as JSON; null leaves one out: '{\"seed\": null}'."),
        ] = None,
        config: ConfigOption = None,
        settings: SetOption = None,
        seed: SeedOption = 0,
        as_json: JsonOption = False,
    ) -> None:
        """Ask a question about a picture; the agent investigates with tools and answers with its sources."""
        from opensearch_vl.agent.settings import AgentSettings
        from opensearch_vl.config import load_config
        from opensearch_vl.errors import UsageError

        if not question.strip():
            raise UsageError("The question is empty.")
        overrides = list(settings or [])
        chosen = layout_of(mode, layout)
        if chosen is not None:
            overrides.append(f"layout={chosen}")
        agent_settings = load_config(AgentSettings, config, overrides)

        def serve(store: ImageStore) -> ChatModel:
            if model is not None and (Path(model) / "config.json").is_file():
                from opensearch_vl.rl.rollout_policy import load_chat

                return load_chat(model, store, max_pixels=max_pixels)
            return chat_model(model, base_url, store, agent_settings, max_pixels, price, extra)

        code = run_ask(
            [image, *(more or [])],
            question,
            serve,
            lambda store: tools_for(wiki, index, web, store, agent_settings.sizes.brief),
            agent_settings,
            seed=seed,
            as_json=as_json,
        )
        raise typer.Exit(code)


def run_ask(
    images: list[str],
    question: str,
    model_for: Callable[[ImageStore], ChatModel],
    tools_for: Callable[[ImageStore], Toolbox],
    settings: AgentSettings,
    *,
    seed: int = 0,
    as_json: bool = False,
) -> int:
    """Ask, show what happens, print the answer.

    Args:
        images: Paths of the pictures.
        question: The question.
        model_for: Gives the model for the store of pictures.
        tools_for: Gives the tools for it.
        settings: Of the agent.
        seed: For sampling.
        as_json: One JSON object instead of text.

    Returns:
        The exit code.
    """
    import tempfile

    from opensearch_vl.agent.agent import Agent
    from opensearch_vl.backends.openai_chat import OpenAIChat
    from opensearch_vl.images import ImageStore
    from opensearch_vl.types import Termination

    with tempfile.TemporaryDirectory(prefix="osvl-") as folder:
        store = ImageStore(folder)
        screen = console()

        async def work() -> Answer:
            model = model_for(store)
            async with Agent(model, tools_for(store), settings=settings) as agent:
                if isinstance(model, OpenAIChat):
                    model.name = model.name or await only_model(model)
                if not as_json:
                    _show_task(screen, agent, images, question)
                pictures = [image if "://" in image or image.startswith("data:") else Path(image) for image in images]
                return await agent.aask(
                    pictures, question, seed=seed, on_step=None if as_json else lambda step: show_step(screen, step)
                )

        started = time.perf_counter()
        answer = asyncio.run(work())
        seconds = time.perf_counter() - started
    emit(_summary(answer, seconds), as_json, lambda: _print_answer(answer, seconds))
    ending = answer.trajectory.termination
    if ending is Termination.CANCELLED:
        return EXIT_INTERRUPTED
    if ending is Termination.ERROR:
        fail(answer.trajectory.error)
    return EXIT_DONE if answer.text is not None else EXIT_FAILED


def layout_of(mode: str | None, layout: str | None) -> str | None:
    """The layout that `--mode` and `--layout` agree on; None leaves it to the configuration.

    Raises:
        UsageError: If they contradict each other, or `mode` is unknown.
    """
    from opensearch_vl.errors import UsageError

    if mode is None:
        return layout
    if mode not in ("tags", "native"):
        raise UsageError(f"--mode is {mode!r}; expected tags or native.")
    native: Literal["native_tools"] = "native_tools"
    if layout is None:
        return native if mode == "native" else "sft"
    if (layout == native) != (mode == "native"):
        raise UsageError(f"--mode {mode} does not go with --layout {layout}.", "Give one of them.")
    return layout


def chat_model(
    model: str | None,
    base_url: str | None,
    store: ImageStore,
    settings: AgentSettings,
    max_pixels: int | None,
    price: str | None,
    extra: str | None = None,
) -> OpenAIChat:
    """The served model; its name is empty where the server is yet to be asked for it.

    Raises:
        UsageError: If the price is not two numbers, or `extra` is not a JSON object.
        ModelKeyRefused: If a key is needed and there is none.
    """
    from opensearch_vl.backends.openai_chat import OpenAIChat, Price
    from opensearch_vl.errors import UsageError
    from opensearch_vl.redaction import env

    cost = None
    if price is not None:
        try:
            prompt, completion = (float(part) for part in price.split(","))
        except ValueError:
            raise UsageError(f"--price is {price!r}; expected two numbers, as 0.4,1.6.") from None
        cost = Price(prompt, completion)
    try:
        fields = json.loads(extra or "{}")
    except ValueError:
        fields = None
    if not isinstance(fields, dict):
        raise UsageError(f"--extra is {extra!r}; expected a JSON object.")
    return OpenAIChat(
        model or env("OSVL_MODEL") or "",
        store=store,
        base_url=base_url,
        max_pixels=max_pixels or settings.sizes.image_max_pixels,
        timeout_s=settings.max_seconds,
        price=cost,
        extra_body=fields,
    )


async def only_model(chat: OpenAIChat) -> str:
    """The name of the one model that a server offers.

    Raises:
        UsageError: If it offers several, or none.
        ModelError: If it cannot be asked.
    """
    from opensearch_vl.errors import UsageError

    names = await chat.models()
    if len(names) == 1:
        return names[0]
    offer = ", ".join(names[:12]) + (" …" if len(names) > 12 else "")
    raise UsageError(
        f"{chat.base_url} offers {len(names)} models{': ' + offer if names else ''}.", "Choose with --model."
    )


def show_step(screen: Console, step: Step) -> None:
    """One step on the terminal. Everything in it is someone else's text: no markup, no control characters."""
    from rich.text import Text

    def line(label: str, text: str, style: str) -> None:
        screen.print(Text.assemble((f"{label:>9}  ", f"bold {style}"), printable(text)), soft_wrap=True)

    if step.thought:
        line("thinks", step.thought, "dim")
    if step.call is not None:
        arguments = ", ".join(f"{name}={value!r}" for name, value in step.call.arguments.items())
        line(f"step {step.index + 1}", f"{step.call.name}({arguments})", "cyan")
    if step.observation is not None:
        line("failed" if step.failure else "sees", step.observation.text, "red" if step.failure else "green")


def printable(text: str) -> str:
    """Text that is safe to show: shortened, and without control characters that could steer the terminal."""
    shown = "".join(ch for ch in text if ch in "\n\t" or ch.isprintable()).strip()
    if len(shown) > _SHOWN_CHARS:
        shown = f"{shown[:_SHOWN_CHARS]} […]"
    return shown.replace("\n", "\n" + " " * 11)


def _show_task(screen: Console, agent: Agent, images: list[str], question: str) -> None:
    from rich.text import Text

    tools = ", ".join(agent.env.tools) or "no tools"
    screen.print(Text(f"{agent.model.name} · {agent.env.settings.layout} · {tools}", style="dim"))
    screen.print(Text.assemble((f"{'asked':>9}  ", "bold"), printable(f"{question}  [{', '.join(images)}]")))


def _print_answer(answer: Answer, seconds: float) -> None:
    typer.echo(printable_answer(answer))
    usage = answer.usage
    calls = answer.trajectory.num_calls
    parts = [f"{calls} tool call{'' if calls == 1 else 's'}", f"{seconds:.1f} s"]
    parts.append(f"{usage.prompt_tokens:,} + {usage.completion_tokens:,} tokens")
    parts.append(f"${usage.cost:.4f}" if usage.cost else "cost unknown")
    typer.echo(" · ".join(parts), err=True)


def printable_answer(answer: Answer) -> str:
    """The answer and its sources as plain text."""
    if answer.text is None:
        why = f"No answer: the agent stopped ({answer.trajectory.termination})."
        return f"{why} {answer.trajectory.error}".strip()
    lines = ["".join(ch for ch in answer.text if ch in "\n\t" or ch.isprintable())]
    if answer.sources:
        lines += ["", "Pages consulted:", *(f"  {source.title or '-'}  {source.url}" for source in answer.sources)]
    return "\n".join(lines)


def _summary(answer: Answer, seconds: float) -> dict[str, Any]:
    return {
        "answer": answer.text,
        "termination": str(answer.trajectory.termination),
        "error": answer.trajectory.error,
        "num_calls": answer.trajectory.num_calls,
        "sources": [{"title": source.title, "url": source.url} for source in answer.sources],
        "usage": answer.usage.model_dump(),
        "seconds": round(seconds, 3),
        "trajectory": answer.trajectory.model_dump(mode="json"),
    }
