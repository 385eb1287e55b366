"""Answers that a model read off a page: tied to the infobox where it states them, else marked as prose."""

from dataclasses import replace

import pytest
from questions.worlds import Entry, MemoryWiki, zoo_entries

from opensearch_vl.questions.audit import check_against_wiki
from opensearch_vl.questions.compose import PENDING, extract_answer
from opensearch_vl.questions.draft import draft
from opensearch_vl.questions.extract import Extracted, accept
from opensearch_vl.questions.facts import Facts
from opensearch_vl.questions.settings import AnswerSettings, FuzzSettings, QuestionSettings
from opensearch_vl.questions.stages import Rejection
from opensearch_vl.questions.variety import exactness
from opensearch_vl.types import Task

ANSWERS = AnswerSettings(min_key_pages=1, obfuscate=0)
READ = Extracted(quote="In 1991 she won the Silver Reed.", attribute="prize won", answer="Silver Reed", type="name")


@pytest.fixture
def world():
    entries = zoo_entries()
    entries[2].text += " In 1991 she won the Silver Reed. She was born on 20 July 1964, a writer."
    entries.append(Entry("Last", "Person", "person", [("occupation", "writer")], "No prizes."))
    wiki = MemoryWiki(entries, None)
    return Facts(wiki), wiki.walk("Orla Zoo", "Stefan Irvald", "Teresa Rainö")


def settings(source: str) -> QuestionSettings:
    answer = ANSWERS.model_copy(update={"source": source})
    return QuestionSettings(answer=answer, fuzz=FuzzSettings(min_shared=3), shallow_first_hop=True)


def test_who_gives_the_answer(world) -> None:
    facts, walk = world
    assert extract_answer(facts, walk, settings("infobox"), 3).source == "infobox"
    assert extract_answer(facts, walk, settings("infobox_then_llm"), 3).source == "infobox"
    assert extract_answer(facts, walk, settings("llm"), 3) is PENDING
    full = extract_answer(facts, walk, settings("llm"), 3, taken=("a", "b", "c"))
    assert isinstance(full, Rejection) and full.reason == "answer_taken"
    bare = facts.wiki.walk("Orla Zoo", "Stefan Irvald", "Last")
    assert extract_answer(facts, bare, settings("infobox"), 3).reason == "no_infobox_answer"
    assert extract_answer(facts, bare, settings("infobox_then_llm"), 3) is PENDING


def test_what_the_infobox_states_too_is_tied_to_its_key(world) -> None:
    facts, walk = world
    date = {"quote": "She was born on 20 July 1964, a writer.", "attribute": "day of birth", "type": "date"}
    found = accept(Extracted(answer="20 July 1964", **date), facts, walk, "", ANSWERS)
    assert (found.source, found.key, found.kind) == ("infobox", "birth_date", "date")
    assert found.ask == "What is the day of birth of {X}?"
    common = accept(Extracted(answer="writer", **{**date, "type": "other"}), facts, walk, "", AnswerSettings())
    assert common[0] == "answer_guessable"


def test_prose_alone_is_said_to_be_beyond_the_exact_checks(world) -> None:
    facts, walk = world
    found = accept(READ, facts, walk, "", ANSWERS)
    assert (found.source, found.key, found.text) == ("prose", "prize_won", "Silver Reed")
    made = draft(facts, walk, settings("infobox"), seed=3)
    assert not isinstance(made, Rejection)

    def task(answer):
        told = replace(made, answer=answer)
        return Task(id="q", question=made.question, gold=answer.gold, provenance=told.provenance(facts))

    assert (exactness(task(found)), exactness(task(made.answer))) == ("not_applicable", "exact")
    assert "answer_not_on_page" not in {finding.problem for finding in check_against_wiki([task(found)], facts)}
    made_up = replace(found, value="Golden Reed")
    assert "answer_not_on_page" in {finding.problem for finding in check_against_wiki([task(made_up)], facts)}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"answer": ""}, "no_prose_answer"),
        ({"answer": "Silver <b>Reed</b>"}, "answer_not_plain"),
        ({"answer": "In 1991 she won the Silver Reed"}, "answer_unusable"),
        ({"type": "number"}, "answer_type"),
        ({"answer": "Golden Reed"}, "answer_not_on_page"),
        ({"quote": "She got the Silver Reed."}, "answer_not_in_quote"),
        ({"quote": "In 1991 she won"}, "answer_not_in_quote"),
        ({"answer": "Rainö", "quote": "Teresa Rainö married Stefan Irvald."}, "answer_names_path"),
        ({"attribute": "prize of Irvald"}, "attribute_unusable"),
        ({"attribute": "thing called Silver Reed"}, "attribute_unusable"),
        ({"attribute": ""}, "attribute_unusable"),
    ],
)
def test_what_is_refused(world, change, reason) -> None:
    facts, walk = world
    assert accept(READ.model_copy(update=change), facts, walk, "", ANSWERS)[0] == reason


def test_an_answer_that_the_question_or_an_earlier_page_says(world) -> None:
    facts, walk = world
    assert accept(READ, facts, walk, "Who won the Silver Reed?", ANSWERS)[0] == "answer_in_question"
    facts.wiki.entries[0].text += " It holds the Silver Reed."
    assert accept(READ, Facts(facts.wiki), walk, "", ANSWERS)[0] == "answer_on_path"
