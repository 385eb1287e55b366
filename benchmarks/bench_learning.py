"""Measures learning on the miniature: pass@1 after fine-tuning, what zeroed pixels cost, and what GRPO adds.

    python benchmarks/bench_learning.py --trajectories RUN --questions QUESTIONS --heldout QUESTIONS2 \\
        --wiki WIKI --index INDEX --heldout-wiki WIKI2 --heldout-index INDEX2 --work DIR

Held-out questions come from another miniature (another seed), or from `osvl data split --test` of the same; those that
share a page of a path or a picture with a training question all the same are left out (`heldout_shared`). Figures go to
`benchmarks/results/train.json` by name; figures of other parts that are already there are kept:

* `sft_pass1`, `sft_seconds`: greedy pass@1 on held-out questions after fine-tuning from nothing, and how long it took;
* `pixels_zeroed_drop`: how far pass@1 falls on the enhancement subset (whose repair is chosen by sight) without pixels;
* `grpo_gain_points`: sampled pass@1 at the training temperature after GRPO minus before, mean over seeds, in points;
  `grpo_greedy_points` is the same for greedy pass@1.
"""

import argparse
import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))

import numpy as np  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402

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
from opensearch_vl.sft.examples import build_examples, texts  # noqa: E402
from opensearch_vl.sft.model_init import init_miniature  # noqa: E402
from opensearch_vl.sft.settings import SftSettings  # noqa: E402
from opensearch_vl.sft.source import open_source  # noqa: E402
from opensearch_vl.sft.train import train_sft  # noqa: E402
from opensearch_vl.types import QuestionRecord, Task  # noqa: E402


class ZeroedPixels(Pixels):
    """Every picture is black; sizes, and so placeholders, stay."""

    def __call__(self, images: Any) -> Any:
        loaded = super().__call__(images)
        return None if loaded is None else (np.zeros_like(loaded[0]), loaded[1])


class Side:
    """Questions with the world that answers them."""

    def __init__(self, questions: Path, wiki: Path, index: Path, work: Path, limit: int | None) -> None:
        records = read_records(questions, QuestionRecord)
        self.tasks: list[Task] = [record.task for record in records if record.task is not None][:limit]
        self.store = ImageStore(work / "images", (ImageStore(questions / "images"),))
        self.toolbox = wiring.toolbox(wiring.local_world(wiki, index), self.store)

    def scene(self, config: RlConfig, chat_format: ChatFormat, temperature: float) -> Scene:
        sampling = config.agent.sampling.model_copy(update={"temperature": temperature})
        agent = config.agent.model_copy(update={"sampling": sampling})
        environment = Environment(self.toolbox, agent, self.store)
        return Scene(environment, ExactJudge(), config.reward, chat_format, max_tokens=config.rl.max_tokens)


def measure(
    checkpoint: Path, side: Side, config: RlConfig, temperature: float, samples: int, blind: bool = False
) -> PassRate:
    policy, chat_format = load_policy(checkpoint, side.store, max_rows=config.rl.max_rows)
    if blind:
        policy.decoder.pixels = ZeroedPixels(chat_format, side.store)
    scene = side.scene(config, chat_format, temperature)
    rate = asyncio.run(
        pass_rate(scene, side.tasks, lambda name: PolicyChat(policy, chat_format, name), samples=samples, seed=1)
    )
    shown = f"{rate.accuracy.rate:.3f} [{rate.accuracy.low:.3f}, {rate.accuracy.high:.3f}] of {rate.accuracy.scored}"
    sys.stdout.write(f"{checkpoint} t={temperature} blind={blind}: {shown}, {rate.turns:.1f} turns\n")
    sys.stdout.flush()
    return rate


def on_enhanced(rate: PassRate) -> float:
    """Pass@1 on the questions whose picture has to be repaired."""
    marks = [bool(o.score.verdict.correct) for o in rate.outcomes if o.task.provenance.degradation is not None]
    return sum(marks) / len(marks) if marks else float("nan")


