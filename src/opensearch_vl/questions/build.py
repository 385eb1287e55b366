"""The whole chain: walks in, questions out, one record per walk, with a reason for every one that was turned away.

The rule-based stages run inside the walk's retry loop (paper, section 3.1: a walk is retried when no descriptor is
unique or no short answer exists); picture, duplicates, filter and degradation follow for the walks that pass. A run is
deterministic and append-only: killed and resumed, it replays the cheap part and takes every finished verdict from its
records, so the digest equals that of an uninterrupted run.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from opensearch_vl.protocols import ImageEmbedder, ImageIndex, Judge, OcrEngine, Solver, Upscaler
from opensearch_vl.questions.anchor import Identified, Picture, choose_picture, identify, large_enough
from opensearch_vl.questions.degrade import degrade, wants_another
from opensearch_vl.questions.draft import Draft, draft
from opensearch_vl.questions.facts import Facts
from opensearch_vl.questions.likeness import Looks, look_of, noted_look
from opensearch_vl.questions.repairs import REPAIR, Kind
from opensearch_vl.questions.screen import Screening, screen
from opensearch_vl.questions.settings import QuestionSettings
from opensearch_vl.questions.stages import FINAL, Rejection, StageTable
from opensearch_vl.questions.writer import LlmWriter
from opensearch_vl.runs import RunFolder, read_records
from opensearch_vl.seeds import derive
from opensearch_vl.types import QuestionRecord, Task
from opensearch_vl.wiki.tables import WikiFolder
from opensearch_vl.wiki.walks import Dropped, Walk, resolve_rules, sample_walks

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class QuestionTools:
    """What the stages may use from outside; all of it optional but the judge, which the filter needs.

    Attributes:
        judge: Compares a solver's answer with the reference.
        filters: The stages of the filter, the cheapest first.
        image_index: Reverse image search over the wiki's pictures; tells whether a picture has look-alikes.
        writer: Rewords drafts with a language model; without it the rules' wording stands.
        ocr: Reads lettering off the anchor's picture.
        embedder: Ranks the anchor's pictures.
        upscaler: Repairs down-sampled pictures.
    """

    judge: Judge | None = None
    filters: tuple[Solver, ...] = ()
    writer: LlmWriter | None = None
    image_index: ImageIndex | None = None
    ocr: OcrEngine | None = None
    embedder: ImageEmbedder | None = None
    upscaler: Upscaler | None = None


@dataclass(slots=True)
class BuildReport:
    """What was built, and what became of everything else.

    Attributes:
        stages: Walks by the stage where they ended; sums match.
        dropped: Seeds that gave no walk, by the walk rules' reasons.
        num_seeds_dropped: How many seeds those were.
        num_unscored: Verdicts of the filter that could not be reached.
        num_ungrounded: Final questions without a picture.
        corpora, hops, domains, identified_by, degraded: Histograms over the final questions.
        degrading: Damages tried, by kind and by whether the repair gave the lettering back.
        tasks: The final questions, in order.
        screened: Questions that the filter dropped, for the counterfactuals (built with the filter off).
    """

    stages: StageTable = field(default_factory=StageTable)
    dropped: Counter[str] = field(default_factory=Counter)
    num_seeds_dropped: int = 0
    num_unscored: int = 0
    num_ungrounded: int = 0
    corpora: Counter[str] = field(default_factory=Counter)
    hops: Counter[int] = field(default_factory=Counter)
    domains: Counter[str] = field(default_factory=Counter)
    identified_by: Counter[str] = field(default_factory=Counter)
    degraded: Counter[str] = field(default_factory=Counter)
    degrading: Counter[str] = field(default_factory=Counter)
    tasks: list[Task] = field(default_factory=list)
    screened: list[Task] = field(default_factory=list)

    def least_degraded(self) -> list[Kind]:
        """The kinds of damage, the rarest so far first."""
        return sorted(REPAIR, key=lambda kind: (self.degraded[kind], list(REPAIR).index(kind)))

    def as_dict(self) -> dict[str, Any]:
        """The report as plain data, for manifests and `--json`."""
        return {
            "questions": len(self.tasks),
            "ungrounded": self.num_ungrounded,
            "stages": self.stages.as_dict(),
            "seeds_dropped": self.num_seeds_dropped,
            "walks_dropped": dict(sorted(self.dropped.items())),
            "unscored": self.num_unscored,
            "corpora": dict(sorted(self.corpora.items())),
            "hops": {str(hops): num for hops, num in sorted(self.hops.items())},
            "domains": dict(sorted(self.domains.items())),
            "identified_by": dict(sorted(self.identified_by.items())),
            "degraded": dict(sorted(self.degraded.items())),
            "degrading": dict(sorted(self.degrading.items())),
        }


def build_questions(
    wiki: WikiFolder,
    settings: QuestionSettings,
    *,
    seed: int,
    num: int | None,
    tools: QuestionTools,
    run: RunFolder | None = None,
    progress: Progress | None = None,
    merge: Sequence[Task] = (),
) -> BuildReport:
    """Build questions until `num` are final or the seeds are used up; see `build_questions_async`."""
    return asyncio.run(
        build_questions_async(wiki, settings, seed=seed, num=num, tools=tools, run=run, progress=progress, merge=merge)
    )


async def build_questions_async(
    wiki: WikiFolder,
    settings: QuestionSettings,
    *,
    seed: int,
    num: int | None,
    tools: QuestionTools,
    run: RunFolder | None = None,
    progress: Progress | None = None,
    merge: Sequence[Task] = (),
) -> BuildReport:
    """Build questions until `num` are final or the seeds are used up.

    Args:
        wiki: The wiki folder.
        settings: All rules and thresholds.
        seed: Same seed, same questions.
        num: How many final questions to stop at; None goes through all seeds. It also settles how the enhancement
            subset is spread over them, so a run resumed with another number is not the run of that number.
        tools: Solvers, judge, OCR; what is missing is skipped and says so in the provenance.
        run: Where records and pictures are written; a resumed run continues where it stopped.
        merge: Tasks of other corpora; they join before the filter and come on top of `num`.
        progress: Called with (final questions so far, `num` or 0) after every walk.
    """
    builder = _Builder(wiki, settings, seed, tools, run, num)
    under_way: deque[_UnderWay] = deque()
    try:
        for walk in builder.walks():
            if isinstance(walk, Dropped):
                builder.drop(walk)
            else:
                under_way.append(builder.start())
            if len(under_way) >= settings.parallel:
                await builder.finish(under_way.popleft())
            if progress is not None:
                progress(len(builder.report.tasks), num or 0)
            if builder.has(num):
                break
        while under_way and not builder.has(num):
            await builder.finish(under_way.popleft())
    finally:
        for item in under_way:
            item.work.cancel()
    for task in merge:
        await builder.merge(task)
    if run is not None:
        spent = {} if tools.writer is None else {"spent": tools.writer.asker.ledger.as_dict()}
        run.write_manifest(report=builder.report.as_dict(), **spent)
    return builder.report


@dataclass(frozen=True, slots=True)
class _UnderWay:
    """An accepted walk whose models may still be at work."""

    identity: str
    made: Draft
    work: asyncio.Future[QuestionRecord]


class _Builder:
    """The state of one build: what has been used up, and the records of an earlier, interrupted run."""

    def __init__(
        self,
        wiki: WikiFolder,
        settings: QuestionSettings,
        seed: int,
        tools: QuestionTools,
        run: RunFolder | None,
        num: int | None,
    ) -> None:
        self.report = BuildReport()
        self._facts = Facts(wiki)
        self._rules = resolve_rules(wiki, settings.walks)
        self._settings, self._seed, self._tools, self._run, self._num = settings, seed, tools, run, num
        self._attempts: Counter[int] = Counter()
        self._accepted: tuple[str, Draft] | None = None
        self._pictures: Counter[str] = Counter()
        self._looks = Looks(settings.anchor.max_hash_distance)
        self._asked: set[tuple[str, str]] = set()
        self._asked_of: defaultdict[int, set[str]] = defaultdict(set)
        self._earlier: dict[str, QuestionRecord] = {}
        if run is not None and run.done:
            self._earlier = {record.id: record for record in read_records(run.path, QuestionRecord)}

    def walks(self) -> Iterator[Walk | Dropped]:
        """Walks whose draft has passed the rule-based stages."""
        return sample_walks(self._facts.wiki, self._rules, self._seed, None, accept=self._accept)

    def drop(self, dropped: Dropped) -> None:
        """Count a seed that gave no walk."""
        self.report.num_seeds_dropped += 1
        self.report.dropped.update(dropped.reasons)

    def _accept(self, walk: Walk) -> str | None:
        """Draft a walk; a rejection is recorded at once and makes the sampler try again."""
        anchor = walk.nodes[0]
        attempt = self._attempts[anchor]
        self._attempts[anchor] += 1
        identity = self._identity(anchor, attempt)
        outcome = draft(
            self._facts,
            walk,
            self._settings,
            derive(self._seed, "draft", identity),
            self._asked_of[walk.nodes[-1]],
            grounded=self._settings.anchor.required or bool(large_enough(self._facts, anchor, self._min_image_px())),
        )
        if isinstance(outcome, Rejection):
            titles = [self._facts.page(node).title for node in walk.nodes]
            self._record(QuestionRecord(id=identity, stage=outcome.stage, reason=outcome.reason,
                                        draft={"path": list(titles), "detail": outcome.detail}))  # fmt: skip
            return outcome.reason
        self._accepted = identity, outcome
        return None

    def _identity(self, anchor: int, attempt: int) -> str:
        facts = self._facts
        parts = (str(facts.wiki.meta.get("name", "")), facts.page(anchor).title, str(self._seed), str(attempt))
        return "q" + hashlib.sha256("\x1f".join(parts).encode()).hexdigest()[:16]

    def has(self, num: int | None) -> bool:
        """Whether the number of questions asked for is reached."""
        return num is not None and len(self.report.tasks) >= num

    def start(self) -> _UnderWay:
        """Begin the part of the walk just accepted that may wait for models and does not depend on other walks."""
        assert self._accepted is not None
        identity, made = self._accepted
        return _UnderWay(identity, made, asyncio.ensure_future(self._carry_through(identity, made)))

    async def finish(self, item: _UnderWay) -> None:
        """Duplicates and degradation, in the order of the walks; the walk's one record is written here."""
        record = await item.work
        if item.identity not in self._earlier and (task := record.task) is not None:
            if duplicate := self._duplicate(task):
                record = self._rejected(item.identity, item.made, duplicate)
            elif self._wants_degrading(task):
                task, trials = await self._degrade(task)
                record = record.model_copy(update={"task": task, "draft": {**record.draft, "degrading": trials}})
        self._use_up(record)
        self._record(record)

    async def _carry_through(self, identity: str, made: Draft) -> QuestionRecord:
        if identity in self._earlier:
            return self._earlier[identity]
        written = made if self._tools.writer is None else await self._tools.writer.write(made)
        if isinstance(written, Rejection):
            return self._rejected(identity, made, written)
        made = written
        if made.grounded:
            grounding = await self._ground(made)
            if isinstance(grounding, Rejection):
                return self._rejected(identity, made, grounding)
            task = self._grounded(identity, made, *grounding)
        else:
            task = self._ungrounded(identity, made)
        found = await self._screen(task)
        trace: dict[str, Any] = {"attempts": [attempt.as_dict() for attempt in found.attempts]}
        if found.answered_by:
            trace["task"] = task.model_dump(mode="json")
            return QuestionRecord(id=identity, stage="screen", reason=found.answered_by, draft=trace)
        return QuestionRecord(id=identity, task=task, draft=trace)

    async def merge(self, task: Task) -> None:
        """Filter a question of another corpus (paper, section 3.6: merged first, then filtered)."""
        record = self._earlier.get(task.id)
        if record is None:
            found = await self._screen(task)
            trace: dict[str, Any] = {"attempts": [attempt.as_dict() for attempt in found.attempts]}
            record = QuestionRecord(id=task.id, task=task, draft=trace)
            if found.answered_by:
                trace["task"] = task.model_dump(mode="json")
                record = QuestionRecord(id=task.id, stage="screen", reason=found.answered_by, draft=trace)
        self._use_up(record)
        self._record(record)

    async def _ground(self, made: Draft) -> tuple[Picture, Identified, str] | Rejection:
        """The anchor's picture, what identifies it, and its hash; the picture is kept with the run."""
        picture = choose_picture(
            self._facts, made.walk.nodes[0], self._settings.anchor, self._min_image_px(), self._tools.embedder
        )
        if isinstance(picture, Rejection):
            return picture
        if self._pictures[picture.source.file] >= self._settings.max_per_picture:  # spares the filter's work
            return Rejection("dedupe", "same_picture")
        known = await self._identify(picture, made)
        if isinstance(known, Rejection):
            return known
        data = self._facts.wiki.images.read(picture.ref)
        look = look_of(data)
        if twin := self._looks.near(picture.source.file, look, known.by == "lettering"):
            return Rejection("dedupe", "near_duplicate_picture", twin)
        if self._run is not None:
            self._run.images.put_bytes(data)
        return picture, known, look

    def _ungrounded(self, identity: str, made: Draft) -> Task:
        provenance = made.provenance(self._facts)
        extra = {**provenance.extra, "ungrounded": "no_picture"}
        return Task(
            id=identity,
            question=made.question,
            gold=made.answer.gold,
            provenance=provenance.model_copy(update={"extra": extra}),
        )

    def _grounded(self, identity: str, made: Draft, picture: Picture, known: Identified, look: str) -> Task:
        provenance = made.provenance(self._facts)
        extra = {**provenance.extra, "look_alikes": known.rivals, "picture_hash": look}
        if known.tool:
            extra["lettering_tool"] = known.tool
        source = picture.source.model_copy(update={"identified_by": known.by})
        return Task(
            id=identity,
            question=made.question,
            images=(picture.ref,),
            gold=made.answer.gold,
            provenance=provenance.model_copy(update={"picture": source, "extra": extra}),
        )

    def _wants_degrading(self, task: Task) -> bool:
        """Whether this question should be one of the degraded: a running quota, so that a resumed run agrees."""
        picture = task.provenance.picture
        if self._run is None or self._tools.ocr is None or picture is None or picture.identified_by != "lettering":
            return False
        if "lettering_tool" in task.provenance.extra:
            return False  # needs a repair as it is
        so_far, fraction = len(self.report.tasks), self._settings.degrade.fraction
        return wants_another(self.report.degraded.total(), so_far, self._num, fraction)

    async def _degrade(self, task: Task) -> tuple[Task, list[dict[str, Any]]]:
        assert self._run is not None and self._tools.ocr is not None
        anchor = self._facts.resolve(task.provenance.path[0])
        made, trials = await degrade(
            self._facts.wiki.images.read(task.images[0]),
            self._facts.names(anchor) if anchor is not None else (),
            self.report.least_degraded(),
            settings=self._settings.degrade,
            ocr=self._tools.ocr,
            upscaler=self._tools.upscaler,
            ratio=self._settings.anchor.letters_ratio,
            seed=derive(self._seed, "degrade", task.id),
        )
        notes = [trial.as_dict() for trial in trials]
        if made is None:
            return task, notes
        ref = self._run.images.put_bytes(made.png)
        provenance = task.provenance.model_copy(update={"degradation": made.degradation})
        return task.model_copy(update={"images": (ref,), "provenance": provenance}), notes

    def _min_image_px(self) -> int:
        own = self._settings.anchor.min_image_px
        threshold = self._rules.min_image_px if own is None else own
        return threshold if isinstance(threshold, int) else 0

    def _duplicate(self, task: Task) -> Rejection | None:
        """What the task shares with an earlier one beyond what the settings allow, if anything."""
        provenance = task.provenance
        if provenance.picture is not None and self._pictures[provenance.picture.file] >= self._settings.max_per_picture:
            return Rejection("dedupe", "same_picture")
        if (look := noted_look(task)) is not None and (twin := self._looks.near(*look)):
            return Rejection("dedupe", "near_duplicate_picture", twin)
        answer_page = self._facts.resolve(provenance.path[-1])
        if answer_page is not None and provenance.attribute in self._asked_of[answer_page]:
            return Rejection("dedupe", "same_answer")
        twice = (provenance.path[0], task.gold.answer) in self._asked
        return Rejection("dedupe", "same_anchor_and_answer") if twice else None

    async def _identify(self, picture: Picture, made: Draft) -> Identified | Rejection:
        anchor, tools = made.walk.nodes[0], self._tools
        return await identify(
            self._facts.wiki.images.read(picture.ref),
            self._facts.names(anchor),
            self._facts.wiki.url(anchor),
            index=tools.image_index,
            ocr=tools.ocr,
            upscaler=tools.upscaler,
            settings=self._settings.anchor,
        )

    async def _screen(self, task: Task) -> Screening:
        if not self._settings.screen.enabled or self._tools.judge is None:
            return Screening(())
        return await screen(
            task, self._tools.filters, self._tools.judge, attempts=self._settings.screen.attempts, seed=self._seed
        )

    def _rejected(self, identity: str, made: Draft, why: Rejection) -> QuestionRecord:
        path: list[Any] = [self._facts.page(node).title for node in made.walk.nodes]
        trace = {"path": path, "question": made.question, "detail": why.detail}
        return QuestionRecord(id=identity, stage=why.stage, reason=why.reason, draft=trace)

    def _use_up(self, record: QuestionRecord) -> None:
        """Note what a record takes out of circulation, and count it among the results."""
        dropped = record.draft.get("task")
        task = record.task if record.task is not None else Task.model_validate(dropped) if dropped else None
        if task is None:
            return
        if record.task is not None and task.provenance.picture is not None:
            if (look := noted_look(task)) is not None:
                self._looks.add(*look)
            self._pictures[task.provenance.picture.file] += 1
        path = task.provenance.path
        if path:  # not a question of another corpus
            self._asked.add((path[0], task.gold.answer))
            answer_page = self._facts.resolve(path[-1])
            if record.task is not None and answer_page is not None:
                self._asked_of[answer_page].add(task.provenance.attribute)
        attempts = record.draft.get("attempts")
        if isinstance(attempts, list):
            self.report.num_unscored += sum(isinstance(a, dict) and a.get("correct") is None for a in attempts)
        if record.task is None:
            self.report.screened.append(task)
            return
        self.report.tasks.append(task)
        self.report.num_ungrounded += not task.images
        self.report.corpora[task.provenance.corpus] += 1
        self.report.hops[len(task.provenance.hops)] += 1
        self.report.domains[task.provenance.domain] += 1
        if task.provenance.picture is not None:
            self.report.identified_by[task.provenance.picture.identified_by] += 1
        if task.provenance.degradation is not None:
            self.report.degraded[task.provenance.degradation.kind] += 1
        trials = record.draft.get("degrading")
        for trial in trials if isinstance(trials, list) else ():
            if isinstance(trial, dict):
                accepted = trial.get("readable_after") and not trial.get("readable_before")
                outcome = "accepted" if accepted else "refused"
                self.report.degrading[f"{trial.get('kind')}_{outcome}"] += 1

    def _record(self, record: QuestionRecord) -> None:
        self.report.stages.count(record.stage if record.task is None else FINAL, record.reason)
        if self._run is not None and record.id not in self._run.done:
            self._run.append(record)
