"""`osvl questions`: build image-grounded multi-hop questions from a wiki folder, and audit any set of them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from opensearch_vl.cli.common import (
    EXIT_PARTIAL,
    ConfigOption,
    IndexOption,
    JsonOption,
    OutOption,
    ResumeOption,
    SeedOption,
    SetOption,
    console,
    emit,
    progress,
)
from opensearch_vl.errors import UsageError

if TYPE_CHECKING:
    from opensearch_vl.backends.openai_chat import OpenAIChat
    from opensearch_vl.images import ImageStore
    from opensearch_vl.questions.facts import Facts
    from opensearch_vl.questions.settings import QuestionSettings
    from opensearch_vl.questions.writer import LlmWriter
    from opensearch_vl.types import Task

app = typer.Typer(no_args_is_help=True, help="Questions: build them from a wiki folder, audit anybody's.")

WikiArgument = Annotated[Path, typer.Argument(metavar="WIKI", help="A wiki folder (osvl wiki build).")]


@app.command()
def build(
    wiki: WikiArgument,
    out: OutOption,
    num: Annotated[
        int | None, typer.Option(min=1, help="Questions wanted; as many as the seeds give by default.")
    ] = None,
    seed: SeedOption = 0,
    index: IndexOption = None,
    ocr: Annotated[
        bool, typer.Option(help="Read lettering: needed for look-alikes and the enhancement subset.")
    ] = True,
    model: Annotated[str | None, typer.Option(help="Language model that rewords; without it rules write.")] = None,
    base_url: Annotated[
        str | None, typer.Option(help="Address of its OpenAI-compatible server; alone, its only model.")
    ] = None,
    price: Annotated[str | None, typer.Option(help="US dollars per million prompt and reply tokens: 0.4,1.6.")] = None,
    budget: Annotated[
        float | None, typer.Option(min=0, help="US dollars that this run may spend in all its sittings; then exit 3.")
    ] = None,
    checkpoint: Annotated[
        Path | None,
        typer.Option(help="CLIP-class checkpoint folder that ranks the anchor's pictures (anchor.min_similarity)."),
    ] = None,
    merge: Annotated[
        list[str] | None, typer.Option("--merge", metavar="NAME=FILE", help="Questions of another corpus; repeatable.")
    ] = None,
    config: ConfigOption = None,
    overrides: SetOption = None,
    resume: ResumeOption = False,
    as_json: JsonOption = False,
) -> None:
    """Turn walks into questions: compose, fuzz, ground, filter, degrade; every rejection has its reason."""
    if budget is not None and price is None:
        raise UsageError("--budget needs to know what tokens cost.", "Add --price, e.g. --price 0.4,1.6.")
    from opensearch_vl.cli.wiring import local_world, question_tools
    from opensearch_vl.config import load_config
    from opensearch_vl.images import ImageStore
    from opensearch_vl.questions.asking import BudgetSpent
    from opensearch_vl.questions.build import build_questions
    from opensearch_vl.questions.facts import Facts
    from opensearch_vl.questions.settings import QuestionSettings
    from opensearch_vl.runs import RunFolder, read_manifest

    settings = load_config(QuestionSettings, config, overrides or ())
    unread: dict[str, int] = {}
    spent: BudgetSpent | None = None
    with progress() as bars:
        world = local_world(wiki, index)
        folder = world.wiki
        facts, store = Facts(folder), ImageStore(out / "images", fallbacks=(folder.images,))
        chat = _chat(model, base_url, price, facts) if model or base_url else None
        writer = _writer(chat, budget, facts, settings, out) if chat is not None else None
        tools = question_tools(world, store, facts, writer=writer, ocr=ocr, checkpoint=checkpoint)
        bar = bars.add_task("Questions", total=num)
        manifest = {"wiki": folder.meta["name"], "seed": seed, "num": num, "model": chat.name if chat else None}
        prompts = {"prompt_hash": writer.prompt_hash} if writer is not None else {}
        try:
            with RunFolder(out, settings, manifest | prompts, resume=resume) as run:
                merged, unread = _merged(merge or [], run.images)
                run.write_manifest(unread=unread)
                build_questions(
                    folder,
                    settings,
                    seed=seed,
                    num=num,
                    tools=tools,
                    run=run,
                    progress=lambda done, total: bars.update(bar, completed=done),
                    merge=merged,
                )
        except BudgetSpent as error:
            spent = error
    report = read_manifest(out)["report"]
    stopped = {"stopped": "budget"} if spent is not None else {}
    emit({"run": str(out), **report, "unread": unread, **stopped}, as_json, lambda: _print_stages(report))
    if spent is not None:
        console().print(f"osvl: {spent}", markup=False, soft_wrap=True)
    if spent is not None or (num is not None and report["corpora"].get("wiki", 0) < num) or unread:
        raise typer.Exit(EXIT_PARTIAL)


@app.command()
def audit(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="A run, a JSONL file of tasks, or anybody's questions: JSON, JSONL, Parquet, ShareGPT.",
        ),
    ],
    wiki: Annotated[
        Path | None, typer.Option("--wiki", help="The wiki folder they are about; without it less can be told.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Also write a self-contained HTML page there.")
    ] = None,
    index: IndexOption = None,
    seed: SeedOption = 0,
    counterfactual: Annotated[
        bool, typer.Option(help="Also try them without fuzzing, with the answer's picture, and through hubs.")
    ] = True,
    as_json: JsonOption = False,
) -> None:
    """Measure shortcuts, leaks, duplicates and variety of a set of questions; changes nothing."""
    from opensearch_vl.cli.audit import audited, print_audit
    from opensearch_vl.cli.audit_page import write_audit

    with progress("Auditing"):
        result = audited(file, wiki, index, seed=seed, counterfactual=counterfactual)
    if out is not None:
        result["page"] = str(write_audit(out, result))
    emit(result, as_json, lambda: print_audit(result))
    if result["findings"] or result["unread"]:
        raise typer.Exit(EXIT_PARTIAL)


def _merged(corpora: list[str], store: ImageStore) -> tuple[list[Task], dict[str, int]]:
    """Tasks of other corpora, and how many rows could not be read, by corpus and reason."""
    from opensearch_vl.questions.corpora import Unread, read_corpus

    tasks: list[Task] = []
    unread: Counter[str] = Counter()
    for corpus in corpora:
        name, equals, file = corpus.partition("=")
        if not equals:
            raise UsageError(f"--merge {corpus!r} is not of the form NAME=FILE.")
        for found in read_corpus(Path(file), name, store):
            if isinstance(found, Unread):
                unread[f"{name}: {found.reason}"] += 1
            else:
                tasks.append(found)
    return tasks, dict(unread)


def _chat(model: str | None, base_url: str | None, price: str | None, facts: Facts) -> OpenAIChat:
    """The served model; a server that offers only one need not be told which."""
    from opensearch_vl.agent.settings import AgentSettings
    from opensearch_vl.cli.ask import chat_model, only_model

    chat = chat_model(model, base_url, facts.wiki.images, AgentSettings(), None, price)
    chat.name = chat.name or asyncio.run(_named(chat, only_model))
    return chat


async def _named(chat: OpenAIChat, ask: Callable[[OpenAIChat], Awaitable[str]]) -> str:
    try:
        return await ask(chat)
    finally:
        await chat.aclose()


def _writer(chat: OpenAIChat, budget: float | None, facts: Facts, settings: QuestionSettings, out: Path) -> LlmWriter:
    from opensearch_vl.questions.asking import Asker
    from opensearch_vl.questions.paid import ReplyCache
    from opensearch_vl.questions.writer import LlmWriter

    asker = Asker(chat, ReplyCache(out / "replies.sqlite"), parallel=max(8, settings.parallel), budget_usd=budget)
    return LlmWriter(asker, facts, settings.answer)


def _print_stages(report: dict[str, Any]) -> None:
    from rich.table import Table

    table = Table("stage", "came in", "passed", "turned away")
    for row in report["stages"]:
        reasons = ", ".join(f"{reason} {num}" for reason, num in row["reasons"].items())
        table.add_row(row["stage"], str(row["came_in"]), str(row["passed"]), reasons)
    console().print(table)
    for key in ("questions", "ungrounded", "hops", "domains", "identified_by", "degraded", "seeds_dropped"):
        typer.echo(f"{key}: {report[key]}")
