"""Batched decoding with kept keys and values says what the model says when it reads everything anew."""

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import synthetic_world as world  # noqa: E402
from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from opensearch_vl.agent.pixels import Pixels  # noqa: E402
from opensearch_vl.agent.transcript import ChatFormat, Tape, Transcript, transcribe  # noqa: E402
from opensearch_vl.errors import TranscriptError  # noqa: E402
from opensearch_vl.images import ImageStore  # noqa: E402
from opensearch_vl.protocols import Message, Sampling, TextPart  # noqa: E402
from opensearch_vl.rl.decoding import Decoder, Request  # noqa: E402
from opensearch_vl.rl.memory import Memory, rope_positions  # noqa: E402
from opensearch_vl.rl.rollout_policy import LocalPolicy, PolicyChat  # noqa: E402
from opensearch_vl.sft.collate import model_inputs  # noqa: E402
from opensearch_vl.types import Sampled  # noqa: E402

torch.set_num_threads(1)


@pytest.fixture(scope="module")
def chat(checkpoint: Path) -> ChatFormat:
    return ChatFormat.load(checkpoint)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> ImageStore:
    return ImageStore(tmp_path_factory.mktemp("pictures"))


@pytest.fixture(scope="module")
def model(checkpoint: Path) -> Any:
    loaded = transformers.AutoModelForImageTextToText.from_pretrained(checkpoint)
    with torch.no_grad():  # at its initial scale the model is nearly uniform; make it opinionated
        loaded.model.language_model.embed_tokens.weight.mul_(3)
    return loaded.eval()


@pytest.fixture
def decoder(model: Any, chat: ChatFormat, store: ImageStore) -> Decoder:
    return Decoder(model, Pixels(chat, store), [chat.im_end])


def contexts(chat: ChatFormat, store: ImageStore, num: int = 4) -> list[tuple[list[int], list[Any]]]:
    """Contexts of different lengths, with and without pictures, cut in the middle of expert conversations."""
    made = []
    for n, record in enumerate(world.records(store, num)):
        rendering = world.Rendering()
        steps = record.trajectory.steps[: n % 3]
        tape = Tape(chat, rendering.opening(record.task.view()))
        for step in steps:
            tape.add_reply(step.text, None)
            tape.add_messages(rendering.answer(step))
        made.append((tape.prompt(), list(tape.images)))
    made.append(([*chat.encode_text("no picture at all")], []))
    return made


def full_logps(model: Any, decoder: Decoder, ids: list[int], images: list[Any], temperature: float = 1.0) -> Any:
    row = np.array([ids], dtype=np.int64)
    inputs = model_inputs(row, [images], decoder.pixels)
    with torch.no_grad():
        return (model(**inputs).logits[0] / temperature).log_softmax(-1)


def decode(decoder: Decoder, requests: list[Request]) -> list[Sampled]:
    out: dict[int, Sampled] = {}
    decoder.run(requests, lambda index, sampled: out.__setitem__(index, sampled))
    return [out[index] for index in range(len(requests))]


# ----------------------------------------------------------------------------------------------- positions


def test_positions_equal_the_models_own(model: Any, decoder: Decoder, chat: ChatFormat, store: ImageStore) -> None:
    for ids, images in contexts(chat, store, 6):
        row = np.array([ids], dtype=np.int64)
        inputs = model_inputs(row, [images], decoder.pixels)
        if not images:
            continue
        theirs, delta = model.model.get_rope_index(
            inputs["input_ids"], inputs["mm_token_type_ids"], image_grid_thw=inputs["image_grid_thw"]
        )
        ours, following = rope_positions(ids, chat.image_pad, decoder._grids(images), 0)
        np.testing.assert_array_equal(ours, theirs[:, 0].numpy())
        assert following == len(ids) + int(delta)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.one_of(st.none(), st.tuples(st.integers(1, 4), st.integers(1, 4))), max_size=12), st.data())
