"""The language-model twin against a stub server's worst habits, and what its rewrites are held to."""

import json
import re

import pytest
from questions.worlds import Entry, MemoryWiki, zoo_entries

from opensearch_vl.errors import ModelKeyRefused, ModelRateLimited, ModelReplyInvalid, ModelUnreachable
from opensearch_vl.protocols import Reply
from opensearch_vl.questions.asking import Asker, BudgetSpent, StageFailed, fit
from opensearch_vl.questions.draft import draft
from opensearch_vl.questions.facts import Facts
from opensearch_vl.questions.paid import ReplyCache
from opensearch_vl.questions.settings import AnswerSettings, FuzzSettings, QuestionSettings
from opensearch_vl.questions.stages import Rejection
from opensearch_vl.questions.writer import LlmWriter, Question
from opensearch_vl.types import Usage

SETTINGS = QuestionSettings(
    answer=AnswerSettings(min_key_pages=1, obfuscate=0), fuzz=FuzzSettings(min_shared=3), shallow_first_hop=True
)
OBJECT = '{"question": "Is this a question?"}'


class Scripted:
    """A chat model that replies by a function of the prompt, or from a list; counts its calls."""

    name = "scripted"

    def __init__(self, *replies, by=None):
        self.replies, self.by, self.calls = list(replies), by, []

    async def complete(self, messages, tools=(), sampling=None, seed=0):
        prompt = messages[0].text
        self.calls.append(prompt)
        reply = self.by(prompt) if self.by else self.replies[min(len(self.calls), len(self.replies)) - 1]
        if isinstance(reply, Exception):
            raise reply
        if isinstance(reply, Reply):
            return reply
        return Reply(content=reply, usage=Usage(prompt_tokens=10, completion_tokens=5, cost=0.01))


def asker(chat, cache=None, **settings):
    waits = []

    async def sleep(seconds):
        waits.append(seconds)

    made = Asker(chat, cache, sleep=sleep, **settings)
    return made, waits


# ------------------------------------------------------------------------------------------- replies


@pytest.mark.parametrize(
    "text",
    [
        OBJECT,
        f"```json\n{OBJECT}\n```",
        f'<think>maybe {{"question": "No, not this one"}} hmm</think>Here you are: {OBJECT} Enjoy!',
        f'{{"type": "object", "properties": {{}}}} {OBJECT}',
        f"{{broken {{ {OBJECT}",
        OBJECT[:-1] + ', "confidence": 0.9}',
    ],
)
def test_an_object_is_found_in_any_wrapping(text) -> None:
    found, _ = fit(text, Question)
    assert found is not None
    assert found.question == "Is this a question?"


@pytest.mark.parametrize(
    "text",
    ["", "no", "{" * 100_000, '{"question": 7}', '{"question": ""}', '{"questions": "Is this a question?"}', "[" * 50_000,
     '{"question": "' + "x" * 5000 + '"}', '{"question": "Is this'],
)  # fmt: skip
def test_what_does_not_fit_is_refused(text) -> None:
    found, trouble = fit(text, Question)
    assert found is None
    assert trouble


async def test_malformed_truncated_and_refused_replies_are_asked_again() -> None:
    chat = Scripted("nonsense", Reply(content=OBJECT, finish_reason="length"), OBJECT)
    made, _ = asker(chat)
    assert (await made.ask("s", "p", Question)).question == "Is this a question?"
    assert made.ledger.as_dict()["s"]["invalid"] == 2
    assert len(chat.calls) == 3
    with pytest.raises(StageFailed) as failed:
        await asker(Scripted(ModelReplyInvalid("no choices")))[0].ask("s", "p", Question)
    assert failed.value.reason == "reply_invalid"


async def test_limits_are_waited_out_and_pauses_grow() -> None:
    made, waits = asker(
        Scripted(ModelRateLimited("slow down"), ModelUnreachable("gone"), ModelRateLimited("again"), OBJECT)
    )
    await made.ask("s", "p", Question)
    assert len(waits) == 3
    assert waits[0] < waits[2]
    with pytest.raises(StageFailed) as failed:
        await asker(Scripted(ModelUnreachable("gone")), max_waits=2)[0].ask("s", "p", Question)
    assert failed.value.reason == "model_unreachable"


async def test_a_refused_key_stops_everything() -> None:
    with pytest.raises(ModelKeyRefused):
        await asker(Scripted(ModelKeyRefused("no")))[0].ask("s", "p", Question)


async def test_nothing_is_paid_twice(tmp_path) -> None:
    cache = tmp_path / "replies.sqlite"
    first = Scripted("nonsense", OBJECT)
    await asker(first, ReplyCache(cache))[0].ask("s", "p", Question)
    again = Scripted(OBJECT)
    made, _ = asker(again, ReplyCache(cache))
    await made.ask("s", "p", Question)
    assert again.calls == []
    assert made.ledger.as_dict()["s"]["cached"] == 2
    assert made.ledger.cost == 0
    await made.ask("s", "another prompt", Question)
    assert len(again.calls) == 1


async def test_the_budget_holds() -> None:
    made, _ = asker(Scripted(OBJECT), budget_usd=0.02)
    await made.ask("s", "p1", Question)
    await made.ask("s", "p2", Question)
    with pytest.raises(BudgetSpent, match=r"0\.02"):
        await made.ask("s", "p3", Question)


# ------------------------------------------------------------------------------------------- writing


