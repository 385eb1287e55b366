"""The truth table of replies, and properties that hold for any text whatever."""

import gzip
import json
import math
import os
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from opensearch_vl.agent.blocks import MAX_DEPTH, balanced_end, disarm, has_tag, scan
from opensearch_vl.agent.dialect import Parsed, parse, render_call, render_response
from opensearch_vl.agent.repair import Unreadable, read_value
from opensearch_vl.protocols import NativeCall, Reply
from opensearch_vl.types import FailureKind, Step, ToolCall

CASES = yaml.safe_load((Path(__file__).parent / "dialect_cases.yaml").read_text(encoding="utf-8"))
NOTES = {"first_call": "Only the first call", "response": "was not taken", "after": "Text after the call"}
KEYS = {
    "name", "reply", "reasoning", "native", "finish", "plain", "exact", "call", "response", "failure", "thought", "note",
    "repeat_rest", "prefill",
}  # fmt: skip


def reply_of(case: dict[str, Any]) -> Reply:
    text = case["reply"]
    if "repeat_rest" in case:
        unit, times = case["repeat_rest"]
        text = text.replace("{REST}", unit * times)
    native = tuple(NativeCall(f"c{n}", name, arguments) for n, (name, arguments) in enumerate(case.get("native", ())))
    return Reply(text, case.get("reasoning", ""), native, finish_reason=case.get("finish", "stop"))


def action_of(parsed: Parsed) -> dict[str, Any]:
    if parsed.call is not None:
        return {"call": [parsed.call.name, parsed.call.arguments]}
    if parsed.response is not None:
        return {"response": parsed.response}
    assert parsed.failure is not None
    return {"failure": str(parsed.failure.kind)}


def test_the_table_is_large_and_well_made() -> None:
    assert len(CASES) >= 120
    assert len({case["name"] for case in CASES}) == len(CASES)
    for case in CASES:
        assert set(case) <= KEYS, case["name"]
        assert sum(key in case for key in ("call", "response", "failure")) == 1, case["name"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_truth_table(case: dict[str, Any]) -> None:
    reply, plain, prefill = reply_of(case), case.get("plain", False), case.get("prefill", "")
    expected = {key: case[key] for key in ("call", "response", "failure") if key in case}
    lenient = parse(reply, "lenient", plain_answer=plain, prefill=prefill)
    assert action_of(lenient) == expected
    assert lenient.well_formed == case.get("exact", False)
    assert {key for key, text in NOTES.items() if text in lenient.note} == set(case.get("note", ()))
    if "thought" in case:
        assert lenient.thought == case["thought"]
    strict = parse(reply, "strict", plain_answer=plain, prefill=prefill)
    assert strict.well_formed == lenient.well_formed
    if strict.well_formed:
        assert strict == lenient
    else:
        assert strict.failure is not None and strict.call is None and strict.response is None
        assert strict.failure.kind is (
            FailureKind(case["failure"]) if "failure" in case else FailureKind.MALFORMED_CALL
        )


def check(parsed: Parsed) -> None:
    """What holds for every reading."""
    assert sum(x is not None for x in (parsed.call, parsed.response, parsed.failure)) == 1
    if parsed.well_formed:
        assert parsed.failure is None and not parsed.note
    if parsed.call is not None:
        assert parsed.call.name and isinstance(parsed.call.arguments, dict)
    if parsed.response is not None:
        assert parsed.response.strip()
    if parsed.failure is not None:
        assert not has_tag(parsed.failure.message)  # what the policy is shown holds no control tags
    assert not has_tag(parsed.note)
    step = Step(
        index=0,
        text=parsed.text,
        thought=parsed.thought,
        call=parsed.call,
        response=parsed.response,
        failure=parsed.failure,
    )
    step.model_dump_json()  # can be stored


DATA = Path(os.environ.get("OSVL_TEST_DATA") or Path(__file__).parents[3] / "shared" / "data") / "trajectories"


@pytest.mark.skipif(not DATA.exists(), reason="real data not at hand")
def test_real_trajectories_of_another_agent() -> None:
    """Search trajectories as released by others: the same tags, with `answer` for the response."""
    exact = read = 0
    with gzip.open(DATA / "WebAgent_WebDancer_datasets_sample_traj.jsonl.gz", "rt", encoding="utf-8") as lines:
        for line in lines:
            turns = [m["content"] for m in json.loads(line)["messages"] if m["role"] == "assistant"]
            for turn, text in enumerate(turns):
                parsed = parse(Reply(text))
                check(parsed)
                assert (parsed.call is None) == (turn == len(turns) - 1) and not parsed.note
                read += 1
                exact += parsed.well_formed
    assert (read, exact) == (422, 222)


PIECES = [
    "<think>", "</think>", "<tool_call>", "</tool_call>", "<response>", "</response>", "<observation>", "</answer>", "<answer>",
    '{"name": "crop", "arguments": {"x": 1}}', '{"name": "', "{'a': ", "{", "}", "[", "]", '"', "'", "\\", "\\u", "\\ud800", ",", ":", "=",
    "crop(", ")", "<function=crop>", "</function>", "<parameter=x>", "</parameter>", "[TOOL_CALLS]", "<|python_tag|>", "```json\n", "```",
    "Action: crop\nAction Input: ", "<arg_key>", "</arg_key>", "<arg_value>", "＜think＞", "＜/think＞", "｛", "｝", "“", "”", "<|im_end|>",
    "\ud800", "\x00", "\n", " ", "\u2028", "é", "😀", "1e999", "-1", "true", "None", "NaN", "text",
]  # fmt: skip
replies = st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=8)), max_size=30).map("".join)