def test_positions_in_pieces_are_positions_in_one(blocks: list[tuple[int, int] | None], data: st.DataObject) -> None:
    pieces = [([1], []) if block is None else ([9] * (block[0] * block[1]), [block]) for block in blocks]
    whole, end = rope_positions([t for p, _ in pieces for t in p], 9, [g for _, gs in pieces for g in gs], 3)
    cut = data.draw(st.integers(0, len(pieces)))
    parts, at = [], 3
    for half in (pieces[:cut], pieces[cut:]):
        part, at = rope_positions([t for p, _ in half for t in p], 9, [g for _, gs in half for g in gs], at)
        parts.append(part)
    np.testing.assert_array_equal(np.concatenate(parts, axis=1), whole)
    assert at == end


# ------------------------------------------------------------------------------------------------ decoding


def test_greedy_decoding_takes_the_likeliest_token_and_reports_its_log_probability(
    model: Any, decoder: Decoder, chat: ChatFormat, store: ImageStore
) -> None:
    requests = [
        Request(ids, images, Sampling(temperature=0.0, max_tokens=3 + 2 * n), 0, Memory())
        for n, (ids, images) in enumerate(contexts(chat, store))
    ]
    for request, sampled in zip(requests, decode(decoder, requests), strict=True):
        assert sampled.prompt_len == len(request.ids)
        everything = [*request.ids, *sampled.token_ids]
        logps = full_logps(model, decoder, everything, list(request.images))
        for n, (token, logprob) in enumerate(zip(sampled.token_ids, sampled.logprobs, strict=True)):
            row = logps[len(request.ids) + n - 1].clone()
            assert row[token].item() == pytest.approx(logprob, abs=1e-4)
            row[list(chat.banned)] = -np.inf
            assert row.max().item() == pytest.approx(row[token].item(), abs=1e-4)


def test_a_second_turn_from_memory_equals_reading_everything_anew(
    model: Any, decoder: Decoder, chat: ChatFormat, store: ImageStore
) -> None:
    sampling = Sampling(temperature=1.0, max_tokens=6)
    requests = [Request(ids, images, sampling, n, Memory()) for n, (ids, images) in enumerate(contexts(chat, store))]
    first = decode(decoder, requests)
    extra = world.entities(store, 1, seed=9)[0].picture
    added, images = chat.encode([Message("user", (TextPart("look"), *[part_of(extra)]))])
    second = []
    for n, (request, sampled) in enumerate(zip(requests, first, strict=True)):
        tail = added if n % 2 else chat.encode_text(" and then?")
        shown = [*request.images, *(images if n % 2 else [])]
        second.append(Request([*request.ids, *sampled.token_ids, *tail], shown, sampling, 100 + n, request.memory))
        assert len(request.memory.ids) == len(request.ids) + len(sampled.token_ids) - 1
    fresh = [Request(r.ids, r.images, r.sampling, r.seed, Memory()) for r in second]
    kept, anew = decode(decoder, second), decode(decoder, fresh)
    for a, b, request in zip(kept, anew, second, strict=True):
        assert a.token_ids == b.token_ids
        np.testing.assert_allclose(a.logprobs, b.logprobs, atol=1e-4)
        logps = full_logps(model, decoder, [*request.ids, *a.token_ids], list(request.images))
        for n, token in enumerate(a.token_ids):
            assert logps[len(request.ids) + n - 1, token].item() == pytest.approx(a.logprobs[n], abs=1e-4)


def part_of(ref: Any) -> Any:
    from opensearch_vl.protocols import ImagePart

    return ImagePart(ref)


def test_a_draw_belongs_to_its_seed_and_not_to_its_batch(decoder: Decoder, chat: ChatFormat, store: ImageStore) -> None:
    sampling = Sampling(temperature=0.9, max_tokens=12)
    made = contexts(chat, store)
    together = decode(decoder, [Request(i, p, sampling, n, Memory()) for n, (i, p) in enumerate(made)])
    alone = [decode(decoder, [Request(i, p, sampling, n, Memory())])[0] for n, (i, p) in enumerate(made)]
    assert [s.token_ids for s in together] == [s.token_ids for s in alone]
    ids, images = made[0]
    group = decode(decoder, [Request(ids, images, sampling, seed, Memory()) for seed in range(6)])
    assert len({s.token_ids for s in group}) > 1  # rollouts of a group share the reading, not the draws


