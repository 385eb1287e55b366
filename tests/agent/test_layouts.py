"""Golden conversations of the four layouts, and replay."""

import re
from pathlib import Path
from typing import Any

import pytest
from agent_fakes import SCHEMAS, FakeTools, Script, answer, native, say, task

from opensearch_vl.agent.dialect import parse
from opensearch_vl.agent.environment import Environment
from opensearch_vl.agent.layouts import build_layout
from opensearch_vl.agent.rollout import rollout
from opensearch_vl.agent.settings import AgentSettings
from opensearch_vl.images import ImageStore
from opensearch_vl.protocols import ImagePart, Message, Reply, TextPart
from opensearch_vl.tools.standard import standard_tools
from opensearch_vl.tools.toolbox import Toolbox


def shown(message: Message) -> str:
    """A message as one line of text with pictures marked, as in the goldens."""
    body = "".join(
        p.text if isinstance(p, TextPart) else f"⟦{p.image.width_px}×{p.image.height_px}⟧" for p in message.parts
    )
    calls = "".join(f" ⟨{c.id} {c.name} {c.arguments}⟩" for c in message.tool_calls)
    link = f"#{message.tool_call_id}" if message.tool_call_id else ""
    return f"{message.role}{link}: {body}{calls}"


GOLDEN = {
    "sft": [
        "user: ⟦64×48⟧Pictures: img_1 (64×48 px)\n\nWhen was it built?",
        'assistant: <think>look</think>\n<tool_call>{"name": "crop", "arguments": {"image": "img_1"}}</tool_call>',
        "user: <tool_response>\n⟦32×24⟧<observation>\nCropped to 32×24 px.\nNew image ID: img_2\n</observation>\n</tool_response>",
        'assistant: <think>find</think>\n<tool_call>{"name": "text_search", "arguments": {"q": "zoo"}}</tool_call>',
        "user: <tool_response>\n<observation>\nYou searched zoo\n</observation>\n</tool_response>",
        "assistant: dunno",
        "user: <tool_response>\n<observation>\nREFUSAL\n</observation>\n</tool_response>",
        "assistant: <think>done</think>\n<response>1970</response>",
    ],
    "rl": [
        "user: ⟦64×48⟧Pictures: img_1 (64×48 px)\n\nWhen was it built?",
        'assistant: <think>look</think>\n<tool_call>{"name": "crop", "arguments": {"image": "img_1"}}</tool_call>',
        "user: <tool_response>\n⟦32×24⟧Cropped to 32×24 px.\nNew image ID: img_2\n</tool_response>",
        'assistant: <think>find</think>\n<tool_call>{"name": "text_search", "arguments": {"q": "zoo"}}</tool_call>',
        "user: <tool_response>\nYou searched zoo\n</tool_response>",
        "assistant: dunno",
        "user: REFUSAL",
        "assistant: <think>done</think>\n<response>1970</response>",
    ],
    "infer": [
        "user: TOOLS\n\n⟦64×48⟧Pictures: img_1 (64×48 px)\n\nWhen was it built?",
        'assistant: <think>look</think>\n<tool_call>{"name": "crop", "arguments": {"image": "img_1"}}</tool_call>',
        "user: <observation>\nCropped to 32×24 px.\nNew image ID: img_2\n</observation>⟦32×24⟧",
        'assistant: <think>find</think>\n<tool_call>{"name": "text_search", "arguments": {"q": "zoo"}}</tool_call>',
        "user: <observation>\nYou searched zoo\n</observation>",
        "assistant: dunno",
        "user: <observation>\nREFUSAL\n</observation>",
        "assistant: <think>done</think>\n<response>1970</response>",
    ],
    "native_tools": [
        "user: ⟦64×48⟧Pictures: img_1 (64×48 px)\n\nWhen was it built?",
        'assistant: hm ⟨call00000 crop {"image": "img_1"}⟩',
        "tool#call00000: Cropped to 32×24 px.\nNew image ID: img_2⟦32×24⟧",
        'assistant: hm ⟨call00001 text_search {"q": "zoo"}⟩',
        "tool#call00001: You searched zoo",
        "assistant: ",
        "user: REFUSAL",
        "assistant: 1970",
    ],
}


