"""The trainer end to end on a tiny policy: pixels reach the loss, resumes are exact, odd rollouts are counted."""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("trl")
transformers = pytest.importorskip("transformers")

import synthetic_world as world  # noqa: E402
from scripted_policy import Odd, Scripted  # noqa: E402

from opensearch_vl.agent.transcript import ChatFormat  # noqa: E402
from opensearch_vl.errors import ConfigError, DataError  # noqa: E402
from opensearch_vl.images import ImageStore  # noqa: E402
from opensearch_vl.protocols import JudgedCase, QueryScore  # noqa: E402
from opensearch_vl.rl.arguments import rl_arguments  # noqa: E402
from opensearch_vl.rl.batch import make_batch  # noqa: E402
from opensearch_vl.rl.loss import LossSettings, policy_loss  # noqa: E402
from opensearch_vl.rl.rollouts import Scene, roll_out, tasks_of_step  # noqa: E402
from opensearch_vl.rl.settings import RlSettings  # noqa: E402
from opensearch_vl.rl.trainer import train_rl, trainer_class  # noqa: E402
from opensearch_vl.runs import RunFolder, digest, read_records  # noqa: E402
from opensearch_vl.scoring.judges import ExactJudge  # noqa: E402
from opensearch_vl.scoring.score import RewardSettings  # noqa: E402
from opensearch_vl.scoring.score import Scored as RolloutScore  # noqa: E402
from opensearch_vl.sft.settings import LoraSettings  # noqa: E402
from opensearch_vl.types import RewardParts, RolloutRecord, Trajectory, Verdict  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")  # third-party deprecations inside the training libraries

torch.set_num_threads(1)


@pytest.fixture(scope="module")
def chat(checkpoint: Path) -> ChatFormat:
    return ChatFormat.load(checkpoint)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> ImageStore:
    return ImageStore(tmp_path_factory.mktemp("pictures"))


@pytest.fixture(scope="module")
def entities(store: ImageStore) -> list[world.Entity]:
    return world.entities(store, 6)


def scene_of(
    chat: ChatFormat, store: ImageStore, entities: list[world.Entity], judge: Any = None, **changes: Any
) -> Scene:
    tools = world.Tools(entities, broken=changes.pop("broken", frozenset()))
    env = world.environment(store, tools, reply_tokens=12, **changes)
    return Scene(env, judge or ExactJudge(), RewardSettings(), chat)


def settings(checkpoint: Path, **changes: Any) -> RlSettings:
    base: dict[str, Any] = {
        "model": str(checkpoint), "prompts_per_step": 2, "group_size": 2, "minibatches": 1, "steps": 2,
        "learning_rate": 1e-3, "per_device": 2, "precision": "fp32", "gradient_checkpointing": False,
        "save_every": 1, "threads": 1, "image_max_pixels": None,
    }  # fmt: skip
    return RlSettings.model_validate(base | changes)


def train(config: RlSettings, scene: Scene, tasks: list[Any], out: Path, model_for: Any = None) -> Any:
    with RunFolder(out, config, resume=(out / "config.yaml").exists()) as run:
        return train_rl(config, scene, tasks, run, out, model_for)


