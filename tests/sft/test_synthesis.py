"""Synthesis: rejection with reasons, records, resume after a kill, and failures of models and judges."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from expert_world import World, WorldTools, make_task, store_with_photo
from killed_synthesis import SETTINGS, expert_for, tasks, work
from scoring_samples import answer, call, hits, trajectory

from opensearch_vl.agent.environment import Environment
from opensearch_vl.agent.settings import AgentSettings
from opensearch_vl.errors import DataError, ImageError, ModelError, ModelUnreachable
from opensearch_vl.images import ImageStore
from opensearch_vl.protocols import ChatModel, JudgedCase, Message, QueryScore, Reply, Sampling, ToolSchema
from opensearch_vl.runs import RunFolder, digest, read_manifest, read_records
from opensearch_vl.scoring.judges import ExactJudge
from opensearch_vl.scoring.score import Scored, score_rollout
from opensearch_vl.sft.expert import ScriptedExpert
from opensearch_vl.sft.export import export_run
from opensearch_vl.sft.sharegpt import read_sharegpt
from opensearch_vl.sft.synthesis import SynthesisReport, SynthesisSettings, review, synthesise
from opensearch_vl.types import FailureKind, RolloutRecord, Task, Termination, Trajectory, Verdict


async def run_in(
    tmp_path: Path,
    pool: list[Task],
    settings: SynthesisSettings,
    *,
    judge: object = None,
    expert: object = None,
    world: World | None = None,
    good_repairs: tuple[str, ...] = (),
    resume: bool = False,
    out: str = "run",
) -> tuple[SynthesisReport, list[RolloutRecord], Path]:
    path = tmp_path / out
    with RunFolder(path, settings, resume=resume) as run:
        store = ImageStore(run.images.root, (ImageStore(tmp_path / "photos"),))
        env = Environment(WorldTools(store, world, good_repairs), AgentSettings(), store)
        report = await synthesise(pool, env, expert or expert_for, judge or ExactJudge(), run, settings)  # type: ignore[arg-type]
    return report, list(read_records(path, RolloutRecord)) if (path / "records.jsonl").exists() else [], path


def clean_expert(task: Task, sample: int) -> ChatModel:
    return ScriptedExpert(task, seed=sample)


async def test_every_rollout_of_a_clean_expert_is_kept(tmp_path: Path) -> None:
    pool = tasks(tmp_path)
    report, records, path = await run_in(tmp_path, pool, SETTINGS, expert=clean_expert)
    assert (report.done, report.accepted, report.rejected) == (9, 9, {})
    assert report.accuracy.rate == 1.0
    assert {record.id for record in records} == {f"{task.id}#{n}" for task in pool for n in range(3)}
    for record in records:
        assert record.reward is not None
        assert record.reward.total is not None
        assert record.reward.total > 0.95
        assert all(step.well_formed for step in record.trajectory.steps)
    counts = read_manifest(path)["counts"]
    assert counts == {
        "done": 9, "accepted": 9, "rejected": {}, "unscored": 0, "failed": 0, "tasks_with_accepted": 3,
    }  # fmt: skip


async def test_pictures_of_tasks_and_tools_end_up_in_the_run_folder(tmp_path: Path) -> None:
    store, photo = store_with_photo(tmp_path / "photos")
    task = make_task(2, lettering=True, repair="sharpen", images=(photo,))
    world = World(readable=(), look_alikes=())
    report, records, path = await run_in(
        tmp_path, [task], SynthesisSettings(samples=1), expert=clean_expert, world=world, good_repairs=("sharpen",)
    )
    assert report.accepted == 1
    alone = ImageStore(path / "images")
    assert alone.read(photo) == store.read(photo)
    made = records[0].trajectory.steps[0].observation
    assert made is not None
    assert made.image is not None
    assert made.image_id == "img_2"
    assert made.image in alone


async def test_a_run_is_exported_from_its_folder_alone(tmp_path: Path) -> None:
    pool = tasks(tmp_path)
    report, _, path = await run_in(tmp_path, pool, SETTINGS)
    shutil.rmtree(tmp_path / "photos")
    exported = export_run(path, tmp_path / "out")
    assert exported.exported == report.accepted > 0
    assert exported.left_out == {"not_chosen": 9 - report.accepted}
    rows = list(read_sharegpt(tmp_path / "out" / "opensearch_vl_sft.json", ImageStore(tmp_path / "back")))
    assert len(rows) == report.accepted
    assert rows[0].trajectory.tools == WorldTools.names
    with RunFolder(tmp_path / "other", SETTINGS), pytest.raises(DataError, match="no synthesised"):
        export_run(tmp_path / "other", tmp_path / "out2")


async def test_with_the_answer_page_hidden_nothing_is_kept(tmp_path: Path) -> None:
    world = World()
    del world.pages["Óla Vik (sculptor)"]
    _, photo = store_with_photo(tmp_path / "photos")
    report, records, _ = await run_in(
        tmp_path, [make_task(3, images=(photo,))], SynthesisSettings(), expert=clean_expert, world=world
    )
    assert report.accuracy.correct == 0
    assert report.rejected == {"wrong_answer": 5}
    assert all(record.accepted is False and record.reason == "wrong_answer" for record in records)


async def test_same_settings_give_the_same_digest_whatever_the_order(tmp_path: Path) -> None:
    pool = tasks(tmp_path)
    await run_in(tmp_path, pool, SETTINGS, out="a")
    await run_in(tmp_path, pool[::-1], SETTINGS, out="b")
    assert digest(tmp_path / "a") == digest(tmp_path / "b")


async def test_a_finished_run_is_not_done_again(tmp_path: Path) -> None:
    pool = tasks(tmp_path)
    first, _, path = await run_in(tmp_path, pool, SETTINGS)
    before = (path / "records.jsonl").read_bytes()

    def never(task: Task, sample: int) -> ChatModel:
        raise AssertionError("rolled out again")

    again, _, _ = await run_in(tmp_path, pool, SETTINGS, expert=never, resume=True)
    assert (path / "records.jsonl").read_bytes() == before
    assert again.counts() == first.counts()


async def test_a_killed_run_resumes_to_the_digest_of_an_uninterrupted_one(tmp_path: Path) -> None:
    script = Path(__file__).parents[1] / "killed_synthesis.py"
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen([sys.executable, str(script), str(tmp_path), str(killed)], env=environment)
    records = killed / "records.jsonl"
    deadline = time.monotonic() + 30
    while not (records.exists() and records.read_bytes().count(b"\n") >= 2):
        assert process.poll() is None
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    num_before = records.read_bytes().count(b"\n")
    assert num_before < 9
    with open(records, "ab") as handle:
        handle.write(b'{"torn": ')
    report = await work(tmp_path, killed, resume=True)
    await work(tmp_path, whole, resume=False)
    assert report.done == 9
    assert digest(killed) == digest(whole)


async def test_a_cancelled_run_keeps_whole_records_and_resumes_to_the_same_digest(tmp_path: Path) -> None:
    out, whole = tmp_path / "run", tmp_path / "whole"
    job = asyncio.create_task(work(tmp_path, out, resume=False, delay_s=0.02))
    while not (out / "records.jsonl").exists():
        await asyncio.sleep(0.01)
    job.cancel()
    with pytest.raises(asyncio.CancelledError):
        await job
    records = list(read_records(out, RolloutRecord))
    assert 0 < len(records) < 9
    assert all(record.trajectory.termination is Termination.ANSWERED for record in records)
    assert read_manifest(out)["status"] == "interrupted"
    await work(tmp_path, out, resume=True)
    await work(tmp_path, whole, resume=False)
    assert digest(out) == digest(whole)


# ------------------------------------------------------------------------------- failures from outside


class DeadModel:
    name = "dead"

    async def complete(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSchema] = (),
        sampling: Sampling = Sampling(),
        seed: int = 0,
    ) -> Reply:
        raise ModelUnreachable("no connection")


async def test_failed_rollouts_leave_no_record_and_are_tried_again(tmp_path: Path) -> None:
    pool = tasks(tmp_path)

    def flaky(task: Task, sample: int) -> ChatModel:
        return DeadModel() if sample == 1 else clean_expert(task, sample)

    report, records, path = await run_in(tmp_path, pool, SETTINGS, expert=flaky)
    assert len(records) == 6
    assert sum(report.failed.values()) == 3
    assert read_manifest(path)["counts"]["failed"] == 3
    report, records, _ = await run_in(tmp_path, pool, SETTINGS, expert=clean_expert, resume=True)
    assert len(records) == 9
    assert report.accepted == 9


async def test_a_dead_server_stops_the_run(tmp_path: Path) -> None:
    settings = SynthesisSettings(samples=50, give_up_after=4, max_parallel=2)
    with pytest.raises(ModelError, match="no connection"):
        await run_in(tmp_path, tasks(tmp_path), settings, expert=lambda task, sample: DeadModel())
    assert read_manifest(tmp_path / "run")["status"] == "interrupted"


class SilentJudge:
    name = "silent"

    async def accuracy(self, case: JudgedCase) -> Verdict:
        await asyncio.sleep(0)
        return Verdict(correct=None, judge=self.name)

    async def query(self, case: JudgedCase, rollout: Trajectory) -> QueryScore:
        return QueryScore(None)


async def test_what_the_judge_could_not_score_is_neither_kept_nor_rejected(tmp_path: Path) -> None:
    report, records, _ = await run_in(tmp_path, tasks(tmp_path), SETTINGS, judge=SilentJudge(), expert=clean_expert)
    assert (report.accepted, report.unscored, report.rejected) == (0, 9, {})
    assert report.accuracy.unscored == 9
    assert all(record.accepted is None and record.reason == "unscored" for record in records)


# ---------------------------------------------------------------------------------------------- review

FOUND = hits(("Grand Hall", "Architect: Ana Boro, born 15 May 1931"))


async def judged(rollout: Trajectory) -> tuple[Task, Scored]:
    task = make_task(2)
    return task, await score_rollout(task, rollout, ExactJudge())


@pytest.mark.parametrize(
    ("steps", "reason"),
    [
        ((call("text_search", FOUND, q="a"), answer("15 May 1931")), ""),
        ((call("text_search", FOUND, q="a"), answer("16 May 1931")), "wrong_answer"),
        ((call("text_search", FOUND, q="a"),), "no_answer_turns"),
        ((answer("15 May 1931"),), "low_query_score"),
        ((call("text_search", "Nothing.", q="a"), answer("15 May 1931")), "low_query_score"),
        ((*[call("text_search", FOUND, q="a")] * 2, answer("15 May 1931")), "repetition"),
        (
            (
                call("text_search", failure=FailureKind.TIMEOUT, q="a"),
                call("text_search", FOUND, q="a"),
                answer("15 May 1931"),
            ),
            "",
        ),
        (
            (
                *[call("crop", failure=FailureKind.BAD_INPUT, n=n) for n in range(2)],
                *[call("text_search", FOUND, q=n) for n in "abc"],
                call("crop", failure=FailureKind.BAD_INPUT, n=3),
                answer("15 May 1931"),
            ),
            "too_many_failures",
        ),
        (
            (
                call("text_search", hits(("Ana Boro", "Works: Tall House")), q="a"),
                call("text_search", hits(("Tall House", "By Ilja Rest")), q="Tall House"),
                call("text_search", hits(("Ilja Rest", "A painter.")), q="Ilja Rest"),
                answer("15 May 1931"),
            ),
            "unsupported_answer",
        ),
    ],
)
async def test_reasons_of_rejection(steps: tuple, reason: str) -> None:
    rollout = trajectory(*steps)
    task, scored = await judged(rollout)
    assert review(task, rollout, scored, SynthesisSettings(min_query=0.3)) == reason


async def test_limits_of_the_review_are_settings() -> None:
    rollout = trajectory(*[call("text_search", FOUND, q="a")] * 2, answer("15 May 1931"))
    task, scored = await judged(rollout)
    assert review(task, rollout, scored, SynthesisSettings(max_repeats=1)) == ""
    fatal = trajectory(*[call("crop", failure=FailureKind.TIMEOUT)] * 3, termination=Termination.FATAL)
    task, scored = await judged(fatal)
    assert review(task, fatal, scored, SynthesisSettings()) == "no_answer_fatal"


def test_adopting_a_picture_copies_its_bytes_once(tmp_path: Path) -> None:
    source, photo = store_with_photo(tmp_path / "a")
    target = ImageStore(tmp_path / "b", (source,))
    assert photo in target
    target.adopt(photo, source)
    target.adopt(photo, ImageStore(tmp_path / "nothing"))  # already there
    assert ImageStore(tmp_path / "b").read(photo) == source.read(photo)
    with pytest.raises(ImageError, match="not in"):
        ImageStore(tmp_path / "c").adopt(photo, ImageStore(tmp_path / "nothing"))
