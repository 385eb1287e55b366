"""The whole chain: walks in, questions out, one record per walk, with a reason for every one that was turned away.

The rule-based stages run inside the walk's retry loop (paper, section 3.1: a walk is retried when no descriptor is
unique or no short answer exists), and a walk that the language model turns away goes back into it; picture, duplicates,
filter and degradation follow for the walks that pass. A run is deterministic and append-only: killed and resumed, it
replays the cheap part and takes every finished verdict from its records, so the digest equals that of an uninterrupted
run. Walks that a model server failed in a row leave no record: the build stops there, and resuming takes them up.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from opensearch_vl.errors import ConfigError
from opensearch_vl.protocols import ImageEmbedder, ImageIndex, Judge, OcrEngine, Solver, Upscaler
from opensearch_vl.questions.anchor import Identified, Picture, choose_picture, identify, large_enough
from opensearch_vl.questions.asking import BudgetSpent
from opensearch_vl.questions.degrade import degrade, wants_another
from opensearch_vl.questions.draft import Draft, draft
from opensearch_vl.questions.facts import Facts
from opensearch_vl.questions.likeness import Looks, look_of, noted_look
from opensearch_vl.questions.outage import Outage
from opensearch_vl.questions.screen import Screening, screen
from opensearch_vl.questions.settings import QuestionSettings
from opensearch_vl.questions.stages import FINAL, Rejection
from opensearch_vl.questions.tally import BuildReport
from opensearch_vl.questions.writer import LlmWriter
from opensearch_vl.runs import RunFolder, read_records
from opensearch_vl.seeds import derive
from opensearch_vl.text import normalise_answer
from opensearch_vl.types import QuestionRecord, Task
from opensearch_vl.wiki.tables import WikiFolder
from opensearch_vl.wiki.walks import Dropped, Walk, resolve_rules, walks_by_seed

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

    async def work() -> BuildReport:
        try:
            return await build_questions_async(
                wiki, settings, seed=seed, num=num, tools=tools, run=run, progress=progress, merge=merge
            )
        finally:
            if tools.writer is not None:
                await tools.writer.asker.aclose()

    return asyncio.run(work())


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

    Raises:
        ConfigError: The settings ask for a language model, and there is none.
        BudgetSpent: The money is used up; requests under way have been waited for.
        ModelError: The model server refuses the key, or failed `give_up_after` walks in a row. In both cases everything
            so far is kept, and the manifest has its counts.
    """
    if tools.writer is None and (settings.answer.source != "infobox" or settings.fuzz.use_prose):
        raise ConfigError("answer.source and fuzz.use_prose need a language model.", "Add --model, or leave them out.")
    builder = _Builder(wiki, settings, seed, tools, run, num)
    under_way: deque[_UnderWay] = deque()
    try:
        for tries in builder.tries():
            walk = next(tries)
            if isinstance(walk, Dropped):
                builder.drop(walk)
            else:
                under_way.append(builder.start(tries))
            if len(under_way) >= settings.parallel:
                await builder.finish(under_way.popleft())
            if progress is not None:
                progress(len(builder.report.tasks), num or 0)
            if builder.has(num):
                break
        while under_way and not builder.has(num):
            await builder.finish(under_way.popleft())
        builder.let_go()
        for task in merge:
            await builder.merge(task)
    except BudgetSpent:
        await asyncio.gather(*(item.work for item in under_way), return_exceptions=True)  # their replies are paid for
        raise
    finally:
        for item in under_way:
            item.work.cancel()
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
    tries: Iterator[Walk | Dropped]


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
        self._outage = Outage(settings.give_up_after, tools.writer.asker.ledger if tools.writer is not None else None)
        self._told: defaultdict[int, set[str]] = defaultdict(set)
        self._pictures: Counter[str] = Counter()
        self._looks = Looks(settings.anchor.max_hash_distance)
        self._asked: set[tuple[str, str]] = set()
        self._asked_of: defaultdict[int, set[str]] = defaultdict(set)
        self._earlier: dict[str, QuestionRecord] = {}
        if run is not None and run.done:
            self._earlier = {record.id: record for record in read_records(run.path, QuestionRecord)}

    def tries(self) -> Iterator[Iterator[Walk | Dropped]]:
        """For every seed, its walks whose draft has passed the rule-based stages, one after the other."""
        return walks_by_seed(self._facts.wiki, self._rules, self._seed, self._accept)

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

    def start(self, tries: Iterator[Walk | Dropped]) -> _UnderWay:
        """Begin the part of the walk just accepted that may wait for models and does not depend on other walks."""
        assert self._accepted is not None
        identity, made = self._accepted
        return _UnderWay(identity, made, asyncio.ensure_future(self._carry_through(identity, made)), tries)

    async def finish(self, item: _UnderWay | None) -> None:
        """Finish a walk; while the language model turns it away, the seed's next one takes its place."""
        while item is not None:
            record = await item.work
            if self._outage.caused(record) and record.id not in self._earlier:
                return self._outage.failed(record)
            if self._outage.over:
                self.let_go()
            await self._finish(item, record)
            if record.stage != "write" or self._outage.caused(record):
                return
            walk = next(item.tries)
            if isinstance(walk, Dropped):
                self.drop(walk)
            item = self.start(item.tries) if isinstance(walk, Walk) else None

    def let_go(self) -> None:
        """Record what was held back since the server first failed: it has served others since, or no more come."""
        for record in self._outage.release():
            self._record(record)

    async def _finish(self, item: _UnderWay, record: QuestionRecord) -> None:
        """Duplicates and degradation, in the order of the walks; the walk's one record is written here."""
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
            return self._outage.noted(self._rejected(identity, made, written))
        made = written
        if made.grounded:
            grounding = await self._ground(made)
            if isinstance(grounding, Rejection):
                return self._rejected(identity, made, grounding)
            task = self._grounded(identity, made, *grounding)
        else:
            task = self._ungrounded(identity, made)
        return await self._screened(task)

    async def _screened(self, task: Task) -> QuestionRecord:
        found = await self._screen(task)
        trace: dict[str, Any] = {"attempts": [attempt.as_dict() for attempt in found.attempts]}
        if found.answered_by:
            trace["task"] = task.model_dump(mode="json")
            return QuestionRecord(id=task.id, stage="screen", reason=found.answered_by, draft=trace)
        return QuestionRecord(id=task.id, task=task, draft=trace)

    async def merge(self, task: Task) -> None:
        """Filter a question of another corpus (paper, section 3.6: merged first, then filtered)."""
        record = self._earlier.get(task.id) or await self._screened(task)
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
        by_prose = provenance.extra.get("answer_source") == "prose"  # such attributes are worded freely
        if by_prose and answer_page is not None and normalise_answer(task.gold.answer) in self._told[answer_page]:
            return Rejection("dedupe", "same_answer")
        twice = (provenance.path[0], task.gold.answer) in self._asked
        return Rejection("dedupe", "same_anchor_and_answer") if twice else None

    async def _identify(self, picture: Picture, made: Draft) -> Identified | Rejection:
        anchor, tools, facts = made.walk.nodes[0], self._tools, self._facts
        return await identify(
            facts.wiki.images.read(picture.ref),
            facts.names(anchor),
            facts.wiki.url(anchor),
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
        trace: dict[str, Any] = {"path": [self._facts.page(node).title for node in made.walk.nodes]}
        trace |= {"question": made.question, "detail": why.detail}
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
                self._told[answer_page].add(normalise_answer(task.gold.answer))
        self.report.add(record, task)

    def _record(self, record: QuestionRecord) -> None:
        if self._outage.holds(record):
            return
        self.report.stages.count(record.stage if record.task is None else FINAL, record.reason)
        if self._run is not None and record.id not in self._run.done:
            self._run.append(record)
