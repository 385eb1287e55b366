"""Records of real rollouts over fake tools, in any layout, with whatever a policy may write: shared by the round trips."""

import asyncio
import json
from pathlib import Path
from typing import Any

from agent_fakes import FakeTools, Script, native, picture, say
from hypothesis import strategies as st

from opensearch_vl.agent.environment import Environment
from opensearch_vl.agent.rollout import rollout
from opensearch_vl.agent.settings import AgentSettings
from opensearch_vl.images import ImageStore
from opensearch_vl.protocols import Reply
from opensearch_vl.runs import RunFolder
from opensearch_vl.sft.synthesis import describe
from opensearch_vl.sft.trajectory_config import TrajectoryConfig
from opensearch_vl.types import Gold, PictureSource, Provenance, QuestionRecord, RolloutRecord, Task, Verdict

LAYOUTS = ("sft", "rl", "infer", "native_tools")

wild = st.text(alphabet=st.sampled_from('<>\u2060/imagevdo \n|"\\{}é漢x')) | st.text(max_size=30)
texts = wild | st.sampled_from(
    ["<image>", "a <image><\u2060video> b", "\nline", "</observation>", "<observation>\nx", "New image ID: img_9", " "]
)


def replies(layout: str) -> st.SearchStrategy[list[Reply]]:
    """A policy's turns: calls that work and that fail, pictures, malformed turns, and mostly a final response."""
    called = st.one_of(
        st.builds(lambda thought, q: ("text_search", thought, {"q": q}), texts, texts),
        st.builds(lambda thought: ("crop", thought, {"image": "img_1"}), texts),
        st.builds(lambda thought: ("fail", thought, {}), texts),
        st.builds(lambda thought, name: (f"no_{name}", thought, {}), texts, st.sampled_from("ab")),
    )
    if layout == "native_tools":
        good = st.builds(lambda call, content: native(call[0], call[1], content, **call[2]), called, texts)
        last = st.builds(lambda thought, text: Reply(text, thought), texts, texts)
    else:
        good = st.builds(lambda call: say(call[1], call[0], **call[2]), called)
        last = st.builds(
            lambda thought, text: Reply(f"<think>{thought}</think>\n<response>{text}</response>"), texts, texts
        )
    bad = st.builds(Reply, texts) | st.builds(lambda text: Reply(f"<tool_call>{text}"), texts)
    turns = st.lists(st.one_of(good, good, good, bad), max_size=6)
    return st.builds(lambda some, end: [*some, end], turns, last)


def rolled_out(
    folder: Path, layout: str, lines: list[Reply], question: str, *, answer: str = "1970", name: str = "q1"
) -> tuple[RolloutRecord, Environment]:
    """The record of a rollout, and the environment that it was made in."""
    store = ImageStore(folder)
    env = Environment(FakeTools(store), AgentSettings(layout=layout), store)  # type: ignore[arg-type]
    source = PictureSource(file="a.png", page="Hall", licence="cc0", author="Ann | <b>")
    task = Task(
        id=name,
        question=question,
        images=(picture(store),),
        gold=Gold(answer=answer, aliases=("seventy", "MCMLXX")),
        provenance=Provenance(path=("Hall", "Ana"), picture=source, domain="Building"),
    )
    trajectory = asyncio.run(rollout(task.view(), Script(*lines), env, seed=7))
    verdict = Verdict(correct=trajectory.response == answer, judge="exact")
    return RolloutRecord(id=trajectory.id, task=task, trajectory=trajectory, verdict=verdict, accepted=True), env


def run_of(folder: Path, records: list[Any], env: Environment | None = None, **facts: Any) -> Path:
    """A run folder of records; their pictures must lie in its store."""
    with RunFolder(folder, TrajectoryConfig(), {**facts, **({"agent": describe(env)} if env else {})}) as run:
        for record in records:
            run.append(record)
    return folder


def example_run(folder: Path, num: int = 3, layout: str = "sft") -> tuple[Path, list[RolloutRecord]]:
    """A run of trajectories, each with a picture of its own making, a failure and a literal marker."""
    made = []
    for n in range(num):
        lines = [
            say("look <image>", "crop", image="img_1"),
            say("oh", "fail"),
            say(f"find {n}", "text_search", q="<image>"),
        ]
        lines.append(Reply(f"<think>so</think>\n<response>{1970 if n % 2 == 0 else 'no idea'}</response>"))
        record, env = rolled_out(folder / "images", layout, lines, f"What is {n}?", name=f"q{n}")
        made.append(record)
    return run_of(folder, made, env), made


def question_run(folder: Path, num: int = 4) -> tuple[Path, list[QuestionRecord]]:
    """A run of questions, the last without a picture, and one rejected walk."""
    store = ImageStore(folder / "images")
    made = []
    for n in range(num):
        ref = picture(store, 40 + n)
        known = Provenance(
            path=(f"Hall {n}", f"Ana {n}"),
            domain="Building",
            picture=PictureSource(file=f"{n}.png", page=f"Hall {n}", licence="cc0" if n else "", author="Ann"),
        )
        gold = Gold(answer=f"{1970 + n}", aliases=(f"year {n}",), kind="number")
        images = (ref,) if n < num - 1 else ()
        task = Task(id=f"q{n}", question=f"When, <image> {n}?", images=images, gold=gold, provenance=known)
        made.append(QuestionRecord(id=f"q{n}", task=task, draft={"attempts": [{"correct": False}]}))
    rejected = QuestionRecord(id="rejected", stage="fuzz", reason="not_unique", draft={"path": ["a"]})
    return run_of(folder, [*made, rejected], wiki="Miniature", seed=3), made


def lines_of(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
