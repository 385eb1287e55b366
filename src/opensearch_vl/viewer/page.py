"""Trajectories as one self-contained HTML page: question, pictures, every step with thought, call and what came back.

For reading: by a person who wants to know what an agent did and why it was scored as it was.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from itertools import islice

from opensearch_vl.images import ImageStore
from opensearch_vl.types import RewardParts, RolloutRecord, Step, Task, Trajectory
from opensearch_vl.viewer.html import Pictures, badge, bar, esc, fold, page, text

FOLD_CHARS = 500
"""Observations longer than this are folded."""
FOLD_LINES = 10
MAX_CHARS = 30_000
"""No single text on a page is longer."""


def render_trajectories(
    records: Iterable[RolloutRecord],
    store: ImageStore,
    *,
    title: str = "Trajectories",
    max_records: int = 50,
    thumb_px: int = 320,
) -> str:
    """One HTML page that needs nothing else: no script, no file, no network.

    Args:
        records: Read lazily; at most `max_records` are shown, and the page says if there are more.
        store: Their pictures (``RUN/images``).
        title: Heading of the page.
        max_records: How many trajectories are shown.
        thumb_px: Longest side of embedded pictures, in pixels.
    """
    iterator = iter(records)
    shown = list(islice(iterator, max_records))
    left_out = sum(1 for _ in iterator)
    head = [f"<h1>{esc(title)}</h1>", _overview(shown, left_out)]
    return page(title, "\n".join([*head, trajectories(shown, store, thumb_px=thumb_px)]))


def trajectories(records: Sequence[RolloutRecord], store: ImageStore, *, thumb_px: int = 320) -> str:
    """The part of a page that lists and shows trajectories, as HTML."""
    if not records:
        return "<p>There are no trajectories to show.</p>"
    pictures = Pictures(store, thumb_px)
    links = [
        f'<li><a href="#t{n}">{esc(_clip(record.task.question, 100))}</a> {_outcome(record)}</li>'
        for n, record in enumerate(records, 1)
    ]
    nav = f'<nav aria-label="Trajectories"><ol class="nav">{"".join(links)}</ol></nav>' if len(records) > 1 else ""
    return "\n".join([nav, *(_article(n, record, pictures) for n, record in enumerate(records, 1))])


def _overview(shown: Sequence[RolloutRecord], left_out: int) -> str:
    right = sum(record.verdict is not None and record.verdict.correct is True for record in shown)
    wrong = sum(record.verdict is not None and record.verdict.correct is False for record in shown)
    unscored = len(shown) - right - wrong
    more = f" {left_out:,} more are not shown." if left_out else ""
    counts = f"{len(shown):,} trajectories: {right:,} right, {wrong:,} wrong, {unscored:,} unscored."
    return f'<p class="soft">{counts}{more}</p>'


def _outcome(record: RolloutRecord) -> str:
    correct = record.verdict.correct if record.verdict is not None else None
    return {True: badge("right", "good"), False: badge("wrong", "bad"), None: badge("unscored", "wait")}[correct]


def _article(number: int, record: RolloutRecord, pictures: Pictures) -> str:
    trajectory = record.trajectory
    labels = [_outcome(record), badge(f"ended: {trajectory.termination}")]
    if record.accepted is not None:
        labels.append(badge("kept", "good") if record.accepted else badge(f"not kept: {record.reason}", "bad"))
    elif record.reason:
        labels.append(badge(record.reason, "wait"))
    labels.append(badge(f"{trajectory.num_calls} calls"))
    labels.append(badge(record.id))
    figures = "".join(pictures.figure(ref, f"img_{n}") for n, ref in enumerate(record.task.images, 1))
    return "\n".join(
        [
            f'<article id="t{number}" aria-labelledby="q{number}">',
            f'<h3 id="q{number}" class="text" dir="auto">{esc(_cut(record.task.question))}</h3>',
            f'<div class="badges">{"".join(labels)}</div>',
            f'<div class="head"><div class="pictures">{figures}</div>' if figures else "<div>",
            f"<div>{_facts(record)}{_reward(record.reward)}</div></div>",
            f'<ol class="steps">{"".join(_step(step, pictures) for step in trajectory.steps)}</ol>',
            f'<pre class="failure">{esc(_cut(trajectory.error))}</pre>' if trajectory.error else "",
            _provenance(record.task),
            _rollout_facts(trajectory),
            "</article>",
        ]
    )


def _facts(record: RolloutRecord) -> str:
    gold = record.task.gold
    rows = [("Reference answer", gold.answer), ("Response", record.trajectory.response or "(none)")]
    if gold.aliases:
        rows.insert(1, ("Also right", "; ".join(gold.aliases)))
    if record.verdict is not None:
        rows.append((f"Judge {record.verdict.judge}".strip(), record.verdict.reason or "no reason given"))
    return _list(rows)


def _list(rows: Sequence[tuple[str, str]]) -> str:
    items = "".join(f"<dt>{esc(name)}</dt><dd>{text(_cut(value))}</dd>" for name, value in rows)
    return f'<dl class="facts">{items}</dl>'


def _reward(reward: RewardParts | None) -> str:
    if reward is None:
        return ""
    named = (("form", reward.fmt), ("accuracy", reward.acc), ("searches", reward.query), ("reward", reward.total))
    shown = [
        f"<span>{name} {bar(value, width=60)} {value:.2f}</span>"
        if value is not None
        else f"<span>{name}: unscored</span>"
        for name, value in named
    ]
    return f'<div class="parts">{"".join(shown)}</div>'


def _step(step: Step, pictures: Pictures) -> str:
    css = "final" if step.response is not None else "failed" if step.failure is not None else ""
    parts = [f'<li data-n="{step.index + 1}" class="{css}">']
    if step.thought:
        parts.append(text(_cut(step.thought), "p", "thought text"))
    if step.call is not None:
        arguments = json.dumps(step.call.arguments, ensure_ascii=False, default=str)
        parts.append(f'<pre class="call" dir="auto">{esc(_cut(f"{step.call.name} {arguments}"))}</pre>')
    elif step.response is None and step.text:
        parts.append(fold("the reply as it was written", f'<pre dir="auto">{esc(_cut(step.text))}</pre>'))
    if step.response is not None:
        parts.append(text(_cut(step.response), "div", "response text"))
    if step.failure is not None:
        parts.append(badge(f"failed: {step.failure.kind}", "bad"))
    if step.observation is not None:
        parts.append(_observation(step, pictures))
    if not step.well_formed:
        parts.append(badge("not in the required form", "wait"))
    return "".join([*parts, "</li>"])


def _observation(step: Step, pictures: Pictures) -> str:
    seen = step.observation
    if seen is None:
        return ""
    figure = pictures.figure(seen.image, seen.image_id or "picture") if seen.image is not None else ""
    css = ' class="failure"' if step.failure is not None else ""
    block = f'<pre{css} dir="auto">{esc(_cut(seen.text))}</pre>'
    if len(seen.text) > FOLD_CHARS or seen.text.count("\n") > FOLD_LINES:
        first = next((line for line in seen.text.splitlines() if line.strip()), "")
        headline = esc(_clip(_headline(seen.text) or first, 160))
        block = fold(f"{headline} ({len(seen.text):,} characters)", block)
    return block + figure


def _headline(observation: str) -> str:
    """The titles of the hits that a folded observation holds."""
    titles = [line.removeprefix("Title:").strip() for line in observation.splitlines() if line.startswith("Title:")]
    return " · ".join(titles)


def _provenance(task: Task) -> str:
    source = task.provenance
    rows = []
    if source.path:
        rows.append(("Path", " → ".join(source.path)))
    if source.attribute:
        rows.append(("Asked for", source.attribute))
    if source.canonical:
        rows.append(("Before fuzzing", source.canonical))
    rows += [(f"Instead of {item.entity}", item.phrase) for item in source.descriptors]
    if source.degradation is not None:
        rows.append(("Damage", f"{source.degradation.kind}, repaired by {source.degradation.repair_tool}"))
    if source.picture is not None:
        licence = ", ".join(part for part in (source.picture.author, source.picture.licence) if part)
        rows.append(("Picture", f"{source.picture.file}{f' ({licence})' if licence else ''}"))
    return fold("where the question comes from", _list(rows)) if rows else ""


def _rollout_facts(trajectory: Trajectory) -> str:
    seconds = sum(step.seconds + step.generation_seconds for step in trajectory.steps)
    usage = trajectory.usage
    rows = [
        ("Model", trajectory.model or "unknown"),
        ("Tools", ", ".join(trajectory.tools) or "none"),
        ("Time", f"{seconds:.1f} s"),
        ("Tokens", f"{usage.prompt_tokens:,} in, {usage.completion_tokens:,} out"),
        ("Cost", f"${usage.cost:.4f}"),
        ("Seed", str(trajectory.seed)),
        ("Prompt", trajectory.prompt_hash or "unknown"),
    ]
    return fold("how it was rolled out", _list(rows))


def _cut(value: str, limit: int = MAX_CHARS) -> str:
    return value if len(value) <= limit else f"{value[:limit]} … [{len(value) - limit:,} more characters]"


def _clip(value: str, limit: int) -> str:
    """A line of at most `limit` characters, cut at a word where there is one."""
    line = " ".join(value.split())
    if len(line) <= limit:
        return line
    head = line[: limit - 1]
    return f"{head[: head.rfind(' ')] if head.rfind(' ') > limit // 2 else head}…"