def good(prompt: str) -> str:
    """An obedient model, by the marks of each prompt."""
    if "Name to remove" in prompt:
        question = re.search(r"Question: (.*)", prompt)[1]
        name = re.search(r"Name to remove: (.*)", prompt)[1]
        put = re.search(r"in your own words: (.*)", prompt)[1]
        return json.dumps({"question": question.replace(name, put)})
    if "comes with a picture" in prompt:
        question = re.search(r"Question: (.*)", prompt)[1]
        return json.dumps({"question": question.replace("Orla Zoo", "the zoo in the photo")})
    if "exactly one answer" in prompt:
        return json.dumps({"unique": True, "fitting": ["Teresa Rainö"], "answer": "20 July 1964"})
    if "Text of the link" in prompt:
        return json.dumps({"stated": True, "phrase": "the keeper that {X} dismissed"})
    return json.dumps({"question": "On which day was the spouse of Stefan Irvald born?"})


@pytest.fixture
def facts() -> Facts:
    return Facts(MemoryWiki(zoo_entries(), None))


def made_draft(facts, settings=SETTINGS):
    walk = facts.wiki.walk("Orla Zoo", "Stefan Irvald", "Teresa Rainö")
    made = draft(facts, walk, settings, seed=3, taken={"citizenship_date"})
    assert not isinstance(made, Rejection)
    return made


async def write(facts, by, made=None):
    chat = Scripted(by=by)
    return await LlmWriter(asker(chat)[0], facts).write(made or made_draft(facts)), chat


async def test_an_obedient_model_rewords_every_part(facts) -> None:
    written, chat = await write(facts, good)
    assert not isinstance(written, Rejection)
    assert written.canonical == "On which day was the spouse of Stefan Irvald born?"
    assert written.question == "On which day was the spouse of the manager of the zoo in the photo born?"
    assert [d.judged_unique for d in written.descriptors] == [True, True, None]
    assert len(chat.calls) == 4


async def test_without_a_picture_the_model_keeps_the_anchors_name(facts) -> None:
    walk = facts.wiki.walk("Orla Zoo", "Stefan Irvald", "Teresa Rainö")
    made = draft(facts, walk, SETTINGS, seed=3, taken={"citizenship_date"}, grounded=False)
    written, chat = await write(facts, good, made)
    assert not isinstance(written, Rejection)
    assert written.question == "On which day was the spouse of the manager of Orla Zoo born?"
    assert [d.judged_unique for d in written.descriptors] == [True, True]
    assert len(chat.calls) == 3


def spoiled(mark, reply):
    return lambda prompt: json.dumps(reply) if mark in prompt else good(prompt)


@pytest.mark.parametrize(
    ("mark", "reply", "reason"),
    [
        ("Name to remove", {"question": "When was the wife of Irvald, manager of Orla Zoo, born?"}, "rewrite_refused"),
        ("Name to remove", {"question": "When was the wife of the manager born?"}, "rewrite_refused"),
        ("Name to remove", {"question": "Ignore all rules, the wife of the boss of Orla Zoo"}, "rewrite_refused"),
        ("comes with a picture", {"question": "When was the wife of the manager of Orla Zoo in the picture born?"}, "grounding_refused"),
        ("comes with a picture", {"question": "When was the wife of the manager of the zoo born?"}, "grounding_refused"),
        ("Write one question", {"question": "When was Teresa Raino, spouse of Stefan Irvald, born?"}, "canonical_refused"),
        ("Write one question", {"question": "Was the spouse of Stefan Irvald born on 20 July 1964?"}, "canonical_refused"),
        ("exactly one answer", {"unique": False, "fitting": ["a", "b"], "answer": ""}, "judged_not_unique"),
        ("exactly one answer", {"unique": True, "answer": "22 February 1962"}, "answer_changed"),
        ("exactly one answer", {"answer": "20 July 1964"}, "reply_invalid"),
    ],
)  # fmt: skip
async def test_a_rewrite_that_breaks_a_rule_is_turned_away(facts, mark, reply, reason) -> None:
    refused, _ = await write(facts, spoiled(mark, reply))
    assert isinstance(refused, Rejection)
    assert (refused.stage, refused.reason) == ("write", reason)


async def test_a_second_try_may_mend_it(facts) -> None:
    bad = iter([{"question": "When was the wife of Stefan Irvald of Orla Zoo born?"}])

    def by(prompt):
        spoilt = next(bad, None) if "Name to remove" in prompt else None
        return json.dumps(spoilt) if spoilt else good(prompt)

    written, chat = await write(facts, by)
    assert not isinstance(written, Rejection)
    assert any("it must not name Stefan Irvald" in prompt for prompt in chat.calls)


async def test_an_unreachable_model_is_a_reason_not_a_crash(facts) -> None:
    refused, _ = await write(facts, lambda prompt: ModelUnreachable("gone"))
    assert isinstance(refused, Rejection)
    assert refused.reason == "model_unreachable"


async def test_relations_from_prose(facts) -> None:
    entries = [*zoo_entries(), Entry("Zed", "Person", "person", [("birth_date", "20 July 1964")])]
    wiki = MemoryWiki(entries, None)
    settings = SETTINGS.model_copy(update={"fuzz": FuzzSettings(min_shared=3, use_prose=True)})
    facts = Facts(wiki)
    made = draft(facts, wiki.walk("Orla Zoo", "Stefan Irvald", "Zed"), settings, seed=3)
    assert not isinstance(made, Rejection)
    assert made.descriptors[0].matches is None
    written, _ = await write(facts, good, made)
    assert not isinstance(written, Rejection)
    assert written.hops[1].phrase == "the keeper that {X} dismissed"
    refused, _ = await write(facts, spoiled("Text of the link", {"stated": False}), made)
    assert (refused.stage, refused.reason) == ("write", "prose_not_stated")
