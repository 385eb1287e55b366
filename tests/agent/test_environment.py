"""Episodes: pictures, limits, failures in a row, repeated calls, folding."""

from pathlib import Path

import pytest
from agent_fakes import FakeTools, answer, picture, say, task, tokens

from opensearch_vl.agent.environment import Environment, Episode
from opensearch_vl.agent.settings import AgentSettings
from opensearch_vl.images import ImageStore
from opensearch_vl.protocols import Reply
from opensearch_vl.types import FailureKind, Sampled, Termination


def begin(tmp_path: Path, clock: object = None, **settings: object) -> Episode:
    store = ImageStore(tmp_path)
    kwargs = {"clock": clock} if clock else {}
    return Environment(FakeTools(store), AgentSettings(**settings), store, **kwargs).reset(task(store))


async def test_derived_pictures_get_ids_and_the_model_is_told(tmp_path: Path) -> None:
    episode = begin(tmp_path)
    first = await episode.step(say("a", "crop", image="img_1"))
    second = await episode.step(say("b", "crop", image="img_2"))
    assert (first.observation.image_id, second.observation.image_id) == ("img_2", "img_3")
    assert first.observation.text.endswith("New image ID: img_2")
    assert episode.bank.get("img_3") == second.observation.image
    assert episode.messages[-1].images == (second.observation.image,)


async def test_a_response_ends_the_episode(tmp_path: Path) -> None:
    episode = begin(tmp_path)
    step = await episode.step(answer("1970"))
    assert (step.response, step.observation, episode.termination) == ("1970", None, Termination.ANSWERED)
    with pytest.raises(RuntimeError):
        await episode.step(answer("again"))


async def test_k_failures_in_a_row_are_fatal_and_a_success_resets(tmp_path: Path) -> None:
    episode = begin(tmp_path)
    for reply in (Reply("no tags"), say("x", "fail"), say("x", "text_search", q="a"), Reply(""), say("x", "nope")):
        await episode.step(reply)
        assert episode.termination is None
    last = await episode.step(say("y", "fail"))
    assert episode.termination is Termination.FATAL and last.failure.kind is FailureKind.TIMEOUT
    assert [s.failure.kind if s.failure else None for s in episode.steps] == [
        FailureKind.NO_ACTION, FailureKind.TIMEOUT, None, FailureKind.NO_ACTION, FailureKind.UNKNOWN_TOOL, FailureKind.TIMEOUT,
    ]  # fmt: skip


async def test_the_table_says_what_counts(tmp_path: Path) -> None:
    episode = begin(tmp_path, counts={FailureKind.TIMEOUT: False}, fatal_after=2)
    for index in range(4):
        await episode.step(say(str(index), "fail", n=index))
    assert episode.termination is None
    await episode.step(Reply("no tags"))
    await episode.step(say("x", "fail", n=9))  # not counted, so it resets
    await episode.step(Reply("no tags"))
    assert episode.termination is None
    await episode.step(Reply("no tags"))
    assert episode.termination is Termination.FATAL


async def test_the_nth_identical_call_is_a_failure_and_is_not_run(tmp_path: Path) -> None:
    episode = begin(tmp_path, repeat_limit=3)
    steps = [await episode.step(say(str(n), "text_search", q="same")) for n in range(4)]
    assert [s.failure.kind if s.failure else None for s in steps] == [None, None, *[FailureKind.REPEATED_CALL] * 2]
    assert len(episode._env.toolbox.calls) == 2
    assert (await begin(tmp_path, repeat_limit=None).step(say("x", "text_search", q="same"))).failure is None


async def test_a_trajectory_is_asked_for_its_answer_before_the_last_turn(tmp_path: Path) -> None:
    episode = begin(tmp_path, max_turns=3)
    assert "final response" not in (await episode.step(say("a", "text_search", q="1"))).observation.text
    assert "final response" in (await episode.step(say("b", "text_search", q="2"))).observation.text
    await episode.step(say("c", "text_search", q="3"))
    assert episode.termination is Termination.TURNS and len(episode.steps) == 3


@pytest.mark.parametrize("turns", [1, 2, 3])
async def test_without_forced_final_the_turns_just_run_out(tmp_path: Path, turns: int) -> None:
    episode = begin(tmp_path, max_turns=turns, forced_final=False)
    for index in range(turns):
        assert episode.termination is None
        step = await episode.step(say("a", "text_search", q=str(index)))
        assert "final response" not in step.observation.text
    assert episode.termination is Termination.TURNS


