"""The dataset card of an export: what is in it, how it was made, on what terms its pictures come, and what it lacks.

Every number is counted off the exported records or stands in a run's manifest; what neither says is called unknown. The
YAML at the top is what `datasets` and hubs read: where the files of each split lie, and how large it all is.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from opensearch_vl.types import ImageRef, QuestionRecord, RolloutRecord, Task

ATTRIBUTION = "ATTRIBUTION.csv"
NOT_RECORDED = "not recorded"
_SIZES = (
    (1_000, "n<1K"),
    (10_000, "1K<n<10K"),
    (100_000, "10K<n<100K"),
    (1_000_000, "100K<n<1M"),
    (10_000_000, "1M<n<10M"),
)
_HISTOGRAMS = {
    "hops": "Hops of the path",
    "domains": "Domain of the anchor",
    "corpora": "Corpus",
    "answers": "Kind of answer",
    "degraded": "Degraded pictures, by damage",
    "identified": "What identifies the anchor's picture",
    "models": "Policy that wrote the trajectory",
    "ended": "How the trajectory ended",
    "calls": "Tool calls, by tool",
    "verdicts": "Verdict on the answer",
}


@dataclass(slots=True)
class SplitFacts:
    """What was counted while a split was written.

    Attributes:
        name: Name of the split.
        manifest: Manifest of the run it comes from.
        files: Its Parquet files.
        num_rows: Its rows.
        num_ungrounded: Rows without a picture.
        left_out: Records of the run that are not in it, by reason.
        pictures: Distinct pictures, by hash.
        licences: The same by licence; a picture made by a tool counts under the one it was made from.
        counts: Histograms, by the names in `_HISTOGRAMS`.
    """

    name: str
    manifest: Mapping[str, Any] = field(default_factory=dict)
    files: list[str] = field(default_factory=list)
    num_rows: int = 0
    num_ungrounded: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
    pictures: set[str] = field(default_factory=set)
    licences: Counter[str] = field(default_factory=Counter)
    counts: dict[str, Counter[str]] = field(default_factory=lambda: {name: Counter() for name in _HISTOGRAMS})

    def add(self, record: QuestionRecord | RolloutRecord, attribution: Attribution) -> None:
        """Count a row and note whose pictures are in it."""
        task = record.task
        assert task is not None
        known, counts = task.provenance, self.counts
        self.num_rows += 1
        self.num_ungrounded += not task.images
        counts["hops"][str(len(known.hops)) if known.hops else "no path"] += 1
        counts["domains"][known.domain or NOT_RECORDED] += 1
        counts["corpora"][known.corpus] += 1
        counts["answers"][task.gold.kind] += 1
        counts["degraded"][known.degradation.kind if known.degradation is not None else "none"] += 1
        counts["identified"].update([known.picture.identified_by] if known.picture is not None else [])
        images = list(task.images)
        if isinstance(record, RolloutRecord):
            trajectory = record.trajectory
            counts["models"][trajectory.model or NOT_RECORDED] += 1
            counts["ended"][str(trajectory.termination)] += 1
            counts["calls"].update(step.call.name for step in trajectory.steps if step.call is not None)
            correct = None if record.verdict is None else record.verdict.correct
            counts["verdicts"][{True: "correct", False: "wrong", None: "unscored"}[correct]] += 1
            images += [s.observation.image for s in trajectory.steps if s.observation and s.observation.image]
        for image in images:
            if image.sha256 not in self.pictures:
                self.pictures.add(image.sha256)
                self.licences[known.picture.licence if known.picture and known.picture.licence else NOT_RECORDED] += 1
                attribution.add(image, task)


class Attribution:
    """The table of pictures with file, page, licence and author; every picture once."""

    def __init__(self, writer: Any) -> None:
        self._writer = writer
        self._seen: set[str] = set()

    def add(self, image: ImageRef, task: Task) -> None:
        """Write a picture's line."""
        if image.sha256 in self._seen:
            return
        self._seen.add(image.sha256)
        source = task.provenance.picture
        original = bool(task.images) and image == task.images[0] and task.provenance.degradation is None
        self._writer.writerow(
            (
                image.sha256,
                "as given" if original else "changed" if source is not None else "unknown",
                source.file if source is not None else "",
                source.page if source is not None else "",
                (source.licence if source is not None else "") or NOT_RECORDED,
                (source.author if source is not None else "") or NOT_RECORDED,
                task.provenance.corpus,
            )
        )

    @classmethod
    @contextmanager
    def into(cls, folder: Path) -> Iterator[Attribution]:
        """Open the table in a folder."""
        with open(folder / ATTRIBUTION, "w", encoding="utf-8", newline="") as handle:
            writer = csv.writer(handle, lineterminator="\n")
            writer.writerow(("sha256", "state", "file", "page", "licence", "author", "corpus"))
            yield cls(writer)


