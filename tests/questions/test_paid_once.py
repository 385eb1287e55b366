"""A build with a served model, killed and stopped: nothing is paid twice, and the result is that of one sitting."""

import asyncio
import json
import os
import random
import signal
import sys
from collections import Counter
from pathlib import Path

import killed_questions
import pytest
from killed_questions import PARALLEL, work
from obedient_model import obey, stage_of
from stub_openai import StubOpenAI, Trouble, completion

from opensearch_vl.backends.openai_chat import OpenAIChat
from opensearch_vl.errors import ModelUnreachable
from opensearch_vl.questions.asking import BudgetSpent
from opensearch_vl.questions.paid import ReplyCache
from opensearch_vl.questions.reading import Document, answer_from
from opensearch_vl.questions.stages import StageTable
from opensearch_vl.runs import digest, read_manifest, read_records
from opensearch_vl.types import QuestionRecord
from opensearch_vl.wiki.dump import build_wiki
from opensearch_vl.wiki.miniature import write_miniature
from opensearch_vl.wiki.tables import WikiFolder


@pytest.fixture(scope="module")
def wiki(tmp_path_factory) -> WikiFolder:
    folder = tmp_path_factory.mktemp("small")
    info = write_miniature(folder, pages=200, seed=3, max_pictures=0, workers=1)
    return build_wiki(info.dump, folder / "wiki")


def reply_to(body: dict) -> dict:
    """An honest model: it follows the question through the facts shown. One prompt in seven gets a useless reply."""
    prompt = body["messages"][-1]["content"]
    if body["seed"] % 7 == 0:
        return completion("I would rather not.")
    if stage_of(prompt) != "unique":
        return completion(obey(prompt))
    question = prompt.partition("): ")[2].partition("\n")[0]
    pages = [page.partition("\n") for page in prompt.split("==========")[1].strip().split("\n\n")]
    documents = [Document.of(title, text, rank) for rank, (title, _, text) in enumerate(pages) if text]
    found = answer_from(question, documents)
    return completion(json.dumps({"unique": bool(found), "fitting": [], "answer": found or ""}))


class Server(StubOpenAI):
    """Notes which requests it has answered in full; slow enough that some are always under way."""

    def __init__(self, delay_s: float = 0.01) -> None:
        super().__init__([self.reply])
        self.delay_s = delay_s
        self.begun: Counter[str] = Counter()
        self.answered: Counter[str] = Counter()
        self.reached: asyncio.Event | None = None
        self.at = 0

    def reply(self, body: dict) -> dict:
        return {**reply_to(body), "_delay_s": self.delay_s}

    async def _complete(self, request):
        body = json.dumps(await request.json(), sort_keys=True)
        self.begun[body] += 1
        response = await super()._complete(request)
        self.answered[body] += 1
        if self.reached is not None and self.answered.total() >= self.at:
            self.reached.set()
        return response

    def after(self, num: int) -> asyncio.Event:
        self.at, self.reached = self.answered.total() + num, asyncio.Event()
        return self.reached


async def child(wiki, out, url, resume):
    arguments = (str(wiki.root), str(out), url, "resume" if resume else "start")
    return await asyncio.create_subprocess_exec(
        sys.executable, killed_questions.__file__, *arguments, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )


@pytest.fixture(scope="module")
def whole(wiki, tmp_path_factory):
    """One undisturbed sitting."""
    out = tmp_path_factory.mktemp("runs") / "whole"

    async def sitting():
        async with Server() as server:
            report = await asyncio.to_thread(work, wiki, out, server.url, resume=False)
            return report, server

    report, server = asyncio.run(sitting())
    return out, report, server


def test_a_walk_that_the_model_turns_away_is_tried_again(whole) -> None:
    out, report, server = whole
    records = list(read_records(out, QuestionRecord))
    assert len(report.tasks) >= 5
    assert max(server.begun.values()) == 1
    assert StageTable.of(("final", "") if r.task else (r.stage, r.reason) for r in records) == report.stages
    table = {row.stage: row for row in report.stages.rows()}
    assert all(row.came_in == row.passed + sum(row.reasons.values()) for row in table.values())
    assert sum(table["write"].reasons.values()) > 0
    retried = Counter(json.dumps(record.draft["path"][:1]) for record in records if record.stage == "write")
    assert max(retried.values()) > 1 or any(
        record.task is not None and json.dumps([record.task.provenance.path[0]]) in retried for record in records
    )


