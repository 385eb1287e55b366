"""The page of an audit: fills the viewer's tables and charts with the figures of `cli.audit.audited`."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from opensearch_vl.viewer.report import Counterfactual, ScoreRow

_EXAMPLES = 12
_EXPLAINED = {
    "full": "The questions as they are.",
    "no_fuzz": "Real names left in: one text search should open them.",
    "answer_anchored": "A picture of the answer's page: one image search should open them.",
    "no_hub": "Built anew from walks that may pass pages with any number of links, the filter off.",
    "absolute": "The last bridge described by attributes of its own: no picture needed.",
}


def write_audit(out: Path, result: dict[str, Any]) -> Path:
    """Write the page of an audit and return its path."""
    from opensearch_vl.images import ImageStore
    from opensearch_vl.viewer.report import Figure, Histogram, ReportData, render_report

    num = result["questions"]
    charts = [("hops", "Hops"), ("domains", "Domain of the anchor"), ("corpora", "Corpus")]
    histograms = [Histogram(title=title, counts=result[key]) for key, title in charts]
    histograms += [
        Histogram(title=f"Domain of the {role}", counts=counts)
        for role, counts in result["roles"].items()
        if role != "anchor"
    ]
    more = [
        ("answer_kinds", "Kind of answer"),
        ("exactness", "Exactness of the count"),
        ("attributes", "What is asked for"),
        ("relations", "Relation and way"),
    ]
    more += [("identified_by", "What identifies the anchor"), ("degraded", "Damage")]
    histograms += [Histogram(title=title, counts=result[key]) for key, title in more]
    data = ReportData(
        title=f"Audit of {Path(result['file']).name}",
        summary="Shortcuts by handicapped solvers, defects, repeats and variety of a set of questions.",
        figures=(
            Figure(label="questions", value=f"{num:,}"),
            Figure(label="without a picture", value=f"{result['ungrounded']:,}"),
            Figure(label="findings", value=f"{len(result['findings']):,}"),
            Figure(label="skeletons of wording", value=f"{result['skeletons']['distinct']:,}"),
            Figure(label="rows unread", value=f"{sum(result['unread'].values()):,}"),
        ),
        scores=tuple(_score(row, row["solver"]) for row in result["solvers"] if row["variant"] == "full"),
        shares=_shares(result),
        counterfactuals=_table(result["solvers"]),
        histograms=tuple(chart for chart in histograms if set(chart.counts) - {"", "0", "unknown"}),
        notes=_notes(result),
    )
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as empty:  # no trajectories, so no pictures
        out.write_text(render_report(data, (), ImageStore(Path(empty))), encoding="utf-8")
    return out


def _score(row: dict[str, Any], name: str) -> ScoreRow:
    from opensearch_vl.viewer.report import ScoreRow

    fields = {key: row[key] for key in ("correct", "scored", "unscored", "low", "high")}
    return ScoreRow(name=name.replace("_", " "), **fields)


def _shares(result: dict[str, Any]) -> tuple[ScoreRow, ...]:
    """Defects, repeats and the commonest wording, each as a share of the questions with its interval."""
    from opensearch_vl.questions.audit import PROBLEMS
    from opensearch_vl.scoring.metrics import wilson
    from opensearch_vl.viewer.report import ScoreRow

    num = result["questions"]
    with_problem = {
        problem: len({f["task"] for f in result["findings"] if f["problem"] == problem}) for problem in PROBLEMS
    }
    problems = PROBLEMS if result["roles"] else ("answer_leak",)
    counted = [(f"found: {problem}", with_problem[problem], "none") for problem in problems]
    counted += [(f"repeated: {what}", count, "") for what, count in result["duplicates"].items()]
    for kind in ("templates", "skeletons"):
        if commonest := result[kind].get("commonest"):
            counted.append((f"commonest of the {kind}", commonest["count"], ""))
    rows = []
    for name, count, expected in counted:
        low, high = wilson(count, num)
        rows.append(
            ScoreRow(name=name.replace("_", " "), correct=count, scored=num, unscored=0, low=low, high=high,
                     expected=expected)
        )  # fmt: skip
    return tuple(rows)


def _table(rows: list[dict[str, Any]]) -> tuple[Counterfactual, ...]:
    from opensearch_vl.viewer.report import Counterfactual

    variants = list(dict.fromkeys(row["variant"] for row in rows))
    if variants == ["full"]:
        return ()
    return tuple(
        Counterfactual(
            variant=variant.replace("_", " "),
            explanation=_EXPLAINED.get(variant, ""),
            scores={
                row["solver"].replace("_", " "): _score(row, row["solver"]) for row in rows if row["variant"] == variant
            },
        )
        for variant in variants
    )


def _notes(result: dict[str, Any]) -> tuple[str, ...]:
    notes = [f"{f['task']}: {f['problem'].replace('_', ' ')}: {f['detail']}" for f in result["findings"][:_EXAMPLES]]
    if more := len(result["findings"]) - len(notes):
        notes.append(f"… and {more:,} findings more (--json lists all).")
    for kind in ("templates", "skeletons"):
        if commonest := result[kind].get("commonest"):
            notes.append(
                f"{result[kind]['distinct']:,} {kind}, as varied as {result[kind]['effective']:,} equally common ones; "
                f"the commonest ({commonest['share']:.1%}): {commonest['text']}"
            )
    notes += [f"{count:,} rows unread: {reason.replace('_', ' ')}." for reason, count in result["unread"].items()]
    if not result["roles"]:
        notes.append("No wiki was given: nothing was searched, and no question was held against its pages.")
    return tuple(notes)
