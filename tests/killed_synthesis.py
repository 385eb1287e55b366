"""Run by a test in a process of its own, which is then killed: a synthesis with slow tools."""

import asyncio
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from expert_world import WorldTools, make_task, store_with_photo

from opensearch_vl.agent.environment import Environment
from opensearch_vl.agent.settings import AgentSettings
from opensearch_vl.images import ImageStore
from opensearch_vl.runs import RunFolder
from opensearch_vl.scoring.judges import ExactJudge
from opensearch_vl.seeds import derive
from opensearch_vl.sft.expert import ScriptedExpert
from opensearch_vl.sft.synthesis import SynthesisReport, SynthesisSettings, synthesise
from opensearch_vl.types import Task

SETTINGS = SynthesisSettings(samples=3, max_parallel=3)


def tasks(folder: Path) -> list[Task]:
    _, photo = store_with_photo(folder / "photos")
    return [make_task(n, images=(photo,)) for n in (2, 3, 4)]


def expert_for(task: Task, sample: int) -> ScriptedExpert:
    return ScriptedExpert(task, 0.3, derive("expert", task.id, sample))


async def work(folder: Path, out: Path, *, resume: bool, delay_s: float = 0.0) -> SynthesisReport:
    with RunFolder(out, SETTINGS, resume=resume) as run:
        store = ImageStore(run.images.root, (ImageStore(folder / "photos"),))
        env = Environment(WorldTools(store, delay_s=delay_s), AgentSettings(), store)
        return await synthesise(tasks(folder), env, expert_for, ExactJudge(), run, SETTINGS)


if __name__ == "__main__":
    asyncio.run(work(Path(sys.argv[1]), Path(sys.argv[2]), resume=False, delay_s=0.03))
