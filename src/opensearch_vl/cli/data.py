"""`osvl data`: from questions to trajectories, their export for other trainers, and a page to read them on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from opensearch_vl.cli import exchange
from opensearch_vl.cli.common import (
    EXIT_DONE,
    EXIT_PARTIAL,
    ConfigOption,
    IndexOption,
    JsonOption,
    OutOption,
    ResumeOption,
    SetOption,
    ToolsFor,
    WebOption,
    WikiOption,
    emit,
    progress,
)

if TYPE_CHECKING:
    from opensearch_vl.agent.settings import AgentSettings
    from opensearch_vl.images import ImageStore
    from opensearch_vl.protocols import ChatModel, Judge
    from opensearch_vl.sft.synthesis import ExpertFor, SynthesisReport
    from opensearch_vl.sft.trajectory_config import ExpertSettings, JudgeSettings, TrajectoryConfig
    from opensearch_vl.tools.toolbox import Toolbox

RunArgument = Annotated[Path, typer.Argument(metavar="RUN", help="Run folder of `osvl data synthesise`.")]


def register(app: typer.Typer, tools_for: ToolsFor) -> None:
    """Add the verbs to the command tree."""
    data = typer.Typer(
        no_args_is_help=True, help="Trajectories and data sets: write, split, export, import, read them."
    )
    app.add_typer(data, name="data")
    exchange.register(data)

    @data.command()
    def synthesise(
        questions: Annotated[Path, typer.Argument(metavar="QUESTIONS", help="Run folder of `osvl questions build`.")],
        out: OutOption,
        wiki: WikiOption = None,
        index: IndexOption = None,
        web: WebOption = False,
        config: ConfigOption = None,
        settings: SetOption = None,
        resume: ResumeOption = False,
        as_json: JsonOption = False,
    ) -> None:
        """Roll every question out several times with an expert, and keep what stands review."""
        from opensearch_vl.config import load_config
        from opensearch_vl.errors import ModelError
        from opensearch_vl.sft.trajectory_config import TrajectoryConfig

        chosen = load_config(TrajectoryConfig, config, settings or ())
        report = run_synthesis(
            questions,
            out,
            chosen,
            lambda store: tools_for(wiki, index, web, store, chosen.agent.sizes.brief),
            resume=resume,
            quiet=as_json,
        )
        if report.failed and not report.done:
            raise ModelError(f"All {sum(report.failed.values())} rollouts failed: {report.failed.most_common(1)[0][0]}")
        accuracy = report.accuracy
        facts: dict[str, Any] = {"run": str(out), **report.counts(), "failures": dict(report.failed)}
        facts["accuracy"] = {
            "rate": accuracy.rate if accuracy.scored else None,
            "low": accuracy.low,
            "high": accuracy.high,
        }
        emit(facts, as_json)
        raise typer.Exit(EXIT_PARTIAL if report.failed or report.unscored else EXIT_DONE)

    @data.command()
    def view(
        run: RunArgument,
        out: Annotated[Path, typer.Option("--out", help="HTML file to write.")],
        limit: Annotated[int, typer.Option(min=1, help="How many trajectories are shown.")] = 50,
        as_json: JsonOption = False,
    ) -> None:
        """Write trajectories as one self-contained HTML page."""
        from opensearch_vl.images import ImageStore
        from opensearch_vl.runs import read_records
        from opensearch_vl.types import RolloutRecord
        from opensearch_vl.viewer.page import render_trajectories

        records = read_records(run, RolloutRecord)
        page = render_trajectories(
            records, ImageStore(run / "images"), title=f"Trajectories of {run.name}", max_records=limit
        )
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(page, encoding="utf-8")
        emit({"page": str(out), "bytes": len(page.encode())}, as_json)


def run_synthesis(
    questions: Path,
    out: Path,
    config: TrajectoryConfig,
    tools_for: Callable[[ImageStore], Toolbox],
    *,
    resume: bool = False,
    quiet: bool = False,
) -> SynthesisReport:
    """Synthesise trajectories for the finished questions of a run.

    Args:
        questions: Run folder of the questions.
        out: Run folder to write.
        config: Of everything below.
        tools_for: Gives the tools for the store of pictures.
        resume: Continue the run in `out`.
        quiet: Show no progress.

    Raises:
        DataError: If `questions` holds no finished question.
        RunMismatch: If a run is resumed with other questions than it was started with.
    """
    from opensearch_vl.agent.environment import Environment
    from opensearch_vl.errors import DataError
    from opensearch_vl.images import ImageStore
    from opensearch_vl.runs import RunFolder, origin_of, read_records, records_digest
    from opensearch_vl.sft.synthesis import synthesise
    from opensearch_vl.types import QuestionRecord

    tasks = [record.task for record in read_records(questions, QuestionRecord) if record.task is not None]
    if not tasks:
        raise DataError(f"{questions} holds no finished question.", "Build some with: osvl questions build")

    async def work(run: RunFolder, advance: Callable[[SynthesisReport], None]) -> SynthesisReport:
        store = ImageStore(run.images.root, (ImageStore(questions / "images"),))
        env = Environment(tools_for(store), config.agent, store)
        expert = expert_for(config.expert, config.agent, store)
        judge = judge_for(config.judge, config.agent, store)
        return await synthesise(tasks, env, expert, judge, run, config.synthesis, progress=advance)

    facts = {
        "questions": str(questions),
        "questions_digest": records_digest(questions),
        "origin": origin_of(questions),
    }
    with RunFolder(out, config, facts, resume=resume) as run, progress() as bars:
        bars.disable = bars.disable or quiet
        bar = bars.add_task("Trajectories", total=len(tasks) * config.synthesis.samples)
        return asyncio.run(work(run, lambda report: bars.update(bar, completed=report.done)))


def expert_for(expert: ExpertSettings, agent: AgentSettings, store: ImageStore) -> ExpertFor:
    """The policy of each rollout: one served model for all, or a scripted expert for each."""
    from opensearch_vl.seeds import derive
    from opensearch_vl.sft.expert import ScriptedExpert

    if expert.model:
        served = _served(expert.model, expert.base_url, agent, store)
        return lambda task, sample: served
    return lambda task, sample: ScriptedExpert(
        task, expert.noise, derive("expert", task.id, sample), brief=agent.profile == "miniature"
    )


def judge_for(judge: JudgeSettings, agent: AgentSettings, store: ImageStore) -> Judge:
    """The judge that the settings ask for."""
    from opensearch_vl.scoring.judges import ExactJudge
    from opensearch_vl.scoring.llm_judge import LLMJudge

    if judge.model:
        return LLMJudge(_served(judge.model, judge.base_url, agent, store))
    return ExactJudge(judge.max_candidates)


def _served(model: str, base_url: str | None, agent: AgentSettings, store: ImageStore) -> ChatModel:
    from opensearch_vl.cli.ask import chat_model

    return chat_model(model, base_url, store, agent, None, None)