def metrics(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


def parameters(model: Path) -> dict[str, torch.Tensor]:
    """Of a checkpoint, by name; tied ones once."""
    return dict(transformers.AutoModelForImageTextToText.from_pretrained(model).named_parameters())


def says(entity: world.Entity, blurred: bool) -> list[str]:
    """The expert's replies as text."""
    return [step.text for step in world.expert(entity, blurred).trajectory.steps]


# --------------------------------------------------------------------------------------------- end to end


def test_steps_are_taken_and_everything_is_recorded(
    checkpoint: Path, chat: ChatFormat, store: ImageStore, entities: list[world.Entity], tmp_path: Path
) -> None:
    tasks = [world.task_of(entity, blurred=True) for entity in entities]
    config = settings(checkpoint, mode="vanilla")  # an untrained policy is fatal from the start
    report = train(config, scene_of(chat, store, entities), tasks, tmp_path)
    assert (report.num_steps, report.num_rollouts, report.resumed_from) == (2, 8, 0)
    rows = metrics(tmp_path)
    assert [row["step"] for row in rows] == [1, 2]
    for name in (
        "reward/fmt", "reward/acc", "reward/query", "reward/total", "accuracy", "unscored", "fatal/rate",
        "fatal/clamped_share", "fatal/clamped_mean", "fatal/kept_share", "fatal/by/malformed_call", "turns", "calls",
        "errors/no_action", "ended/answered", "tokens/generated", "tokens/trained", "groups/flat", "policy/kl",
        "policy/clip_low", "policy/clip_high", "policy/entropy", "policy/sampling_gap", "tokens_per_s", "loss",
        "grad_norm",
    ):  # fmt: skip
        assert name in rows[0], name
        assert np.isfinite(rows[0][name]), name
    assert rows[0]["policy/sampling_gap"] < 1e-4  # the sampler and the trainer agree on every token
    records = list(read_records(tmp_path, RolloutRecord))
    assert len(records) == 8
    for record in records:
        assert record.training is not None
        assert all(step.sampled is not None for step in record.trajectory.steps)
        assert len(record.training.trained_tokens) == len(record.trajectory.steps)
        assert sum(record.training.trained_tokens) == sum(
            len(step.sampled.token_ids) for step in record.trajectory.steps if step.sampled
        )
    assert ChatFormat.load(report.model).im_end == chat.im_end
    transformers.AutoModelForImageTextToText.from_pretrained(report.model)


def test_in_bf16_the_sampler_and_the_trainer_agree_and_small_updates_are_kept(
    checkpoint: Path,
    chat: ChatFormat,
    store: ImageStore,
    entities: list[world.Entity],
    tmp_path: Path,
    monkeypatch: Any,
) -> None:
    monkeypatch.setattr("opensearch_vl.rl.rollouts.score_rollout", reward_by_first_token)
    tasks = [world.task_of(entity, blurred=True) for entity in entities[:1]]  # one task for both groups of a step
    config = settings(checkpoint, precision="bf16", learning_rate=1e-6, steps=1)
    report = train(config, scene_of(chat, store, entities), tasks, tmp_path)
    assert metrics(tmp_path)[0]["policy/sampling_gap"] < 0.02
    assert [record.trajectory.sample for record in read_records(tmp_path, RolloutRecord)] == [0, 1, 2, 3]
    before, after = parameters(checkpoint), parameters(report.model)
    assert sum(int((after[name] != before[name]).sum()) for name in before) > 0


class Killed(Exception):
    """Stands for kill -9: nothing after it runs."""


async def reward_by_first_token(task: Any, trajectory: Trajectory, judge: Any, settings: Any) -> Any:
    """Rewards that an untrained policy can earn, so that there is something to learn."""
    sampled = trajectory.steps[0].sampled
    total = sampled.token_ids[0] % 5 / 5 if sampled else None
    reward = RewardParts(fmt=1.0, acc=total, query=total, total=total)
    return RolloutScore(Verdict(correct=True), QueryScore(total), None, reward)


@pytest.mark.parametrize("minibatches", [1, 2])
def test_a_killed_run_resumes_to_the_same_digest(
    checkpoint: Path,
    chat: ChatFormat,
    store: ImageStore,
    entities: list[world.Entity],
    tmp_path: Path,
    monkeypatch: Any,
    minibatches: int,
) -> None:
    monkeypatch.setattr("opensearch_vl.rl.rollouts.score_rollout", reward_by_first_token)
    tasks = [world.task_of(entity, blurred=False) for entity in entities]
    config = settings(
        checkpoint, steps=4, minibatches=minibatches, save_every=2, per_device=1, learning_rate=1e-2,
        loss=LossSettings(kl_coef=0.01),
    )  # fmt: skip
    train(config, scene_of(chat, store, entities), tasks, tmp_path / "whole")
    original = RunFolder.metric

    def dies(self: RunFolder, row: dict[str, Any]) -> None:
        original(self, row)
        if row["step"] == 3:
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "metric", dies)
        with pytest.raises(Killed):
            train(config, scene_of(chat, store, entities), tasks, tmp_path / "killed")
    report = train(config, scene_of(chat, store, entities), tasks, tmp_path / "killed")
    assert report.resumed_from == 2
    assert digest(tmp_path / "killed") == digest(tmp_path / "whole")
    rows = metrics(tmp_path / "whole")
    assert rows[-1]["grad_norm"] > 0 and rows[-1]["policy/kl"] > 0
    if minibatches == 2:  # the second update of a generation is off-policy, the first is not
        assert rows[0]["policy/ratio"] == pytest.approx(1.0, abs=1e-5)
        assert rows[1]["policy/ratio"] != pytest.approx(1.0, abs=1e-5)


