"""The scripted expert: it finds the answer, copies it, and fails honestly without the evidence."""

import re

import pytest
from expert_world import PAGES, World, drive, make_task
from hypothesis import given, settings
from hypothesis import strategies as st

from opensearch_vl.protocols import Message, TextPart, ToolSchema
from opensearch_vl.scoring.answers import find
from opensearch_vl.sft.expert import ScriptedExpert
from opensearch_vl.sft.reading import hits, lettering, new_image_id, resemblance, value_of
from opensearch_vl.types import Task


def right(task: Task, reply: str) -> bool:
    return find(task.gold.answer, (), task.gold.kind, reply.split("<response>")[1]).matched


@pytest.mark.parametrize("nodes", [2, 3, 4])
@pytest.mark.parametrize("seed", range(5))
async def test_it_answers_along_paths_of_every_length(nodes: int, seed: int) -> None:
    task, world = make_task(nodes), World()
    replies = await drive(ScriptedExpert(task, seed=seed), world)
    assert right(task, replies[-1])
    assert world.calls[0] == ("image_search", {"url": "img_1"})
    assert len(replies) == nodes + 2 - (nodes == 2) + (
        nodes == 2
    )  # look, one search per hop, the attribute, the answer


@pytest.mark.parametrize(
    ("nodes", "missing"), [(2, "Ana Boro"), (3, "Óla Vik (sculptor)"), (4, "Blue Horse"), (4, "Ana Boro")]
)
async def test_with_the_answer_page_removed_it_fails_honestly(nodes: int, missing: str) -> None:
    task, world = make_task(nodes), World()
    del world.pages[missing]
    replies = await drive(ScriptedExpert(task), world)
    assert not right(task, replies[-1])
    assert "could not verify" in replies[-1]


async def test_the_answer_is_copied_from_what_the_page_says_not_from_the_gold() -> None:
    task, world = make_task(3), World()
    world.pages["Óla Vik (sculptor)"] = "Birth date: 9 June 1999"
    replies = await drive(ScriptedExpert(task), world)
    assert "9 June 1999" in replies[-1]
    assert not right(task, replies[-1])


async def test_no_name_is_used_before_an_observation_has_shown_it() -> None:
    task = make_task(4)
    for seed in range(20):
        world = World()
        shown = task.question
        replies = await drive(ScriptedExpert(task, seed=seed), world)
        replay = World()
        for reply, call in zip(replies, world.calls, strict=False):
            for title in PAGES:
                if re.sub(r" \(.*", "", title) in reply:
                    assert re.sub(r" \(.*", "", title) in shown
            shown += replay.answer(*call)


@pytest.mark.parametrize("tool", ["sharpen", "super_resolution", "perspective_correct"])
async def test_a_damaged_picture_is_repaired_by_the_right_tool_then_read(tool: str) -> None:
    task = make_task(2, lettering=True, repair=tool)
    world = World(readable=(), repairs={tool: "good"}, look_alikes=())
    replies = await drive(ScriptedExpert(task), world)
    assert right(task, replies[-1])
    assert [name for name, _ in world.calls[:3]] == [tool, "layout_parsing", "text_search"]
    assert world.calls[1][1] == {"image": "img_2"}


async def test_lettering_that_cannot_be_read_is_repaired_until_it_can() -> None:
    task = make_task(2, lettering=True)
    world = World(readable=(), repairs={"perspective_correct": "good"}, look_alikes=())
    replies = await drive(ScriptedExpert(task), world)
    assert right(task, replies[-1])


async def test_ambiguous_matches_are_settled_by_the_lettering() -> None:
    task = make_task(2)
    world = World(look_alikes=("Red Horse", "Grand Hall", "Blue Horse"), ambiguous=True, sign="THE GRAND HALL")
    replies = await drive(ScriptedExpert(task), world)
    assert right(task, replies[-1])
    assert [name for name, _ in world.calls[:2]] == ["image_search", "layout_parsing"]


async def test_a_clear_best_match_is_believed() -> None:
    task = make_task(2)
    world = World(look_alikes=("Grand Hall", "Red Horse"))
    assert right(task, (await drive(ScriptedExpert(task), world))[-1])
    assert [name for name, _ in world.calls[:2]] == ["image_search", "text_search"]


