"""Measures learning on the miniature: pass@1 after fine-tuning, what zeroed pixels cost, and what GRPO adds.

    python benchmarks/bench_learning.py sft --trajectories RUN --questions QUESTIONS --wiki WIKI \\
        --heldout QUESTIONS2 --heldout-wiki WIKI2 --work DIR
    python benchmarks/bench_learning.py grpo faults …  # from the checkpoint of WORK/sft nearest to one half
    python benchmarks/bench_learning.py sight …        # --heldout with damaged pictures, --damaged RUN3 to learn from

`bench_train.py learning` makes the data and runs all of it. Held-out questions come from another miniature (another
seed); those that share a name with a training question are left out. Figures go to `benchmarks/results/train.json` by
name; figures of other parts that are already there are kept.

* `sft_pass1`, `sft_seconds` (sft): greedy pass@1 on held-out questions after fine-tuning from nothing, and how long
  that took, reading of the data included;
* `pixels_zeroed_drop` (sight): how far greedy pass@1 falls on questions whose picture has to be repaired by the right
  tool when all pictures are black to the policy, sizes kept. Few pictures of an encyclopedia bear lettering that can be
  lost and given back, so the policy is fine-tuned further on the damaged ones of `--damaged`, many times under other
  names, with every trajectory once in between. `repair_by_sight` and `…_zeroed` are how often the first tool is the one
  that undoes the damage;
* `grpo_gain_points` (grpo): sampled pass@1 at the training temperature after GRPO minus before, mean over seeds, in
  points; `grpo_greedy_points` is the same for greedy pass@1, `…_lowest` the worst seed. `faults` is the same with
  `faulty_tools` in training and measurement: `grpo_faults_gain_points`, ….
"""

import argparse
import asyncio
import copy
import json
import multiprocessing
import sys
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))

import numpy as np  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402
from faulty_tools import FaultyToolbox  # noqa: E402

from opensearch_vl.agent.environment import Environment  # noqa: E402
from opensearch_vl.agent.pixels import Pixels  # noqa: E402
from opensearch_vl.agent.transcript import ChatFormat  # noqa: E402
from opensearch_vl.cli import wiring  # noqa: E402
from opensearch_vl.config import load_config  # noqa: E402
from opensearch_vl.images import ImageStore  # noqa: E402
from opensearch_vl.questions.split import entities  # noqa: E402
from opensearch_vl.rl.passrate import PassRate, pass_rate  # noqa: E402
from opensearch_vl.rl.rollout_policy import PolicyChat, load_policy  # noqa: E402
from opensearch_vl.rl.rollouts import Scene  # noqa: E402
from opensearch_vl.rl.settings import RlConfig  # noqa: E402
from opensearch_vl.rl.trainer import train_rl  # noqa: E402
from opensearch_vl.runs import RunFolder, read_records  # noqa: E402
from opensearch_vl.scoring.judges import ExactJudge  # noqa: E402
from opensearch_vl.sft.model_init import init_miniature  # noqa: E402
from opensearch_vl.sft.settings import SftSettings  # noqa: E402
from opensearch_vl.sft.source import TOKENIZER_COPIES, Source, open_source  # noqa: E402
from opensearch_vl.sft.train import step_of, train_sft  # noqa: E402
from opensearch_vl.types import QuestionRecord, RolloutRecord, Task  # noqa: E402

PARTS = ("sft", "grpo", "faults", "sight")
TRIALS = 4
"""Samples by which a training question is called sometimes solved."""
SIGHT = {
    "first": None, "schedule": "cosine", "warmup": 0.05, "matrix_learning_rate": 0.01, "learning_rate": 1.5e-3,
    "max_steps": 800, "renamed_copies": 0, "seed": 1,
}  # fmt: skip
"""Settings of the further fine-tuning on damaged pictures."""
DAMAGED_COPIES = 16
TRANSIENT, PERMANENT = 0.1, 0.1
"""Chance of a call to time out, and of a conversation to have one of its searches down."""


class ZeroedPixels(Pixels):
    """Every picture is black; sizes, and so placeholders, stay."""

    def __call__(self, images: Any) -> Any:
        loaded = super().__call__(images)
        return None if loaded is None else (np.zeros_like(loaded[0]), loaded[1])


