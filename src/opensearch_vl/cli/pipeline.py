"""The whole recipe in order, on the miniature encyclopedia or on a real export: what `osvl quickstart` runs.

```
export → wiki tables → indexes → questions → expert trajectories → audit (solvers, blinding, counterfactuals) → report
```

Each part leaves its own folder under OUT and is skipped, or resumed, when it is already there.
"""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from opensearch_vl.agent.environment import Environment
from opensearch_vl.agent.settings import AgentSettings
from opensearch_vl.cli.wiring import World, local_world, question_tools, toolbox
from opensearch_vl.config import Config
from opensearch_vl.errors import RunMismatch
from opensearch_vl.images import ImageStore
from opensearch_vl.questions.audit import audit_solvers
from opensearch_vl.questions.build import build_questions
from opensearch_vl.questions.counterfactual import Cell, counterfactuals, solve_all
from opensearch_vl.questions.facts import Facts
from opensearch_vl.questions.settings import QuestionSettings
from opensearch_vl.questions.tally import BuildReport
from opensearch_vl.runs import RunFolder
from opensearch_vl.scoring.judges import ExactJudge
from opensearch_vl.scoring.metrics import Accuracy, accuracy
from opensearch_vl.sft.expert import ScriptedExpert
from opensearch_vl.sft.synthesis import SynthesisReport, SynthesisSettings, synthesise
from opensearch_vl.wiki.dump import build_wiki
from opensearch_vl.wiki.tables import WikiFolder
from opensearch_vl.wiki.walks import WalkRules

if TYPE_CHECKING:
    from opensearch_vl.protocols import ChatModel
    from opensearch_vl.types import Task

Advance = Callable[[int, int], None]
"""Called with (done, total or 0)."""


class StatedWalks(WalkRules):
    """Walks for the rule-based writer, which can word no other links than those that an infobox states."""

    edges: Literal["any", "stated"] = "stated"


class RuleWritten(QuestionSettings):
    """Question building as the quickstart does it: by rules alone, and in a newcomer's time."""

    walks: StatedWalks = StatedWalks()
    parallel: int = Field(4, ge=1)


class QuickstartSettings(Config):
    """Settings of the whole run.

    Attributes:
        pages: Size of the miniature encyclopedia.
        num: Final questions to stop at; None goes through every seed.
        num_blinded: How many of them the blinded expert tries.
        seed: Seed of everything.
        noise: How often the expert makes a mistake before a move, in [0, 1].
        questions: Question building.
        agent: The environment that experts act in.
        synthesis: Rollouts and their review.
    """

    pages: int = Field(2000, ge=100)
    num: int | None = Field(150, ge=1)
    num_blinded: int = Field(60, ge=0)
    seed: int = 0
    noise: float = Field(0.1, ge=0, le=1)
    questions: RuleWritten = RuleWritten()
    agent: AgentSettings = AgentSettings()
    synthesis: SynthesisSettings = SynthesisSettings()


@dataclass(slots=True)
class Results:
    """What the parts found, and how long each took."""

    wiki: WikiFolder
    build: BuildReport
    synthesis: SynthesisReport
    blinded: Accuracy
    solvers: tuple[Cell, ...]
    variants: tuple[Cell, ...]
    seconds: dict[str, float] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """The figures, as `--json` prints them."""
        return {
            "wiki": {key: self.wiki.meta[key] for key in ("name", "lang", "counts", "skipped", "damage")},
            **self.build.as_dict(),
            "expert": rate(self.synthesis.accuracy),
            "expert_blinded": rate(self.blinded),
            "trajectories": self.synthesis.counts(),
            "solvers": {cell.solver: rate(accuracy(cell.verdicts)) for cell in self.solvers},
            "counterfactuals": _table(self.variants),
            "seconds_by_part": {part: round(seconds, 1) for part, seconds in self.seconds.items()},
        }


def rate(value: Accuracy) -> dict[str, float | int | None]:
    """An accuracy as plain data; the rate is None when nothing was scored."""
    return {
        "accuracy": None if math.isnan(value.rate) else round(value.rate, 4),
        "correct": value.correct,
        "scored": value.scored,
        "unscored": value.unscored,
        "low": round(value.low, 4),
        "high": round(value.high, 4),
    }


def _table(cells: tuple[Cell, ...]) -> dict[str, dict[str, Any]]:
    table: dict[str, dict[str, Any]] = {}
    for cell in cells:
        table.setdefault(cell.variant, {})[cell.solver] = rate(accuracy(cell.verdicts))
    return table


