"""Every stage that asks a language model, against every habit of a bad server: one table, `hostile_replies.yaml`."""

import json
from pathlib import Path

import pytest
import yaml
from expert_world import WorldTools, make_task, store_with_photo
from obedient_model import obey, stage_of
from questions.worlds import Entry, MemoryWiki, zoo_entries
from scoring_samples import answer as said
from scoring_samples import call, hits, trajectory
from scoring_samples import task as judged_task
from stub_openai import StubOpenAI, Trouble, completion

from opensearch_vl.agent.environment import Environment
from opensearch_vl.agent.rollout import AgentSolver
from opensearch_vl.agent.settings import AgentSettings
from opensearch_vl.backends.openai_chat import OpenAIChat
from opensearch_vl.backends.pacing import Pace
from opensearch_vl.config import Config
from opensearch_vl.questions.asking import Asker
from opensearch_vl.questions.draft import draft
from opensearch_vl.questions.facts import Facts
from opensearch_vl.questions.screen import screen
from opensearch_vl.questions.settings import AnswerSettings, FuzzSettings, QuestionSettings
from opensearch_vl.questions.stages import Rejection
from opensearch_vl.questions.writer import LlmWriter
from opensearch_vl.runs import RunFolder, read_records
from opensearch_vl.scoring.judges import ExactJudge, case_of
from opensearch_vl.scoring.llm_judge import LLMJudge
from opensearch_vl.sft.synthesis import SynthesisSettings, synthesise
from opensearch_vl.types import RolloutRecord

TABLE = yaml.safe_load((Path(__file__).parent / "hostile_replies.yaml").read_text(encoding="utf-8"))
WRITING = ("answer", "relation", "canonical", "descriptor", "visual", "unique")
SETTINGS = QuestionSettings(
    answer=AnswerSettings(min_key_pages=1, obfuscate=0, source="infobox_then_llm"),
    fuzz=FuzzSettings(min_shared=3, use_prose=True),
    shallow_first_hop=True,
)
ZED = Entry("Zed", "Person", "person", [], "She liked wide paths. In 1991 she won the Silver Reed for her garden.")
SOUND = "What is the prize won of the keeper that the manager of the thing in the picture dismissed?"


def outcome(wanted: str | dict, stage: str) -> str | None:
    """What a row of the table wants of a stage of question building; None where it says nothing of it."""
    return wanted if isinstance(wanted, str) else wanted.get(stage, wanted.get("else"))


def hostile(send: dict, good: str) -> dict | Trouble:
    """The answer that a row of the table describes."""
    if "delay" in send:
        return completion(good, delay_s=send["delay"])
    if "status" in send or "drop" in send:
        body = {"body": send["body"]} if "body" in send else {}
        return Trouble(send.get("status", 500), headers=send.get("headers", {}), drop=send.get("drop", False), **body)
    text = send["content"]
    times = send.get("repeat", 1)
    if text == "SAME":
        text = send.get("before", "") * times + good + send.get("after", "")
        if "insert" in send:
            value = json.loads(good)
            for key in ("question", "phrase", "answer"):
                if key in value:
                    value[key] = value[key].replace("?", "") + send["insert"] * times + "?" * ("?" in value[key])
            text = json.dumps(value)
        if "extra_keys" in send:
            text = json.dumps({"mood": "fine", **json.loads(good), "confidence": 0.9, "nested": {"question": 1}})
        text = text[: send.get("cut_to", len(text))]
    else:
        text = text and text * times
    extra = {"refusal": send["refusal"]} if "refusal" in send else {}
    made = completion(text, finish_reason=send.get("finish_reason", "stop"), **extra)
    if send.get("cut_body"):
        return Trouble(200, json.dumps({key: value for key, value in made.items() if key != "_delay_s"}), cut_body=True)
    return made


class Server(StubOpenAI):
    """Obeys, except at one stage (`turn_on`), and there only for prompts with a mark; counts what it was asked there."""

    def __init__(self, send: dict) -> None:
        super().__init__([self.reply])
        self.send = send
        self.turn_on("")

    def turn_on(self, stage: str, mark: str = "") -> None:
        self.stage, self.mark, self.met = stage, mark, 0

    def reply(self, body: dict) -> dict | Trouble:
        prompt = str(body["messages"][-1]["content"])
        good = obey(prompt, needed=("manager", "keeper"))
        if stage_of(prompt) != self.stage or self.mark not in str(body["messages"]):
            return completion(good)
        self.met += 1
        return completion(good) if self.send.get("once") and self.met > 1 else hostile(self.send, good)