def test_sgd_moves_the_weights_by_the_rate_times_the_gradient(
    checkpoint: Path,
    chat: ChatFormat,
    store: ImageStore,
    entities: list[world.Entity],
    tmp_path: Path,
    monkeypatch: Any,
) -> None:
    monkeypatch.setattr("opensearch_vl.rl.rollouts.score_rollout", reward_by_first_token)
    tasks = [world.task_of(entity, blurred=False) for entity in entities]
    config = settings(checkpoint, optimizer="sgd", learning_rate=0.5, steps=1, max_grad_norm=1e3)
    report = train(config, scene_of(chat, store, entities), tasks, tmp_path)
    before, after = parameters(checkpoint), parameters(report.model)
    moved = sum(float((after[name] - before[name]).square().sum()) for name in before) ** 0.5
    assert moved == pytest.approx(0.5 * metrics(tmp_path)[0]["grad_norm"], rel=1e-3) and moved > 0


# ------------------------------------------------------------------------------------ adapters and mixtures


def test_adapters_are_trained_rolled_out_and_merged(
    checkpoint: Path,
    chat: ChatFormat,
    store: ImageStore,
    entities: list[world.Entity],
    tmp_path: Path,
    monkeypatch: Any,
) -> None:
    monkeypatch.setattr("opensearch_vl.rl.rollouts.score_rollout", reward_by_first_token)
    tasks = [world.task_of(entity, blurred=False) for entity in entities]
    config = settings(
        checkpoint, lora=LoraSettings(rank=4, alpha=8), steps=3, learning_rate=1e-1, loss=LossSettings(kl_coef=0.01)
    )
    report = train(config, scene_of(chat, store, entities), tasks, tmp_path)
    rows = metrics(tmp_path)
    assert all(row["policy/sampling_gap"] < 1e-4 for row in rows)  # rollouts see the adapters that are trained
    assert rows[0]["policy/kl"] == pytest.approx(0, abs=1e-6) and rows[-1]["policy/kl"] > 1e-6
    before = transformers.AutoModelForImageTextToText.from_pretrained(checkpoint).state_dict()
    after = transformers.AutoModelForImageTextToText.from_pretrained(report.model).state_dict()
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert before.keys() == after.keys() and changed
    assert not [name for name in changed if "visual" in name or "embed_tokens" in name]
    assert (tmp_path / "adapter" / "adapter_config.json").exists()


def test_experts_of_a_mixture_are_balanced(
    moe_checkpoint: Path, chat: ChatFormat, store: ImageStore, entities: list[world.Entity], tmp_path: Path
) -> None:
    tasks = [world.task_of(entity, blurred=False) for entity in entities]
    losses = {}
    for weight in (0.0, 0.5):
        config = settings(moe_checkpoint, router_aux=weight, steps=1, per_device=2, mode="vanilla")
        train(config, scene_of(chat, store, entities), tasks, tmp_path / str(weight))
        losses[weight] = metrics(tmp_path / str(weight))[0]
    assert losses[0.0]["policy/sampling_gap"] < 1e-4 and "policy/router_aux" not in losses[0.0]
    balance = losses[0.5]["policy/router_aux"]
    assert balance >= 0.9  # 1 for each layer's worth of perfectly even routing
    assert losses[0.5]["loss"] - losses[0.0]["loss"] == pytest.approx(0.5 * balance, rel=0.01)