class Side:
    """Questions with the world that answers them."""

    def __init__(self, questions: Path, wiki: Path, index: Path | None, work: Path, limit: int | None) -> None:
        records = read_records(questions, QuestionRecord)
        self.tasks: list[Task] = [record.task for record in records if record.task is not None][:limit]
        self.store = ImageStore(work / "images", (ImageStore(questions / "images"),))
        self.world = wiring.local_world(wiki, index)
        self.toolbox = wiring.toolbox(self.world, self.store, brief=True)

    def scene(self, config: RlConfig, chat_format: ChatFormat, temperature: float, faults: bool = False) -> Scene:
        sampling = config.agent.sampling.model_copy(update={"temperature": temperature})
        agent = config.agent.model_copy(update={"sampling": sampling})
        tools = FaultyToolbox(self.toolbox, TRANSIENT, PERMANENT, seed=0) if faults else self.toolbox
        environment = Environment(tools, agent, self.store)
        return Scene(environment, ExactJudge(), config.reward, chat_format, max_tokens=config.rl.max_tokens)


def measure(
    checkpoint: Path,
    side: Side,
    config: RlConfig,
    temperature: float = 0.0,
    samples: int = 1,
    *,
    blind: bool = False,
    faults: bool = False,
    num: int | None = None,
) -> PassRate:
    policy, chat_format = load_policy(checkpoint, side.store, max_rows=config.rl.max_rows)
    if blind:
        policy.decoder.pixels = ZeroedPixels(chat_format, side.store)
    scene = side.scene(config, chat_format, temperature, faults)
    tasks = side.tasks[:num]
    rate = asyncio.run(
        pass_rate(scene, tasks, lambda name: PolicyChat(policy, chat_format, name), samples=samples, seed=1)
    )
    shown = f"{rate.accuracy.rate:.3f} [{rate.accuracy.low:.3f}, {rate.accuracy.high:.3f}] of {rate.accuracy.scored}"
    sys.stdout.write(
        f"{checkpoint} t={temperature} blind={blind} faults={faults}: {shown}, "
        f"{rate.turns:.1f} turns, fatal {rate.fatal:.3f}\n"
    )
    sys.stdout.flush()
    return rate


def fine_tune(source: Source, settings: SftSettings, out: Path) -> Path:
    chat_format = ChatFormat.load(settings.model, max_pixels=settings.image_max_pixels)
    examples = source.examples(settings, chat_format)
    with RunFolder(out, settings) as run:
        return train_sft(settings, chat_format, examples, source.store, run, out).model


def with_damaged(trajectories: list[Path], damaged: list[Path], pictures: Path) -> Source:
    """Damaged pictures' trajectories many times under other names, all the others once."""

    def records() -> Iterator[RolloutRecord]:
        for record in open_source(damaged, pictures).renamed(DAMAGED_COPIES, seed=1).records():
            if record.task.provenance.degradation is not None:
                yield record
        yield from open_source(trajectories, pictures).renamed(1, seed=2).records()

    return replace(open_source([*trajectories, *damaged], pictures), records=records)


def nearest_to_half(checkpoints: Path, side: Side, config: RlConfig) -> Path:
    """The checkpoint whose greedy pass@1 on some questions is nearest to one half; found by halving."""
    found = sorted(checkpoints.glob("checkpoint-*"), key=step_of)
    if not found:
        raise SystemExit(f"{checkpoints} holds no checkpoint: run sft first, or give --checkpoint")
    rates: dict[Path, float] = {}
    low, high = 0, len(found) - 1
    while low <= high:
        middle = (low + high) // 2
        rates[found[middle]] = measure(found[middle], side, config, num=64).accuracy.rate
        low, high = (middle + 1, high) if rates[found[middle]] < 0.5 else (low, middle - 1)
    return min(rates, key=lambda path: abs(rates[path] - 0.5))


