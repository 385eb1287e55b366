"""What `osvl questions audit` does: read anybody's questions, measure them, print (its page: `audit_page`)."""

from __future__ import annotations

import asyncio
import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from opensearch_vl.cli.common import console

if TYPE_CHECKING:
    from opensearch_vl.cli.wiring import World
    from opensearch_vl.images import ImageStore
    from opensearch_vl.protocols import Solver
    from opensearch_vl.questions.counterfactual import Cell
    from opensearch_vl.questions.settings import QuestionSettings
    from opensearch_vl.types import Task
    from opensearch_vl.wiki.tables import WikiFolder

_MOST_HUB_QUESTIONS = 200


def audited(
    file: Path, wiki_dir: Path | None, index_dir: Path | None, *, seed: int, counterfactual: bool
) -> dict[str, Any]:
    """Everything that can be told of a set of questions, as plain data.

    Args:
        file: A run folder, a JSONL file of tasks or records, or a file in one of the forms that `corpora` and the
            released ShareGPT format have.
        wiki_dir: The wiki they are about. Without it nothing can be searched, and only what the questions say of
            themselves is measured.
        index_dir: Its indexes.
        seed: Seed of the solvers.
        counterfactual: Whether variants are tried as well.

    Raises:
        OsvlError: If the file cannot be read as questions of any form, or the wiki is none.
    """
    from opensearch_vl.cli.wiring import local_world
    from opensearch_vl.images import ImageStore

    own = ImageStore((file if file.is_dir() else file.parent) / "images")
    world = local_world(wiki_dir, index_dir) if wiki_dir is not None else None
    with tempfile.TemporaryDirectory() as scratch:  # pictures that come with the rows are not left behind
        fallbacks = (own,) if world is None else (own, world.wiki.images)
        store = ImageStore(Path(scratch), fallbacks=fallbacks)
        tasks, unread = read_questions(file, store)
        settings = _settings(file) if counterfactual else None
        return {"file": str(file), "unread": unread, **_measured(tasks, world, store, settings, seed)}


def _measured(
    tasks: list[Task], world: World | None, store: ImageStore, settings: QuestionSettings | None, seed: int
) -> dict[str, Any]:
    """The figures; variants are tried where `settings` are given."""
    from opensearch_vl.questions.audit import audit_solvers, check_against_wiki, check_alone
    from opensearch_vl.questions.counterfactual import solve_all
    from opensearch_vl.questions.facts import Facts
    from opensearch_vl.questions.solvers import GuessFromMemory
    from opensearch_vl.questions.variety import shape
    from opensearch_vl.scoring.judges import ExactJudge
    from opensearch_vl.scoring.metrics import wilson

    facts = Facts(world.wiki) if world is not None else None
    judge = ExactJudge()
    solvers: tuple[Solver, ...] = (GuessFromMemory([(task.question, task.gold.answer) for task in tasks]),)
    if world is not None:
        solvers = audit_solvers(tasks, world.search, world.image_index, store, world.reader)
    cells = list(asyncio.run(solve_all(tasks, solvers, judge, seed=seed)))
    if settings is not None and world is not None:
        cells += asyncio.run(_variants(tasks, world.wiki, solvers, settings, seed))
    findings = check_against_wiki(tasks, facts) if facts is not None else check_alone(tasks)
    told = shape(tasks, facts=facts, store=store)
    for kind in ("templates", "skeletons"):
        if commonest := told[kind].get("commonest"):
            low, high = wilson(commonest["count"], commonest["of"])
            commonest |= {"share": commonest["count"] / commonest["of"], "low": low, "high": high}
    return {
        "solvers": [_row(cell) for cell in cells],
        "findings": [{"task": f.task_id, "problem": f.problem, "detail": f.detail} for f in findings],
        **told,
    }