def size_category(num_rows: int) -> str:
    """The size as hubs write it."""
    return next((name for bound, name in _SIZES if num_rows < bound), "n>10M")


def render_card(name: str, what: str, splits: Sequence[SplitFacts]) -> str:
    """The card.

    Args:
        name: Name of the data set.
        what: `questions` or `trajectories`.
        splits: What was counted.
    """
    total = sum(split.num_rows for split in splits)
    head = {
        "pretty_name": name,
        "license": "other",
        "license_name": "per-picture",
        "license_link": ATTRIBUTION,
        "task_categories": ["visual-question-answering"],
        "tags": ["multimodal", "deep-search", what],
        "size_categories": [size_category(total)],
        "configs": [
            {
                "config_name": "default",
                "data_files": [{"split": split.name, "path": f"data/{split.name}-*.parquet"} for split in splits],
            }
        ],
    }
    kinds = "Questions about pictures" if what == "questions" else "Trajectories of a search agent with pictures"
    parts = [
        f"---\n{yaml.safe_dump(head, sort_keys=False, allow_unicode=True)}---",
        f"# {_cell(name)}",
        f"{kinds}: {total:,} rows. Written by `osvl data export`; every number below is counted off the records or "
        "stands in a run's manifest.",
        _table(
            ("split", "rows", "without a picture", "distinct pictures", "files"),
            [(s.name, s.num_rows, s.num_ungrounded, len(s.pictures), len(s.files)) for s in splits],
        ),
        f'```python\nimport datasets\n\ndatasets.load_dataset("THIS_FOLDER")["{splits[0].name}"][0]\n```',
        "`record` holds each row whole, as JSON, for `osvl data import`; the other columns show parts of it.",
        *_shares(splits),
        *(text for split in splits for text in _origin(split)),
        *_terms(splits),
        *_limits(splits, what),
    ]
    return "\n\n".join(parts) + "\n"


def _shares(splits: Sequence[SplitFacts]) -> Iterator[str]:
    yield "## What is in it"
    for key, title in _HISTOGRAMS.items():
        values = sorted({value for split in splits for value in split.counts[key]})
        if not values:
            continue
        rows = []
        for value in values:
            shares = [_share(split.counts[key][value], split.counts[key].total()) for split in splits]
            rows.append((value, *shares))
        yield f"**{title}**"
        yield _table((title.split(",")[0].lower(), *(split.name for split in splits)), rows)


def _origin(split: SplitFacts) -> Iterator[str]:
    """How a split was made, from the manifest of its run and of the runs that one was made from."""
    yield f"## How `{split.name}` was made"
    manifest: Mapping[str, Any] = split.manifest
    if split.left_out:
        yield "**Records of the run that are not exported**"
        yield _table(("reason", "records"), sorted(split.left_out.items()))
    if not manifest:
        yield "The records came without a manifest, so how they were made is unknown."
    while manifest:
        yield from _run(manifest)
        origin = manifest.get("origin")
        manifest = origin if isinstance(origin, Mapping) else {}