def test_sampling_follows_the_distribution(model: Any, decoder: Decoder, chat: ChatFormat) -> None:
    ids = chat.encode_text("the")
    num = 3000
    temperature = 0.7
    requests = [
        Request(ids, [], Sampling(temperature=temperature, max_tokens=1), seed, Memory()) for seed in range(num)
    ]
    counts = np.bincount([s.token_ids[0] for s in decode(decoder, requests)], minlength=len(chat.tokenizer))
    expected = full_logps(model, decoder, ids, [], temperature)[-1].exp().numpy().astype(np.float64)
    expected[list(chat.banned)] = 0
    expected /= expected.sum()
    assert counts[list(chat.banned)].sum() == 0
    top = np.argsort(-expected)[:5]
    np.testing.assert_allclose(counts[top] / num, expected[top], atol=4 * np.sqrt(0.25 / num))


def test_top_p_keeps_the_nucleus(decoder: Decoder, chat: ChatFormat) -> None:
    ids = chat.encode_text("the")
    requests = [Request(ids, [], Sampling(temperature=1.0, top_p=1e-6, max_tokens=2), n, Memory()) for n in range(8)]
    greedy = Request(ids, [], Sampling(temperature=0.0, max_tokens=2), 0, Memory())
    assert {s.token_ids for s in decode(decoder, requests)} == {decode(decoder, [greedy])[0].token_ids}


def test_limits_stops_and_the_length_of_the_context(decoder: Decoder, chat: ChatFormat) -> None:
    ids = chat.encode_text("a")
    first = decode(decoder, [Request(ids, [], Sampling(temperature=0.0, max_tokens=5), 0, Memory())])[0]
    assert (len(first.token_ids), first.finish_reason) == (5, "length")
    text = chat.tokenizer.decode(first.token_ids[:2])
    stop = Request(ids, [], Sampling(temperature=0.0, max_tokens=5, stop=(text,)), 0, Memory())
    stopped = decode(decoder, [stop])[0]
    assert (stopped.token_ids, stopped.finish_reason) == (first.token_ids[:2], "stop")
    decoder.stop_ids = frozenset({first.token_ids[0]})
    ended = decode(decoder, [Request(ids, [], Sampling(temperature=0.0, max_tokens=5), 0, Memory())])[0]
    assert (ended.token_ids, ended.finish_reason) == (first.token_ids[:1], "stop")
    decoder.stop_ids, decoder.max_context = frozenset(), len(ids) + 3
    full = decode(decoder, [Request(ids, [], Sampling(temperature=0.0, max_tokens=50), 0, Memory())])[0]
    assert (len(full.token_ids), full.finish_reason) == (3, "length")


def test_a_memory_that_is_no_prefix_is_dropped(decoder: Decoder, chat: ChatFormat) -> None:
    sampling = Sampling(temperature=0.0, max_tokens=4)
    request = Request(chat.encode_text("one thing"), [], sampling, 0, Memory())
    decode(decoder, [request])
    other = chat.encode_text("another")
    kept = decode(decoder, [Request(other, [], sampling, 0, request.memory)])[0]
    assert kept == decode(decoder, [Request(other, [], sampling, 0, Memory())])[0]


# -------------------------------------------------------------------------------------- the asynchronous side


