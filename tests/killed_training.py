"""Run by tests in a process of its own: trains in child processes that are killed with SIGKILL, and resumes them.

    python killed_training.py PLAN.json     # prints {name: {"codes": […], "digest": …, "weights": …}}

A plan is ``{"command": […], "out": DIR, "scenarios": {name: [moment, …]}}``: each moment is where one child is killed,
``"metric:3"`` meaning in the middle of the third row of metrics; after them the command runs to its end. The training
libraries are imported once, and every child is a fork of this process: it has run nothing before, so it is as fresh as
a new process, only quicker to start.
"""

import hashlib
import importlib
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

sys.path.insert(0, str(Path(__file__).parent))

MOMENTS = {
    "metric": ("opensearch_vl.runs", "_append_line"),
    "record": ("opensearch_vl.runs", "_append_line"),
    "weights": ("transformers.modeling_utils", "safe_save_file"),
    "torch.save": ("torch", "save"),
    "state": ("transformers.trainer_callback.TrainerState", "save_to_json"),
    "rotation": ("shutil", "rmtree"),
    "checkpoint done": ("transformers.Qwen2VLImageProcessorPil", "save_pretrained"),
    "tokenizer": ("transformers.PreTrainedTokenizerBase", "save_pretrained"),
}
"""Where a child can be killed: while the n-th call of this function has done about half of its work."""


def die() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


def arm(moment: str) -> None:
    name, _, number = moment.rpartition(":")
    owner_name, attribute = MOMENTS[name]
    module, _, cls = owner_name.rpartition(".")
    try:
        owner = importlib.import_module(owner_name)
    except ModuleNotFoundError:
        owner = getattr(importlib.import_module(module), cls)
    original: Callable[..., Any] = getattr(owner, attribute)
    calls = 0

    def wrapper(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        if name in ("metric", "record") and Path(args[0]).name != f"{name}s.jsonl":
            return original(*args, **kwargs)
        if name == "rotation" and "checkpoint-" not in str(args[0]):
            return original(*args, **kwargs)
        calls += 1
        if calls < int(number):
            return original(*args, **kwargs)
        if name in ("metric", "record"):
            with open(args[0], "ab") as file:
                file.write(json.dumps(args[1]).encode()[:40])
        elif name == "rotation":
            for part in sorted(Path(args[0]).iterdir())[:2]:
                part.unlink()
        elif name in ("checkpoint done", "tokenizer"):
            pass
        else:
            original(*args, **kwargs)
            file = next(Path(value) for value in (*args, *kwargs.values()) if isinstance(value, str | Path))
            os.truncate(file, file.stat().st_size // 2)
        die()

    setattr(owner, attribute, wrapper)


def reward_by_first_token() -> None:
    """Rewards that an untrained policy can earn, so that reinforcement learning has something to change."""
    from opensearch_vl.protocols import QueryScore
    from opensearch_vl.rl import rollouts
    from opensearch_vl.scoring.score import Scored
    from opensearch_vl.types import RewardParts, Verdict

    async def score(task: Any, trajectory: Any, judge: Any, settings: Any) -> Scored:
        total = trajectory.steps[0].sampled.token_ids[0] % 5 / 5
        return Scored(Verdict(correct=True), QueryScore(total), None, RewardParts(fmt=1.0, acc=total, total=total))

    rollouts.score_rollout = score


def child(command: list[str], moment: str | None, log: Path) -> int:
    """Fork, run the command, return its wait status: 0, an exit code, or minus the signal."""
    pid = os.fork()
    if pid == 0:
        handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(handle, 1)
        os.dup2(handle, 2)
        try:
            reward_by_first_token()
            if moment is not None and not moment.startswith("after "):
                arm(moment)
            from opensearch_vl.cli import main

            sys.argv = ["osvl", *command]
            main()
            os._exit(0)
        except SystemExit as leaving:
            os._exit(int(leaving.code or 0))
        except BaseException:
            import traceback

            traceback.print_exc()
            os._exit(99)
    if moment is not None and moment.startswith("after "):
        time.sleep(float(moment.removeprefix("after ")))
        os.kill(pid, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def outcome(out: Path) -> dict[str, str]:
    from opensearch_vl.runs import digest

    weights = out / "model" / "model.safetensors"
    whole = hashlib.sha256(weights.read_bytes()).hexdigest() if weights.exists() else ""
    return {"digest": digest(out), "weights": whole}


def main() -> None:
    import warnings

    warnings.simplefilter("ignore")
    import peft  # noqa: F401
    import trl.trainer.grpo_trainer
    import trl.trainer.sft_trainer  # noqa: F401

    plan = json.loads(Path(sys.argv[1]).read_text())
    base = Path(plan["out"])
    results = {}
    for name, moments in plan["scenarios"].items():
        out = base / name.replace(" ", "-").replace(":", "-")
        command = [*plan["command"], "--out", str(out), "--resume", "--json"]
        log = base / f"{out.name}.log"
        codes = [child(command, moment, log) for moment in (*moments, None)]
        results[name] = {"codes": codes, "log": log.read_text()[-3000:]}
        if codes[-1] in (0, 3):
            results[name] |= outcome(out)
        shutil.rmtree(out, ignore_errors=True)
    sys.stdout.write(json.dumps(results))


if __name__ == "__main__":
    main()