@settings(max_examples=200, deadline=None)
@given(replies, replies, st.booleans(), st.sampled_from(["stop", "length"]))
def test_any_reply_has_one_reading(text: str, reasoning: str, plain: bool, finish: str) -> None:
    for mode in ("lenient", "strict"):
        check(parse(Reply(text, reasoning if plain else "", finish_reason=finish), mode, plain_answer=plain))


@settings(max_examples=100, deadline=None)
@given(replies, st.lists(st.tuples(st.text(max_size=6), replies), min_size=1, max_size=3), st.booleans())
def test_any_native_call_has_one_reading(text: str, native: list[tuple[str, str]], cut: bool) -> None:
    calls = tuple(NativeCall("c", name, arguments) for name, arguments in native)
    check(parse(Reply(text, tool_calls=calls, finish_reason="length" if cut else "stop")))


@settings(max_examples=200, deadline=None)
@given(replies)
def test_nothing_inside_the_reasoning_is_ever_run(text: str) -> None:
    inner = text.replace("</think", "").replace("＜/think", "").replace("</ think", "")
    for reply in (Reply(f"<think>{inner}"), Reply("", reasoning=text)):
        parsed = parse(reply)
        assert parsed.call is None and parsed.response is None


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**12), 10**12)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
names = st.from_regex(r"[a-z_][a-z0-9_]{0,20}", fullmatch=True)


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=60), names, st.dictionaries(st.text(max_size=8), values, max_size=4))
def test_what_is_rendered_reads_back_exactly(thought: str, name: str, arguments: dict[str, Any]) -> None:
    call = ToolCall(name=name, arguments=arguments)
    parsed = parse(Reply(render_call(thought, call)))
    assert parsed.well_formed and parsed.call == call
    assert parsed.thought == disarm(thought).strip()
    response = f"x {thought}".strip()
    parsed = parse(Reply(render_response(thought, response)), "strict")
    assert parsed.well_formed and parsed.response == disarm(response).strip()


@settings(max_examples=200, deadline=None)
@given(values)
def test_json_reads_as_itself(value: Any) -> None:
    text = json.dumps(value, ensure_ascii=False)
    read, end = read_value(text)
    assert end == len(text)
    if isinstance(value, float):
        assert math.isclose(read, value)
    elif isinstance(value, list | dict):
        assert balanced_end(text, 0) == len(text)


@pytest.mark.parametrize("unit", ["[", "{'a':", "crop(a=", "｛a："])
def test_nesting_is_bounded(unit: str) -> None:
    with pytest.raises(Unreadable):
        read_value(unit * (MAX_DEPTH + 2) if "crop" not in unit else "[" * 50)
    check(parse(Reply("<tool_call>" + unit * 100_000)))


@pytest.mark.parametrize(
    "unit",
    ['<tool_call>{"', "<tool_call>{}", "</think>", "<think>", "<response>", '{"name": "a", "arguments": {"q": "', "'", "\\", "<function=a>", "Action: a\nAction Input: ", " ", "```\n{", "<arg_key>", "[TOOL_CALLS]"],
)  # fmt: skip
@pytest.mark.parametrize("before", ["", '<think>a</think><tool_call>{"name": "', "<tool_call>{'a': '"])
def test_hostile_replies_take_linear_time(unit: str, before: str) -> None:
    text = before + unit * (200_000 // len(unit))
    started = time.process_time()
    check(parse(Reply(text)))
    assert time.process_time() - started < 2.0  # quadratic work would take minutes


def test_a_megabyte() -> None:
    words = "the bridge <b>opened</b> in 1932, " * 30_000
    started = time.process_time()
    assert parse(Reply(f"<think>{words}</think><response>{words}</response>")).well_formed
    body = json.dumps({"name": "text_search", "arguments": {"q": words}})
    assert parse(Reply(f"<think>{words}</think><tool_call>{body}</tool_call>")).well_formed
    assert parse(Reply(words)).failure is not None
    assert time.process_time() - started < 4.0


def test_blocks_of_a_reply() -> None:
    blocks = scan('a <think>b</think> <tool_call name="crop">{}</tool_call> c')
    assert [(b.kind, b.inner, b.attribute) for b in blocks] == [
        ("text", "a", ""), ("think", "b", ""), ("call", "{}", "crop"), ("text", "c", ""),
    ]  # fmt: skip
