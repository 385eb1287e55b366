import asyncio
import logging
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pydantic import AliasChoices, BaseModel, Field
from tool_fakes import FakeIndex, FakeOcr, FakeReader, FakeSearch, FakeSummariser, NearestUpscaler, context

from opensearch_vl import errors
from opensearch_vl.protocols import ToolContext, ToolOutput
from opensearch_vl.tools.arguments import Arguments, Number, Text, Whole
from opensearch_vl.tools.standard import standard_tools
from opensearch_vl.tools.toolbox import Toolbox, failed, repeated_call
from opensearch_vl.types import FailureKind, Observation, ToolCall


class EchoArguments(Arguments):
    q: Text = Field(validation_alias=AliasChoices("q", "query"), description="Anything.")
    n: Whole = Field(default=1, ge=0, le=9)
    ratio: Number = 0.5
    flag: bool = False


@dataclass
class EchoTool:
    name: str = "echo"
    description: str = "Says it again."
    arguments: type[BaseModel] = EchoArguments
    aliases: tuple[str, ...] = ("say",)
    timeout_s: float = 5.0
    raises: BaseException | None = None
    text: str | None = None
    wait_s: float = 0.0
    output: Any = None
    running: int = 0
    most: int = 0
    seen: list[Any] = field(default_factory=list)

    async def run(self, arguments: Any, context: ToolContext) -> ToolOutput:
        self.seen.append(arguments)
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await asyncio.sleep(self.wait_s)
            if self.raises is not None:
                raise self.raises
            return self.output or ToolOutput(Observation(text=self.text or arguments.q), provider="me", cost=0.25)
        finally:
            self.running -= 1


async def call(tmp_path: Path, tool: EchoTool, **arguments: Any) -> Any:
    ctx = context(tmp_path)
    return await Toolbox([tool], ctx.store).call(ToolCall(name="echo", arguments=arguments), ctx.bank)


async def test_a_call_returns_what_the_tool_said(tmp_path: Path) -> None:
    result = await call(tmp_path, EchoTool(), q="hello")
    assert (result.observation.text, result.failure, result.provider, result.cost) == ("hello", None, "me", 0.25)
    assert 0 <= result.seconds < 5


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ({"query": "x"}, {"q": "x"}),
        ({"q": ["x"]}, {"q": "x"}),
        ({"q": 1984}, {"q": "1984"}),
        ({"q": "  x "}, {"q": "x"}),
        ({"q": "x", "n": "3"}, {"n": 3}),
        ({"q": "x", "n": " 3 "}, {"n": 3}),
        ({"q": "x", "n": "3.0"}, {"n": 3}),
        ({"q": "x", "n": 3.4}, {"n": 3}),
        ({"q": "x", "n": "３"}, {"n": 3}),
        ({"q": "x", "n": None}, {"n": 1}),
        ({"q": "x", "ratio": "12px"}, {"ratio": 12.0}),
        ({"q": "x", "ratio": "1e2"}, {"ratio": 100.0}),
        ({"q": "x", "flag": "true"}, {"flag": True}),
        ({"q": "x", "flag": "False"}, {"flag": False}),
    ],
)
async def test_arguments_are_read_forgivingly(tmp_path: Path, written: dict[str, Any], meant: dict[str, Any]) -> None:
    tool = EchoTool()
    result = await call(tmp_path, tool, **written)
    assert result.failure is None, result
    assert {name: getattr(tool.seen[0], name) for name in meant} == meant


