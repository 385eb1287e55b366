"""`osvl quickstart`: one command from an encyclopedia to questions, trajectories, a trained policy and a report."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from opensearch_vl.cli.common import (
    EXIT_DONE,
    EXIT_PARTIAL,
    ConfigOption,
    JsonOption,
    ResumeOption,
    SetOption,
    console,
    emit,
    progress,
)

if TYPE_CHECKING:
    from rich.progress import Progress

    from opensearch_vl.cli.pipeline import Results
    from opensearch_vl.cli.stages import Advance


def register(app: typer.Typer) -> None:
    """Add `osvl quickstart` to the application."""

    @app.command()
    def quickstart(
        out: Annotated[Path, typer.Option("--out", help="Folder for everything that is made.")] = Path(
            "runs/quickstart"
        ),
        dump: Annotated[
            Path | None, typer.Option("--dump", help="A MediaWiki export (.xml, .bz2, .gz) to use instead.")
        ] = None,
        images: Annotated[Path | None, typer.Option("--images", help="Folder with the export's picture files.")] = None,
        pages: Annotated[int | None, typer.Option("--pages", help="Size of the miniature encyclopedia.")] = None,
        seed: Annotated[int | None, typer.Option("--seed", help="Seed of everything.")] = None,
        train: Annotated[
            bool, typer.Option("--train/--no-train", help="Train a miniature policy as well; needs the train extra.")
        ] = True,
        config: ConfigOption = None,
        settings: SetOption = None,
        resume: ResumeOption = False,
        as_json: JsonOption = False,
    ) -> None:
        """Run the whole recipe: encyclopedia, questions, expert trajectories, audit, training, report."""
        from opensearch_vl.cli.pipeline import Pipeline, write_summary
        from opensearch_vl.cli.quickstart_report import write_report
        from opensearch_vl.cli.quickstart_settings import QuickstartSettings
        from opensearch_vl.config import load_config
        from opensearch_vl.errors import DataError, RunExists, UsageError
        from opensearch_vl.runs import RunFolder

        overrides = list(settings or [])
        overrides += [f"pages={pages}"] if pages is not None else []
        overrides += [f"seed={seed}"] if seed is not None else []
        if images is not None and dump is None:
            raise UsageError("--images goes with --dump.")
        if dump is not None and not dump.is_file():
            raise DataError(f"There is no export {dump}.", "Give a MediaWiki XML file (.xml, .xml.bz2, .xml.gz).")
        if images is not None and not images.is_dir():
            raise DataError(f"There is no folder {images}.")
        if out.exists() and any(out.iterdir()) and not resume:
            raise RunExists(f"{out} is not empty.", "Add --resume to continue it, or choose another --out.")
        if dump is not None and images is None:
            overrides = ["questions.walks.require_image=false", "questions.anchor.required=false", *overrides]

        chosen = load_config(QuickstartSettings, config, overrides)
        skipped = why_not_train(train, dump)
        started = time.perf_counter()

        def told(results: Results) -> dict[str, Any]:
            """Write the report and the figures of what there is so far."""
            seconds = time.perf_counter() - started
            report = write_report(out, results, chosen, seconds)
            facts = {"training_skipped": skipped, "seconds": round(seconds, 1), "report": str(report)}
            summary = {**results.as_dict(), **facts}
            write_summary(out, summary)
            return summary

        with RunFolder(out, chosen, resume=resume), progress() as bars:
            pipeline = Pipeline(out, chosen, resume=resume, show=lambda title: _bar(bars, title))
            results = pipeline.run(dump, images)
            summary = told(results)
            if not skipped:
                results.learning = pipeline.learn(results.world)
                summary = told(results)
        emit(summary, as_json, lambda: _print(summary))
        if train and skipped:
            console().print(f"Training is skipped: {skipped}", markup=False, soft_wrap=True)
        whole = summary["questions"] and not summary["wiki"]["damage"]
        raise typer.Exit(EXIT_DONE if whole else EXIT_PARTIAL)


def why_not_train(asked: bool, dump: Path | None) -> str:
    """Why the training part is left out, with what to do about it; empty if it is not."""
    from opensearch_vl.cli.stages import missing_extra

    if not asked:
        return "left out by --no-train."
    if dump is not None:
        return "held-out questions come from a second miniature; with --dump, use osvl train sft and osvl train rl."
    if missing := missing_extra():
        return f"{missing} is not installed. pip install 'opensearch-vl[train]', then the same command with --resume."
    return ""


@contextmanager
def _bar(bars: Progress, title: str) -> Iterator[Advance]:
    """A progress bar for one part; a total of 0 shows a pulse."""
    task = bars.add_task(title, total=None)

    def advance(done: int, total: int) -> None:
        bars.update(task, completed=done, total=total or None)

    yield advance
    shown = bars.tasks[task]
    total = shown.total or shown.completed or 1
    bars.update(task, total=total, completed=total)


def _print(summary: dict[str, Any]) -> None:
    from rich.table import Table

    from opensearch_vl.cli.quickstart_report import ungrounded_note

    screen = console()
    table = Table(title="Who finds the answer?", title_justify="left", box=None, pad_edge=False)
    for head in ("solver", "right", "of", "accuracy", "95 % interval"):
        table.add_column(head, justify="left" if head == "solver" else "right")
    for name, figures in _rows(summary):
        shown = "–" if figures["accuracy"] is None else f"{figures['accuracy']:.1%}"
        interval = f"{figures['low']:.1%} … {figures['high']:.1%}"
        table.add_row(name, str(figures["correct"]), str(figures["scored"]), shown, interval)
    screen.print()
    screen.print(table)
    screen.print(f"\n{summary['questions']} questions in {summary['seconds']:.0f} s. Report: {summary['report']}")
    if summary["ungrounded"]:
        screen.print(ungrounded_note(summary["ungrounded"], summary["questions"]))
    if summary["wiki"]["damage"]:
        screen.print(f"The export is damaged: {summary['wiki']['damage']}", markup=False)
    if not summary["questions"]:
        screen.print("No question was made; what limited it (see also: osvl wiki stats):")
        for stage in summary["stages"]:
            for reason, count in stage["reasons"].items():
                screen.print(f"  {stage['stage']}: {reason}: {count}")
        for reason, count in summary["walks_dropped"].items():
            screen.print(f"  walks: {reason}: {count}")


def _rows(summary: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    from opensearch_vl.cli.stages import POINTS

    yield "expert, all tools", summary["expert"]
    yield "expert, answer pages hidden", summary["expert_blinded"]
    if summary["training"]:
        for point, figures in summary["training"]["heldout"].items():
            yield f"policy {POINTS[point]}, held-out entities", figures
    for name, figures in summary["solvers"].items():
        yield name.replace("_", " "), figures
    for variant, cells in summary["counterfactuals"].items():
        for name, figures in cells.items():
            yield f"{variant.replace('_', ' ')} · {name.replace('_', ' ')}", figures
