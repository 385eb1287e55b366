"""The client against a stub server: both ways of calling tools, and every kind of trouble."""

import base64
import io
import json
import time
from pathlib import Path

import pytest
from agent_fakes import SCHEMAS, FakeTools, picture, task
from PIL import Image
from stub_openai import StubOpenAI, Trouble, completion

from opensearch_vl.agent.environment import Environment
from opensearch_vl.agent.rollout import rollout
from opensearch_vl.agent.settings import AgentSettings
from opensearch_vl.backends.chat_wire import DataUrls, fit_area
from opensearch_vl.backends.openai_chat import OpenAIChat, Price
from opensearch_vl.errors import (
    ConfigError,
    ModelContextFull,
    ModelError,
    ModelKeyRefused,
    ModelRateLimited,
    ModelRefused,
    ModelReplyInvalid,
    ModelUnreachable,
)
from opensearch_vl.images import ImageStore
from opensearch_vl.protocols import ImagePart, Message, NativeCall, Sampling, TextPart
from opensearch_vl.types import Termination

HELLO = (Message("user", (TextPart("hello"),)),)


@pytest.fixture(autouse=True)
def _no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OSVL_API_KEY", "OPENAI_API_KEY", "OSVL_BASE_URL", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def store(tmp_path: Path) -> ImageStore:
    return ImageStore(tmp_path)


async def ask(
    server: StubOpenAI, store: ImageStore, messages: tuple[Message, ...] = HELLO, **options: object
) -> object:
    sampling = options.pop("sampling", Sampling())
    tools = options.pop("tools", ())
    chat = OpenAIChat("stub", base_url=server.url, store=store, **{"max_retries": 0, **options})
    try:
        return await chat.complete(messages, tools, sampling, seed=2**62 + 5)
    finally:
        await chat.aclose()


async def test_a_plain_reply(store: ImageStore) -> None:
    async with StubOpenAI([completion("hi", reasoning_content="because")]) as server:
        sampling = Sampling(temperature=0.3, top_p=0.9, max_tokens=77, stop=("</tool_call>",))
        reply = await ask(server, store, sampling=sampling, price=Price(1.0, 10.0), extra_body={"x_flag": True})
    assert (reply.content, reply.reasoning, reply.finish_reason) == ("hi", "because", "stop")
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens) == (100, 20)
    assert reply.usage.cost == pytest.approx(3e-4)
    sent = server.requests[0]
    assert (sent["temperature"], sent["top_p"], sent["max_tokens"]) == (0.3, 0.9, 77)
    assert sent["seed"] == 5 and sent["stop"] == ["</tool_call>"] and sent["x_flag"] is True
    assert "tools" not in sent and sent["messages"] == [{"role": "user", "content": "hello"}]


async def test_the_other_names_of_reasoning_and_content_in_parts(store: ImageStore) -> None:
    script = [
        completion([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], reasoning="r"),
        completion(None),
    ]
    async with StubOpenAI(script) as server:
        reply = await ask(server, store)
        assert (reply.content, reply.reasoning) == ("ab", "r")
    async with StubOpenAI([completion(None)]) as server:
        assert (await ask(server, store)).content == ""


@pytest.mark.parametrize(
    ("said", "means"), [("MAX_TOKENS", "length"), ("length", "length"), (None, "stop"), ("tool_calls", "tool_calls")]
)
async def test_reasons_to_stop(said: str | None, means: str, store: ImageStore) -> None:
    line = completion("hi")
    line["choices"][0]["finish_reason"] = said
    async with StubOpenAI([line]) as server:
        assert (await ask(server, store)).finish_reason == means


async def test_a_stop_string_that_the_server_cut_off_is_put_back(store: ImageStore) -> None:
    line = completion('<tool_call>{"name": "a"}')
    line["choices"][0]["stop_reason"] = "</tool_call>"
    async with StubOpenAI([line]) as server:
        reply = await ask(server, store, sampling=Sampling(stop=("</tool_call>",)))
    assert reply.content.endswith("}</tool_call>")


async def test_pictures_are_data_urls_within_the_limit(store: ImageStore) -> None:
    small, large = picture(store, 60, 40), picture(store, 3000, 1000)
    messages = (Message("user", (ImagePart(small), TextPart("and"), ImagePart(large))),)
    async with StubOpenAI([completion("ok")]) as server:
        await ask(server, store, messages, max_pixels=30_000)
    first, text, second = server.requests[0]["messages"][0]["content"]
    assert text == {"type": "text", "text": "and"}

    def decoded(part: dict[str, dict[str, str]]) -> Image.Image:
        header, data = part["image_url"]["url"].split(",")
        assert header == "data:image/png;base64"
        return Image.open(io.BytesIO(base64.b64decode(data)))

    assert decoded(first).size == (60, 40)
    width, height = decoded(second).size
    assert width * height <= 30_000 and width / height == pytest.approx(3, rel=0.02)