@pytest.mark.parametrize("kills", [2, pytest.param(6, marks=pytest.mark.slow)])
async def test_killed_at_random_it_pays_for_nothing_twice(wiki, whole, tmp_path, kills) -> None:
    out, report, undisturbed = whole
    total = undisturbed.answered.total()
    rng = random.Random(kills)
    async with Server() as server:
        for number in range(kills):
            process = await child(wiki, tmp_path / "run", server.url, resume=number > 0)
            enough = asyncio.ensure_future(server.after(rng.randrange(1, max(2, total // kills))).wait())
            ended = asyncio.ensure_future(process.wait())
            await asyncio.wait({enough, ended}, return_when=asyncio.FIRST_COMPLETED)
            assert not ended.done(), "it was through before it could be killed"
            await asyncio.sleep(rng.random() * 0.02)
            process.send_signal(signal.SIGKILL)
            await ended
            enough.cancel()
            kept = num_kept(tmp_path / "run")
            assert len(server.begun) - kept <= PARALLEL  # all but those under way at the kill are kept
        process = await child(wiki, tmp_path / "run", server.url, resume=True)
        assert await process.wait() == 0
    assert digest(tmp_path / "run") == digest(out)
    assert set(server.answered) == set(undisturbed.answered)
    assert repeats(server) <= kills * PARALLEL
    print(f"{total} requests, {kills} kills, {repeats(server)} asked again")
    assert num_kept(tmp_path / "run") == total
    assert read_manifest(tmp_path / "run")["report"] == report.as_dict()


def num_kept(run: Path) -> int:
    import sqlite3
    from contextlib import closing

    with closing(sqlite3.connect(run / "replies.sqlite")) as db:
        return int(db.execute("SELECT count(*) FROM replies").fetchone()[0])


def repeats(server: Server) -> int:
    """Requests beyond the first of their kind."""
    return server.begun.total() - len(server.begun)


async def test_a_spent_budget_stops_and_a_larger_one_goes_on(wiki, whole, tmp_path) -> None:
    out, _, undisturbed = whole
    one = (100 + 20) * 10 / 1e6  # each reply of the stub
    budgets = [one * undisturbed.answered.total() * share for share in (0.2, 0.55)]
    async with Server() as server:
        for number, budget in enumerate(budgets):
            with pytest.raises(BudgetSpent):
                await asyncio.to_thread(work, wiki, tmp_path / "run", server.url, resume=number > 0, budget=budget)
            spent, _ = ReplyCache(tmp_path / "run" / "replies.sqlite").spent()
            assert budget - one * PARALLEL < spent <= budget + 1e-9
            assert "report" in read_manifest(tmp_path / "run")
        await asyncio.to_thread(work, wiki, tmp_path / "run", server.url, resume=True)
    assert digest(tmp_path / "run") == digest(out)
    assert max(server.begun.values()) == 1  # what was under way was waited for
    assert BudgetSpent.exit_code == 3


async def test_a_server_that_goes_away_leaves_no_trace(wiki, whole, tmp_path, monkeypatch) -> None:
    """Three walks in a row fail: the build stops without recording them, and resuming ends as if nothing had been."""
    out, _, undisturbed = whole
    monkeypatch.setattr(killed_questions, "OpenAIChat", lambda *a, **k: OpenAIChat(*a, **k, max_retries=0))
    monkeypatch.setattr(killed_questions, "Asker", lambda *a, **k: Patient(*a, **k))
    async with Server() as server:
        gone = undisturbed.answered.total() // 2
        server.reply = lambda body: Trouble(503) if server.begun.total() > gone else reply_to(body)
        server.script = [lambda body: server.reply(body)]
        with pytest.raises(ModelUnreachable, match="3 walks in a row"):
            await asyncio.to_thread(work, wiki, tmp_path / "run", server.url, resume=False)
        reasons = {record.reason for record in read_records(tmp_path / "run", QuestionRecord)}
        assert "model_unreachable" not in reasons
        server.reply = reply_to
        await asyncio.to_thread(work, wiki, tmp_path / "run", server.url, resume=True)
    assert digest(tmp_path / "run") == digest(out)


class Patient(killed_questions.Asker):
    """Waits for nobody."""

    def __init__(self, *args, **options) -> None:
        async def sleep(seconds: float) -> None:
            pass

        super().__init__(*args, **options, max_waits=2, sleep=sleep)
