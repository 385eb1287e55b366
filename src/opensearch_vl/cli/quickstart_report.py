"""The quickstart's report: fills the viewer's tables with the figures of a run."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from opensearch_vl.cli.stages import POINTS
from opensearch_vl.images import ImageStore
from opensearch_vl.runs import read_records
from opensearch_vl.scoring.metrics import accuracy
from opensearch_vl.types import RolloutRecord
from opensearch_vl.viewer.report import (
    CostRow,
    Counterfactual,
    Curve,
    Figure,
    ReportData,
    ScoreRow,
    StageRow,
    render_report,
)

if TYPE_CHECKING:
    from opensearch_vl.cli.learning import Learning, Series
    from opensearch_vl.cli.pipeline import Results
    from opensearch_vl.cli.quickstart_settings import QuickstartSettings
    from opensearch_vl.questions.counterfactual import Cell

_SHOWN = 6
_EXPECTED = {
    "no_tools": "at most 2 %",
    "one_text_search": "at most 5 %",
    "one_image_search": "dropped by the filter",
    "image_then_text": "at most 15 %",
}
_VARIANTS = {
    "full": "The questions as built: neither search opens them.",
    "no_fuzz": "Real names left in: one text search should open them.",
    "answer_anchored": "A picture of the answer's page: one image search should open them.",
}


def write_report(out: Path, results: Results, settings: QuickstartSettings, seconds: float) -> Path:
    """Write ``OUT/report.html`` and return its path."""
    trajectories = out / "trajectories"
    records = _choose(list(read_records(trajectories, RolloutRecord)) if results.synthesis.done else [])
    store = ImageStore(trajectories / "images")
    if results.learning is not None:
        last = out / "training" / "reinforced"
        records += _choose_of_policy(list(read_records(last, RolloutRecord)))
        store = ImageStore(trajectories / "images", fallbacks=(ImageStore(last / "images"),))
    html = render_report(_data(results, settings, seconds), records, store)
    report = out / "report.html"
    report.write_text(html, encoding="utf-8")
    return report


def _data(results: Results, settings: QuickstartSettings, seconds: float) -> ReportData:
    counts = results.wiki.meta["counts"]
    build, expert = results.build, results.synthesis
    return ReportData(
        title=f"OpenSearch-VL on {results.wiki.meta['name']}",
        summary="From an encyclopedia to image-grounded multi-hop questions, solved by an expert with real tools.",
        figures=(
            Figure(label="pages read", value=f"{len(results.wiki):,}"),
            Figure(label="links between them", value=f"{counts.get('links', 0):,}"),
            Figure(label="questions", value=f"{len(build.tasks):,}"),
            Figure(label="of them with a picture", value=f"{len(build.tasks) - build.num_ungrounded:,}"),
            Figure(label="trajectories kept", value=f"{expert.accepted:,} of {expert.done:,}"),
            Figure(label="seconds", value=f"{seconds:,.0f}"),
        ),
        stages=tuple(
            StageRow(stage=row.stage, entered=row.came_in, passed=row.passed, reasons=row.reasons)
            for row in build.stages.rows()
        ),
        scores=(
            ScoreRow.of("expert, all tools", expert.accuracy, "at least 95 %"),
            ScoreRow.of("expert, answer pages hidden", results.blinded, "0 %"),
            *(_score(cell, _EXPECTED.get(cell.solver, "")) for cell in results.solvers),
            *_policy_scores(results.learning),
        ),
        counterfactuals=_counterfactuals(results.variants),
        curves=_curves(results.learning),
        costs=tuple(CostRow(part=part, seconds=value) for part, value in results.seconds.items()),
        settings={"seed": str(settings.seed), "noise of the expert": str(settings.noise)},
        notes=_notes(results, settings),
    )


def _score(cell: Cell, expected: str = "") -> ScoreRow:
    return ScoreRow.of(cell.solver.replace("_", " "), accuracy(cell.verdicts), expected)


def _policy_scores(learning: Learning | None) -> tuple[ScoreRow, ...]:
    if learning is None:
        return ()
    return tuple(
        ScoreRow.of(f"policy {POINTS[point]}, held-out entities", value) for point, value in learning.heldout.items()
    )


def _curves(learning: Learning | None) -> tuple[Curve, ...]:
    if learning is None:
        return ()
    loss, token_accuracy = (_only(learning.sft, name) for name in ("loss", "token accuracy"))
    return (
        _curve("Fine-tuning: loss per action token", loss),
        _curve("Fine-tuning: share of action tokens that were the likeliest one", token_accuracy),
        _curve("GRPO: the rollouts of each step", learning.rl),
    )


def _only(series: Series, name: str) -> Series:
    return replace(series, values={name: series.values[name]})


def _curve(title: str, series: Series) -> Curve:
    values = {name: tuple(math.nan if value is None else value for value in row) for name, row in series.values.items()}
    return Curve(title=title, x_label="optimiser step", x=tuple(map(float, series.steps)), series=values)


def _counterfactuals(cells: tuple[Cell, ...]) -> tuple[Counterfactual, ...]:
    variants = dict.fromkeys(cell.variant for cell in cells)
    return tuple(
        Counterfactual(
            variant=variant.replace("_", " "),
            explanation=_VARIANTS.get(variant, ""),
            scores={cell.solver.replace("_", " "): _score(cell) for cell in cells if cell.variant == variant},
        )
        for variant in variants
    )


def _notes(results: Results, settings: QuickstartSettings) -> tuple[str, ...]:
    notes = []
    build = results.build
    wanted = round(settings.questions.degrade.fraction * len(build.tasks))
    if degraded := build.degraded.total():
        by_kind = ", ".join(f"{kind} {count}" for kind, count in sorted(build.degraded.items()))
        notes.append(f"{degraded} pictures were damaged so that one tool repairs them ({by_kind}).")
    if degraded < wanted:
        notes.append(
            f"The enhancement subset is short: {degraded} of {wanted} wanted. Only pictures told by lettering qualify "
            f"({build.identified_by['lettering']} here), and only if damage hides it and the tool brings it back."
        )
    if results.build.num_ungrounded:
        notes.append(ungrounded_note(results.build.num_ungrounded, len(results.build.tasks)))
    if results.build.num_unscored:
        notes.append(f"{results.build.num_unscored} verdicts of the filter are unscored; those questions were kept.")
    if results.learning is not None:
        notes += _training_notes(results.learning)
    for reason, count in sorted(results.synthesis.rejected.items()):
        notes.append(f"{count} trajectories rejected: {reason.replace('_', ' ')}.")
    return tuple(notes)


def _training_notes(learning: Learning) -> list[str]:
    sft, rl = learning.facts["sft"], learning.facts["rl"]
    kept, rolled = learning.trajectories
    notes = [
        f"The policy learnt from {kept} of {rolled} expert trajectories on {learning.questions} questions of two hops: "
        f"{sft['steps']} steps of fine-tuning, then {rl['steps']} of GRPO with {rl['rollouts']} rollouts "
        f"({rl['unscored']} of them unscored). Its accuracy is measured on another encyclopedia, at temperature 0.",
        *(f"During GRPO: {alarm}." for alarm in rl["alarms"]),
    ]
    if learning.shared:
        notes.append(f"{learning.shared} held-out questions were left out: both encyclopedias know a name in them.")
    return notes


def ungrounded_note(ungrounded: int, questions: int) -> str:
    """What questions without a picture mean, and how to get pictures."""
    return (
        f"{ungrounded:,} of {questions:,} questions are ungrounded: their anchor's page has no picture, so they name "
        "the anchor, and solvers that search for pictures answer nothing. Exports hold no picture files; give a folder "
        "of them with --images DIR, each under the name that the pages use."
    )


def _choose_of_policy(records: list[RolloutRecord]) -> list[RolloutRecord]:
    """One trajectory of the trained policy that ended right, and one that did not."""
    right = [record for record in records if record.verdict is not None and record.verdict.correct]
    wrong = [record for record in records if record.verdict is not None and record.verdict.correct is False]
    return [*right[:1], *wrong[:1]]


def _choose(records: list[RolloutRecord]) -> list[RolloutRecord]:
    """A few trajectories that show the most: kept and rejected ones, degraded pictures, many steps, distinct tasks."""

    def interest(record: RolloutRecord) -> tuple[bool, int, str]:
        degraded = record.task.provenance.degradation is not None
        return degraded, len(record.trajectory.steps), record.id

    chosen: dict[str, RolloutRecord] = {}
    kept = sorted((r for r in records if r.accepted), key=interest, reverse=True)
    turned_away = sorted((r for r in records if r.accepted is False), key=interest, reverse=True)
    for record in (*kept[: _SHOWN // 2], *turned_away[:1], *kept[_SHOWN // 2 :: max(1, len(kept) // _SHOWN)]):
        chosen.setdefault(record.task.id, record)
    return list(chosen.values())[:_SHOWN]
