"""`Agent.ask` and `osvl ask`, with real tools and a stub server."""

import asyncio
import gc
import importlib
import io
import json
import os
import signal
import threading
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from agent_fakes import FakeTools, Script, answer, say
from PIL import Image
from stub_openai import Line, StubOpenAI, Trouble, completion
from typer.testing import CliRunner

from opensearch_vl import Agent, registry
from opensearch_vl.agent.settings import AgentSettings
from opensearch_vl.agent.sources import Source, sources_of
from opensearch_vl.backends.openai_chat import OpenAIChat
from opensearch_vl.cli import ask as ask_module
from opensearch_vl.cli.ask import layout_of, printable
from opensearch_vl.cli.common import run_guarded
from opensearch_vl.errors import ConfigError, ImageError, OsvlError, UsageError
from opensearch_vl.images import ImageStore
from opensearch_vl.protocols import Reply
from opensearch_vl.tools.toolbox import Toolbox
from opensearch_vl.tools.visual import CropTool, SharpenTool
from opensearch_vl.types import Observation, Step, Termination, ToolCall, ToolResult, Trajectory


@pytest.fixture(autouse=True)
def _no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OSVL_API_KEY", "OPENAI_API_KEY", "OSVL_BASE_URL", "OPENAI_BASE_URL", "OSVL_MODEL"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def photo(tmp_path: Path) -> Path:
    file = tmp_path / "photo.png"
    Image.new("RGB", (200, 100), (200, 60, 20)).save(file)
    return file


@pytest.fixture
def serve() -> Iterator[Callable[..., StubOpenAI]]:
    """A stub server in a thread of its own, for programs that bring their own event loop."""
    stops = []

    def start(script: list[Line], **options: Any) -> StubOpenAI:
        server = StubOpenAI(script, **options)
        ready, stop, loops = threading.Event(), asyncio.Event(), []

        async def run() -> None:
            loops.append(asyncio.get_running_loop())
            async with server:
                ready.set()
                await stop.wait()

        thread = threading.Thread(target=lambda: asyncio.run(run()))
        thread.start()
        ready.wait(10)
        stops.append((thread, loops[0], stop))
        return server

    yield start
    for thread, loop, stop in stops:
        loop.call_soon_threadsafe(stop.set)
        thread.join(10)


def png() -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (30, 30)).save(buffer, "PNG")
    return buffer.getvalue()


def test_ask_with_pictures_of_many_shapes(photo: Path) -> None:
    for image, count in [
        (photo, 1), (str(photo), 1), (png(), 1), (Image.new("RGB", (9, 9)), 1), ([photo, png()], 2), (None, 0),
    ]:  # fmt: skip
        model = Script(answer("1970"))
        result = Agent(model).ask(image, "When?")
        assert result.text == str(result) == "1970" and result.trajectory.termination is Termination.ANSWERED
        assert sum(len(message.images) for message in model.seen[0][0]) == count


def test_pictures_that_cannot_be_used(tmp_path: Path) -> None:
    agent = Agent(Script(answer("x")))
    for bad in (tmp_path / "none.png", "https://example.invalid/a.png", b"<svg/>", 7):
        with pytest.raises(ImageError):
            agent.ask(bad, "?")
    fetched = []

    def fetch(url: str) -> bytes:
        fetched.append(url)
        return png()

    Agent(Script(answer("x")), fetch=fetch).ask("https://example.invalid/a.png", "?")
    assert fetched == ["https://example.invalid/a.png"]


def test_real_tools_work_on_the_picture(photo: Path) -> None:
    model = Script(
        say("look", "crop", image="img_1", x=10, y=10, width=50, height="40"),
        say("", "sharpen", image="img_2"),
        answer("a red wall"),
    )
    shown: list[Step] = []
    result = Agent(model, tools=[CropTool(), SharpenTool()]).ask(photo, "What is it?", on_step=shown.append)
    assert [step.failure for step in shown] == [None] * 3
    assert (shown[0].observation.image.width_px, shown[0].observation.image_id) == (50, "img_2")
    assert shown[1].observation.image_id == "img_3"
    assert result.trajectory.tools == ("crop", "sharpen")


def test_a_temporary_store_goes_with_its_agent() -> None:
    agent = Agent(Script(answer("x")))
    agent.ask(png(), "?")
    root = agent.store.root
    assert root.exists()
    del agent
    gc.collect()
    assert not root.exists()


async def test_ask_inside_a_running_loop_and_aask(photo: Path) -> None:
    assert Agent(Script(answer("x"))).ask(photo, "?").text == "x"
    async with Agent(Script(answer("y"))) as agent:
        assert (await agent.aask(photo, "?")).text == "y"


def test_an_answer_that_never_comes(photo: Path) -> None:
    result = Agent(Script(say("a", "text_search", q="x")), settings=AgentSettings(max_turns=2)).ask(photo, "?")
    assert result.text is None and str(result) == "" and result.trajectory.termination is Termination.TURNS