def fine_tune(arguments: argparse.Namespace, settings: SftSettings) -> tuple[Path, float]:
    began = time.perf_counter()
    work = arguments.work
    source = open_source([arguments.trajectories], work / "pictures")
    init_miniature(work / "policy", texts(source.records(), source.layout))
    settings = settings.model_copy(update={"model": str(work / "policy")})
    chat_format = ChatFormat.load(work / "policy")
    examples = build_examples(source.records(), source.layout, chat_format, max_tokens=settings.max_tokens)
    with RunFolder(work / "sft", settings) as run:
        report = train_sft(settings, chat_format, examples, source.store, run, work / "sft")
    return report.model, time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("trajectories", "questions", "heldout", "wiki", "index", "heldout-wiki", "heldout-index", "work"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--sft-set", action="append", default=[], help="override of configs/sft/miniature.yaml")
    parser.add_argument("--rl-set", action="append", default=[], help="override of configs/rl/miniature.yaml")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--samples", type=int, default=4)
    parser.add_argument("--limit", type=int, default=200)
    parser.add_argument("--checkpoint", type=Path, help="begin GRPO here; default: what fine-tuning wrote")
    arguments = parser.parse_args()
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(2)
    sft = load_config(SftSettings, ROOT / "configs" / "sft" / "miniature.yaml", arguments.sft_set)
    rl = load_config(RlConfig, ROOT / "configs" / "rl" / "miniature.yaml", arguments.rl_set)
    held = Side(arguments.heldout, arguments.heldout_wiki, arguments.heldout_index, arguments.work, arguments.limit)
    train = Side(arguments.questions, arguments.wiki, arguments.index, arguments.work, None)
    trained_on = frozenset[str]().union(*(entities(task) for task in train.tasks))
    apart = [task for task in held.tasks if not entities(task) & trained_on]
    figures: dict[str, float] = {"heldout_shared": len(held.tasks) - len(apart)}
    held.tasks = apart

    model, figures["sft_seconds"] = fine_tune(arguments, sft)
    greedy = measure(model, held, rl, 0.0, 1)
    figures["sft_pass1"] = greedy.accuracy.rate
    blind = measure(model, held, rl, 0.0, 1, blind=True)
    figures["pixels_zeroed_drop"] = on_enhanced(greedy) - on_enhanced(blind)

    start = arguments.checkpoint or model
    temperature = rl.agent.sampling.temperature
    before = measure(start, held, rl, temperature, arguments.samples).accuracy.rate
    before_greedy = measure(start, held, rl, 0.0, 1).accuracy.rate
    gains, greedy_gains = [], []
    for seed in range(arguments.seeds):
        out = arguments.work / f"rl-{seed}"
        config = rl.model_copy(update={"rl": rl.rl.model_copy(update={"model": str(start), "seed": seed})})
        scene = train.scene(config, ChatFormat.load(start), temperature)
        with RunFolder(out, config) as run:
            trained = train_rl(config.rl, scene, train.tasks, run, out).model
        gains.append(measure(trained, held, rl, temperature, arguments.samples).accuracy.rate - before)
        greedy_gains.append(measure(trained, held, rl, 0.0, 1).accuracy.rate - before_greedy)
    figures["grpo_gain_points"] = 100 * float(np.mean(gains))
    figures["grpo_gain_points_lowest"] = 100 * float(np.min(gains))
    figures["grpo_greedy_points"] = 100 * float(np.mean(greedy_gains))

    file = ROOT / "benchmarks" / "results" / "train.json"
    result = json.loads(file.read_text()) if file.exists() else {"figures": {}}
    result["figures"] |= {name: round(value, 4) for name, value in figures.items()}
    result["learning_command"] = " ".join(["python", "benchmarks/bench_learning.py", *sys.argv[1:]])
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(result, indent=2) + "\n")
    sys.stdout.write(json.dumps(result["figures"], indent=2) + "\n")


if __name__ == "__main__":
    main()
