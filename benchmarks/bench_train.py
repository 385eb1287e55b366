"""Measures training: what the method costs, how well rollouts overlap, how fast they are next to TRL's tool loop, and
what is learnt.

    python benchmarks/bench_train.py                   # all parts; learning takes nearly all of the time
    python benchmarks/bench_train.py rollouts method   # some parts: rollouts, trl, method, learning
    SIZE=small python benchmarks/bench_train.py        # all parts on next to nothing: shows that they run, not more

In an environment with the [train] extra. Figures go to `benchmarks/results/train.json` by name; those of parts that did
not run are kept.

* `rollout_over_bound` (rollouts): wall-clock time of a generation of rollouts with tools that take 300 ms, over the
  larger of its decoding alone and its longest chain of tools. The tools' delays are real; decoding is measured with
  instant tools.
* `tokens_per_s_over_trl` (trl; runs `rollouts` too): sampled tokens per second of processor time with instant tools,
  over those of TRL's turns: its own tool loop with the same checkpoint, turns and tokens per turn; without pictures on
  both sides.
* `method_share_of_step` (method): processor time in fatal step, masks, advantages and loss, over that of a whole
  training step.
* `sft_pass1`, `sft_seconds`, `pixels_zeroed_drop`, `grpo_gain_points` (learning): see `bench_learning.py`, which this
  runs on four miniature encyclopedias, with questions and expert trajectories made as the quickstart makes them.
  `--work DIR` keeps them; options after `--` go to `bench_learning.py`.
"""

import argparse
import asyncio
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests")]

import synthetic_world as world  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402

from opensearch_vl.agent.transcript import ChatFormat  # noqa: E402
from opensearch_vl.cli import stages, wiring  # noqa: E402
from opensearch_vl.cli.quickstart_settings import TrainingSettings  # noqa: E402
from opensearch_vl.images import ImageStore  # noqa: E402
from opensearch_vl.rl import trainer  # noqa: E402
from opensearch_vl.rl.rollout_policy import LocalPolicy, PolicyChat, load_policy  # noqa: E402
from opensearch_vl.rl.rollouts import Scene, roll_out  # noqa: E402
from opensearch_vl.rl.settings import RlSettings  # noqa: E402
from opensearch_vl.scoring import score  # noqa: E402
from opensearch_vl.scoring.judges import ExactJudge  # noqa: E402
from opensearch_vl.scoring.score import RewardSettings  # noqa: E402
from opensearch_vl.sft.examples import texts  # noqa: E402
from opensearch_vl.sft.model_init import init_miniature  # noqa: E402

SMALL = os.environ.get("SIZE") == "small"
THREADS = int(os.environ.get("THREADS", "2"))
PROMPTS, GROUP = (4, 4) if SMALL else (16, 8)
MANY = 4 if SMALL else 64
"""Prompts of a generation of `configs/rl/miniature.yaml`, for the overlap of decoding and tools."""
TURNS, REPLY_TOKENS = (3, 16) if SMALL else (4, 32)
TOOL_S = 0.3


class Setting:
    """An untrained miniature policy that never ends a turn early, and a world of entities to ask about."""

    def __init__(self, folder: Path) -> None:
        self.store = ImageStore(folder / "pictures")
        self.entities = world.entities(self.store, MANY)
        self.tasks = [world.task_of(entity, blurred=True) for entity in self.entities]
        self.model = folder / "model"
        self.folder = folder
        init_miniature(self.model, texts(world.records(self.store, 100), self.environment(0.0).layout))
        self.format = ChatFormat.load(self.model)

    def environment(self, seconds: float) -> Any:
        tools = world.Tools(self.entities, seconds=seconds)
        return world.environment(
            self.store, tools, reply_tokens=REPLY_TOKENS, fatal_after=99, max_turns=TURNS, forced_final=False
        )

    def scene(self, seconds: float) -> Scene:
        return Scene(self.environment(seconds), ExactJudge(), RewardSettings(fatal_after=99), self.format)

    def policy(self, max_rows: int, lockstep: bool) -> LocalPolicy:
        policy, _ = load_policy(self.model, self.store, max_rows=max_rows, lockstep=lockstep)
        policy.decoder.stop_ids = policy.stop_ids = frozenset()
        return policy


