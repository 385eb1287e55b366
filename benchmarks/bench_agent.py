"""Measures the agent loop: rollout engine, memory over many rollouts, a fuzz run, image search and reading of scans.

    python benchmarks/bench_agent.py            # full; `recall` alone takes some 40 minutes of one processor's time
    SIZE=small python benchmarks/bench_agent.py # `recall` and `ocr` take about one minute each
    python benchmarks/bench_agent.py recall ocr # only these parts: rollouts, http, memory, fuzz, pages,
                                                # page_ids, recall, ocr

`page_ids` needs the `train` extra and is left out without it.

Figures go to `benchmarks/results/agent.json` by name; figures of other parts that are already there are kept, and
`runs` says of every part how, when and where it was last measured. `recall` and `ocr` are described in
`image_recall.py` and `ocr_cer.py`, `page_ids` in `page_ids.py`.
`rollout_over_ideal` is wall-clock time over the time that the waiting alone takes: 256 rollouts of 5 turns at once, a
model that takes 200 ms and tools that take 500 ms. `http_*` is the same against a stub server over HTTP on loopback,
with the processor time of client and server apart (they share this machine).
"""

import asyncio
import gc
import json
import multiprocessing
import os
import platform
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests")]

from agent_fakes import answer, say, task  # noqa: E402
from stub_openai import StubOpenAI, completion  # noqa: E402

from opensearch_vl.agent.blocks import has_tag  # noqa: E402
from opensearch_vl.agent.dialect import parse  # noqa: E402
from opensearch_vl.agent.environment import Environment  # noqa: E402
from opensearch_vl.agent.rollout import Job, run_many  # noqa: E402
from opensearch_vl.agent.settings import AgentSettings  # noqa: E402
from opensearch_vl.backends.openai_chat import OpenAIChat  # noqa: E402
from opensearch_vl.images import ImageStore  # noqa: E402
from opensearch_vl.protocols import Message, NativeCall, Reply, Sampling, ToolContext, ToolOutput, ToolSchema  # noqa: E402
from opensearch_vl.tools.toolbox import Toolbox  # noqa: E402
from opensearch_vl.types import Observation, Step, Termination  # noqa: E402

SMALL = os.environ.get("SIZE") == "small"
MODEL_S, TOOL_S, TURNS = 0.2, 0.5, 5
ROLLOUTS = 64 if SMALL else 256
MEMORY_ROLLOUTS = 400 if SMALL else 5_000
FUZZ_REPLIES = 20_000 if SMALL else 1_000_000
FUZZ_PAGES = 2_000 if SMALL else 100_000


class Query(BaseModel):
    q: str = ""


class StubTool:
    """A search that waits and answers with `text`."""

    name, description, arguments, aliases, timeout_s = "text_search", "Search.", Query, (), 30.0

    def __init__(self, delay_s: float, text: str = "[Passage 1]\nTitle: Zoo\nURL: https://w/Zoo\nSummary: x") -> None:
        self.delay_s = delay_s
        self.text = text

    async def run(self, arguments: Any, context: ToolContext) -> ToolOutput:
        if self.delay_s:
            await asyncio.sleep(self.delay_s)
        return ToolOutput(Observation(text=self.text))


class StubModel:
    """Searches until the last turn, then answers."""

    name = "stub"

    def __init__(self, delay_s: float, turns: int = TURNS) -> None:
        self.delay_s = delay_s
        self.turns = turns

    async def complete(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSchema] = (),
        sampling: Sampling = Sampling(),
        seed: int = 0,
    ) -> Reply:
        if self.delay_s:
            await asyncio.sleep(self.delay_s)
        turn = sum(message.role == "assistant" for message in messages)
        return answer("1970") if turn + 1 >= self.turns else say("look", "text_search", q=f"query {turn}")


def world(folder: str, delay_s: float, parallel: int) -> tuple[Environment, ImageStore]:
    store = ImageStore(folder)
    toolbox = Toolbox([StubTool(delay_s)], store, max_parallel=parallel)
    return Environment(toolbox, AgentSettings(repeat_limit=None), store), store