@pytest.mark.parametrize("name", GOLDEN)
async def test_golden_conversation(name: str, tmp_path: Path) -> None:
    store = ImageStore(tmp_path)
    settings = AgentSettings(layout=name)
    env = Environment(FakeTools(store), settings, store)
    if name == "native_tools":
        lines = [native("crop", image="img_1"), native("text_search", q="zoo"), Reply(""), Reply("1970")]
    else:
        lines = [
            say("look", "crop", image="img_1"),
            say("find", "text_search", q="zoo"),
            Reply("dunno"),
            answer("1970"),
        ]
    model = Script(*lines)
    view = task(store)
    done = await rollout(view, model, env, seed=1)
    assert done.response == "1970"
    refusal = done.steps[2].observation.text
    seen = [shown(m).replace(refusal, "REFUSAL") for m in env.layout.replay(view, done.steps)]
    seen = [line.replace(env.layout.tools, "TOOLS") if env.layout.tools else line for line in seen]
    system, *rest = seen
    assert rest == GOLDEN[name]
    assert ("TOOLS" in system) == (name in ("sft", "rl"))
    # what the model was sent at its last turn is what replay gives, less the last reply
    assert list(model.seen[-1][0]) == env.layout.replay(view, done.steps)[:-1]
    assert model.seen[0][1] == (SCHEMAS if name == "native_tools" else ())


@pytest.mark.parametrize("name", GOLDEN)
def test_the_miniature_profile_is_small(name: str) -> None:
    layout = build_layout(AgentSettings(layout=name, profile="miniature", date="2026-05-06"), SCHEMAS * 4)
    prompt = f"{layout.system}\n{layout.tools}"
    assert len(re.findall(r"\w+|[^\w\s]", prompt)) <= 200
    assert AgentSettings(profile="miniature").sizes.image_max_pixels == 64 * 32 * 32


def test_the_miniature_profile_holds_the_standard_tools() -> None:
    nothing: Any = None  # engines are only used when a tool runs
    tools = standard_tools(nothing, nothing, nothing, nothing, nothing, nothing)
    schemas = Toolbox(tools, ImageStore("unused")).schemas()
    layout = build_layout(AgentSettings(profile="miniature", date="2026-05-06"), schemas)
    assert "crop(image, x, y, width, height)" in layout.tools and "text_search(q)" in layout.tools
    assert len(re.findall(r"\w+|[^\w\s]", f"{layout.system}\n{layout.tools}")) <= 200
    full = build_layout(AgentSettings(), schemas)
    assert full.tools.count('"type": "function"') == len(schemas)


@pytest.mark.parametrize("layout", ["sft", "rl", "infer"])
async def test_a_call_that_the_server_took_out_is_put_back_into_the_history(layout: str, tmp_path: Path) -> None:
    store = ImageStore(tmp_path)
    env = Environment(FakeTools(store), AgentSettings(layout=layout), store)
    done = await rollout(task(store), Script(native("text_search", q="zoo"), answer("1970")), env, seed=1)
    turn = env.layout.reply(done.steps[0])
    assert turn.text == '<think>hm</think>\n\n<tool_call>{"name": "text_search", "arguments": {"q": "zoo"}}</tool_call>'
    again = parse(Reply(turn.text))
    assert again.well_formed and again.call == done.steps[0].call and not turn.tool_calls


def test_the_hash_changes_with_whatever_the_model_is_told() -> None:
    variants = [
        AgentSettings(),
        AgentSettings(date="2026-05-06"),
        AgentSettings(date="2026-05-07"),
        AgentSettings(layout="rl"),
        AgentSettings(layout="native_tools"),
        AgentSettings(profile="miniature"),
        AgentSettings(list_pictures=False),
    ]
    hashes = {build_layout(settings, SCHEMAS).hash for settings in variants}
    hashes.add(build_layout(AgentSettings(), SCHEMAS[:1]).hash)
    assert len(hashes) == len(variants) + 1
    assert build_layout(AgentSettings(max_turns=3), SCHEMAS).hash == build_layout(AgentSettings(), SCHEMAS).hash


def test_without_tools_or_pictures(tmp_path: Path) -> None:
    store = ImageStore(tmp_path)
    view = task(store).model_copy(update={"images": ()})
    for name in GOLDEN:
        layout = build_layout(AgentSettings(layout=name), ())
        system, user = layout.opening(view)
        assert user.text == "When was it built?" and "<tools>" not in system.text
        assert not any(isinstance(part, ImagePart) for part in user.parts)