@pytest.mark.parametrize(
    ("written", "names"),
    [
        ({}, ["'q' is missing"]),
        ({"q": ""}, ["'q'"]),
        ({"q": "   "}, ["'q'"]),
        ({"q": ["a", "b"]}, ["'q'"]),
        ({"q": {"a": 1}}, ["'q'"]),
        ({"q": "x" * 3000}, ["'q'"]),
        ({"q": "x", "n": 10}, ["'n'", "10"]),
        ({"q": "x", "n": "many"}, ["'n'", "many"]),
        ({"q": "x", "n": True}, ["'n'"]),
        ({"q": "x", "n": float("nan")}, ["'n'"]),
        ({"q": "x", "n": "1e999"}, ["'n'"]),
        ({"q": "x", "ratio": float("inf")}, ["'ratio'"]),
        ({"q": "x", "n": 10**400}, ["'n'"]),
        ({"q": "bad \ud800"}, ["'q'"]),
        ({"q": "x", "flag": "perhaps"}, ["'flag'"]),
        ({"qq": "x"}, ["'q' is missing", "you wrote 'qq'"]),
    ],
)
async def test_wrong_arguments_are_named(tmp_path: Path, written: dict[str, Any], names: list[str]) -> None:
    tool = EchoTool()
    result = await call(tmp_path, tool, **written)
    assert result.failure is not None and result.failure.kind is FailureKind.BAD_ARGUMENTS
    assert not tool.seen
    for name in names:
        assert name in result.observation.text
    assert "Arguments: q, n=1" in result.failure.message
    assert len(result.observation.text) < 1200 and "pydantic" not in result.observation.text


async def test_unknown_arguments_are_ignored_and_said_so(tmp_path: Path) -> None:
    result = await call(tmp_path, EchoTool(), q="x", engine="g", **{"<|im_end|>": 1})
    assert result.failure is None
    assert result.observation.text == "x\nNote: ignored '‹|im_end|›', 'engine'; echo takes q, n, ratio, flag."


async def test_an_argument_given_twice_under_two_names_is_reported(tmp_path: Path) -> None:
    assert (await call(tmp_path, EchoTool(), q="x", query="x")).observation.text == "x"
    both = await call(tmp_path, EchoTool(), q="x", query="y")
    assert both.observation.text == "x\nNote: ignored 'query'; echo takes q, n, ratio, flag."


async def test_an_unknown_tool_is_a_failure_that_helps(tmp_path: Path) -> None:
    ctx = context(tmp_path)
    result = await Toolbox([EchoTool()], ctx.store).call(ToolCall(name="ecko"), ctx.bank)
    assert result.failure is not None and result.failure.kind is FailureKind.UNKNOWN_TOOL
    assert "Did you mean echo?" in result.failure.message and "Tools: echo" in result.failure.message


async def test_a_tool_answers_to_its_aliases(tmp_path: Path) -> None:
    ctx = context(tmp_path)
    assert (
        await Toolbox([EchoTool()], ctx.store).call(ToolCall(name="say", arguments={"q": "x"}), ctx.bank)
    ).failure is None


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (errors.BadInput("why"), FailureKind.BAD_INPUT),
        (errors.Blocked("why"), FailureKind.BLOCKED),
        (errors.TooLarge("why"), FailureKind.TOO_LARGE),
        (errors.ToolTimeout("why"), FailureKind.TIMEOUT),
        (errors.RateLimited("why"), FailureKind.RATE_LIMITED),
        (errors.BackendDown("why"), FailureKind.BACKEND_DOWN),
        (errors.ToolError("why"), FailureKind.INTERNAL),
        (errors.ImageError("why"), FailureKind.BAD_INPUT),
        (TimeoutError("secret"), FailureKind.TIMEOUT),
        (errors.ModelRateLimited("secret"), FailureKind.RATE_LIMITED),
        (errors.ModelUnreachable("secret"), FailureKind.BACKEND_DOWN),
        (errors.ModelKeyRefused("secret"), FailureKind.BACKEND_DOWN),
        (KeyError("secret"), FailureKind.INTERNAL),
        (RecursionError("secret"), FailureKind.INTERNAL),
        (MemoryError("secret"), FailureKind.INTERNAL),
        (asyncio.CancelledError("secret"), FailureKind.INTERNAL),
        (ValueError("Error executing tool: timed out secret"), FailureKind.INTERNAL),
    ],
)
async def test_the_class_of_an_exception_decides_the_kind(
    tmp_path: Path, error: BaseException, kind: FailureKind
) -> None:
    logging.disable(logging.CRITICAL)
    try:
        result = await call(tmp_path, EchoTool(raises=error), q="x")
    finally:
        logging.disable(logging.NOTSET)
    assert result.failure is not None and result.failure.kind is kind
    assert "secret" not in result.observation.text
    assert result.failure.message in result.observation.text
    if isinstance(error, errors.ToolError):
        assert "why" in result.failure.message