def test_models_by_name(photo: Path, monkeypatch: pytest.MonkeyPatch, serve: Callable[..., StubOpenAI]) -> None:
    monkeypatch.setattr(registry, "names", lambda group: ["openai", "other"])
    made = []

    def load(group: str, name: str) -> Any:
        made.append((group, name))
        return OpenAIChat

    monkeypatch.setattr(registry, "load", load)
    server = serve([completion("<think>a</think><response>1970</response>")])
    agent = Agent("llama3:8b", base_url=server.url)
    assert agent.ask(photo, "When?").text == "1970" and agent.model.name == "llama3:8b"
    assert agent.ask(photo, "When?").text == "1970"
    assert Agent("other:m", base_url=server.url).model.name == "m"
    assert made == [("chat_models", "openai"), ("chat_models", "other")]
    with pytest.raises(UsageError, match="base_url"):
        Agent(Script(answer("x")), base_url="http://x/v1")


def test_the_entry_point_names_something_real() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    for target in project["entry-points"]["opensearch_vl.chat_models"].values():
        module, _, name = target.partition(":")
        assert getattr(importlib.import_module(module), name)


def test_unknown_names(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError):
        Agent(Script(answer("x")), tools=["no_such_tool"])


def test_sources_are_read_off_whole_blocks_of_successful_calls() -> None:
    def step(index: int, text: str, **more: Any) -> Step:
        return Step(index=index, call=ToolCall(name="text_search"), observation=Observation(text=text), **more)

    text = (
        "[Passage 1]\nTitle: Zoo\nURL: https://w/Zoo\nSummary: see URL: https://evil/1\n\n"
        "[Passage 2]\nTitle: Park\nURL: https://w/Park\nSummary: x"
    )
    matches = (
        "[Match 1]\nTitle: Zoo\nSource: Zoo.jpg\nURL: https://w/Zoo\nSnippet: [Passage 3] Title: no URL: https://evil/2"
    )
    page = "[Page 1]\nURL: https://w/Unread\nUnread: no such page"
    failed = ToolResult(observation=Observation(text="x")).model_copy(update={})
    assert failed.failure is None
    trajectory = Trajectory(
        id="a#0", task_id="a", termination=Termination.TURNS, steps=(step(0, text), step(1, matches), step(2, page))
    )
    assert sources_of(trajectory) == (
        Source("Zoo", "https://w/Zoo"), Source("Park", "https://w/Park"), Source("", "https://w/Unread"),
    )  # fmt: skip


# ------------------------------------------------------------------------------------------- osvl ask


def tools_for(wiki: Path | None, index: Path | None, web: bool, store: ImageStore, brief: bool) -> Toolbox:
    return Toolbox([CropTool()], store)


def osvl_ask(*arguments: str) -> Any:
    app = typer.Typer()
    ask_module.register(app, tools_for)
    return CliRunner().invoke(app, [str(a) for a in arguments])


TAGS = [
    completion('<think>look</think><tool_call>{"name": "crop", "arguments": {"image": "img_1", "x": 0, "y": 0, "width": 50, "height": 50}}</tool_call>'),
    completion("<think>done</think><response>It opened in 1932.\x1b[31m</response>"),
]  # fmt: skip
NATIVE = [
    completion(None, tool_calls=[("crop", {"image": "img_1", "x": 0, "y": 0, "width": 50, "height": 50})], reasoning_content="look"),
    completion("It opened in 1932."),
]  # fmt: skip


@pytest.mark.parametrize(("mode", "script"), [("tags", TAGS), ("native", NATIVE)])
def test_osvl_ask_in_both_modes(mode: str, script: list[Line], photo: Path, serve: Callable[..., StubOpenAI]) -> None:
    server = serve(script)
    done = osvl_ask(
        photo, "When did it open?", "--base-url", server.url, "--model", "stub", "--mode", mode, "--price", "1,2"
    )
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith("It opened in 1932.") and "\x1b" not in done.stdout
    assert "crop(image='img_1'" in done.stderr and "New image ID: img_2" in done.stderr
    assert "1 tool call ·" in done.stderr and "$0.0003" in done.stderr
    assert ("tools" in server.requests[0]) == (mode == "native")


def test_osvl_ask_json(photo: Path, serve: Callable[..., StubOpenAI]) -> None:
    server = serve(TAGS, models=["the-only-one"])
    done = osvl_ask(
        photo,
        "When?",
        "--base-url",
        server.url,
        "--layout",
        "infer",
        "--json",
        "--set",
        "max_turns=5",
        "--extra",
        '{"temperature": null, "x": 1}',
    )
    assert done.exit_code == 0 and done.stderr == ""
    result = json.loads(done.stdout)
    assert result["answer"].startswith("It opened") and result["termination"] == "answered"
    assert "temperature" not in server.requests[0] and server.requests[0]["x"] == 1
    assert result["trajectory"]["model"] == "the-only-one" and result["usage"]["prompt_tokens"] == 200


