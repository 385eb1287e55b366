"""Fine-tuning: what carries loss, that it learns, that a kill changes nothing, and what is left out and why."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("trl")
transformers = pytest.importorskip("transformers")

import synthetic_world as world  # noqa: E402

from opensearch_vl.agent.pixels import Pixels  # noqa: E402
from opensearch_vl.agent.transcript import ChatFormat  # noqa: E402
from opensearch_vl.errors import ConfigError, DataError  # noqa: E402
from opensearch_vl.images import ImageStore  # noqa: E402
from opensearch_vl.runs import RunFolder, digest, read_json_lines  # noqa: E402
from opensearch_vl.sft.collate import IGNORED, Collator  # noqa: E402
from opensearch_vl.sft.examples import Examples, build_examples, texts  # noqa: E402
from opensearch_vl.sft.settings import LoraSettings, SftSettings  # noqa: E402
from opensearch_vl.sft.train import last_checkpoint, sft_arguments, train_sft  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")  # third-party deprecations inside the training libraries


@pytest.fixture(scope="module")
def chat(checkpoint: Path) -> ChatFormat:
    return ChatFormat.load(checkpoint)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> ImageStore:
    return ImageStore(tmp_path_factory.mktemp("pictures"))


@pytest.fixture(scope="module")
def examples(chat: ChatFormat, store: ImageStore) -> Examples:
    return build_examples(world.records(store, 12), world.Rendering(), chat)


def settings(checkpoint: Path, **changes: Any) -> SftSettings:
    base: dict[str, Any] = {
        "model": str(checkpoint), "precision": "fp32", "gradient_checkpointing": False, "batch_size": 4,
        "per_device": 4, "learning_rate": 3e-3, "max_steps": 6, "save_every": 3, "log_every": 1, "threads": 1,
    }  # fmt: skip
    return SftSettings.model_validate(base | changes)


def train(config: SftSettings, chat: ChatFormat, examples: Examples, store: ImageStore, out: Path) -> Any:
    with RunFolder(out, config, resume=(out / "config.yaml").exists()) as run:
        return train_sft(config, chat, examples, store, run, out)


# ------------------------------------------------------------------------------------------ what carries loss


def test_labels_token_by_token(chat: ChatFormat, store: ImageStore) -> None:
    record = world.expert(world.entities(store, 1)[0], blurred=True)
    examples = build_examples([record], world.Rendering(), chat)
    batch = Collator(examples.transcripts, Pixels(chat, store), 0)([{"index": 0}])
    ids, labels = batch["input_ids"][0].tolist(), batch["labels"][0].tolist()
    assert all(label in (IGNORED, token) for token, label in zip(ids, labels, strict=True))
    trained = chat.tokenizer.decode([label for label in labels if label != IGNORED])
    assert trained == "".join(f"{step.text}<|im_end|>" for step in record.trajectory.steps)
    context = chat.tokenizer.decode([t for t, label in zip(ids, labels, strict=True) if label == IGNORED])
    for step in record.trajectory.steps:
        assert step.observation is None or step.observation.text in context
        assert step.text not in context
    assert chat.image_pad not in [label for label in labels if label != IGNORED]


def test_the_loss_is_the_mean_over_action_tokens(
    checkpoint: Path, chat: ChatFormat, examples: Examples, store: ImageStore
) -> None:
    model = transformers.AutoModelForImageTextToText.from_pretrained(checkpoint)
    batch = Collator(examples.transcripts, Pixels(chat, store), 0)([{"index": 0}, {"index": 1}])
    loss = model(**batch).loss.item()
    logps = model(**{k: v for k, v in batch.items() if k != "labels"}).logits.log_softmax(-1)
    by_hand = []
    for row, transcript in enumerate(examples.transcripts[:2]):
        for t in range(1, len(transcript)):
            if transcript.gen_mask[t]:
                by_hand.append(-logps[row, t - 1, int(transcript.ids[t])].item())
    assert loss == pytest.approx(np.mean(by_hand), rel=1e-5)


def test_padding_and_other_rows_do_not_change_a_row(
    checkpoint: Path, chat: ChatFormat, examples: Examples, store: ImageStore
) -> None:
    model = transformers.AutoModelForImageTextToText.from_pretrained(checkpoint).eval()
    collate = Collator(examples.transcripts, Pixels(chat, store), chat.tokenizer.pad_token_id)
    order = sorted(range(4), key=lambda i: len(examples.transcripts[i]))
    alone = collate([{"index": order[0]}])
    together = collate([{"index": i} for i in order])
    length = alone["input_ids"].shape[1]
    with torch.no_grad():
        a = model(**{k: v for k, v in alone.items() if k != "labels"}).logits[0]
        b = model(**{k: v for k, v in together.items() if k != "labels"}).logits[0, :length]
    torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


def test_the_model_sees_the_pixels(checkpoint: Path, chat: ChatFormat, examples: Examples, store: ImageStore) -> None:
    model = transformers.AutoModelForImageTextToText.from_pretrained(checkpoint).eval()
    batch = Collator(examples.transcripts, Pixels(chat, store), 0)([{"index": 0}])
    blank = {**batch, "pixel_values": torch.zeros_like(batch["pixel_values"])}
    with torch.no_grad():
        assert model(**batch).loss.item() != model(**blank).loss.item()
    dropped = {k: v for k, v in batch.items() if k not in ("pixel_values", "image_grid_thw")}
    dropped["input_ids"] = torch.where(dropped["input_ids"] == chat.image_pad, 5, dropped["input_ids"])
    with torch.no_grad():
        assert model(**dropped).loss.item() != model(**batch).loss.item()


# -------------------------------------------------------------------------------------------------- training


def test_it_learns_and_the_checkpoint_is_an_ordinary_one(
    checkpoint: Path, chat: ChatFormat, examples: Examples, store: ImageStore, tmp_path: Path
) -> None:
    report = train(settings(checkpoint, max_steps=25), chat, examples, store, tmp_path / "run")
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == list(range(1, 26))
    assert rows[-1]["loss"] < 0.6 * rows[0]["loss"]
    assert report.num_steps == 25
    model = transformers.AutoModelForImageTextToText.from_pretrained(report.model)
    between = tmp_path / "run" / "checkpoints" / "checkpoint-24"
    assert ChatFormat.load(report.model).im_end == ChatFormat.load(between).im_end == chat.im_end
    batch = Collator(examples.transcripts, Pixels(chat, store), 0)([{"index": 0}])
    start = transformers.AutoModelForImageTextToText.from_pretrained(checkpoint)
    with torch.no_grad():
        assert model(**batch).loss < 0.6 * start(**batch).loss
    visual = [n for n, p in model.named_parameters() if "visual" in n and not torch.equal(p, start.get_parameter(n))]
    assert visual  # the vision tower is trained too


class Killed(Exception):
    """Stands for kill -9: nothing after it runs."""


STAGED: dict[str, Any] = {
    "first": {"trajectories": 5, "steps": 3}, "schedule": "warmup_stable_decay", "warmup": 0.2, "decay": 0.5,
}  # fmt: skip


@pytest.mark.parametrize(
    ("save_every", "staged"),  # three steps are an epoch: within one, and at its end; or the second stage's begin
    [(2, False), (3, False), (2, True), (3, True)],
)
def test_a_killed_run_resumes_to_the_same_digest(
    checkpoint: Path,
    chat: ChatFormat,
    examples: Examples,
    store: ImageStore,
    tmp_path: Path,
    monkeypatch: Any,
    save_every: int,
    staged: bool,
) -> None:
    config = settings(checkpoint, save_every=save_every, **(STAGED if staged else {}))
    examples = replace(examples, num_first=5 if staged else 0)
    train(config, chat, examples, store, tmp_path / "whole")

    def dies(self: RunFolder, row: dict[str, Any]) -> None:
        original(self, row)
        if row["step"] == 5:
            raise Killed

    original = RunFolder.metric
    monkeypatch.setattr(RunFolder, "metric", dies)
    with pytest.raises(Killed):
        train(config, chat, examples, store, tmp_path / "killed")
    monkeypatch.undo()
    (tmp_path / "killed" / "checkpoints" / "checkpoint-5").mkdir()  # a checkpoint cut off while being written
    report = train(config, chat, examples, store, tmp_path / "killed")
    assert report.resumed_from == (4 if save_every == 2 else 3)
    assert digest(tmp_path / "killed") == digest(tmp_path / "whole")
    weights = [
        transformers.AutoModelForImageTextToText.from_pretrained(tmp_path / name / "model").state_dict()
        for name in ("whole", "killed")
    ]
    assert all(torch.equal(weights[0][key], weights[1][key]) for key in weights[0])


def test_adapters_are_merged_into_an_ordinary_checkpoint(
    checkpoint: Path, chat: ChatFormat, examples: Examples, store: ImageStore, tmp_path: Path
) -> None:
    config = settings(checkpoint, lora=LoraSettings(rank=4, alpha=8), max_steps=3)
    report = train(config, chat, examples, store, tmp_path / "run")
    start = transformers.AutoModelForImageTextToText.from_pretrained(checkpoint).state_dict()
    merged = transformers.AutoModelForImageTextToText.from_pretrained(report.model).state_dict()
    assert merged.keys() == start.keys()
    changed = {key for key in start if not torch.equal(start[key], merged[key])}
    assert changed
    assert not [key for key in changed if "visual" in key or "embed_tokens" in key]
    assert (tmp_path / "run" / "adapter" / "adapter_config.json").exists()


def test_experts_of_a_mixture_are_balanced(
    moe_checkpoint: Path, chat: ChatFormat, examples: Examples, store: ImageStore, tmp_path: Path
) -> None:
    losses = []
    for weight in (0.0, 0.5):
        config = settings(moe_checkpoint, router_aux=weight, max_steps=1)
        losses.append(train(config, chat, examples, store, tmp_path / str(weight)).loss)
    assert 0.5 * 0.9 <= losses[1] - losses[0] <= 0.5 * 2.1  # two of four experts a token: 2 when the routing is even


def test_the_checkpoint_is_used_by_plain_transformers(
    checkpoint: Path, chat: ChatFormat, examples: Examples, store: ImageStore, tmp_path: Path
) -> None:
    """What transformers generates greedily after a picture and a question is what our own decoder gives."""
    from opensearch_vl.protocols import Sampling
    from opensearch_vl.rl.decoding import Decoder, Request
    from opensearch_vl.rl.memory import Memory
    from opensearch_vl.rl.rollout_policy import stop_ids

    report = train(settings(checkpoint, max_steps=40), chat, examples, store, tmp_path / "run")
    model = transformers.AutoModelForImageTextToText.from_pretrained(report.model).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(report.model)
    processor = transformers.Qwen2VLImageProcessorPil.from_pretrained(report.model)
    task = world.records(store, 1)[0].task
    ids, images = chat.encode(world.Rendering().opening(task.view()))
    ids += chat.generation_prompt()
    shown = processor([store.open(image) for image in images], return_tensors="pt")
    prompt = torch.tensor([ids])
    out = model.generate(
        input_ids=prompt, attention_mask=torch.ones_like(prompt), mm_token_type_ids=(prompt == chat.image_pad).long(),
        pixel_values=shown["pixel_values"], image_grid_thw=shown["image_grid_thw"], max_new_tokens=24, do_sample=False,
    )  # fmt: skip
    theirs = out[0, len(ids) :].tolist()
    assert len(set(theirs)) > 3 and tokenizer.decode(theirs).startswith("<think>")
    ours: list[Any] = []
    decoder = Decoder(model, Pixels(chat, store), stop_ids(chat))
    request = Request(ids, images, Sampling(temperature=0.0, max_tokens=24), 0, Memory())
    decoder.run([request], lambda index, sampled: ours.append(sampled))
    assert list(ours[0].token_ids) == theirs


def test_gradient_checkpointing_and_a_frozen_vision_tower(
    checkpoint: Path, chat: ChatFormat, examples: Examples, store: ImageStore, tmp_path: Path
) -> None:
    config = settings(checkpoint, gradient_checkpointing=True, freeze_vision=True, max_steps=2, group_by_length=False)
    report = train(config, chat, examples, store, tmp_path / "run")
    start = transformers.AutoModelForImageTextToText.from_pretrained(checkpoint).state_dict()
    end = transformers.AutoModelForImageTextToText.from_pretrained(report.model).state_dict()
    assert all(torch.equal(start[key], end[key]) for key in start if "visual" in key)


# ------------------------------------------------------------------------------------------ what is left out


def test_records_are_left_out_with_a_reason(chat: ChatFormat, store: ImageStore) -> None:
    good, rejected, long, foreign = world.records(store, 4)
    rejected = rejected.model_copy(update={"accepted": False})
    opening = len(build_examples([good], world.Rendering(), chat).transcripts[0]) - 1
    long = long.model_copy(update={"task": long.task.model_copy(update={"question": "why " * 4000})})
    step = foreign.trajectory.steps[0].model_copy(update={"text": ""})
    foreign = foreign.model_copy(update={"trajectory": foreign.trajectory.model_copy(update={"steps": (step,)})})
    examples = build_examples([good, rejected, long, foreign], world.Rendering(), chat, max_tokens=opening)
    assert examples.ids == [good.id]
    assert examples.num_cut_steps == 1
    assert examples.left_out["not accepted"] == 1
    assert sum(examples.left_out.values()) == 3
    assert examples.num_action_tokens < examples.num_tokens
    assert any("founded" in text for text in texts([good], world.Rendering()))


def test_nothing_to_train_on_is_one_clear_error(
    checkpoint: Path, chat: ChatFormat, store: ImageStore, tmp_path: Path
) -> None:
    rejected = [r.model_copy(update={"accepted": None}) for r in world.records(store, 2)]
    empty = build_examples(rejected, world.Rendering(), chat)
    with pytest.raises(DataError, match="2 × not accepted"):
        train_sft(settings(checkpoint), chat, empty, store, None, tmp_path)


def test_the_first_stage_draws_from_its_own_examples_and_needs_some(
    checkpoint: Path, chat: ChatFormat, examples: Examples, store: ImageStore, tmp_path: Path, monkeypatch: Any
) -> None:
    config = settings(checkpoint, **STAGED)
    with pytest.raises(DataError, match="0 of 12 examples are for the first stage"):
        train_sft(config, chat, examples, store, None, tmp_path)
    with pytest.raises(DataError, match="12 of 12"):
        train_sft(config, chat, replace(examples, num_first=12), store, None, tmp_path)
    seen: list[list[int]] = []

    def called(self: Collator, features: Any) -> Any:
        seen.append([feature["index"] for feature in features])
        return original(self, features)

    original = Collator.__call__
    monkeypatch.setattr(Collator, "__call__", called)
    train(config, chat, replace(examples, num_first=5), store, tmp_path / "run")
    drawn = [index for batch in seen for index in batch]
    assert len(drawn) == 24 and set(drawn[:12]) == set(range(5)) and set(drawn[12:]) == set(range(5, 12))
    rates = [row["learning_rate"] for row in read_json_lines(tmp_path / "run" / "metrics.jsonl")]
    assert rates[2] == pytest.approx(3e-3) and rates[-1] < rates[-2] < 3e-3


def test_epochs_are_passes_over_all_examples(
    checkpoint: Path, chat: ChatFormat, examples: Examples, store: ImageStore, tmp_path: Path
) -> None:
    config = settings(checkpoint, max_steps=None, epochs=1.5)
    assert train(config, chat, examples, store, tmp_path / "run").num_steps == 5  # 18 draws of 12, four a step


@pytest.mark.parametrize("precision", ["bf16", "fp32"])
def test_small_updates_are_not_lost(
    checkpoint: Path, chat: ChatFormat, examples: Examples, store: ImageStore, tmp_path: Path, precision: str
) -> None:
    """At 1e-6 an update is smaller than half a bf16 step of most weights."""
    config = settings(checkpoint, precision=precision, learning_rate=1e-6, warmup=0, schedule="constant_with_warmup")
    report = train(config, chat, examples, store, tmp_path / precision)
    load = transformers.AutoModelForImageTextToText.from_pretrained
    before, after = dict(load(checkpoint).named_parameters()), dict(load(report.model).named_parameters())
    moved = sum(int((after[name] != before[name]).sum()) for name in before)
    assert moved > 0.7 * sum(weight.numel() for weight in before.values())


def test_adapters_are_not_trained_where_they_could_not_be_merged(
    checkpoint: Path, chat: ChatFormat, examples: Examples, store: ImageStore, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr("transformers.integrations.is_deepspeed_zero3_enabled", lambda: True)
    config = settings(checkpoint, lora=LoraSettings(rank=4, alpha=8))
    with pytest.raises(ConfigError, match="not trained under ZeRO-3"):
        train_sft(config, chat, examples, store, None, tmp_path)
    with pytest.raises(ValueError, match="muon_adamw trains whole matrices"):
        settings(checkpoint, lora=LoraSettings(), optimizer="muon_adamw")


def test_stages_and_decay_fit_into_the_steps() -> None:
    first = {"trajectories": 5, "steps": 6}
    for wrong in ({"first": first}, {"first": first, "max_steps": 6}):
        with pytest.raises(ValueError, match="must be more than the first stage's 6 steps"):
            SftSettings.model_validate(wrong)
    for wrong in ({}, {"max_steps": 10, "decay": 0.95}):
        with pytest.raises(ValueError, match="needs max_steps, and warmup and decay of at most 1"):
            SftSettings.model_validate({"schedule": "warmup_stable_decay", **wrong})
    assert SftSettings.model_validate({"first": first, "max_steps": 7, "schedule": "warmup_stable_decay"}).decay == 0.5


def test_a_batch_that_does_not_divide_is_refused(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("WORLD_SIZE", "3")
    with pytest.raises(ConfigError, match="256 is not a multiple"):
        sft_arguments(SftSettings(model="x"), tmp_path)


def test_rows_of_metrics_end_at_checkpoints() -> None:
    with pytest.raises(ValueError, match="multiple of log_every 4"):
        SftSettings(save_every=6, log_every=4)
    assert SftSettings(save_every=8, log_every=4).save_every == 8


def test_an_update_that_is_not_finite_is_dropped_and_counted(
    checkpoint: Path, chat: ChatFormat, examples: Examples, store: ImageStore, tmp_path: Path, monkeypatch: Any
) -> None:
    config = settings(checkpoint, max_steps=3)
    calls = []

    def broken(self: Collator, rows: Any) -> Any:
        batch = original(self, rows)
        calls.append(1)
        if len(calls) == 2:
            batch["pixel_values"] = torch.full_like(batch["pixel_values"], torch.nan)
        return batch

    original = Collator.__call__
    monkeypatch.setattr(Collator, "__call__", broken)
    report = train(config, chat, examples, store, tmp_path / "run")
    rows = [json.loads(line, parse_constant=pytest.fail) for line in (tmp_path / "run" / "metrics.jsonl").open()]
    assert [row.get("dropped_updates") for row in rows] == [None, 1, None]
    assert rows[1]["loss"] is None and 0 < rows[2]["loss"] < 1.1 * rows[0]["loss"]  # other examples, one update
    weights = transformers.AutoModelForImageTextToText.from_pretrained(report.model).state_dict()
    assert all(bool(weight.isfinite().all()) for weight in weights.values())


def test_no_checkpoint_means_a_fresh_start(tmp_path: Path) -> None:
    assert last_checkpoint(tmp_path / "none") is None