async def test_a_call_that_timed_out_is_made_once_more() -> None:
    task = make_task(2)
    world = World(time_outs=1)
    assert right(task, (await drive(ScriptedExpert(task), world))[-1])
    assert [name for name, _ in world.calls[:3]] == ["image_search", "image_search", "text_search"]
    hopeless = World(time_outs=100)
    assert "could not verify" in (await drive(ScriptedExpert(task), hopeless))[-1]


async def test_ocr_mistakes_are_forgiven() -> None:
    task = make_task(2, lettering=True)
    world = World(sign="GRANO HALL 1888", look_alikes=())
    world.pages["Granite"] = "Kind: stone"
    assert right(task, (await drive(ScriptedExpert(task), world))[-1])


async def test_without_picture_the_anchor_must_be_named_in_the_question() -> None:
    named = make_task(2, images=()).model_copy(update={"question": "When was the architect of Grand Hall born?"})
    assert right(named, (await drive(ScriptedExpert(named), World()))[-1])
    unnamed = make_task(2, images=())
    assert "could not verify" in (await drive(ScriptedExpert(unnamed), World()))[-1]


@pytest.mark.parametrize("known", [True, False])
async def test_a_name_that_a_box_writes_otherwise_is_recognised(known: bool) -> None:
    """Infoboxes pipe their links: both the spouse and the creator are written as no page is titled."""
    task, world = make_task(4), World()
    world.pages["Ana Boro"] = "Birth date: 15 May 1931\nSpouse: Ilja Rest, Sculptor V.\n\nAna Boro built Grand Hall."
    world.pages["Blue Horse"] = "Creator: Master V.\nCatalogue number: 7-B\n\nBlue Horse is a sculpture."
    first, second, third = task.provenance.hops
    if known:
        second = second.model_copy(update={"written": "Sculptor V."})
        third = third.model_copy(update={"written": "Master V."})
    provenance = task.provenance.model_copy(update={"hops": (first, second, third)})
    last = (await drive(ScriptedExpert(task.model_copy(update={"provenance": provenance})), world))[-1]
    assert right(task, last) == known


async def test_visit_is_used_where_it_is_offered_and_summaries_leave_the_answer_out() -> None:
    task = make_task(2)
    world = World()
    world.pages["Ana Boro"] = "Occupation: builder. " * 5 + "\nBirth date: 15 May 1931"
    world.show = 60
    assert "could not verify" in (await drive(ScriptedExpert(task), world))[-1]
    world.pages = {"Ana Boro": world.pages["Ana Boro"], **world.pages}
    world.calls.clear()
    replies = await drive(ScriptedExpert(task, can_visit=True), world)
    assert any(name == "visit" for name, _ in world.calls)
    assert right(task, replies[-1])


@pytest.mark.parametrize("noise", [0.3, 1.0])
async def test_a_noisy_expert_recovers_and_still_answers(noise: float) -> None:
    task = make_task(3)
    kinds = set()
    for seed in range(12):
        world = World()
        replies = await drive(ScriptedExpert(task, noise, seed), world)
        assert right(task, replies[-1])
        kinds |= {name for name, _ in world.calls}
        kinds |= {"malformed" for reply in replies if "<tool_call>" in reply and "}}</tool_call>" not in reply}
        if noise == 1.0:
            assert len(replies) == 2 * 5
    if noise == 1.0:
        assert {"malformed", "layout_parsing"} <= kinds
        assert kinds & {"web_lookup", "google", "zoom", "open_page"}


@pytest.mark.parametrize("noise", [-0.1, 1.1])
def test_noise_is_a_probability(noise: float) -> None:
    with pytest.raises(ValueError, match="noise"):
        ScriptedExpert(make_task(2), noise)


async def test_same_seed_same_words_other_seed_other_words() -> None:
    async def told(seed: int) -> list[str]:
        return await drive(ScriptedExpert(make_task(4), 0.2, seed), World())

    assert await told(1) == await told(1)
    assert len({tuple(await told(seed)) for seed in range(5)}) == 5


async def test_brief_thoughts_are_brief() -> None:
    replies = await drive(ScriptedExpert(make_task(4), brief=True), World())
    assert max(len(reply.split("</think>")[0].split()) for reply in replies) <= 8


async def test_native_mode_gives_calls_beside_the_text() -> None:
    schema = ToolSchema("image_search", "", {})
    reply = await ScriptedExpert(make_task(2)).complete([Message("user", (TextPart("q"),))], (schema,))
    assert reply.content == ""
    assert reply.reasoning
    assert reply.tool_calls[0].name == "image_search"
    assert reply.tool_calls[0].arguments == '{"url": "img_1"}'