# ----------------------------------------------------------------------------------- pixels reach the loss


def loss_of(
    checkpoint: Path, chat: ChatFormat, store: ImageStore, entities: list[world.Entity], out: Path, zeroed: bool
) -> Any:
    """Gradient of one training step on two scripted rollouts, optionally with the pictures blacked out."""
    scene = scene_of(chat, store, entities)
    tasks = [world.task_of(entities[0], blurred=True)]
    scripts = [says(entities[0], True), ["<think>No idea.</think><response>1</response>"]]
    config = settings(checkpoint, prompts_per_step=1, per_device=2, steps=1)
    model = transformers.AutoModelForImageTextToText.from_pretrained(checkpoint)
    trainer = trainer_class()(config, scene, tasks, None, model, rl_arguments(config, 1.0, out))
    trainer.model_for = Scripted(chat, scripts)
    seen: list[Any] = []
    load = trainer.pixels

    def pixels(images: Any) -> Any:
        loaded = load(images)
        seen.append((list(images), None if loaded is None else loaded[0].shape))
        return loaded if loaded is None or not zeroed else (np.zeros_like(loaded[0]), loaded[1])

    pixels.format = chat  # type: ignore[attr-defined]
    trainer.pixels = pixels
    rows = trainer._generate_and_score_completions([{"slot": 0}, {"slot": 0}])
    loss = trainer._compute_loss(trainer.model, rows)
    loss.backward()
    gradient = torch.cat([p.grad.flatten() for p in model.model.visual.parameters() if p.grad is not None])
    return loss.item(), gradient, seen


def test_pixels_of_every_turn_reach_the_loss(
    checkpoint: Path, chat: ChatFormat, store: ImageStore, entities: list[world.Entity], tmp_path: Path
) -> None:
    _, gradient, seen = loss_of(checkpoint, chat, store, entities, tmp_path / "a", zeroed=False)
    # the first rollout shows the question's picture and the sharpened one; the second only the question's
    assert [images for images, _ in seen] == [[entities[0].blurred, entities[0].picture, entities[0].blurred]]
    assert gradient.abs().max().item() > 0
    _, blind, _ = loss_of(checkpoint, chat, store, entities, tmp_path / "b", zeroed=True)
    assert not torch.allclose(gradient, blind)


# ------------------------------------------------------------------------------------------- odd rollouts


class SilentJudge(ExactJudge):
    """Fails to judge the first `num_silent` answers."""

    def __init__(self, num_silent: int) -> None:
        super().__init__()
        self.num_silent = num_silent
        self.num_asked = 0

    async def accuracy(self, case: JudgedCase) -> Verdict:
        self.num_asked += 1
        if self.num_asked <= self.num_silent:
            return Verdict(correct=None, reason="no reply", judge="silent")
        return await super().accuracy(case)

    async def query(self, case: JudgedCase, trajectory: Trajectory) -> QueryScore:
        return await super().query(case, trajectory)


def test_odd_rollouts_are_counted_and_the_loss_stays_finite(
    checkpoint: Path, chat: ChatFormat, store: ImageStore, entities: list[world.Entity], tmp_path: Path
) -> None:
    bad_call = "<think>x</think><tool_call>{"
    scripts = [
        says(entities[0], False),  # right
        [bad_call] * 5,  # fatal at step 0
        [None],  # the server cannot be reached
        [[], [], []],  # three empty completions: fatal at step 0, not a token to train on
        [[chat.image_pad]],  # one picture too many
        [*says(entities[0], False)[:1], None],  # the server goes away in the middle
    ]
    config = settings(checkpoint, prompts_per_step=1, group_size=6, per_device=6, steps=1)
    scene = scene_of(chat, store, entities)
    report = train(config, scene, [world.task_of(entities[0], False)], tmp_path, Scripted(chat, scripts))
    row = metrics(tmp_path)[0]
    assert np.isfinite(row["loss"]) and np.isfinite(row["grad_norm"])
    assert report.num_unscored == 3
    assert row["unscored"] == pytest.approx(3 / 6)
    assert row["fatal/rate"] == pytest.approx(2 / 6)
    assert row["fatal/by/malformed_call"] == pytest.approx(1 / 2)
    assert row["ended/error"] == pytest.approx(2 / 6)
    by_sample = {record.trajectory.sample: record for record in read_records(tmp_path, RolloutRecord)}
    assert by_sample[2].reason == by_sample[5].reason == "ended by error"
    assert by_sample[4].reason == "tokens that do not fit together"
    assert by_sample[0].training is not None and by_sample[0].training.advantage > 0
    assert by_sample[1].training is not None and by_sample[1].training.advantage == 0  # clamped
    assert by_sample[1].training.relative < 0
    assert sum(by_sample[1].training.trained_tokens) == 0
    assert sum(by_sample[0].training.trained_tokens) > 0