async def test_token_budget_is_exact_where_the_server_counts(tmp_path: Path) -> None:
    episode = begin(tmp_path, max_tokens=1000, forced_final=False)
    reply = say("a", "text_search", q="1")
    await episode.step(Reply(reply.content, usage=tokens(5000, 100)))
    assert episode.num_tokens == 100
    await episode.step(Reply(say("b", "text_search", q="2").content, usage=tokens(5700, 200)))
    assert episode.num_tokens == 900 and episode.termination is None
    assert episode.sampling().max_tokens == 256
    await episode.step(Reply(say("c", "text_search", q="3").content, usage=tokens(5950, 50)))
    assert episode.termination is Termination.TOKENS


async def test_token_budget_counts_sampled_ids(tmp_path: Path) -> None:
    episode = begin(tmp_path, max_tokens=100)
    sampled = Sampled(prompt_len=40, token_ids=(1,) * 95, logprobs=(0.0,) * 95)
    step = await episode.step(Reply(say("a", "text_search", q="1").content, sampled=sampled))
    assert episode.num_tokens == 95 and "final response" in step.observation.text
    await episode.step(Reply("no answer"))
    assert episode.termination is Termination.TOKENS


async def test_pictures_beyond_the_limit_are_not_shown(tmp_path: Path) -> None:
    episode = begin(tmp_path, max_images=2)
    await episode.step(say("a", "crop", image="img_1"))
    step = await episode.step(say("b", "crop", image="img_2"))
    assert step.observation.image is None and len(episode.bank) == 2
    assert "final response" in step.observation.text
    await episode.step(say("c", "text_search", q="x"))
    assert episode.termination is Termination.IMAGES


async def test_time(tmp_path: Path) -> None:
    now = [0.0]
    episode = begin(tmp_path, clock=lambda: now[0], max_seconds=10)
    await episode.step(say("a", "text_search", q="1"))
    now[0] = 9.5
    assert "final response" in (await episode.step(say("a", "text_search", q="2"))).observation.text
    await episode.step(answer("late but there"))
    assert episode.termination is Termination.ANSWERED


async def test_notes_reach_the_policy(tmp_path: Path) -> None:
    episode = begin(tmp_path)
    twice = say("a", "text_search", q="1").content + '<tool_call>{"name": "crop", "arguments": {}}</tool_call>'
    step = await episode.step(Reply(twice))
    assert "Only the first call" in step.observation.text and not step.well_formed
    assert [call.name for call in episode._env.toolbox.calls] == ["text_search"]


async def test_long_observations_are_cut_visibly(tmp_path: Path) -> None:
    episode = begin(tmp_path, observation_chars=50)
    step = await episode.step(say("a", "text_search", q="x" * 500))
    assert len(step.observation.text) < 100 and "[cut: " in step.observation.text
    mini = begin(tmp_path, profile="miniature")
    assert len((await mini.step(say("a", "text_search", q="x" * 5000))).observation.text) < 450


async def test_strict_parsing_is_a_setting(tmp_path: Path) -> None:
    loose = '<tool_call>{"name": "text_search", "arguments": {"q": "a"}}</tool_call>'
    assert (await begin(tmp_path).step(Reply(loose))).call is not None
    step = await begin(tmp_path, parsing="strict").step(Reply(loose))
    assert step.call is None and step.failure.kind is FailureKind.MALFORMED_CALL


async def test_folding_shortens_what_is_sent_and_keeps_what_is_stored(tmp_path: Path) -> None:
    episode = begin(tmp_path, fold_after_tokens=100, fold_keep=1)
    await episode.step(say("a", "crop", image="img_1"))
    await episode.step(say("b", "text_search", q="first line\n" + "y" * 900))
    await episode.step(say("c", "crop", image="img_2"))
    sent = list(episode.messages)
    assert "[folded" in sent[3].text and "New image ID: img_2" in sent[3].text and sent[3].images
    assert "yyy" not in sent[5].text and "[folded" in sent[5].text
    assert "[folded" not in sent[7].text
    assert "yyy" in episode.steps[1].observation.text
    assert len(episode.bank) == 3
    # a conversation that folding made short does not unfold again
    await episode.step(Reply(say("d", "text_search", q="short").content, usage=tokens(10, 5)))
    assert list(episode.messages)[:7] == sent[:7]


def test_two_episodes_share_nothing(tmp_path: Path) -> None:
    store = ImageStore(tmp_path)
    env = Environment(FakeTools(store), AgentSettings(), store)
    one, two = env.reset(task(store)), env.reset(task(store))
    one.bank.add(picture(store, 10, 10))
    assert (len(one.bank), len(two.bank)) == (2, 1)


async def test_a_reply_whose_opening_tag_stood_in_the_template_is_in_exact_form(tmp_path: Path) -> None:
    reply = Reply("look\n</think>\n\n<response>1932</response>")
    for prefill, exact in (("<think>\n", True), ("", False)):
        step = await begin(tmp_path, prefill=prefill).step(reply)
        assert step.well_formed is exact and step.response == "1932" and step.thought == "look"
        assert step.text == prefill + reply.content