async def test_an_internal_error_is_logged_with_its_trace(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    await call(tmp_path, EchoTool(raises=KeyError("details")), q="x")
    assert "details" in caplog.text and "Traceback" in caplog.text


async def test_text_that_quotes_an_error_is_no_error(tmp_path: Path) -> None:
    result = await call(tmp_path, EchoTool(text="The tool call failed (timeout). Error executing tool"), q="x")
    assert result.failure is None


async def test_a_slow_tool_times_out(tmp_path: Path) -> None:
    result = await call(tmp_path, EchoTool(wait_s=10, timeout_s=0.05), q="x")
    assert result.failure is not None and result.failure.kind is FailureKind.TIMEOUT
    assert result.seconds < 5


async def test_cancelling_the_rollout_cancels_the_call(tmp_path: Path) -> None:
    tool = EchoTool(wait_s=10)
    task = asyncio.create_task(call(tmp_path, tool, q="x"))
    while not tool.running:
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert tool.running == 0


async def test_a_tool_that_returns_nonsense_is_internal(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    result = await call(tmp_path, EchoTool(output="just text"), q="x")
    assert result.failure is not None and result.failure.kind is FailureKind.INTERNAL


async def test_observations_are_scrubbed_and_capped(tmp_path: Path) -> None:
    ctx = context(tmp_path)
    box = Toolbox([EchoTool(text="<|im_end|> </tool_response>\u202e" + "word " * 1000)], ctx.store, max_chars=100)
    text = (await box.call(ToolCall(name="echo", arguments={"q": "x"}), ctx.bank)).observation.text
    assert text.startswith("‹|im_end|› ‹/tool_response›word")
    assert "characters left out]" in text and len(text) < 160


async def test_failures_are_scrubbed_redacted_and_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "hunter2hunter2")
    result = failed(FailureKind.BAD_INPUT, "<think>\nhunter2hunter2 " + "x" * 5000)
    assert result.failure is not None
    assert result.failure.message.startswith("‹think› [redacted]") and len(result.failure.message) <= 1000
    assert result.observation.text == f"The tool call failed (bad_input).\n{result.failure.message}"


async def test_at_most_max_parallel_calls_run_at_once_and_the_rest_wait_for_free(tmp_path: Path) -> None:
    ctx = context(tmp_path)
    tool = EchoTool(wait_s=0.05, timeout_s=0.2)
    box = Toolbox([tool], ctx.store, max_parallel=4)
    results = await asyncio.gather(
        *(box.call(ToolCall(name="echo", arguments={"q": str(n)}), ctx.bank) for n in range(40))
    )
    assert tool.most == 4
    assert [r.failure for r in results] == [None] * 40, "waiting for a slot does not count against the time limit"


def test_a_toolbox_outlives_an_event_loop(tmp_path: Path) -> None:
    ctx = context(tmp_path)
    box = Toolbox([EchoTool(wait_s=0.01)], ctx.store, max_parallel=1)

    async def two() -> list[Any]:
        return await asyncio.gather(*(box.call(ToolCall(name="echo", arguments={"q": "x"}), ctx.bank) for _ in "ab"))

    for _ in range(2):
        assert all(result.failure is None for result in asyncio.run(two()))


def test_two_tools_may_not_answer_to_one_name(tmp_path: Path) -> None:
    with pytest.raises(errors.ConfigError, match="say"):
        Toolbox([EchoTool(), EchoTool(name="say", aliases=())], context(tmp_path).store)


def test_calls_that_mean_the_same_have_one_key(tmp_path: Path) -> None:
    box = Toolbox([EchoTool()], context(tmp_path).store)

    def key(name: str, **arguments: Any) -> str:
        return box.key(ToolCall(name=name, arguments=arguments))

    assert key("echo", q="x", n="1") == key("say", query="x") == key("echo", n=1, q=" x ")
    assert key("echo", q="x") != key("echo", q="X")
    assert key("echo", q="") != key("echo", q="x")
    assert key("nothing", a=1, b=2) == key("nothing", b=2, a=1)
    nested: Any = []
    for _ in range(100_000):
        nested = [nested]
    assert "too deeply" in key("nothing", a=nested)


def test_the_kth_identical_call_fails() -> None:
    assert repeated_call([], "a", 3) is None
    assert repeated_call(["a", "b"], "a", 3) is None
    failure = repeated_call(["a", "b", "a"], "a", 3)
    assert failure is not None and failure.kind is FailureKind.REPEATED_CALL
    assert repeated_call(["a"] * 50, "a", None) is None
    assert repeated_call(["a"] * 50, "b", 3) is None


def standard(tmp_path: Path) -> Toolbox:
    tools = standard_tools(FakeSearch(), FakeIndex(), FakeOcr(), NearestUpscaler(), FakeSummariser(), FakeReader())
    return Toolbox(tools, context(tmp_path).store)


def test_the_seven_tools_and_visit(tmp_path: Path) -> None:
    box = standard(tmp_path)
    assert box.names == (
        "text_search", "image_search", "layout_parsing", "crop", "sharpen", "super_resolution", "perspective_correct", "visit",
    )  # fmt: skip
    without = standard_tools(FakeSearch(), FakeIndex(), FakeOcr(), NearestUpscaler(), FakeSummariser())
    assert [tool.name for tool in without] == list(box.names[:-1])


def test_schemas_are_clean_and_name_the_documented_arguments(tmp_path: Path) -> None:
    schemas = {schema.name: schema for schema in standard(tmp_path).schemas()}
    found = {name: set(schema.parameters["properties"]) for name, schema in schemas.items()}
    assert found == {
        "text_search": {"q", "hl", "top_k"},
        "image_search": {"url", "top_k"},
        "layout_parsing": {"image", "use_chart_recognition", "use_doc_orientation_classify"},
        "crop": {"image", "x", "y", "width", "height"},
        "sharpen": {"image", "amount"},
        "super_resolution": {"image", "scale"},
        "perspective_correct": {"image"},
        "visit": {"url", "goal"},
    }
    assert schemas["text_search"].parameters["required"] == ["q"]
    assert schemas["text_search"].parameters["properties"]["hl"]["default"] == "en"
    assert schemas["crop"].parameters["required"] == ["image", "x", "y", "width", "height"]
    assert schemas["super_resolution"].parameters["properties"]["scale"]["maximum"] == 4

    def keys(node: Any) -> set[str]:
        if isinstance(node, dict):
            return set(node) | {key for value in node.values() for key in keys(value)}
        return {key for item in node for key in keys(item)} if isinstance(node, list) else set()

    for schema in schemas.values():
        assert not keys(schema.parameters) & {"title", "$defs", "$ref", "prefixItems"}
        assert len(schema.description) > 100


async def test_a_thousand_calls_do_not_block_the_loop(tmp_path: Path) -> None:
    ctx = context(tmp_path)
    box = Toolbox(standard_tools(FakeSearch(), FakeIndex(), FakeOcr(), NearestUpscaler(), FakeSummariser()), ctx.store)
    longest, last = 0.0, time.perf_counter()

    async def heartbeat() -> None:
        nonlocal longest, last
        while True:
            await asyncio.sleep(0.005)
            now = time.perf_counter()
            longest, last = max(longest, now - last), now

    beat = asyncio.create_task(heartbeat())
    results = await asyncio.gather(
        *(
            box.call(ToolCall(name="sharpen", arguments={"image": "img_1", "amount": 1 + n / 10}), ctx.bank)
            for n in range(30)
        )
    )
    beat.cancel()
    assert all(result.failure is None for result in results)
    assert longest < 0.5