def bench_sft(arguments: argparse.Namespace, held: Side, sft: SftSettings, rl: RlConfig) -> dict[str, float]:
    began = time.perf_counter()
    source = open_source(arguments.trajectories, arguments.work / "pictures")
    if not sft.model:
        init_miniature(arguments.work / "policy", source.tokenizer_texts(TOKENIZER_COPIES, sft.seed))
        sft = sft.model_copy(update={"model": str(arguments.work / "policy")})
    model = fine_tune(source, sft, arguments.work / "sft")
    seconds = time.perf_counter() - began
    greedy = measure(model, held, rl).accuracy
    return {
        "sft_pass1": greedy.rate, "sft_pass1_low": greedy.low, "sft_tasks": greedy.scored,
        "sft_seconds": seconds, "sft_threads": torch.get_num_threads(),
    }  # fmt: skip


def bench_sight(
    arguments: argparse.Namespace, start: Path, held: Side, sft: SftSettings, rl: RlConfig
) -> dict[str, float]:
    held.tasks = [task for task in held.tasks if task.provenance.degradation is not None]
    source = with_damaged(arguments.trajectories, arguments.damaged, arguments.work / "pictures")
    settings = SftSettings.model_validate({**sft.model_dump(), **SIGHT, "model": str(start)})
    model = fine_tune(source, settings, arguments.work / "sight")
    seen, blind = (measure(model, held, rl, blind=blind) for blind in (False, True))
    return {
        "pixels_zeroed_drop": seen.accuracy.rate - blind.accuracy.rate, "pixels_tasks": seen.accuracy.scored,
        "pixels_seen_pass1": seen.accuracy.rate, "pixels_zeroed_pass1": blind.accuracy.rate,
        "repair_by_sight": repaired_first(seen), "repair_by_sight_zeroed": repaired_first(blind),
    }  # fmt: skip


def repaired_first(rate: PassRate) -> float:
    """Share of rollouts whose first call is the tool that undoes the damage."""
    right = 0
    for outcome in rate.outcomes:
        degradation = outcome.task.provenance.degradation
        calls = [step.call.name for step in outcome.trajectory.steps if step.call is not None]
        right += degradation is not None and calls[:1] == [degradation.repair_tool]
    return right / len(rate.outcomes)


def sides(arguments: argparse.Namespace) -> tuple[Side, Side, int]:
    """The training side, the held-out side without what both know, and how many questions that left out."""
    held = Side(arguments.heldout, arguments.heldout_wiki, arguments.heldout_index, arguments.work, arguments.limit)
    train = Side(arguments.questions, arguments.wiki, arguments.index, arguments.work, None)
    trained_on = frozenset[str]().union(*(entities(task) for task in train.tasks))
    apart = [task for task in held.tasks if not entities(task) & trained_on]
    shared, held.tasks = len(held.tasks) - len(apart), apart
    return train, held, shared