def test_osvl_ask_without_an_answer(photo: Path, serve: Callable[..., StubOpenAI]) -> None:
    server = serve([completion("dunno")])
    done = osvl_ask(photo, "When?", "--base-url", server.url, "--model", "m")
    assert done.exit_code == 1 and "No answer: the agent stopped (fatal)." in done.stdout
    server = serve([Trouble(401)])
    done = osvl_ask(photo, "When?", "--base-url", server.url, "--model", "m", "--json")
    result = json.loads(done.stdout)
    assert done.exit_code == 1 and result["termination"] == "error" and "refused the key" in result["error"]


def test_osvl_ask_interrupted(photo: Path, serve: Callable[..., StubOpenAI]) -> None:
    def interrupt(request: dict[str, Any]) -> dict[str, Any]:
        os.kill(os.getpid(), signal.SIGINT)  # Ctrl-C while the second turn is being generated
        return completion("too late", delay_s=5)

    server = serve([TAGS[0], interrupt])
    done = osvl_ask(photo, "When?", "--base-url", server.url, "--model", "m", "--json")
    result = json.loads(done.stdout)
    assert done.exit_code == 130 and result["termination"] == "cancelled"
    assert len(result["trajectory"]["steps"]) == 1


def test_osvl_ask_fails_with_one_line(
    photo: Path, serve: Callable[..., StubOpenAI], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(*arguments: str) -> tuple[int, str]:
        app = typer.Typer(pretty_exceptions_enable=False)
        ask_module.register(app, tools_for)
        monkeypatch.setattr("sys.argv", ["osvl", *map(str, arguments)])
        with pytest.raises(SystemExit) as left:
            run_guarded(app)
        return int(left.value.code or 0), capsys.readouterr().err.splitlines()[-1]

    server = serve([Trouble(404, '{"error": {"message": "no such model"}}')], models=["a", "b"])
    cases = [
        ((photo, "?", "--base-url", "http://127.0.0.1:9/v1", "--model", "m"), 1, "No connection"),
        ((photo, "?", "--base-url", server.url, "--model", "m"), 1, "no such model"),
        ((photo, "?", "--base-url", server.url), 2, "offers 2 models: a, b"),
        ((photo.with_name("none.png"), "?", "--base-url", server.url, "--model", "m"), 1, "none.png"),
        ((photo, "?", "--model", "m"), 1, "OPENAI_API_KEY"),
        ((photo, "?", "--base-url", server.url, "--model", "m", "--mode", "both"), 2, "tags or native"),
        (
            (photo, "?", "--base-url", server.url, "--model", "m", "--layout", "sft", "--mode", "native"),
            2,
            "does not go with",
        ),
        ((photo, "?", "--base-url", server.url, "--model", "m", "--layout", "odd"), 2, "layout"),
        ((photo, "?", "--base-url", server.url, "--model", "m", "--price", "cheap"), 2, "--price"),
        ((photo, "?", "--base-url", server.url, "--model", "m", "--extra", "[1]"), 2, "--extra"),
        ((photo, "?", "--base-url", "localhost:8000", "--model", "m"), 2, "not the address"),
    ]
    monkeypatch.setattr(ask_module, "chat_model", _without_retries(ask_module.chat_model))
    for arguments, code, word in cases:
        got, line = run(*arguments)
        assert (got, word in line) == (code, True), (arguments, got, line)


def _without_retries(make: Callable[..., OpenAIChat]) -> Callable[..., OpenAIChat]:
    def made(*arguments: Any) -> OpenAIChat:
        chat = make(*arguments)
        chat.max_retries = 0
        return chat

    return made


@pytest.mark.parametrize(
    ("mode", "layout", "expected"),
    [
        (None, None, None),
        (None, "rl", "rl"),
        ("tags", None, "sft"),
        ("native", None, "native_tools"),
        ("tags", "infer", "infer"),
    ],
)
def test_layouts_of_modes(mode: str | None, layout: str | None, expected: str | None) -> None:
    assert layout_of(mode, layout) == expected


def test_what_is_shown_cannot_steer_the_terminal() -> None:
    shown = printable("a\x1b]0;title\x07\u202eb\x9bc\nd" + "x" * 5000)
    assert not set(shown) & set("\x1b\x07\u202e\x9b") and len(shown) < 1500


def test_the_fakes_stand_for_the_real_toolbox(tmp_path: Path) -> None:
    from opensearch_vl.agent.environment import Tools

    assert isinstance(Toolbox([], ImageStore(tmp_path)), Tools)
    assert isinstance(FakeTools(ImageStore(tmp_path)), Tools)
    assert issubclass(UsageError, OsvlError) and isinstance(Reply(""), Reply)