class Pipeline:
    """One run of the recipe under a folder.

    Args:
        out: The folder.
        settings: Of all parts.
        resume: Continue what is there.
        show: Opens a progress display for a part; gives the function that advances it.
    """

    def __init__(self, out: Path, settings: QuickstartSettings, *, resume: bool, show: Callable[[str], Any]) -> None:
        self.out, self.settings, self.resume = out, settings, resume
        self._show = show
        self._judge = ExactJudge()
        self._seconds: dict[str, float] = {}

    def run(self, dump: Path | None = None, images: Path | None = None) -> Results:
        """All parts in order; `dump` takes the place of the miniature."""
        wiki = self._wiki(dump, images)
        with self._part("Indexing passages and pictures"):
            world = local_world(wiki.root)
        build = self._questions(world)
        report = self._roll_out("Rolling out the expert", "trajectories", build.tasks, world, self.settings.synthesis)
        blinded = self._blinded(build.tasks, world)
        solvers, variants = self._audit(build, world)
        return Results(wiki, build, report, blinded, solvers, variants, self._seconds)

    def _wiki(self, dump: Path | None, images: Path | None) -> WikiFolder:
        if self.resume and (self.out / "wiki").exists():
            wiki = WikiFolder(self.out / "wiki")
            if dump is not None and dump.name != wiki.meta["source"]:
                raise RunMismatch(
                    f"{self.out} was made from {wiki.meta['source']}, not {dump.name}.", "Choose another --out."
                )
            return wiki
        if dump is None:
            from opensearch_vl.wiki.miniature import write_miniature

            with self._part("Writing the miniature encyclopedia"):
                made = write_miniature(self.out / "export", pages=self.settings.pages, seed=self.settings.seed)
            dump, images = made.dump, made.images
        with self._part(f"Reading {dump.name}") as advance:
            return build_wiki(dump, self.out / "wiki", images=images, progress=advance)

    def _questions(self, world: World) -> BuildReport:
        settings, wiki = self.settings.questions, world.wiki
        tools = question_tools(world, self._store(wiki), Facts(wiki))
        manifest = {"wiki": wiki.meta["name"], "seed": self.settings.seed, "num": self.settings.num}
        with (
            self._part("Building questions") as advance,
            RunFolder(self.out / "questions", settings, manifest, resume=self.resume) as run,
        ):
            return build_questions(
                wiki,
                settings,
                seed=self.settings.seed,
                num=self.settings.num,
                tools=tools,
                run=run,
                progress=advance,
            )

    def _blinded(self, tasks: list[Task], world: World) -> Accuracy:
        """The same expert with every answer page hidden from the indexes: it must not find a single answer."""
        tasks = tasks[: self.settings.num_blinded]
        answers = [world.wiki.resolve(task.provenance.path[-1]) for task in tasks]
        hidden = world.without(frozenset(page for page in answers if page is not None))
        settings = self.settings.synthesis.model_copy(update={"samples": 1})
        return self._roll_out("Blinding the expert", "blinded", tasks, hidden, settings).accuracy

    def _roll_out(
        self, title: str, name: str, tasks: list[Task], world: World, settings: SynthesisSettings
    ) -> SynthesisReport:
        agent = self.settings.agent

        def expert(task: Task, sample: int) -> ChatModel:
            return ScriptedExpert(task, noise=self.settings.noise, seed=sample, brief=agent.profile == "miniature")

        manifest = {"expert": ScriptedExpert.name, "noise": self.settings.noise, "tasks": len(tasks)}
        with (
            self._part(title) as advance,
            RunFolder(self.out / name, settings, manifest, resume=self.resume) as run,
        ):
            store = ImageStore(run.images.root, fallbacks=(ImageStore(self.out / "questions" / "images"),))
            env = Environment(toolbox(world, store, brief=agent.sizes.brief), agent, store)
            run.write_manifest(prompt_hash=env.prompt_hash, tools=list(env.tools))
            total = len(tasks) * settings.samples
            return asyncio.run(
                synthesise(
                    tasks,
                    env,
                    expert,
                    self._judge,
                    run,
                    settings,
                    progress=lambda report: advance(report.done, total),
                )
            )

    def _audit(self, build: BuildReport, world: World) -> tuple[tuple[Cell, ...], tuple[Cell, ...]]:
        """Solvers that the filter did not use, and the counterfactuals with the filter off."""
        store = self._store(world.wiki)
        solvers = audit_solvers(build.tasks, world.search, world.image_index, store, world.reader)
        pair = [solver for solver in solvers if solver.name in ("one_text_search", "one_image_search")]
        seed = self.settings.seed

        async def work() -> tuple[tuple[Cell, ...], tuple[Cell, ...]]:
            solved = await solve_all(build.tasks, solvers, self._judge, seed=seed)
            unfiltered = [*build.tasks, *build.screened]
            return solved, await counterfactuals(unfiltered, world.wiki, pair, self._judge, seed=seed)

        with self._part("Auditing with handicapped solvers"):
            return asyncio.run(work())

    def _store(self, wiki: WikiFolder) -> ImageStore:
        """Pictures of questions, degraded ones included, then those of the wiki."""
        return ImageStore(self.out / "questions" / "images", fallbacks=(wiki.images,))

    @contextmanager
    def _part(self, title: str) -> Iterator[Advance]:
        started = time.perf_counter()
        with self._show(title) as advance:
            yield advance
        self._seconds[title] = time.perf_counter() - started


def write_summary(out: Path, summary: dict[str, Any]) -> None:
    """Keep the figures beside the report."""
    (out / "summary.json").write_text(json.dumps(summary, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
