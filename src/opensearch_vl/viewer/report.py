"""The report of a run: what the stages kept, how everything scored, what it cost, and a few whole trajectories.

The caller fills `ReportData`; rendering adds no figure of its own beyond ratios of those given.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from opensearch_vl.images import ImageStore
from opensearch_vl.types import Frozen, RolloutRecord
from opensearch_vl.viewer.charts import bar_chart, line_chart
from opensearch_vl.viewer.html import bar, esc, page, text
from opensearch_vl.viewer.page import trajectories


class Figure(Frozen):
    """A headline figure with what it counts."""

    label: str
    value: str


class StageRow(Frozen):
    """One stage of a pipeline: how many came in and passed, and why the others did not."""

    stage: str
    entered: int
    passed: int
    reasons: dict[str, int] = {}  # noqa: RUF012 - pydantic copies defaults


class Rate(Protocol):
    """An accuracy with its interval, as `scoring.metrics.accuracy` gives it."""

    @property
    def correct(self) -> int:
        """Cases judged right."""
        ...

    @property
    def scored(self) -> int:
        """Cases that were judged."""
        ...

    @property
    def unscored(self) -> int:
        """Cases whose judge failed."""
        ...

    @property
    def low(self) -> float:
        """Lower bound."""
        ...

    @property
    def high(self) -> float:
        """Upper bound."""
        ...


class ScoreRow(Frozen):
    """Accuracy of one system: a Wilson interval over the scored cases, unscored ones beside it."""

    name: str
    correct: int
    scored: int
    unscored: int
    low: float
    high: float
    expected: str = ""

    @classmethod
    def of(cls, name: str, rate: Rate, expected: str = "") -> ScoreRow:
        """From an accuracy; `expected` says in words what the recipe expects."""
        return cls(
            name=name,
            correct=rate.correct,
            scored=rate.scored,
            unscored=rate.unscored,
            low=rate.low,
            high=rate.high,
            expected=expected,
        )

    @property
    def rate(self) -> float | None:
        """Share of the scored cases that were right; None if none was scored."""
        return self.correct / self.scored if self.scored else None


class Counterfactual(Frozen):
    """One variant of the questions with the score of each solver on it, by solver."""

    variant: str
    explanation: str = ""
    scores: dict[str, ScoreRow]


class CostRow(Frozen):
    """Time and money of one part of a run."""

    part: str
    seconds: float
    cost: float = 0.0
    note: str = ""


class Curve(Frozen):
    """A chart: one or more series over a common axis, e.g. loss over steps. NaN leaves a gap."""

    title: str
    x_label: str
    x: tuple[float, ...]
    series: dict[str, tuple[float, ...]]


class Histogram(Frozen):
    """How often each value occurs, in the order to be shown."""

    title: str
    counts: dict[str, int]


class ReportData(Frozen):
    """Everything a report shows besides trajectories; empty parts are left out.

    `shares` are counts out of a whole that are no accuracy, such as defects: `correct` is the count.
    """

    title: str
    summary: str = ""
    figures: tuple[Figure, ...] = ()
    stages: tuple[StageRow, ...] = ()
    scores: tuple[ScoreRow, ...] = ()
    shares: tuple[ScoreRow, ...] = ()
    histograms: tuple[Histogram, ...] = ()
    counterfactuals: tuple[Counterfactual, ...] = ()
    costs: tuple[CostRow, ...] = ()
    curves: tuple[Curve, ...] = ()
    settings: dict[str, str] = {}  # noqa: RUF012 - pydantic copies defaults
    notes: tuple[str, ...] = ()


def render_report(data: ReportData, records: Sequence[RolloutRecord], store: ImageStore, *, thumb_px: int = 320) -> str:
    """One self-contained HTML page.

    Args:
        data: The figures.
        records: Trajectories to show in full; the caller chooses a few.
        store: Their pictures.
        thumb_px: Longest side of embedded pictures, in pixels.
    """
    parts = [f"<h1>{esc(data.title)}</h1>", text(data.summary, "p") if data.summary else "", _figures(data.figures)]
    if data.scores:
        parts += ["<h2>Scores</h2>", _scores(data.scores)]
    if data.shares:
        parts += ["<h2>Shares</h2>", _scores(data.shares, "With Wilson's interval.", ("Of", "Share", "Count / all"))]
    if data.histograms:
        parts += ["<h2>Make-up</h2>", *(bar_chart(chart.title, chart.counts) for chart in data.histograms)]
    if data.counterfactuals:
        parts += ["<h2>Counterfactuals</h2>", _counterfactuals(data.counterfactuals)]
    if data.stages:
        parts += ["<h2>From walks to questions</h2>", _stages(data.stages)]
    if data.curves:
        parts += ["<h2>Training</h2>", *(line_chart(c.title, c.x_label, c.x, c.series) for c in data.curves)]
    if data.costs:
        parts += ["<h2>Time and cost</h2>", _costs(data.costs)]
    if data.notes:
        parts += ["<h2>Notes</h2>", "<ul>", *(f"<li>{text(note)}</li>" for note in data.notes), "</ul>"]
    if records:
        parts += ["<h2>Trajectories</h2>", trajectories(records, store, thumb_px=thumb_px)]
    if data.settings:
        parts += ["<h2>Settings</h2>", _settings(data.settings)]
    return page(data.title, "\n".join(part for part in parts if part))


def _figures(figures: Sequence[Figure]) -> str:
    items = "".join(f"<li><b>{esc(item.value)}</b><span>{esc(item.label)}</span></li>" for item in figures)
    return f'<ul class="figures">{items}</ul>' if items else ""


def _table(
    caption: str, head: Sequence[str], rows: Sequence[Sequence[str]], numeric: frozenset[int] = frozenset()
) -> str:
    """A table of HTML cells; columns in `numeric` are set flush right."""

    def cells(tag: str, row: Sequence[str]) -> str:
        scope = ' scope="col"' if tag == "th" else ""
        return "".join(
            f"<{tag}{scope}{' class=n' if n in numeric else ''}>{cell}</{tag}>" for n, cell in enumerate(row)
        )

    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    top = f"<caption>{esc(caption)}</caption>" if caption else ""
    return (
        f'<div class="wide"><table>{top}<thead><tr>{cells("th", head)}</tr></thead><tbody>{body}</tbody></table></div>'
    )


_SCORES = "Accuracy over the scored cases, with Wilson's interval."


def _scores(
    scores: Sequence[ScoreRow],
    caption: str = _SCORES,
    names: tuple[str, str, str] = ("System", "Accuracy", "Right / scored"),
) -> str:
    rows = [
        [
            esc(row.name),
            _percent(row.rate),
            f"{row.low:.1%} to {row.high:.1%}" if row.scored else "n/a",
            bar(row.rate, low=row.low, high=row.high) if row.rate is not None else "",
            f"{row.correct:,} / {row.scored:,}",
            _unscored(row.unscored),
            esc(row.expected),
        ]
        for row in scores
    ]
    head = [names[0], names[1], "95 % interval", "", names[2], "Unscored", "Expected"]
    return _table(caption, head, rows, frozenset({1, 2, 4, 5}))


def _unscored(count: int) -> str:
    return f'<b class="wait">{count:,}</b>' if count else "0"


def _percent(rate: float | None) -> str:
    return "n/a" if rate is None else f"{rate:.1%}"


def _counterfactuals(variants: Sequence[Counterfactual]) -> str:
    solvers = list(dict.fromkeys(name for variant in variants for name in variant.scores))
    rows = []
    for variant in variants:
        explanation = f"<br><small>{esc(variant.explanation)}</small>" if variant.explanation else ""
        cells = [_score_cell(variant.scores.get(solver)) for solver in solvers]
        rows.append([f"{esc(variant.variant)}{explanation}", *cells])
    caption = (
        "The same walks with one part of the recipe left out: a shortcut should open exactly where one is expected."
    )
    return _table(caption, ["Questions", *map(esc, solvers)], rows)


def _score_cell(score: ScoreRow | None) -> str:
    if score is None or score.rate is None:
        return '<span class="soft">not measured</span>'
    unscored = f", {score.unscored:,} unscored" if score.unscored else ""
    expected = f"<br><small>expected: {esc(score.expected)}</small>" if score.expected else ""
    return (
        f"{bar(score.rate, low=score.low, high=score.high, width=110)}{score.rate:.1%} "
        f"<small>({score.correct:,}/{score.scored:,}{unscored})</small>{expected}"
    )


def _stages(stages: Sequence[StageRow]) -> str:
    rows = []
    for row in stages:
        reasons = "<br>".join(
            f"{esc(name)}: {count:,}"
            for name, count in sorted(row.reasons.items(), key=lambda item: (-item[1], item[0]))
        )
        share = row.passed / row.entered if row.entered else 0.0
        rows.append([esc(row.stage), f"{row.entered:,}", f"{row.passed:,}", bar(share, width=100), reasons])
    head = ["Stage", "Came in", "Passed", "Share", "Left out, by reason"]
    return _table("Every item that came in is counted once.", head, rows, frozenset({1, 2}))


def _costs(costs: Sequence[CostRow]) -> str:
    total = sum(row.seconds for row in costs)
    rows = [
        [
            esc(row.part),
            f"{row.seconds:,.1f} s",
            bar(row.seconds / total if total else 0.0, width=100),
            f"${row.cost:,.4f}" if row.cost else "–",
            esc(row.note),
        ]
        for row in costs
    ]
    rows.append(["<b>together</b>", f"<b>{total:,.1f} s</b>", "", f"<b>${sum(row.cost for row in costs):,.4f}</b>", ""])
    return _table("", ["Part", "Time", "", "Cost", ""], rows, frozenset({1, 3}))


def _settings(settings: Mapping[str, str]) -> str:
    return _table("", ["Setting", "Value"], [[esc(name), text(value)] for name, value in settings.items()])