class CallingChat(PolicyChat):
    """Says what the policy sampled, and puts a call of a tool in its place, so that every turn waits for one."""

    async def complete(self, *args: Any, **kwargs: Any) -> Any:
        from dataclasses import replace

        reply = await super().complete(*args, **kwargs)
        number = len(args[0])
        call = json.dumps({"name": "text_search", "arguments": {"q": f"query {number}"}})
        return replace(reply, content=f"<think>Search.</think><tool_call>{call}</tool_call>")


def generation(
    setting: Setting, policy: LocalPolicy, seconds: float, prompts: int, pictures: bool = True
) -> tuple[float, float, int]:
    """Wall-clock and processor time of one generation of rollouts, and the tokens it sampled."""
    tasks = setting.tasks[:prompts]
    tasks = tasks if pictures else [task.model_copy(update={"images": ()}) for task in tasks]
    before = policy.num_generated
    wall, cpu = time.perf_counter(), time.process_time()
    outcomes = asyncio.run(
        roll_out(
            setting.scene(seconds),
            tasks,
            GROUP,
            lambda name: CallingChat(policy, setting.format, name),
            run_seed=0,
            step=0,
        )
    )
    assert all(len(outcome.trajectory.steps) == TURNS for outcome in outcomes)
    return time.perf_counter() - wall, time.process_time() - cpu, policy.num_generated - before


