"""A miniature checkpoint, made once per session, and small runs to train it on."""

from pathlib import Path

import pytest

TEXTS = [
    "<think>The picture shows the front of a station; I search for it by image.</think>"
    '<tool_call>{"name": "image_search", "arguments": {"url": "img_1"}}</tool_call>',
    "<think>Found it. Now the year.</think><response>It opened in 1931.</response>",
    "[Passage 1]\nTitle: Velmora Station\nURL: https://miniature.invalid/wiki/Velmora\nSummary: Opened on 15 May 1931.",
    "Answer the question about the picture. You may call text_search, image_search, crop, sharpen.",
] * 3


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a freshly initialised miniature policy with a small vocabulary."""
    pytest.importorskip("transformers").utils.logging.disable_progress_bar()
    from opensearch_vl.sft.model_init import MiniatureShape, init_miniature

    out = tmp_path_factory.mktemp("policy")
    shape = MiniatureShape(vocab_size=400, hidden=64, layers=2, heads=2, kv_heads=1, mlp=96, vision_hidden=32)
    init_miniature(out, TEXTS, seed=0, shape=shape)
    return out


@pytest.fixture(scope="session")
def moe_checkpoint(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same tokenizer and pictures with a mixture of four experts, two of them active, as the language model."""
    import json
    import shutil

    transformers = pytest.importorskip("transformers")
    torch = pytest.importorskip("torch")
    out = tmp_path_factory.mktemp("moe") / "policy"
    shutil.copytree(checkpoint, out)
    dense = json.loads((out / "config.json").read_text())
    text = {key: value for key, value in dense["text_config"].items() if key != "model_type"}
    text |= {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 48, "decoder_sparse_step": 1}
    vision = {key: value for key, value in dense["vision_config"].items() if key != "model_type"}
    names = ("image_token_id", "video_token_id", "vision_start_token_id", "vision_end_token_id", "tie_word_embeddings")
    config = transformers.Qwen3VLMoeConfig(
        text_config=text, vision_config=vision, **{name: dense[name] for name in names}
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        transformers.Qwen3VLMoeForConditionalGeneration(config).save_pretrained(out)
    return out


def make_runs(root: Path) -> None:
    """Write a run of questions and a run of trajectories: ``ROOT/questions``, ``ROOT/trajectories``."""
    import synthetic_world as world

    from opensearch_vl.images import ImageStore
    from opensearch_vl.runs import RunFolder
    from opensearch_vl.sft.synthesis import describe
    from opensearch_vl.sft.trajectory_config import TrajectoryConfig
    from opensearch_vl.types import QuestionRecord

    questions = RunFolder(root / "questions", TrajectoryConfig())
    with questions:
        entities = world.entities(questions.images, 6)
        for number, entity in enumerate(entities):
            task = world.task_of(entity, bool(number % 2))
            questions.append(QuestionRecord(id=task.id, task=task))
    env = world.environment(ImageStore(root / "questions" / "images"), world.Tools(entities))
    with RunFolder(root / "trajectories", TrajectoryConfig(agent=env.settings)) as run:
        run.write_manifest(agent=describe(env))
        for record in world.records(run.images, 6):
            run.append(record)