@pytest.mark.parametrize(("size", "limit"), [((100, 100), 100), ((5000, 30), 1000), ((1, 10_000), 50), ((7, 5), 35)])
def test_fit_area_keeps_within_the_limit(size: tuple[int, int], limit: int) -> None:
    width, height = fit_area(*size, limit)
    assert 1 <= width * height <= max(limit, max(width, height)) and width <= size[0] and height <= size[1]
    assert (width, height) == size if size[0] * size[1] <= limit else True


def test_data_urls_are_kept_within_bounds(store: ImageStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("opensearch_vl.backends.chat_wire._CACHED_BYTES", 1000)
    urls = DataUrls(store, 10**6)
    refs = [picture(store, 20 + n, 20) for n in range(30)]
    for ref in refs:
        urls.keep(ref, urls.encode(ref))
    assert urls.cached(refs[-1]) is not None and urls.cached(refs[0]) is None
    assert urls._size == sum(len(url) for url in urls._cache.values()) <= 1000


async def test_native_calls_and_pictures_of_tools_in_a_following_user_turn(store: ImageStore) -> None:
    ref = picture(store)
    messages = (
        Message("system", (TextPart("s"),)),
        Message("user", (TextPart("q"),)),
        Message("assistant", (), tool_calls=(NativeCall("call00000", "crop", "{}"),)),
        Message("tool", (TextPart("Cropped."), ImagePart(ref)), tool_call_id="call00000"),
    )
    async with StubOpenAI(
        [completion(None, tool_calls=[("crop", {"image": "img_1"})], finish_reason="tool_calls")]
    ) as server:
        reply = await ask(server, store, messages, tools=SCHEMAS)
    assert reply.tool_calls == (NativeCall("srv-0", "crop", '{"image": "img_1"}'),)
    sent = server.requests[0]
    assert [tool["function"]["name"] for tool in sent["tools"]] == ["text_search", "crop"]
    roles = [message["role"] for message in sent["messages"]]
    assert roles == ["system", "user", "assistant", "tool", "user"]
    assert sent["messages"][2]["content"] is None and sent["messages"][3]["content"] == "Cropped."
    assert [part["type"] for part in sent["messages"][4]["content"]] == ["text", "image_url"]


async def test_arguments_that_come_decoded(store: ImageStore) -> None:
    line = completion(None, tool_calls=[("crop", "{}")])
    line["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"] = {"image": "img_1"}
    line["choices"][0]["message"]["tool_calls"][0]["id"] = None
    async with StubOpenAI([line]) as server:
        reply = await ask(server, store, tools=SCHEMAS)
    assert reply.tool_calls == (NativeCall("call0", "crop", '{"image": "img_1"}'),)


TROUBLE = {
    "401": (Trouble(401, '{"error": {"message": "bad key sk-abcdefghijklmnopqrst"}}'), ModelKeyRefused, "OSVL_API_KEY"),
    "403": (Trouble(403), ModelKeyRefused, "key"),
    "404": (Trouble(404, '{"error": {"message": "no such model"}}'), ModelRefused, "no such model"),
    "400": (Trouble(400, '{"error": {"message": "no pictures here"}}'), ModelRefused, "no pictures"),
    "422 without a body": (Trouble(422, ""), ModelRefused, "422"),
    "429": (Trouble(429), ModelRateLimited, "slow down"),
    "quota": (Trouble(429, '{"error": {"message": "x", "code": "insufficient_quota"}}'), ModelRefused, "credit"),
    "500": (Trouble(500), ModelUnreachable, "something broke"),
    "502 html": (Trouble(502, "<html>Bad Gateway</html>", content_type="text/html"), ModelUnreachable, "502"),
    "slow": (Trouble(200, delay_s=5), ModelUnreachable, "within 0.2 s"),
    "dropped": (Trouble(drop=True), ModelUnreachable, "No connection"),
    "garbage": (Trouble(200, "}{ not json"), ModelReplyInvalid, "not json"),
    "html": (Trouble(200, "<html>hello</html>", content_type="text/html"), ModelReplyInvalid, "html"),
    "empty": (Trouble(200, ""), ModelReplyInvalid, "not a chat completion"),
    "no choices": (Trouble(200, '{"choices": []}'), ModelReplyInvalid, "choices"),
    "a list": (Trouble(200, "[1, 2]"), ModelReplyInvalid, "not a chat completion"),
    "error with 200": (Trouble(200, '{"error": {"message": "overloaded"}}'), ModelReplyInvalid, "overloaded"),
    "binary": (Trouble(200, "\x00\x01\u2028"), ModelReplyInvalid, "not a chat completion"),
}  # fmt: skip


@pytest.mark.parametrize("name", TROUBLE)
async def test_trouble_is_one_clear_line(name: str, store: ImageStore) -> None:
    trouble, kind, word = TROUBLE[name]
    async with StubOpenAI([trouble]) as server:
        with pytest.raises(ModelError) as caught:
            await ask(server, store, timeout_s=0.2 if name == "slow" else 30)
    assert type(caught.value) is kind
    assert word in str(caught.value) and "\n" not in str(caught.value) and len(str(caught.value)) < 700
    assert "sk-abc" not in str(caught.value)


TOO_LONG = {  # how servers say it; the last part tells which field of the error decides
    "OpenAI, by code": {"message": "9 > 8", "type": "invalid_request_error", "code": "context_length_exceeded"},
    "llama.cpp, by type": {
        "code": 400, "message": "x", "type": "exceed_context_size_error", "n_prompt_tokens": 9412, "n_ctx": 8192,
    },
    "vLLM, by parameter": {"message": "x", "type": "BadRequestError", "param": "input_tokens", "code": 400},
    "vLLM, by the first of two parameters": {
        "message": "x", "type": "BadRequestError", "param": "input_tokens, max_tokens", "code": 400,
    },
    "older vLLM, by message": {
        "object": "error", "type": "BadRequestError", "param": None, "code": 400,
        "message": "This model's maximum context length is 16384 tokens. However, you requested 122946 tokens.",
    },
    "older vLLM with pictures, by message": {
        "message": "The decoder prompt (length 21535) is longer than the maximum model length of 16384.", "code": 400,
    },
    "SGLang, by message": {
        "message": "The input (150000 tokens) is longer than the model's context length (131072 tokens).", "code": 400,
    },
    "SGLang, prompt and reply, by message": {
        "message": "Requested token count exceeds the model's maximum context length of 8192 tokens. You requested …",
    },
    "older llama.cpp, by message": {
        "code": 400, "type": "invalid_request_error",
        "message": "the request exceeds the available context size. try increasing the context size",
    },
}  # fmt: skip
NOT_TOO_LONG = {
    "another code": {"message": "x", "code": "invalid_value", "param": "temperature"},
    "fields of the wrong kind": {"message": ["x"], "code": {"a": 1}, "type": [], "param": 5},
    "a question about the context": {"message": "Unknown field context_length_exceeded; see maximum context length"},
}


@pytest.mark.parametrize("flat", [False, True])
@pytest.mark.parametrize("name", TOO_LONG)
async def test_a_conversation_too_long_for_the_server_ends_by_its_length(
    name: str, flat: bool, store: ImageStore
) -> None:
    refusal = Trouble(400, json.dumps(TOO_LONG[name] if flat else {"error": TOO_LONG[name]}))
    call = completion('<think>look</think><tool_call>{"name": "crop", "arguments": {"image": "img_1"}}</tool_call>')
    env = Environment(FakeTools(store), AgentSettings(), store)
    async with StubOpenAI([call, refusal]) as server:
        chat = OpenAIChat("stub", base_url=server.url, store=store, max_retries=3)
        done = await rollout(task(store), chat, env, seed=1)
        await chat.aclose()
    assert done.termination is Termination.TOKENS and len(done.steps) == 1
    assert "too long for stub" in done.error and len(server.requests) == 2


@pytest.mark.parametrize("name", NOT_TOO_LONG)
async def test_other_refusals_are_errors(name: str, store: ImageStore) -> None:
    async with StubOpenAI([Trouble(400, json.dumps({"error": NOT_TOO_LONG[name]}))]) as server:
        with pytest.raises(ModelRefused) as caught:
            await ask(server, store)
    assert not isinstance(caught.value, ModelContextFull)


@pytest.mark.parametrize("status", [429, 500])
async def test_a_known_sentence_counts_only_with_the_status_of_a_refused_request(
    status: int, store: ImageStore
) -> None:
    body = json.dumps({"error": TOO_LONG["SGLang, by message"]})
    async with StubOpenAI([Trouble(status, body)]) as server:
        with pytest.raises(ModelError) as caught:
            await ask(server, store)
    assert not isinstance(caught.value, ModelContextFull)


async def test_nobody_listens(store: ImageStore) -> None:
    async with StubOpenAI([completion("x")]) as server:
        url = server.url
    chat = OpenAIChat("stub", base_url=url, store=store, max_retries=0)
    with pytest.raises(ModelUnreachable, match="running"):
        await chat.complete(HELLO)
    with pytest.raises(ModelUnreachable):
        await chat.models()
    await chat.aclose()


async def test_a_server_that_cannot_be_connected_to_in_time(store: ImageStore) -> None:
    import httpx2
    import openai

    chat = OpenAIChat("stub", base_url="http://127.0.0.1:9/v1", store=store)
    slow = openai.APITimeoutError(request=httpx2.Request("POST", chat.base_url))
    slow.__cause__ = httpx2.ConnectTimeout("too slow")
    assert "within 30 s" in str(chat._explain(slow)) and isinstance(chat._explain(slow), ModelUnreachable)


async def test_retries_are_bounded_and_obey_retry_after(store: ImageStore) -> None:
    busy = Trouble(429, headers={"retry-after-ms": "120"})
    async with StubOpenAI([busy, Trouble(503, headers={"retry-after-ms": "80"}), completion("at last")]) as server:
        started = time.perf_counter()
        assert (await ask(server, store, max_retries=3)).content == "at last"
        assert time.perf_counter() - started >= 0.2
        assert len(server.requests) == 3
    async with StubOpenAI([Trouble(500, headers={"retry-after-ms": "1"})]) as server:
        with pytest.raises(ModelUnreachable, match="3 tries"):
            await ask(server, store, max_retries=2)
        assert len(server.requests) == 3
    async with StubOpenAI([Trouble(400)]) as server:
        with pytest.raises(ModelRefused):
            await ask(server, store, max_retries=3)
        assert len(server.requests) == 1


async def test_keys(store: ImageStore, monkeypatch: pytest.MonkeyPatch) -> None:
    async with StubOpenAI([completion("x")], models=["b", "a"]) as server:
        await ask(server, store)
        monkeypatch.setenv("OPENAI_API_KEY", "from-openai")
        await ask(server, store)
        monkeypatch.setenv("OSVL_API_KEY", "from-osvl")
        await ask(server, store)
        chat = OpenAIChat("stub", base_url=server.url, store=store)
        assert await chat.models() == ["a", "b"]
        await chat.aclose()
    assert [h["Authorization"] for h in server.headers] == [
        "Bearer none", "Bearer from-openai", "Bearer from-osvl", "Bearer from-osvl",
    ]  # fmt: skip


def test_what_is_wrong_from_the_start(store: ImageStore, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ModelKeyRefused, match="OPENAI_API_KEY"):
        OpenAIChat("gpt", store=store)
    for url in ("localhost:8000", "ftp://x/v1", "http://", "file:///etc/passwd"):
        with pytest.raises(ConfigError):
            OpenAIChat("x", store=store, base_url=url)
    monkeypatch.setenv("OSVL_BASE_URL", "http://127.0.0.1:9/v1")
    assert OpenAIChat("x", store=store).base_url == "http://127.0.0.1:9/v1"


@pytest.mark.parametrize("layout", ["sft", "rl", "infer", "native_tools"])
async def test_a_whole_rollout_over_http(layout: str, store: ImageStore) -> None:
    if layout == "native_tools":
        script = [
            completion(None, tool_calls=[("crop", {"image": "img_1"})], reasoning_content="look"),
            completion("1970", reasoning_content="done"),
        ]
    else:
        script = [
            completion('<think>look</think><tool_call>{"name": "crop", "arguments": {"image": "img_1"}}</tool_call>'),
            completion("<response>1970</response>", reasoning_content="done"),
        ]
    env = Environment(FakeTools(store), AgentSettings(layout=layout), store)
    async with StubOpenAI(script) as server:
        chat = OpenAIChat("stub", base_url=server.url, store=store)
        done = await rollout(task(store), chat, env, seed=1)
        await chat.aclose()
    assert done.termination is Termination.ANSWERED and done.response == "1970"
    assert [step.well_formed for step in done.steps] == [True, True]
    assert done.steps[0].thought == "look" and done.steps[1].thought == "done"
    pictures = [p for m in server.requests[1]["messages"] if isinstance(m["content"], list) for p in m["content"]]
    assert sum(part["type"] == "image_url" for part in pictures) == 2


async def test_one_client_serves_several_loops_one_after_the_other(store: ImageStore) -> None:
    import asyncio

    async with StubOpenAI([completion("x")]) as server:
        chat = OpenAIChat("stub", base_url=server.url, store=store)

        async def once() -> str:
            try:
                return (await chat.complete(HELLO)).content
            finally:
                await chat.aclose()

        assert await asyncio.to_thread(lambda: asyncio.run(once())) == "x"
        assert await asyncio.to_thread(lambda: asyncio.run(once())) == "x"
        assert await once() == "x"