def bench_rollouts(setting: Setting, figures: dict[str, float]) -> None:
    rows, many = PROMPTS * GROUP, MANY * GROUP
    instant, _, _ = generation(setting, setting.policy(many // 2, lockstep=False), 0.0, MANY)
    slow, _, _ = generation(setting, setting.policy(many // 2, lockstep=False), TOOL_S, MANY)
    chain = TURNS * TOOL_S
    figures["rollout_s_instant_tools"] = instant
    figures["rollout_s_slow_tools"] = slow
    figures["rollout_over_bound"] = slow / max(instant, chain)
    _, cpu, tokens = generation(setting, setting.policy(rows, lockstep=False), 0.0, PROMPTS)
    figures["rollout_tokens_per_cpu_s"] = tokens / cpu
    _, cpu, tokens = generation(setting, setting.policy(rows, lockstep=False), 0.0, PROMPTS, pictures=False)
    figures["rollout_tokens_per_cpu_s_without_pictures"] = tokens / cpu


def bench_trl(setting: Setting, figures: dict[str, float]) -> None:
    """TRL's own tool loop: its `_generate` with a tool that answers at once, on the same prompts without pictures.

    Its completions are cut to as many tokens a turn as ours; it reads the whole conversation again on every turn.
    """
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    tokenizer = transformers.AutoTokenizer.from_pretrained(setting.model)
    prompts = [
        [{"role": "system", "content": world.SYSTEM}, {"role": "user", "content": task.question}]
        for task in setting.tasks[:PROMPTS]
        for _ in range(GROUP)
    ]
    arguments = GRPOConfig(
        output_dir=str(setting.folder / "trl"), per_device_train_batch_size=len(prompts), num_generations=GROUP,
        max_completion_length=REPLY_TOKENS, bf16=False, use_cpu=True, report_to="none", gradient_checkpointing=False,
        generation_kwargs={"min_new_tokens": REPLY_TOKENS}, max_steps=1,
    )  # fmt: skip
    model = transformers.AutoModelForImageTextToText.from_pretrained(setting.model)
    made = GRPOTrainer(
        model=model, reward_funcs=lambda completions, **_: [0.0] * len(completions), args=arguments,
        train_dataset=Dataset.from_dict({"prompt": [p for p in prompts[:: GROUP]]}), processing_class=tokenizer,
    )  # fmt: skip
    made.model.eval()
    cpu = time.process_time()
    total = 0
    conversations = prompts
    for _ in range(TURNS):  # what its loop does on each turn: the whole conversation, then one reply
        ids, images, fields = made._tokenize_prompts(conversations)
        completions, _ = made._generate_single_turn(ids, images, fields, GROUP)
        total += sum(len(completion) for completion in completions)
        conversations = [
            [
                *conversation,
                {"role": "assistant", "content": tokenizer.decode(completion)},
                {"role": "user", "content": "<tool_response>No results.</tool_response>"},
            ]
            for conversation, completion in zip(conversations, completions, strict=True)
        ]
    figures["trl_tokens_per_cpu_s"] = total / (time.process_time() - cpu)
    figures["tokens_per_s_over_trl"] = (
        figures["rollout_tokens_per_cpu_s_without_pictures"] / figures["trl_tokens_per_cpu_s"]
    )


def bench_method(setting: Setting, figures: dict[str, float]) -> None:
    """Profile one training step; the method's functions are wrapped in timers."""
    spent = {"method": 0.0}

    def timed(function: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            began = time.process_time()
            try:
                return function(*args, **kwargs)
            finally:
                spent["method"] += time.process_time() - began

        return wrapper

    wrapped = [(trainer, "make_batch"), (trainer, "policy_loss"), (score, "fatal_index"), (score, "error_flags")]
    kept = [(module, name, getattr(module, name)) for module, name in wrapped]
    for module, name, function in kept:
        setattr(module, name, timed(function))
    try:
        settings = RlSettings(
            model=str(setting.model), mode="fatal_mask", prompts_per_step=PROMPTS, group_size=GROUP, minibatches=1,
            steps=1, per_device=PROMPTS * GROUP, precision="fp32", gradient_checkpointing=False, save_rollouts=0,
            image_max_pixels=None, threads=THREADS,
        )  # fmt: skip
        cpu = time.process_time()
        trainer.train_rl(settings, setting.scene(0.0), setting.tasks[:PROMPTS], None, setting.folder / "rl")
        whole = time.process_time() - cpu
    finally:
        for module, name, function in kept:
            setattr(module, name, function)
    figures["method_share_of_step"] = spent["method"] / whole


@dataclass(frozen=True, slots=True)
class World:
    """A miniature encyclopedia, its questions, and the expert's rollouts of them if there is to be learnt from it."""

    pages: int
    seed: int
    num: int
    expert: bool = False
    damaged: bool = False


WORLDS = {
    "train": World(4000, 1, 3000, expert=True), "held": World(1500, 2, 300),
    "damaged": World(3000, 3, 1500, expert=True, damaged=True), "damaged_held": World(1600, 4, 400, damaged=True),
}  # fmt: skip
if SMALL:
    WORLDS = {"train": World(300, 0, 8, expert=True), "held": World(200, 1, 4)}
SMALL_LEARNING = [
    *("--seeds", "1", "--samples", "1", "--limit", "4", "--pool", "4"),
    *(part for setting in ("first=null", "max_steps=3", "batch_size=4", "per_device=4", "log_every=1", "save_every=1")
      for part in ("--sft-set", setting)),
    *(part for setting in ("steps=1", "prompts_per_step=2", "group_size=2", "per_device=4", "save_every=1")
      for part in ("--rl-set", f"rl.{setting}")),
    *("--rl-set", "agent.sampling.max_tokens=8"),
]  # fmt: skip


def make_world(folder: Path, shape: World) -> None:
    settings = TrainingSettings()
    degrade = settings.questions.degrade.model_copy(update={"fraction": 1.0})
    questions = settings.questions.model_copy(update={"degrade": degrade})

    def silent(done: int, total: int) -> None:
        return None

    wiki = stages.miniature_wiki(folder / "export", folder / "wiki", pages=shape.pages, seed=shape.seed, advance=silent)
    one = wiring.local_world(wiki.root)
    build = stages.build_question_run(
        one, folder / "questions", questions, seed=shape.seed, num=shape.num, resume=True, advance=silent,
        ocr=shape.damaged,
    )  # fmt: skip
    if shape.expert:
        stages.roll_out_expert(
            build.tasks, one, folder / "trajectories", settings.synthesis, agent=settings.agent, noise=settings.noise,
            pictures=folder / "questions" / "images", resume=True, advance=silent,
        )  # fmt: skip


def bench_learning(work: Path, options: list[str]) -> None:
    """Make the data, then run `bench_learning.py` on it; it writes its figures itself."""
    for name, shape in WORLDS.items():
        make_world(work / name, shape)

    def learning(parts: list[str], held: str, more: list[str]) -> None:
        paths = {
            "trajectories": work / "train" / "trajectories", "questions": work / "train" / "questions",
            "wiki": work / "train" / "wiki", "heldout": work / held / "questions",
            "heldout-wiki": work / held / "wiki", "work": work / "learning",
        }  # fmt: skip
        command = [sys.executable, str(ROOT / "benchmarks" / "bench_learning.py"), *parts]
        command += [part for name, path in paths.items() for part in (f"--{name}", str(path))]
        subprocess.run([*command, *more, *(SMALL_LEARNING if SMALL else []), *options], check=True)

    learning(["sft", "grpo", "faults"], "held", ["--limit", "300"])
    if "damaged" in WORLDS:
        damaged = ["--damaged", str(work / "damaged" / "trajectories"), "--limit", "400"]
        learning(["sight"], "damaged_held", damaged)


PARTS = {"rollouts": bench_rollouts, "trl": bench_trl, "method": bench_method}


def main() -> None:
    arguments, options = sys.argv[1:], []
    if "--" in arguments:
        place = arguments.index("--")
        arguments, options = arguments[:place], arguments[place + 1 :]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS, "learning"], help="what to run; default: all")
    parser.add_argument("--work", type=Path, help="folder for the data of `learning`; default: a temporary one")
    chosen = parser.parse_args(arguments)
    parts = set(chosen.parts or [*PARTS, "learning"])
    parts |= {"rollouts"} if "trl" in parts else set()
    warnings.simplefilter("ignore")
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    torch.set_num_threads(THREADS)
    with tempfile.TemporaryDirectory() as folder:
        if parts & set(PARTS):
            figures: dict[str, float] = {}
            started = time.perf_counter()
            setting = Setting(Path(folder))
            for name, part in PARTS.items():
                if name in parts:
                    part(setting, figures)
            write(figures, time.perf_counter() - started)
        if "learning" in parts:
            bench_learning(chosen.work or Path(folder) / "learning", options)


def write(figures: dict[str, float], seconds: float) -> None:
    file = ROOT / "benchmarks" / "results" / "train.json"
    kept = json.loads(file.read_text()) if file.exists() else {"figures": {}}
    result = {
        **kept,
        "figures": {**kept["figures"], **{name: round(value, 4) for name, value in figures.items()}},
        "size": "small" if SMALL else "full",
        "seconds": round(seconds, 1),
        "commit": subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout.strip(),
        "machine": {
            "cores": os.cpu_count(), "processor": platform.machine(), "python": platform.python_version(),
            "torch": torch.__version__, "threads": THREADS,
        },
        "command": " ".join(["SIZE=small"] * SMALL + ["python", "benchmarks/bench_train.py", *sys.argv[1:]]),
    }  # fmt: skip
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(result, indent=2) + "\n")
    sys.stdout.write(json.dumps(result["figures"], indent=2) + "\n")


if __name__ == "__main__":
    main()