async def converse(policy: LocalPolicy, chat: ChatFormat, record: Any, name: str, delay: float) -> Transcript:
    """A rollout with made-up observations; the transcript of what was sampled."""
    rendering = world.Rendering()
    talk = PolicyChat(policy, chat, name)
    opening = list(rendering.opening(record.task.view()))
    messages = list(opening)
    steps = []
    try:
        for step in record.trajectory.steps[:2]:
            reply = await talk.complete(messages, (), Sampling(temperature=0.8, max_tokens=8), seed=len(messages))
            await asyncio.sleep(delay)
            done = step.model_copy(update={"text": reply.content, "sampled": reply.sampled, "index": len(steps)})
            steps.append(done)
            messages += [Message("assistant", (TextPart(reply.content),)), *rendering.answer(done)]
    finally:
        talk.close()
    return transcribe(chat, opening, steps, rendering.answer)


@pytest.mark.parametrize("lockstep", [False, True])
async def test_concurrent_rollouts_give_the_transcripts_that_were_sampled(
    decoder: Decoder, chat: ChatFormat, store: ImageStore, lockstep: bool
) -> None:
    records = world.records(store, 5)
    policy = LocalPolicy(decoder, max_rows=3, lockstep=lockstep)
    together = await asyncio.gather(
        *(converse(policy, chat, record, f"c{n}", 0.01 * n) for n, record in enumerate(records))
    )
    assert not policy._memories
    for n, record in enumerate(records):
        alone = await converse(LocalPolicy(decoder), chat, record, "alone", 0.0)
        assert alone.ids.tolist() == together[n].ids.tolist()
        np.testing.assert_allclose(alone.logprobs[alone.gen_mask], together[n].logprobs[alone.gen_mask], atol=1e-4)


async def test_lockstep_batches_do_not_depend_on_the_tools_speed(
    decoder: Decoder, chat: ChatFormat, store: ImageStore
) -> None:
    records = world.records(store, 4)
    runs = []
    for delays in ((0.0, 0.02, 0.0, 0.01), (0.02, 0.0, 0.01, 0.0)):
        policy = LocalPolicy(decoder, lockstep=True)
        talks = (converse(policy, chat, r, f"c{n}", d) for n, (r, d) in enumerate(zip(records, delays, strict=True)))
        runs.append(await asyncio.gather(*talks))
    for a, b in zip(*runs, strict=True):
        np.testing.assert_array_equal(a.logprobs, b.logprobs)  # to the last bit


async def test_an_error_in_decoding_reaches_every_rollout_and_the_policy_lives_on(
    decoder: Decoder, chat: ChatFormat, monkeypatch: Any
) -> None:
    policy = LocalPolicy(decoder)

    def broken(*_: Any) -> None:
        raise RuntimeError("out of memory")

    with monkeypatch.context() as patch:
        patch.setattr(decoder, "run", broken)
        results = await asyncio.gather(
            *(policy.generate([1, 2], [], Sampling(max_tokens=1)) for _ in range(3)), return_exceptions=True
        )
    assert [type(r) for r in results] == [RuntimeError] * 3
    assert (await policy.generate([1, 2], [], Sampling(max_tokens=1))).prompt_len == 2


async def test_a_cancelled_rollout_does_not_hold_the_others_up(decoder: Decoder, chat: ChatFormat) -> None:
    policy = LocalPolicy(decoder, lockstep=True)
    policy.open("gone")
    policy.open("here")
    gone = asyncio.create_task(policy.generate([1], [], Sampling(max_tokens=1), conversation="gone"))
    await asyncio.sleep(0)
    gone.cancel()
    here = asyncio.create_task(policy.generate([1, 2], [], Sampling(max_tokens=1), conversation="here"))
    await asyncio.sleep(0.01)
    assert not here.done()
    policy.close("gone")
    assert (await asyncio.wait_for(here, 5)).prompt_len == 2


async def test_a_rewritten_conversation_is_refused(decoder: Decoder, chat: ChatFormat) -> None:
    talk = PolicyChat(LocalPolicy(decoder), chat, "c")
    opening = [Message("user", (TextPart("q"),))]
    await talk.complete(opening, (), Sampling(max_tokens=1))
    with pytest.raises(TranscriptError, match="does not continue"):
        await talk.complete(opening, (), Sampling(max_tokens=1))