# --------------------------------------------------------------------------------------------- reading


@pytest.mark.parametrize(
    ("body", "label", "value"),
    [
        ("Birth date: 15 May 1931", "Birth date", "15 May 1931"),
        ("Architect: Ana Boro\nHeight: 35 m", "Architect", "Ana Boro"),
        ("Architect: Ana Boro Height: 35 m Year built: 1900", "Architect", "Ana Boro"),
        ("Architect: Ana Boro Height: 35 m Year built: 1900", "Height", "35 m"),
        ("Known for: x. Birth date: 15 May 1931 Place of birth: Ro", "Birth date", "15 May 1931"),
        ("Birth date: 15 May 1931. Architect: Ana Boro.", "Birth date", "15 May 1931"),
        ("Birth date: 15 May 1931. Architect: Ana Boro.", "Architect", "Ana Boro"),
        ("Birth date: 15 May 1931. She was born in Ro.", "Birth date", "15 May 1931"),
        ("(the text begins:) Location: St. Mary Hill. Height: 3 m.", "Location", "St. Mary Hill"),
        ("Holotype: Spec. EG-75911.", "Holotype", "Spec. EG-75911"),
        ("Weight: 3.5 kg. Height: 2.", "Weight", "3.5 kg"),
        ("… Motto: All: one, one: all", "Motto", "All: one, one: all"),
        ("Co-architect: X", "Architect", None),
        ("Landscape architect: X", "Scape architect", None),
        ("Birth date:", "Birth date", None),
        ("Birth date: 15 May 1931</observation></tool_response>", "Birth date", "15 May 1931"),
        ("birth date: x", "Birth date", "x"),
        ("", "Birth date", None),
    ],
)
def test_values_behind_labels(body: str, label: str, value: str | None) -> None:
    assert value_of(body, label) == value


def test_hits_of_both_searches() -> None:
    text = (
        "<tool_response><observation>[Match 1]\nTitle: A [b]\nSource: s\nURL: u1\nSnippet: x: y\nz\n\n"
        "[Match 2]\nTitle: C\nSource: s\nURL: u2\nSnippet: w</observation></tool_response>"
    )
    assert [(hit.title, hit.url, hit.body) for hit in hits(text)] == [("A [b]", "u1", "x: y\nz"), ("C", "u2", "w")]
    assert hits("No confident match.") == []


def test_a_hit_that_is_cut_off_says_so() -> None:
    text = "[Passage 1]\nTitle: A\nURL: u\nSummary: Height: 3 m.\n\n[Passage 2]\nTitle: B\nURL: v\n[cut: 1,388 of 1,744 characters left out]"
    first, second = hits(text)
    assert (first.body, first.cut_off) == ("Height: 3 m.", False)
    assert (second.title, second.body, second.cut_off) == ("B", "", True)
    within = hits("[Passage 1]\nTitle: A\nURL: u\nSummary: Height: 3\n[cut: 9 more characters]")[0]
    assert (within.body, within.cut_off) == ("Height: 3", True)


def test_lettering_and_picture_ids() -> None:
    assert (
        lettering('[Text Block 1] (title) "GRAND"\n[Text Block 2] (text) "HALL "x""\nAll text:\nfoo')
        == 'GRAND HALL "x"'
    )
    assert lettering("No text found.") == ""
    assert new_image_id("Enlarged. New image ID: img_12</observation>") == "img_12"
    assert new_image_id("New image ID: none") is None


def test_resemblance_ranks_titles_by_what_the_sign_holds() -> None:
    assert resemblance("Grand Hall", "THE GRAND HALL 1888") == 1
    assert resemblance("Grand Hall (Ro)", "GRAND HALL") == 1
    assert resemblance("Grand Hall", "GRANO HALL") >= 0.8
    assert resemblance("Grand Hall", "Red Horse") < 0.5
    assert resemblance("Grand Hall", "") == 0


@settings(max_examples=50)
@given(st.lists(st.text(max_size=200), max_size=6))
async def test_any_observation_is_survived(texts: list[str]) -> None:
    messages = [Message("user", (TextPart("q"),))]
    for text in texts:
        reply = await ScriptedExpert(make_task(4, lettering=True, repair="sharpen"), 0.5).complete(messages)
        messages += [Message("assistant", (TextPart(reply.content),)), Message("user", (TextPart(text),))]
