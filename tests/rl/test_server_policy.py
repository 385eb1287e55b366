"""A server as the policy: what it is asked, what is made of its answers, and what becomes of its failures."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import synthetic_world as world

from opensearch_vl.agent.transcript import ChatFormat, Tape
from opensearch_vl.errors import ModelReplyInvalid, ModelUnreachable, TranscriptError
from opensearch_vl.images import ImageStore
from opensearch_vl.protocols import Sampling
from opensearch_vl.rl.rollout_policy import PolicyChat
from opensearch_vl.rl.rollouts import Scene, roll_out
from opensearch_vl.rl.server_policy import ServerPolicy, placeholder_runs
from opensearch_vl.scoring.judges import ExactJudge
from opensearch_vl.scoring.score import RewardSettings


class Server:
    """Stands for TRL's client: answers with given text, and remembers what it was asked."""

    def __init__(self, chat: ChatFormat, replies: list[str], patch_tokens: int | None = None) -> None:
        self.chat = chat
        self.replies = replies
        self.patch_tokens = patch_tokens
        self.asked: list[dict[str, Any]] = []
        self.num_processed = 0

    def image_features(self, images: list[list[Any] | None]) -> list[dict[str, Any] | None]:
        self.num_processed += 1
        places = []
        for image in images[0] or []:
            height, width = image.size[::-1]
            patches = self.chat.image_processor.get_number_of_image_patches(height, width)
            places.append({"offset": 99, "length": self.patch_tokens or patches // 4})
        return [{"mm_placeholders": {"image": places}, "kwargs": "data"}]

    def generate(self, prompts: list[list[int]], **settings: Any) -> dict[str, Any]:
        self.asked.append({"ids": prompts[0], **settings})
        ids = [*self.chat.encode_text(self.replies.pop(0)), self.chat.im_end]
        return {"completion_ids": [ids], "logprobs": [[[-0.5]] * len(ids)]}


@pytest.fixture(scope="module")
def chat(checkpoint: Path) -> ChatFormat:
    return ChatFormat.load(checkpoint)


@pytest.fixture
def store(tmp_path: Path) -> ImageStore:
    return ImageStore(tmp_path)


def policy_of(server: Any, chat: ChatFormat, store: ImageStore) -> ServerPolicy:
    return ServerPolicy(server, chat, store, [chat.im_end])


async def test_a_rollout_through_a_server_is_trained_on_as_it_was_sampled(chat: ChatFormat, store: ImageStore) -> None:
    entities = world.entities(store, 2)
    replies = [step.text for step in world.expert(entities[0], blurred=True).trajectory.steps]
    server = Server(chat, list(replies))
    policy = policy_of(server, chat, store)
    env = world.environment(store, world.Tools(entities))
    scene = Scene(env, ExactJudge(), RewardSettings(), chat)
    task = world.task_of(entities[0], blurred=True)
    outcomes = await roll_out(scene, [task], 1, lambda name: PolicyChat(policy, chat, name), run_seed=0, step=0)
    assert outcomes[0].score.verdict.correct
    transcript = outcomes[0].transcript
    assert chat.tokenizer.decode(transcript.ids[transcript.gen_mask]) == "".join(f"{r}<|im_end|>" for r in replies)
    assert transcript.images == (entities[0].blurred, entities[0].picture)
    for asked in server.asked:
        runs = placeholder_runs(asked["ids"], chat.image_pad)
        placed = asked["features"][0]["mm_placeholders"]["image"]
        assert [(p["offset"], p["length"]) for p in placed] == runs
        assert set(asked["generation_kwargs"]["logit_bias"]) == {str(token) for token in chat.banned}
    assert [len(a["features"][0]["mm_placeholders"]["image"]) for a in server.asked] == [1, 2, 2, 2]
    assert server.num_processed == 2  # features of the same pictures are not made again


async def test_a_server_that_sees_pictures_otherwise_is_refused(chat: ChatFormat, store: ImageStore) -> None:
    entity = world.entities(store, 1)[0]
    tape = Tape(chat, world.Rendering().opening(world.task_of(entity, False).view()))
    policy = policy_of(Server(chat, ["x"], patch_tokens=7), chat, store)
    with pytest.raises(TranscriptError, match=r"\[7\] features"):
        await policy.generate(tape.prompt(), tape.images, Sampling())


async def test_failures_are_typed(chat: ChatFormat, store: ImageStore) -> None:
    class Gone:
        def generate(self, prompts: Any, **settings: Any) -> Any:
            raise ConnectionError("refused")

    class Odd:
        def generate(self, prompts: Any, **settings: Any) -> Any:
            return {"completion_ids": [[1, 2]], "logprobs": [[[-1.0]]]}

    class Empty:
        def generate(self, prompts: Any, **settings: Any) -> Any:
            return {}

    for server, error in ((Gone(), ModelUnreachable), (Odd(), ModelReplyInvalid), (Empty(), ModelReplyInvalid)):
        with pytest.raises(error):
            await policy_of(server, chat, store).generate([1], [], Sampling())


async def test_text_alone_needs_no_features_and_limits_are_told(chat: ChatFormat, store: ImageStore) -> None:
    server = Server(chat, ["ok", "ok"])
    policy = policy_of(server, chat, store)
    sampling = Sampling(temperature=0.3, top_p=0.9, max_tokens=2, stop=("</tool_call>",))
    sampled = await policy.generate([5, 6], [], sampling, seed=2**40 + 3)
    asked = server.asked[0]
    assert asked["features"] is None
    assert (asked["temperature"], asked["top_p"], asked["max_tokens"]) == (0.3, 0.9, 2)
    assert asked["generation_kwargs"]["seed"] == 3
    assert asked["generation_kwargs"]["stop"] == ["</tool_call>"]
    assert (sampled.prompt_len, sampled.finish_reason) == (2, "stop")


def test_runs_of_placeholders() -> None:
    assert placeholder_runs([1, 9, 9, 2, 3, 9, 4], 9) == [(1, 2), (5, 1)]
    assert placeholder_runs([1, 2], 9) == []