def train_seed(
    arguments: argparse.Namespace, start: Path, rl: RlConfig, faults: bool, seed: int, chosen: list[str]
) -> list[float]:
    """GRPO with one seed, in a process of its own: sampled and greedy pass@1 on the held-out questions after it."""
    quiet(arguments.threads // arguments.jobs)
    train, held, _ = sides(arguments)
    temperature = rl.agent.sampling.temperature
    out = arguments.work / f"{'grpo_faults' if faults else 'grpo'}-{seed}"
    config = rl.model_copy(update={"rl": rl.rl.model_copy(update={"model": str(start), "seed": seed})})
    scene = train.scene(config, ChatFormat.load(start), temperature, faults)
    scene = replace(scene, retelling=wiring.retelling_of(train.world.wiki)) if rl.rl.retold else scene
    with RunFolder(out, config) as run:
        trained = train_rl(config.rl, scene, [task for task in train.tasks if task.id in chosen], run, out).model
    sampled = measure(trained, held, rl, temperature, arguments.samples, faults=faults)
    return [sampled.accuracy.rate, measure(trained, held, rl, faults=faults).accuracy.rate]


def bench_grpo(
    arguments: argparse.Namespace, start: Path, train: Side, held: Side, rl: RlConfig, faults: bool
) -> dict[str, float]:
    """GRPO from one checkpoint with several seeds; the same held-out questions and seeds before and after."""
    name = "grpo_faults" if faults else "grpo"
    before = measure(start, held, rl, rl.agent.sampling.temperature, arguments.samples, faults=faults).accuracy
    greedy_before = measure(start, held, rl, faults=faults).accuracy
    some = measure(start, train, rl, rl.agent.sampling.temperature, TRIALS, num=arguments.pool).sometimes_solved()
    chosen = [task.id for task in some or train.tasks]
    with ProcessPoolExecutor(arguments.jobs, multiprocessing.get_context("spawn")) as pool:
        started = [
            pool.submit(train_seed, arguments, start, rl, faults, seed, chosen) for seed in range(arguments.seeds)
        ]
        after = np.array([future.result() for future in started])
    gains, greedy_gains = 100 * (after - [before.rate, greedy_before.rate]).T
    return {
        f"{name}_tasks": len(chosen),
        f"{name}_before": before.rate, f"{name}_greedy_before": greedy_before.rate, f"{name}_samples": before.scored,
        f"{name}_gain_points": float(gains.mean()), f"{name}_gain_points_lowest": float(gains.min()),
        f"{name}_greedy_points": float(greedy_gains.mean()),
        f"{name}_greedy_points_lowest": float(greedy_gains.min()), f"{name}_seeds": len(gains),
    }  # fmt: skip


def without_folders(argument: str) -> str:
    """An argument for the record: of an absolute path the last part, since folders differ between machines."""
    return Path(argument).name if argument.startswith("/") else argument


def quiet(threads: int) -> None:
    """Settings of a process that trains."""
    warnings.simplefilter("ignore")
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(max(1, threads))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS], help="what to run; default: all")
    parser.add_argument("--trajectories", type=Path, action="append", required=True, help="several may be given")
    parser.add_argument(
        "--damaged", type=Path, action="append", help="run that sight learns from; several may be given"
    )
    for name in ("questions", "wiki", "heldout", "heldout-wiki", "work"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    for name in ("index", "heldout-index"):
        parser.add_argument(f"--{name}", type=Path, help="default: index in the wiki folder")
    parser.add_argument("--sft-set", action="append", default=[], help="override of configs/sft/miniature.yaml")
    parser.add_argument("--rl-set", action="append", default=[], help="override of configs/rl/miniature.yaml")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--samples", type=int, default=4)
    parser.add_argument("--limit", type=int, default=200)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--pool", type=int, default=192, help="training questions that GRPO's are chosen from")
    parser.add_argument("--jobs", type=int, default=2, help="seeds of GRPO trained at once; they share the threads")
    parser.add_argument("--checkpoint", type=Path, help="where GRPO, or sight, begins")
    arguments = parser.parse_args()
    parts = arguments.parts or (PARTS if arguments.damaged else PARTS[:3])
    if "sight" in parts and not arguments.damaged:
        parser.error("sight learns from --damaged RUN")
    quiet(arguments.threads)
    sft = load_config(SftSettings, ROOT / "configs" / "sft" / "miniature.yaml", arguments.sft_set)
    rl = load_config(RlConfig, ROOT / "configs" / "rl" / "miniature.yaml", arguments.rl_set)
    train, held, shared = sides(arguments)
    figures: dict[str, float] = {"heldout_shared": shared}
    model = arguments.work / "sft" / "model"

    if "sft" in parts:
        figures |= bench_sft(arguments, held, sft, rl)
    if "sight" in parts:
        figures |= bench_sight(arguments, arguments.checkpoint or model, copy.copy(held), sft, rl)
    if {"grpo", "faults"} & set(parts):
        start = arguments.checkpoint or nearest_to_half(arguments.work / "sft" / "checkpoints", held, rl)
        for faults in (False, True):
            if ("faults" if faults else "grpo") in parts:
                figures |= bench_grpo(arguments, start, train, held, rl, faults)

    file = ROOT / "benchmarks" / "results" / "train.json"
    result = json.loads(file.read_text()) if file.exists() else {"figures": {}}
    result["figures"] |= {name: round(value, 4) for name, value in figures.items()}
    result.setdefault("learning_commands", {}).update(
        dict.fromkeys(parts, " ".join(["python", "benchmarks/bench_learning.py", *map(without_folders, sys.argv[1:])]))
    )
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(result, indent=2) + "\n")
    sys.stdout.write(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