async def rolled_out(env: Environment, store: ImageStore, model: Any, num: int, parallel: int) -> int:
    view = task(store)
    jobs = (Job(view.model_copy(update={"id": f"t{n}"})) for n in range(num))
    done = 0
    async for _, trajectory in run_many(jobs, model, env, run_seed=0, max_parallel=parallel):
        assert trajectory.termination is Termination.ANSWERED, trajectory.error
        done += 1
    return done


IDEAL_S = TURNS * MODEL_S + (TURNS - 1) * TOOL_S


def bench_rollouts(figures: dict[str, float]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        env, store = world(folder, TOOL_S, ROLLOUTS)
        wall, cpu = time.perf_counter(), time.process_time()
        done = asyncio.run(rolled_out(env, store, StubModel(MODEL_S), ROLLOUTS, ROLLOUTS))
        figures["rollout_wall_s"] = time.perf_counter() - wall
        figures["rollout_cpu_ms_per_turn"] = (time.process_time() - cpu) * 1000 / (done * TURNS)
    figures["rollout_ideal_s"] = IDEAL_S
    figures["rollout_over_ideal"] = figures["rollout_wall_s"] / IDEAL_S
    figures["rollouts"] = done


def _serve(pipe: Any) -> None:
    """The stub server in a process of its own, so that its work is not counted as ours."""

    def line(body: dict[str, Any]) -> dict[str, Any]:
        turn = sum(message["role"] == "assistant" for message in body["messages"])
        last = turn + 1 >= TURNS
        text = answer("1970").content if last else say("look", "text_search", q=f"query {turn}").content
        return completion(text, delay_s=MODEL_S)

    async def run() -> None:
        async with StubOpenAI([line]) as server:
            pipe.send(server.url)
            while not pipe.poll():
                await asyncio.sleep(0.05)
            pipe.send(time.process_time())

    asyncio.run(run())


def bench_http(figures: dict[str, float]) -> None:
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=_serve, args=(theirs,), daemon=True)
    process.start()
    url = ours.recv()

    async def run(env: Environment, store: ImageStore) -> None:
        chat = OpenAIChat("stub", base_url=url, store=store)
        await rolled_out(env, store, chat, 1, 1)  # imports and connection
        start = time.perf_counter(), time.process_time()
        await rolled_out(env, store, chat, ROLLOUTS, ROLLOUTS)
        figures["http_wall_s"] = time.perf_counter() - start[0]
        figures["http_client_cpu_ms_per_turn"] = (time.process_time() - start[1]) * 1000 / (ROLLOUTS * TURNS)
        await chat.aclose()

    with tempfile.TemporaryDirectory() as folder:
        env, store = world(folder, TOOL_S, ROLLOUTS)
        asyncio.run(run(env, store))
    ours.send("stop")
    figures["http_server_cpu_ms_per_turn"] = ours.recv() * 1000 / (ROLLOUTS * TURNS)
    process.join()
    figures["http_over_ideal"] = figures["http_wall_s"] / IDEAL_S


