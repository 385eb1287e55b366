"""`osvl data export`, `import` and `split`: data sets out of run folders, into them, and apart."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from opensearch_vl.cli.common import (
    EXIT_DONE,
    EXIT_PARTIAL,
    JsonOption,
    OutOption,
    ResumeOption,
    SeedOption,
    emit,
    progress,
)
from opensearch_vl.errors import UsageError

NewFolderOption = Annotated[Path, typer.Option("--out", help="Folder to write.")]
Format = Literal["sharegpt", "parquet", "rl"]


def register(data: typer.Typer) -> None:
    """Add the verbs to `osvl data`."""

    @data.command()
    def export(
        run: Annotated[Path, typer.Argument(metavar="RUN", help="Run folder of trajectories or of questions.")],
        out: NewFolderOption,
        form: Annotated[
            Format, typer.Option("--format", help="For LLaMA-Factory, for `datasets`, or the released RL rows.")
        ] = "sharegpt",
        split: Annotated[
            list[str] | None,
            typer.Option("--split", metavar="NAME=RUN", help="Further splits beside train; Parquet only; repeatable."),
        ] = None,
        everything: Annotated[
            bool, typer.Option("--all", help="Trajectories that were not kept as well; Parquet only.")
        ] = False,
        as_json: JsonOption = False,
    ) -> None:
        """Write trajectories or questions with their pictures for other trainers, and say what was left out."""
        if form != "parquet" and (split or everything):
            raise UsageError(f"--split and --all go with --format parquet, not with {form}.")
        result = _to_parquet(run, out, split or [], everything, as_json) if form == "parquet" else _rows(run, out, form)
        emit({"out": str(out), "format": form, **result}, as_json)
        lost = result["left_out"].get("picture_missing", 0)
        raise typer.Exit(EXIT_PARTIAL if lost or not result["exported"] else EXIT_DONE)

    @data.command("import")
    def import_(
        source: Annotated[Path, typer.Argument(metavar="SOURCE", help="Exported folder, Parquet, JSON or JSONL file.")],
        out: OutOption,
        name: Annotated[str, typer.Option(help="Name of the corpus [the file's name].")] = "",
        resume: ResumeOption = False,
        as_json: JsonOption = False,
    ) -> None:
        """Read a data set into a run folder: our Parquet, ShareGPT trajectories, RL questions, or another corpus."""
        from opensearch_vl.sft.importing import import_run

        with progress() as bars:
            bars.disable = bars.disable or as_json
            bar = bars.add_task("Rows", total=None)
            report = import_run(source, out, name=name, resume=resume, progress=lambda: bars.advance(bar))
        facts: dict[str, Any] = {"run": str(out), "format": report.form, "read": report.num_read}
        facts |= {"repeated": report.repeated, "unread": dict(report.unread), "examples": report.examples}
        emit(facts, as_json)
        raise typer.Exit(EXIT_PARTIAL if report.unread else EXIT_DONE)

    @data.command()
    def split(
        questions: Annotated[Path, typer.Argument(metavar="QUESTIONS", help="Run folder of `osvl questions build`.")],
        out: NewFolderOption,
        rl: Annotated[int, typer.Option(min=0, help="Questions for reinforcement learning.")] = 0,
        test: Annotated[int, typer.Option(min=0, help="Questions held out from both.")] = 0,
        strict: Annotated[
            bool, typer.Option(help="Keep apart as well what only a description names: occupations, countries.")
        ] = False,
        seed: SeedOption = 0,
        as_json: JsonOption = False,
    ) -> None:
        """Split questions into OUT/sft, OUT/rl and OUT/test so that no page of a path, and no picture, is in two."""
        from opensearch_vl.questions.parts import write_split

        sizes = {name: num for name, num in (("test", test), ("rl", rl)) if num}
        if not sizes:
            raise UsageError("There is nothing to split off.", "Give --rl, --test or both.")
        report = write_split(questions, out, sizes, rest="sft", seed=seed, named=strict)
        emit({"out": str(out), **report}, as_json)
        raise typer.Exit(EXIT_DONE if report["sets"]["sft"] else EXIT_PARTIAL)


def _rows(run: Path, out: Path, form: Format) -> dict[str, Any]:
    """Export with the pictures beside the rows."""
    from opensearch_vl.images import ImageStore
    from opensearch_vl.runs import read_records
    from opensearch_vl.sft.export import export_rl, export_run
    from opensearch_vl.types import QuestionRecord

    if form == "sharegpt":
        report = export_run(run, out)
        return {
            "exported": report.exported,
            "calls": report.calls,
            "images": report.images,
            "left_out": dict(report.left_out),
        }
    tasks = (record.task for record in read_records(run, QuestionRecord) if record.task is not None)
    report = export_rl(tasks, ImageStore(run / "images"), out)
    return {"exported": report.exported, "images": report.images, "left_out": dict(report.left_out)}


def _to_parquet(run: Path, out: Path, more: list[str], everything: bool, quiet: bool) -> dict[str, Any]:
    from opensearch_vl.sft.dataset import export_parquet

    splits = {"train": run}
    for item in more:
        name, equals, folder = item.partition("=")
        if not equals or not name or not folder:
            raise UsageError(f"--split {item!r} is not of the form NAME=RUN.")
        if name in splits:
            raise UsageError(f"There are two runs for the split {name!r}.", "RUN itself is the split train.")
        splits[name] = Path(folder)
    with progress() as bars:
        bars.disable = bars.disable or quiet
        bar = bars.add_task("Rows", total=None)
        facts = export_parquet(
            splits, out, name=out.resolve().name, everything=everything, progress=lambda: bars.advance(bar)
        )
    left_out: Counter[str] = sum((split.left_out for split in facts), Counter())
    return {
        "exported": sum(split.num_rows for split in facts),
        "splits": {split.name: split.num_rows for split in facts},
        "files": [name for split in facts for name in split.files],
        "images": len(set().union(*(split.pictures for split in facts))),
        "left_out": dict(left_out),
    }
