"""The whole recipe in order, on the miniature encyclopedia or on a real export: what `osvl quickstart` runs.

```
export → wiki tables → indexes → questions → expert trajectories → audit (solvers, blinding, counterfactuals)
       → training (cli/learning.py) → report
```

Each part leaves its own folder under OUT and is skipped, or resumed, when it is already there.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opensearch_vl.cli.quickstart_settings import QuickstartSettings
from opensearch_vl.cli.stages import Advance, build_question_run, miniature_wiki, rate, roll_out_expert
from opensearch_vl.cli.wiring import World, local_world
from opensearch_vl.errors import RunMismatch
from opensearch_vl.images import ImageStore
from opensearch_vl.questions.audit import audit_solvers
from opensearch_vl.questions.counterfactual import Cell, counterfactuals, solve_all
from opensearch_vl.questions.tally import BuildReport
from opensearch_vl.runs import RunFolder
from opensearch_vl.scoring.judges import ExactJudge
from opensearch_vl.scoring.metrics import Accuracy, accuracy
from opensearch_vl.sft.synthesis import SynthesisReport, SynthesisSettings
from opensearch_vl.wiki.dump import build_wiki
from opensearch_vl.wiki.tables import WikiFolder

if TYPE_CHECKING:
    from opensearch_vl.cli.learning import Learning
    from opensearch_vl.types import Task


@dataclass(slots=True)
class Results:
    """What the parts found, and how long each took."""

    world: World
    build: BuildReport
    synthesis: SynthesisReport
    blinded: Accuracy
    solvers: tuple[Cell, ...]
    variants: tuple[Cell, ...]
    learning: Learning | None = None
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def wiki(self) -> WikiFolder:
        """The encyclopedia."""
        return self.world.wiki

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
            "training": self.learning.as_dict() if self.learning is not None else None,
            "seconds_by_part": {part: round(seconds, 1) for part, seconds in self.seconds.items()},
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
        """All parts but training, in order; `dump` takes the place of the miniature."""
        wiki = self._wiki(dump, images)
        with self._part("Indexing passages and pictures"):
            world = local_world(wiki.root)
        settings = self.settings
        with self._part("Building questions") as advance:
            build = build_question_run(
                world,
                self.out / "questions",
                settings.questions,
                seed=settings.seed,
                num=settings.num,
                resume=self.resume,
                advance=advance,
            )
        report = self._roll_out("Rolling out the expert", "trajectories", build.tasks, world, settings.synthesis)
        blinded = self._blinded(build.tasks, world)
        solvers, variants = self._audit(build, world)
        return Results(world, build, report, blinded, solvers, variants, seconds=self._seconds)

    def learn(self, world: World) -> Learning:
        """The training part, on the encyclopedia of the others."""
        from opensearch_vl.cli.learning import learn

        folder, chosen, seed = self.out / "training", self.settings.training, self.settings.seed
        with RunFolder(folder, chosen, {"seed": seed}, resume=self.resume):
            return learn(folder, world, chosen, seed, self._part, resume=self.resume)

    def _wiki(self, dump: Path | None, images: Path | None) -> WikiFolder:
        folder = self.out / "wiki"
        if dump is None:
            with self._part("Writing and reading the miniature encyclopedia") as advance:
                pages, seed = self.settings.pages, self.settings.seed
                return miniature_wiki(self.out / "export", folder, pages=pages, seed=seed, advance=advance)
        if folder.exists():
            wiki = WikiFolder(folder)
            if dump.name != wiki.meta["source"]:
                raise RunMismatch(
                    f"{self.out} was made from {wiki.meta['source']}, not {dump.name}.", "Choose another --out."
                )
            return wiki
        with self._part(f"Reading {dump.name}") as advance:
            return build_wiki(dump, folder, images=images, progress=advance)

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
        with self._part(title) as advance:
            return roll_out_expert(
                tasks,
                world,
                self.out / name,
                settings,
                agent=self.settings.agent,
                noise=self.settings.noise,
                pictures=self.out / "questions" / "images",
                resume=self.resume,
                advance=advance,
            )

    def _audit(self, build: BuildReport, world: World) -> tuple[tuple[Cell, ...], tuple[Cell, ...]]:
        """Solvers that the filter did not use, and the counterfactuals with the filter off."""
        store = ImageStore(self.out / "questions" / "images", fallbacks=(world.wiki.images,))
        solvers = audit_solvers(build.tasks, world.search, world.image_index, store, world.reader)
        pair = [solver for solver in solvers if solver.name in ("one_text_search", "one_image_search")]
        seed = self.settings.seed

        async def work() -> tuple[tuple[Cell, ...], tuple[Cell, ...]]:
            solved = await solve_all(build.tasks, solvers, self._judge, seed=seed)
            unfiltered = [*build.tasks, *build.screened]
            return solved, await counterfactuals(unfiltered, world.wiki, pair, self._judge, seed=seed)

        with self._part("Auditing with handicapped solvers"):
            return asyncio.run(work())

    @contextmanager
    def _part(self, title: str) -> Iterator[Advance]:
        started = time.perf_counter()
        with self._show(title) as advance:
            yield advance
        self._seconds[title] = time.perf_counter() - started


def write_summary(out: Path, summary: dict[str, Any]) -> None:
    """Keep the figures beside the report."""
    (out / "summary.json").write_text(json.dumps(summary, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