def rss_mb() -> float:
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def bench_memory(figures: dict[str, float]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        env, store = world(folder, 0.0, 64)
        asyncio.run(rolled_out(env, store, StubModel(0.0), MEMORY_ROLLOUTS // 5, 64))  # warm up
        before, started = rss_mb(), time.perf_counter()
        done = asyncio.run(rolled_out(env, store, StubModel(0.0), MEMORY_ROLLOUTS, 64))
        figures["rss_growth_mb"] = rss_mb() - before
        figures["rss_rollouts"] = done
        figures["turns_per_s"] = done * TURNS / (time.perf_counter() - started)


PIECES = [
    "<think>", "</think>", "<tool_call>", "</tool_call>", "<response>", "</response>", "<observation>",
    "</observation>", "<answer>", "</answer>", "<tool_response>", "</tool_response>", "＜think＞", "＜/tool_call＞",
    "< think >", '{"name": "crop", "arguments": {"x": 1}}', '{"name": "', '"arguments": {', "{'a': ", "{", "}",
    "[", "]", '"', "'", "\\", "\\u12", "\\ud800", ",", ":", "=", "crop(", "x=1", ")", "<function=crop>",
    "</function>", "<parameter=x>", "</parameter>", "<invoke name=\"crop\">", "[TOOL_CALLS]", "[ARGS]",
    "<|python_tag|>", "```json\n", "```", "Action: crop\nAction Input: ", "<arg_key>", "</arg_key>",
    "<arg_value>", "</arg_value>", "｛", "｝", "：", "“", "”", "<|im_end|>", "<|im_start|>", "<|image_pad|>",
    "<image>", "<｜tool▁call▁begin｜>", "function<｜tool▁sep｜>", "\ud800", "\x00", "\n", " ", "\u2028", "\u200b",
    "\u202e", "é", "😀", "1e999", "-1", "9" * 400, "true", "None", "NaN", "text", "img_1", "https://w/Zoo",
]  # fmt: skip
CONTROL = [
    "<|im_start|>", "<|im_end|>", "<|image_pad|>", "<|vision_start|>", "<|vision_end|>", "<|video_pad|>",
    "<|endoftext|>", "<image>", "<video>", "<tools>", "</tools>", "[INST]", "[TOOL_CALLS]", "<|eot_id|>",
    "<start_of_turn>", "<｜",
]  # fmt: skip


def mixture(random_: random.Random) -> str:
    parts = random_.choices(PIECES, k=random_.randint(0, 24))
    if random_.random() < 0.3:
        parts.append("".join(chr(random_.randrange(1, 0x3100)) for _ in range(random_.randint(1, 12))))
        random_.shuffle(parts)
    return "".join(parts)


def bench_fuzz(figures: dict[str, float]) -> None:
    """Every reply has exactly one storable reading, and nothing in unclosed reasoning is run."""
    random_, crashes, read = random.Random(0), 0, {"call": 0, "response": 0, "failure": 0, "exact": 0}
    started = time.process_time()
    for number in range(FUZZ_REPLIES):
        text = mixture(random_)
        native = (NativeCall("c", random_.choice(["crop", "", "a b"]), mixture(random_)),) if number % 10 == 0 else ()
        reply = Reply(
            text,
            mixture(random_) if number % 7 == 0 else "",
            native,
            finish_reason="length" if number % 5 == 0 else "stop",
        )
        try:
            parsed = parse(reply, "strict" if number % 3 == 0 else "lenient", plain_answer=number % 4 == 0)
            actions = {"call": parsed.call, "response": parsed.response, "failure": parsed.failure}
            (kind,) = (name for name, value in actions.items() if value is not None)
            step = Step(index=0, text=parsed.text, thought=parsed.thought, **actions)
            step.model_dump_json()
            assert not has_tag(parsed.note) and not (parsed.failure and has_tag(parsed.failure.message))
            read[kind] += 1
            read["exact"] += parsed.well_formed
        except Exception as error:
            crashes += 1
            sys.stderr.write(f"{type(error).__name__}: {error}: {reply!r}\n")
    figures["fuzz_outputs"] = FUZZ_REPLIES
    figures["fuzz_crashes"] = crashes
    figures["fuzz_us_per_output"] = (time.process_time() - started) * 1e6 / FUZZ_REPLIES
    figures |= {f"fuzz_share.{kind}": count / FUZZ_REPLIES for kind, count in read.items()}


@dataclass(frozen=True)
class Shown:
    """A page as it was, as an observation, and in the message that shows it."""

    layout: str
    page: str
    observation: str
    message: str


async def shown_pages(num: int) -> AsyncIterator[Shown]:
    """Hostile page texts that went through toolbox and environment, over the four layouts in turn."""
    random_ = random.Random(1)
    with tempfile.TemporaryDirectory() as folder:
        store = ImageStore(folder)
        tool = StubTool(0.0)
        settings = [AgentSettings(layout=name, max_turns=10**6) for name in ("sft", "rl", "infer", "native_tools")]
        envs = [Environment(Toolbox([tool], store), s, store) for s in settings]
        view = task(store)
        for number in range(num):
            tool.text = mixture(random_) + mixture(random_)
            env = envs[number % len(envs)]
            episode = env.reset(view)
            step = await episode.step(say("look", "text_search", q=str(number)))
            yield Shown(env.settings.layout, tool.text, step.observation.text, episode.messages[-1].text)


async def fuzz_pages(figures: dict[str, float]) -> None:
    """No control token and no tag of a page gets into the conversation as text."""
    escapes = 0
    own = {"sft": 4, "rl": 2, "infer": 2, "native_tools": 0}  # tags that the layout itself writes
    async for page in shown_pages(FUZZ_PAGES):
        shown = page.message
        tags = sum(shown.count(f"<{slash}{name}>") for slash in ("", "/") for name in ("tool_response", "observation"))
        others = sum(
            shown.count(f"<{slash}{name}>") for slash in ("", "/") for name in ("think", "tool_call", "response")
        )
        if tags != own[page.layout] or others or any(token in shown for token in CONTROL):
            escapes += 1
            sys.stderr.write(f"escaped: {shown!r}\n")
    figures["fuzz_pages"] = FUZZ_PAGES
    figures["fuzz_escapes"] = escapes


def bench_pages(figures: dict[str, float]) -> None:
    asyncio.run(fuzz_pages(figures))


def bench_page_ids(figures: dict[str, float]) -> None:
    try:
        from page_ids import bench_page_ids
    except ImportError as error:
        sys.stderr.write(f"page_ids: left out, {error.name} is not installed (pip install 'opensearch-vl[train]').\n")
        return

    async def collected() -> list[Shown]:
        return [page async for page in shown_pages(FUZZ_PAGES)]

    pages = asyncio.run(collected())
    bench_page_ids(figures, [page.page for page in pages], [page.observation for page in pages])


def bench_recall(figures: dict[str, float]) -> None:
    from image_recall import bench_recall  # here, so that the processes of other parts do not load OpenCV and OCR

    bench_recall(figures)


def bench_ocr(figures: dict[str, float]) -> None:
    from ocr_cer import bench_ocr

    bench_ocr(figures)


PARTS = {
    "rollouts": bench_rollouts,
    "http": bench_http,
    "memory": bench_memory,
    "fuzz": bench_fuzz,
    "pages": bench_pages,
    "page_ids": bench_page_ids,
    "recall": bench_recall,
    "ocr": bench_ocr,
}


def command(names: Sequence[str]) -> str:
    settings = [f"{name}={os.environ[name]}" for name in ("SIZE", "RECALL_QUERIES") if name in os.environ]
    return " ".join([*settings, "python benchmarks/bench_agent.py", *names])


def run_of(name: str, figures: dict[str, float]) -> dict[str, Any]:
    """Runs one part, which adds its figures; returns how, when and where."""
    started, load = time.perf_counter(), os.getloadavg()[0]
    PARTS[name](figures)
    return {
        "size": "small" if SMALL else "full",
        "seconds": round(time.perf_counter() - started, 1),
        "commit": subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout.strip(),
        "machine": {
            "cores": os.cpu_count(),
            "processor": platform.machine(),
            "python": platform.python_version(),
            "load_before": round(load, 1),
        },
        "command": command([name]),
    }


def main(names: Sequence[str]) -> None:
    figures: dict[str, float] = {}
    runs = {name: run_of(name, figures) for name in names or PARTS}
    file = ROOT / "benchmarks" / "results" / "agent.json"
    kept = json.loads(file.read_text()) if file.exists() else {}
    result = {
        "figures": {**kept.get("figures", {}), **{name: round(value, 4) for name, value in figures.items()}},
        "runs": {**kept.get("runs", {}), **runs},
    }
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(result, indent=2) + "\n")
    sys.stdout.write(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