def not_numbers(chat: ChatFormat, text: str) -> Odd:
    return Odd([*chat.encode_text(text), chat.im_end], float("nan"))


def test_groups_without_anything_to_learn_from_change_no_weight(
    checkpoint: Path, chat: ChatFormat, store: ImageStore, entities: list[world.Entity], tmp_path: Path
) -> None:
    """A group that is masked whole, one with one scored member, and one with a reward that is no number."""
    right, wrong = says(entities[0], False), ["<think>I guess.</think><response>1200</response>"]
    bad_call = ["<think>x</think><tool_call>{"] * 5
    scripts = [
        *[bad_call, [[], [], []], bad_call],  # all fatal at step 0: f = 0, nothing to train on
        *[right, [None], [not_numbers(chat, wrong[0])]],  # one scored; a server that is gone; NaN log-probabilities
        *[right, [*right[:2], [chat.image_pad]], [None]],  # one scored by a judge without a number; a picture too many
    ]

    class NoNumber(ExactJudge):
        async def query(self, case: JudgedCase, trajectory: Trajectory) -> QueryScore:
            return QueryScore(float("nan")) if case.question == "?" else await super().query(case, trajectory)

    tasks = [world.task_of(entity, False) for entity in entities[:3]]
    order = tasks_of_step(3, 3, 0, 0)
    tasks[order[2]] = tasks[order[2]].model_copy(update={"question": "?"})
    config = settings(checkpoint, prompts_per_step=3, group_size=3, per_device=9, steps=1)
    report = train(config, scene_of(chat, store, entities, NoNumber()), tasks, tmp_path, Scripted(chat, scripts))
    row = metrics(tmp_path)[0]
    assert row["loss"] == 0 and row["grad_norm"] == 0 and all(np.isfinite(value) for value in row.values())
    assert row["groups/flat"] == pytest.approx(1 / 3) and row["groups/small"] == pytest.approx(2 / 3)
    assert row["fatal/rate"] == pytest.approx(3 / 9) and row["unscored"] == pytest.approx(5 / 9)
    assert report.num_unscored == 5
    reasons = Counter(record.reason for record in read_records(tmp_path, RolloutRecord))
    assert reasons == {
        "": 4,
        "ended by error": 2,
        "log-probabilities that are no numbers": 1,
        "judge silent": 1,
        "tokens that do not fit together": 1,
    }
    before = transformers.AutoModelForImageTextToText.from_pretrained(checkpoint).state_dict()
    after = transformers.AutoModelForImageTextToText.from_pretrained(report.model).state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_an_update_that_is_not_finite_is_dropped(
    checkpoint: Path,
    chat: ChatFormat,
    store: ImageStore,
    entities: list[world.Entity],
    tmp_path: Path,
    monkeypatch: Any,
) -> None:
    monkeypatch.setattr("opensearch_vl.rl.rollouts.score_rollout", reward_by_first_token)
    calls = []

    def broken(*args: Any, **kwargs: Any) -> Any:
        parts = policy_loss(*args, **kwargs)
        calls.append(1)
        return replace(parts, loss=parts.loss * torch.nan) if len(calls) == 1 else parts

    monkeypatch.setattr("opensearch_vl.rl.trainer.policy_loss", broken)
    tasks = [world.task_of(entity, blurred=False) for entity in entities]
    report = train(settings(checkpoint, per_device=4), scene_of(chat, store, entities), tasks, tmp_path)
    rows = metrics(tmp_path)
    assert [row.get("dropped_updates") for row in rows] == [1, None]
    assert rows[0]["loss"] is None and np.isfinite(rows[1]["loss"]) and rows[1]["policy/ratio"] == pytest.approx(1)
    after = transformers.AutoModelForImageTextToText.from_pretrained(report.model).state_dict()
    assert all(bool(weight.isfinite().all()) for weight in after.values())