def _run(manifest: Mapping[str, Any]) -> Iterator[str]:
    agent, config = _mapping(manifest, "agent"), _mapping(manifest, "config")
    told = ("wiki", "seed", "num", "model", "imported")
    facts: dict[str, Any] = {key: manifest[key] for key in told if manifest.get(key) is not None}
    if "split" in manifest:
        facts |= {f"split {key}": config[key] for key in ("seed", "named") if key in config}
    if agent:
        facts |= {"layout": agent.get("layout"), "prompt hash": agent.get("prompt_hash")}
        facts["tools"] = ", ".join(str(tool.get("name")) for tool in agent.get("tools", ()))
    synthesis = _mapping(config, "synthesis") or (config if "samples" in config else {})
    facts |= {f"synthesis {key}": synthesis[key] for key in ("seed", "samples", "min_query") if key in synthesis}
    expert, judge = _mapping(config, "expert"), _mapping(config, "judge")
    facts |= {"expert": expert.get("model") or "scripted"} if expert else {}
    facts |= {"expert": manifest["expert"]} if isinstance(manifest.get("expert"), str) else {}
    facts |= {"judge": manifest.get("judge")} if "judge" in manifest else {"judge": judge["model"]} if judge else {}
    facts |= {f"prompt {key}": value for key, value in _mapping(manifest, "prompts").items()}
    facts |= {f"spent {key}": value for key, value in _mapping(manifest, "spent").items()}
    walks = _mapping(config, "walks")
    facts |= {f"walks {key}": walks[key] for key in ("hop_probs", "hub", "edges") if key in walks}
    facts |= {
        f"version of {key}": value for key, value in _mapping(manifest, "versions").items() if "opensearch" in key
    }
    kind = "Rollouts" if agent else "Disjoint sets" if "split" in manifest else "Questions"
    yield f"**{kind}**"
    if facts:
        yield _table(("fact", "value"), list(facts.items()))
    if counts := _mapping(manifest, "counts"):
        rejected = [(f"rejected: {reason}", num) for reason, num in _mapping(counts, "rejected").items()]
        rows = [(key, value) for key, value in counts.items() if isinstance(value, int)]
        yield _table(("rollouts", "number"), [*rows, *rejected])
    if parts := _mapping(manifest, "split"):
        rows = [(f"set {key}", num) for key, num in _mapping(parts, "sets").items()]
        rows += [(f"dropped: {key}", num) for key, num in _mapping(parts, "dropped").items()]
        yield "No page of a path and no picture of a question in one of these sets occurs in a question of another."
        yield _table(("questions", "number"), rows)
    yield from _stages(_mapping(manifest, "report"))


def _stages(report: Mapping[str, Any]) -> Iterator[str]:
    if stages := report.get("stages"):
        yield "Stages of question building, and what each turned away:"
        rows = []
        for stage in stages:
            reasons = ", ".join(f"{reason} {num}" for reason, num in stage["reasons"].items())
            rows.append((stage["stage"], stage["came_in"], stage["passed"], reasons))
        yield _table(("stage", "came in", "passed", "turned away"), rows)
    if dropped := _mapping(report, "walks_dropped"):
        yield f"Seeds that gave no walk: {report.get('seeds_dropped', 'unknown')}. Steps refused on the way, by rule:"
        yield _table(("rule", "times"), list(dropped.items()))


def _terms(splits: Sequence[SplitFacts]) -> Iterator[str]:
    licences: Counter[str] = Counter()
    for split in splits:
        licences.update(split.licences)
    yield "## Terms"
    yield (
        f"Each picture keeps its own licence. `{ATTRIBUTION}` lists file, page, licence and author of every one, as "
        "they were recorded with the pages, and whether it was changed (degraded for the enhancement subset, or made "
        "by a tool). Nobody has checked these records. The licence of the text that questions and observations are "
        "drawn from is not recorded. Before publishing, settle both and replace `license: other` above."
    )
    yield _table(("licence of pictures", "distinct pictures, summed over splits"), sorted(licences.items()))


def _limits(splits: Sequence[SplitFacts], what: str) -> Iterator[str]:
    yield "## Known limits"
    unlicensed = sum(split.licences[NOT_RECORDED] for split in splits)
    notes = [
        f"Pictures without a recorded licence: {unlicensed}.",
        f"Rows without a picture, whose anchor is named in the text: {sum(s.num_ungrounded for s in splits)}.",
        "Answers are those of the source at the time it was read; nothing here re-checks them against the world.",
        "Rows hold reference answers and the path to them: keep them out of what an evaluated model is trained on.",
    ]
    if what == "trajectories":
        unscored = sum(split.counts["verdicts"]["unscored"] for split in splits)
        notes.append(f"Trajectories whose verdict is missing because a judge failed or none was asked: {unscored}.")
        notes.append("Observations quote pages found by search; they were scrubbed of control tokens, not of opinions.")
    yield "\n".join(f"- {note}" for note in notes)


def _mapping(holder: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = holder.get(key)
    return value if isinstance(value, Mapping) else {}


def _share(count: int, total: int) -> str:
    return f"{count:,} ({count / total:.1%})" if total else "0"


def _table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(_cell(cell) for cell in line)} |" for line in lines)


def _cell(value: Any) -> str:
    """Text for a table: records are other people's, so nothing in them may end the cell or open a tag."""
    text = f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")[:300]