def read_questions(file: Path, store: ImageStore) -> tuple[list[Task], dict[str, int]]:
    """The questions of a file in any form we know, and how many rows could not be read, by reason.

    Pictures that the rows carry or name are put into `store`.

    Raises:
        OsvlError: If the file is missing, or of no form that we know.
    """
    from opensearch_vl.questions.audit import read_tasks
    from opensearch_vl.questions.corpora import Unread, corpus_rows, read_corpus
    from opensearch_vl.sft.sharegpt import read_sharegpt

    if file.is_dir():
        return read_tasks(file), {}
    first = next(corpus_rows(file), {})
    if "conversations" in first:
        tasks = {record.task.id: record.task for record in read_sharegpt(file, store, corpus=file.stem)}
        return list(tasks.values()), {}
    if first.get("kind") in ("question", "rollout") or "gold" in first:
        return read_tasks(file), {}
    found = list(read_corpus(file, file.stem, store))
    unread: Counter[str] = Counter(row.reason for row in found if isinstance(row, Unread))
    return [row for row in found if not isinstance(row, Unread)], dict(unread)


def _settings(file: Path) -> QuestionSettings:
    """Those of the run that the questions come from, where it tells them."""
    from opensearch_vl.config import load_config
    from opensearch_vl.questions.settings import QuestionSettings

    config = (file if file.is_dir() else file.parent) / "config.yaml"
    if not config.exists() or not (config.parent / "records.jsonl").exists():
        return QuestionSettings()
    return load_config(QuestionSettings, config)


async def _variants(
    tasks: list[Task], wiki: WikiFolder, solvers: tuple[Solver, ...], settings: QuestionSettings, seed: int
) -> list[Cell]:
    """The table of counterfactuals, and what the blind agent makes of descriptors that hang on nothing."""
    from opensearch_vl.questions.counterfactual import absolute_of, counterfactuals, solve_all, without_hub_rule
    from opensearch_vl.questions.facts import Facts
    from opensearch_vl.scoring.judges import ExactJudge

    judge, pair, blind = ExactJudge(), solvers[1:3], solvers[4:]
    traced = [task for task in tasks if task.provenance.path]
    cells = list(await counterfactuals(traced, wiki, pair, judge, seed=seed))
    num = min(len(traced), _MOST_HUB_QUESTIONS)
    if num:
        hubs = await asyncio.to_thread(without_hub_rule, wiki, settings, seed=seed, num=num)
        cells += await solve_all(hubs.tasks, pair, judge, seed=seed, variant="no_hub")
    facts = Facts(wiki)
    alone = [other for task in traced if (other := absolute_of(task, facts)) is not None]
    return [*cells, *await solve_all(alone, blind, judge, seed=seed, variant="absolute")]


def _row(cell: Cell) -> dict[str, Any]:
    from opensearch_vl.scoring.metrics import accuracy

    found = accuracy(cell.verdicts)
    return {
        "variant": cell.variant,
        "solver": cell.solver,
        "correct": found.correct,
        "scored": found.scored,
        "unscored": found.unscored,
        "rate": found.rate if found.scored else None,
        "low": found.low,
        "high": found.high,
    }


def print_audit(result: dict[str, Any]) -> None:
    """The audit on the terminal."""
    from rich.table import Table

    table = Table("variant", "solver", "right", "of", "unscored", "rate", "95 % interval")
    for row in result["solvers"]:
        interval = f"{row['low']:.1%} to {row['high']:.1%}"
        table.add_row(
            row["variant"],
            row["solver"],
            str(row["correct"]),
            str(row["scored"]),
            str(row["unscored"]),
            "–" if row["rate"] is None else f"{row['rate']:.1%}",
            interval,
        )
    console().print(table)
    keys = "questions unread ungrounded duplicates hops domains roles answer_kinds exactness identified_by degraded"
    for key in (*keys.split(), "templates", "skeletons", "words"):
        typer.echo(f"{key}: {result[key]}")
    typer.echo(f"findings: {len(result['findings'])}")
    if "page" in result:
        typer.echo(f"page: {result['page']}")