@pytest.mark.parametrize(("silent", "unscored"), [(2, 0), (100, 2)])
async def test_a_silent_judge_is_asked_again_and_then_left_out(
    chat: ChatFormat, store: ImageStore, entities: list[world.Entity], silent: int, unscored: int
) -> None:
    judge = SilentJudge(silent)
    scene = scene_of(chat, store, entities, judge=judge)
    model_for = Scripted(chat, [says(entities[0], False)])
    outcomes = await roll_out(scene, [world.task_of(entities[0], False)], 2, model_for, run_seed=0, step=0)
    assert sum(outcome.reason == "judge silent" for outcome in outcomes) == unscored
    batch = make_batch([outcome.scored for outcome in outcomes])
    assert batch.counts.num_unscored == unscored
    assert judge.num_asked == (4 if silent == 2 else 6)


async def test_rewards_follow_the_rollouts(chat: ChatFormat, store: ImageStore, entities: list[world.Entity]) -> None:
    wrong = ["<think>I guess.</think><response>1200</response>"]
    scene = scene_of(chat, store, entities)
    tasks = [world.task_of(entities[1], True), world.task_of(entities[2], False)]
    scripts = [says(entities[1], True), wrong, says(entities[2], False), wrong]
    outcomes = await roll_out(scene, tasks, 2, Scripted(chat, scripts), run_seed=0, step=0)
    assert [outcome.group for outcome in outcomes] == [0, 0, 1, 1]
    assert [outcome.score.verdict.correct for outcome in outcomes] == [True, False, True, False]
    batch = make_batch([outcome.scored for outcome in outcomes])
    assert (batch.advantages > 0).tolist() == [True, False, True, False]


# ---------------------------------------------------------------------------------------------- settings


def test_tasks_of_a_step_are_passes_over_all_tasks() -> None:
    chosen = [index for generation in range(5) for index in tasks_of_step(10, 4, seed=1, generation=generation)]
    assert sorted(chosen[:10]) == sorted(chosen[10:20]) == list(range(10))
    assert chosen[:10] != chosen[10:20]
    assert tasks_of_step(10, 4, 1, 3) == tasks_of_step(10, 4, 1, 3)
    assert len(tasks_of_step(3, 8, 0, 0)) == 8  # more prompts than tasks


@pytest.mark.parametrize(
    ("changes", "temperature", "message"),
    [
        ({"per_device": 3}, 1.0, "do not divide"),
        ({"minibatches": 2, "save_every": 3, "per_device": 1}, 1.0, "multiple of minibatches"),
        ({}, 0.0, "temperature above 0"),
    ],
)
def test_settings_that_do_not_fit_are_refused(
    checkpoint: Path, tmp_path: Path, changes: dict[str, Any], temperature: float, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        rl_arguments(settings(checkpoint, **changes), temperature, tmp_path)


def test_two_different_ks_are_refused(
    checkpoint: Path, chat: ChatFormat, store: ImageStore, entities: list[world.Entity], tmp_path: Path
) -> None:
    scene = scene_of(chat, store, entities, fatal_after=5)
    with pytest.raises(ConfigError, match="both are K"):
        train_rl(settings(checkpoint), scene, [world.task_of(entities[0], False)], None, tmp_path)


def test_no_tasks_is_one_clear_error(
    checkpoint: Path, chat: ChatFormat, store: ImageStore, entities: list[world.Entity], tmp_path: Path
) -> None:
    with pytest.raises(DataError, match="no tasks"):
        train_rl(settings(checkpoint), scene_of(chat, store, entities), [], None, tmp_path)
