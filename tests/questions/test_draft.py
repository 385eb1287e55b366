"""The rule-based stages over a hand-made wiki: relations, composing, fuzzing, leaks, and what each one refuses."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from questions.worlds import Entry, MemoryWiki, zoo_entries

from opensearch_vl.questions.draft import draft
from opensearch_vl.questions.facts import Facts
from opensearch_vl.questions.relations import relate, stated
from opensearch_vl.questions.settings import AnswerSettings, FuzzSettings, QuestionSettings
from opensearch_vl.questions.stages import Rejection

SMALL = {"answer": AnswerSettings(min_key_pages=1), "fuzz": FuzzSettings(min_shared=3)}
SHALLOW = QuestionSettings(shallow_first_hop=True, **SMALL)


def test_worked_example(zoo) -> None:
    facts = Facts(zoo)
    made = draft(facts, zoo.walk("Orla Zoo", "Stefan Irvald", "Teresa Rainö"), SHALLOW, seed=3)
    assert not isinstance(made, Rejection)
    assert "the spouse of the manager of the zoo in the picture" in made.question
    assert "the spouse of Stefan Irvald (the manager of Orla Zoo)" in made.canonical
    assert [(h.relation, h.direction) for h in made.hops] == [("managed_by", "forward"), ("spouse", "forward")]
    assert made.answer.key in {"birth_date", "citizenship_date"}
    assert made.answer.gold.kind in {"date", "number", "text"}
    assert [d.entity for d in made.descriptors] == ["Teresa Rainö", "Stefan Irvald", "Orla Zoo"]
    assert [d.matches for d in made.descriptors] == [1, 1, None]
    provenance = made.provenance(facts)
    assert provenance.path == ("Orla Zoo", "Stefan Irvald", "Teresa Rainö")
    assert provenance.attribute == made.answer.key


def test_same_seed_same_draft(zoo) -> None:
    walk = zoo.walk("Orla Zoo", "Stefan Irvald", "Teresa Rainö")
    assert draft(Facts(zoo), walk, SHALLOW, 5) == draft(Facts(zoo), walk, SHALLOW, 5)


def test_a_relation_that_several_fit_gets_an_attribute(zoo) -> None:
    made = draft(Facts(zoo), zoo.walk("Orla Zoo", "Ila Vey", "Orla"), SHALLOW, seed=3)
    assert not isinstance(made, Rejection)
    assert (
        "the place whose mayor is the person whose occupation is writer and who is a keeper of the zoo in the picture"
        in made.question
    )
    bridge = made.descriptors[1]
    assert bridge.matches == 1
    assert [(p.kind, p.key, p.value, p.inverse) for p in bridge.predicates] == [
        ("rel", "keeper", "Orla Zoo", True), ("attr", "occupation", "writer", False),
    ]  # fmt: skip
    assert (made.hops[1].relation, made.hops[1].direction) == ("mayor", "inverse")


def test_no_attribute_tells_them_apart(zoo) -> None:
    refused = draft(Facts(zoo), zoo.walk("Orla Zoo", "Tam Oru"), QuestionSettings(**SMALL), seed=3)
    assert refused == Rejection("fuzz", "not_unique", "Orla Zoo: keeper")


def test_prose_is_reported(zoo) -> None:
    refused = relate(Facts(zoo), zoo.walk("Orla Zoo", "Extra One"), QuestionSettings())
    assert isinstance(refused, Rejection)
    assert (refused.stage, refused.reason) == ("relations", "prose_relation")


def test_a_first_hop_that_the_image_match_shows_is_refused_on_two_hops(zoo) -> None:
    walk = zoo.walk("Orla Zoo", "Stefan Irvald", "Teresa Rainö")
    refused = draft(Facts(zoo), walk, QuestionSettings(), seed=3)
    assert refused == Rejection("relations", "shallow_first_hop", "Stefan Irvald")
    assert not isinstance(draft(Facts(zoo), walk, QuestionSettings(opening_chars=0, **SMALL), seed=3), Rejection)


def test_without_a_picture_the_anchor_keeps_its_name(zoo) -> None:
    """An opening that no image search shows makes no hop shallow; nothing else is loosened."""
    facts, walk = Facts(zoo), zoo.walk("Orla Zoo", "Stefan Irvald", "Teresa Rainö")
    made = draft(facts, walk, QuestionSettings(**SMALL), seed=3, grounded=False)
    assert not isinstance(made, Rejection)
    assert "the spouse of the manager of Orla Zoo" in made.question
    assert "picture" not in made.question
    assert not made.grounded
    assert [d.entity for d in made.descriptors] == ["Teresa Rainö", "Stefan Irvald"]


def test_an_anchor_is_told_from_its_namesakes(make_wiki) -> None:
    entries = zoo_entries()
    entries[0].title = "Orla Zoo (Vey)"
    wiki = make_wiki(entries)
    walk = wiki.walk("Orla Zoo (Vey)", "Stefan Irvald", "Teresa Rainö")
    made = draft(Facts(wiki), walk, SHALLOW, seed=3, grounded=False)
    assert not isinstance(made, Rejection)
    assert made.question.count("Orla Zoo (Vey)") == 1


def test_the_anchors_name_may_give_no_bridge_away(make_wiki) -> None:
    entries = zoo_entries()
    entries[1].aliases = ("Orla",)
    wiki = make_wiki(entries)
    walk = wiki.walk("Orla Zoo", "Stefan Irvald", "Teresa Rainö")
    refused = draft(Facts(wiki), walk, SHALLOW, seed=3, grounded=False)
    assert refused == Rejection("leak", "bridge_named", "Orla (name)")
    assert not isinstance(draft(Facts(wiki), walk, SHALLOW, seed=3), Rejection)


def test_hops_say_how_the_box_writes_a_name(make_wiki) -> None:
    entries = zoo_entries()
    entries[0].infobox[0] = ("managed_by", "S. Irvald", "Stefan Irvald")
    wiki = make_wiki(entries)
    hops = relate(Facts(wiki), wiki.walk("Orla Zoo", "Stefan Irvald", "Teresa Rainö"), SHALLOW)
    assert not isinstance(hops, Rejection)
    assert [hop.written for hop in hops] == ["S. Irvald", ""]


def changed(title, **fields):
    entries = zoo_entries()
    for entry in entries:
        if entry.title == title:
            for name, value in fields.items():
                setattr(entry, name, value)
    return entries


@pytest.mark.parametrize(
    ("entries", "stage", "reason"),
    [
        (changed("Teresa Rainö", infobox=[("rank", "7"), ("occupation", "writer")]), "compose", "no_infobox_answer"),
        (changed("Teresa Rainö", infobox=[("motto", "one two three four five six seven")]), "compose", "no_infobox_answer"),
        (changed("Teresa Rainö", infobox=[("birth_date", "1 May 1900"), ("birth_date", "2 May 1900")]), "compose", "no_infobox_answer"),
        (changed("Teresa Rainö", infobox=[("full_name", "Ms Teresa Rainö")]), "compose", "no_infobox_answer"),
        (changed("Teresa Rainö", infobox=[("code", "Zx-99812")]) , None, None),
        (changed("Orla Zoo", infobox=[("managed_by", "Stefan Irvald", "Stefan Irvald"), ("managed_by", "a Board")]), "fuzz", "unlinked_alternative"),
        ([*changed("Orla Zoo", text="Her code is Zx-99812.")[:2], Entry("Teresa Rainö", "Person", "person", [("code", "Zx-99812")])], "compose", "answer_on_path"),
        (changed("Stefan Irvald", infobox=[("spouse", "Teresa Rainö", "Teresa Rainö"), ("spouses", "Bo Sand", "Bo Sand")]), "fuzz", "same_wording"),
        (changed("Stefan Irvald", aliases=("Manager of the",)), "leak", "bridge_named"),
        (changed("Orla Zoo", aliases=("Picturé", "Manager of")), "leak", "anchor_named"),
    ],
)  # fmt: skip
def test_each_stage_refuses_with_its_reason(make_wiki, entries, stage, reason) -> None:
    titles = {entry.title for entry in entries}
    for entry in entries:
        entry.infobox = [item for item in entry.infobox if len(item) == 2 or item[2] in titles]
    wiki = make_wiki(entries)
    outcome = draft(Facts(wiki), wiki.walk("Orla Zoo", "Stefan Irvald", "Teresa Rainö"), SHALLOW, seed=3)
    if stage is None:
        assert not isinstance(outcome, Rejection)
        assert outcome.answer.text == "Zx-99812"
    else:
        assert isinstance(outcome, Rejection), outcome.question
        assert (outcome.stage, outcome.reason) == (stage, reason)


def test_an_attribute_that_few_pages_share_is_not_used(zoo) -> None:
    settings = SHALLOW.model_copy(update={"fuzz": FuzzSettings(min_shared=5)})
    refused = draft(Facts(zoo), zoo.walk("Orla Zoo", "Ila Vey", "Orla"), settings, seed=3)
    assert refused == Rejection("fuzz", "not_unique", "Orla Zoo: keeper")


def test_what_other_questions_ask_is_not_asked_again(zoo) -> None:
    walk = zoo.walk("Orla Zoo", "Stefan Irvald", "Teresa Rainö")
    for seed in range(5):
        made = draft(Facts(zoo), walk, SHALLOW, seed, taken={"birth_date"})
        assert not isinstance(made, Rejection)
        assert made.answer.key == "citizenship_date"
    refused = draft(Facts(zoo), walk, SHALLOW, 1, taken={"birth_date", "citizenship_date"})
    assert refused == Rejection("compose", "answer_taken")


def test_a_key_that_few_pages_have_is_not_asked(zoo) -> None:
    settings = SHALLOW.model_copy(update={"answer": AnswerSettings(min_key_pages=3)})
    made = draft(Facts(zoo), zoo.walk("Orla Zoo", "Stefan Irvald", "Teresa Rainö"), settings, seed=3)
    assert not isinstance(made, Rejection)
    assert made.answer.key == "birth_date"


def test_answer_side_obfuscation_stays_exact(zoo) -> None:
    settings = SHALLOW.model_copy(update={"answer": SHALLOW.answer.model_copy(update={"obfuscate": 1.0})})
    facts, seen = Facts(zoo), set()
    for seed in range(40):
        made = draft(facts, zoo.walk("Orla Zoo", "Stefan Irvald", "Teresa Rainö"), settings, seed)
        assert not isinstance(made, Rejection)
        seen.add((made.answer.key, made.answer.form, made.answer.text))
    assert seen == {
        ("birth_date", "year", "1964"), ("birth_date", "day", "20 July"),
        ("citizenship_date", "year", "2009"), ("citizenship_date", "day", "20 November"),
    }  # fmt: skip


def test_options_prefer_what_one_entity_fits(make_wiki) -> None:
    entries = [
        Entry("A", "", "", [("works", "B", "B"), ("works", "C", "C"), ("opus", "B", "B")]),
        Entry("B", "", "", [("author", "A", "A")]),
        Entry("C"),
    ]
    wiki = make_wiki(entries)
    found = [(hop.relation, hop.direction) for hop in stated(Facts(wiki), 0, 1)]
    assert found == [("opus", "forward"), ("author", "inverse"), ("works", "forward")]


@pytest.fixture(scope="module")
def zoo_facts():
    return Facts(MemoryWiki(zoo_entries(), None))


@given(seed=st.integers(0, 2**32))
def test_no_name_of_the_path_survives(zoo_facts, seed) -> None:
    made = draft(zoo_facts, zoo_facts.wiki.walk("Orla Zoo", "Ila Vey", "Orla"), SHALLOW, seed)
    assert not isinstance(made, Rejection)
    for word in ("Orla", "Ila", "Vey", made.answer.text):
        assert word not in made.question