class Calm(Pace):
    """No pause lasts; `Retry-After` has its own tests."""

    def __init__(self) -> None:
        super().__init__(self.at_once)

    @staticmethod
    async def at_once(seconds: float) -> None:
        pass

    def hold(self, seconds: float) -> None:
        pass


@pytest.fixture(scope="module")
def facts() -> Facts:
    entries = zoo_entries()
    entries[0].text += " The zoo has wide paths."
    return Facts(MemoryWiki([*entries, ZED], None))


@pytest.fixture(scope="module")
def made(facts):
    found = draft(facts, facts.wiki.walk("Orla Zoo", "Stefan Irvald", "Zed"), SETTINGS, seed=3)
    assert not isinstance(found, Rejection)
    assert (found.answer.source, found.hops[1].direction) == ("pending", "prose")
    return found


async def write(chat, facts, made) -> str:
    """What the question ends in; a question that is written has to be the sound one."""
    writer = LlmWriter(Asker(chat, max_attempts=2, max_waits=1, sleep=Calm.at_once), facts, SETTINGS.answer)
    written = await writer.write(made)
    if isinstance(written, Rejection):
        return written.reason
    assert written.answer.gold.answer == "Silver Reed"
    assert written.question == SOUND
    assert [d.judged_unique for d in written.descriptors] == [True, True, None]
    return "ok"


async def judge_answer(chat) -> str:
    verdict = await LLMJudge(chat, max_attempts=2).accuracy(case_of(judged_task(), "It was May 15, 1931."))
    return {True: "ok", None: "unscored"}[verdict.correct]


async def judge_process(chat) -> str:
    steps = trajectory(call("text_search", hits(("Rome", "A town.")), q="Rome"), said("15 May 1931"))
    score = await LLMJudge(chat, max_attempts=2).query(case_of(judged_task(), "15 May 1931"), steps)
    return {0.9: "ok", None: "unscored"}[score.score]


async def filtered(chat, store, photo) -> str:
    solver = AgentSolver(Environment(WorldTools(store), AgentSettings(), store), chat)
    found = await screen(make_task(2, images=(photo,)), [solver], ExactJudge(), attempts=1, seed=1)
    correct = found.attempts[0].verdict.correct
    assert (found.answered_by, found.num_unscored) == ("agent" if correct else "", int(correct is None))
    return {True: "right", False: "wrong", None: "unscored"}[correct]


class NoSettings(Config):
    pass


async def rolled_out(chat, store, photo, out) -> str:
    """The rollouts of one task meet the server's habit; those of the others are none the worse for it."""
    tasks = [make_task(n, images=(photo,)) for n in (3, 2, 4)]
    tasks[1] = tasks[1].model_copy(update={"question": "What is this, in the hostile case?"})
    with RunFolder(out, NoSettings()) as run:
        env = Environment(WorldTools(store), AgentSettings(), store)
        settings = SynthesisSettings(samples=1, min_query=0)
        report = await synthesise(tasks, env, lambda task, sample: chat, ExactJudge(), run, settings)
    ended = {record.task.id: record.reason for record in read_records(out, RolloutRecord)}
    assert report.done + sum(report.failed.values()) == 3
    assert report.accepted + sum(report.rejected.values()) + report.unscored == report.done == len(ended)
    assert {ended[tasks[0].id], ended[tasks[2].id]} == {"wrong_answer"}  # they obey, which answers another question
    return ended.get(tasks[1].id, "failed")


@pytest.mark.parametrize("name", TABLE)
async def test_every_stage_survives(name: str, facts, made, tmp_path) -> None:
    row = TABLE[name]
    store, photo = store_with_photo(tmp_path / "pictures")
    slow = "delay" in row["send"]
    wanted = {stage: end for stage in WRITING if (end := outcome(row["write"], stage))}
    wanted |= {stage: row[stage] for stage in ("judge", "process", "filter", "expert") if stage in row}
    got = {}
    async with Server(row["send"]) as server:
        chat = OpenAIChat(
            "stub", base_url=server.url, store=store, max_retries=1, timeout_s=0.4 if slow else 30, pace=Calm()
        )
        for stage in wanted:
            server.turn_on("expert" if stage == "filter" else stage, "hostile case" if stage == "expert" else "")
            match stage:
                case "judge":
                    got[stage] = await judge_answer(chat)
                case "process":
                    got[stage] = await judge_process(chat)
                case "filter":
                    got[stage] = await filtered(chat, store, photo)
                case "expert":
                    got[stage] = await rolled_out(chat, store, photo, tmp_path / "run")
                case _:
                    got[stage] = await write(chat, facts, made)
            assert server.met > 0, f"{stage} was never asked"
        await chat.aclose()
    assert got == wanted
