"""A vLLM server as the policy of rollouts, spoken to in token ids, so that what it samples is what is trained.

The server processes pictures once (`image_features`) and generates from ids with the features placed at our own
placeholders; TRL's client does the HTTP, and TRL's trainer streams new weights to the same server after each step. The
server must run in server mode, with a weight-transfer engine and ``--logprobs-mode processed_logprobs``.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from itertools import groupby
from typing import Any, Protocol

from opensearch_vl.agent.transcript import ChatFormat
from opensearch_vl.errors import ModelReplyInvalid, ModelUnreachable, TranscriptError
from opensearch_vl.images import ImageStore
from opensearch_vl.protocols import Sampling
from opensearch_vl.types import ImageRef, Sampled

BANNED_BIAS = -100.0
"""Logit bias of tokens that must not be sampled; vLLM adds it to the logit, and −100 leaves no probability."""


class TokenClient(Protocol):
    """What is needed of `trl.generation.vllm_client.VLLMClient`."""

    def image_features(self, images: list[list[Any] | None]) -> list[dict[str, Any] | None]:
        """Processed pictures of each conversation."""
        ...

    def generate(self, prompts: list[list[int]], **settings: Any) -> dict[str, Any]:
        """`completion_ids` and `logprobs` of each prompt."""
        ...


class ServerPolicy:
    """Turns decoded by a server.

    Args:
        client: How it is spoken to.
        chat_format: Of the checkpoint that it serves.
        store: Where pictures are.
        stop_ids: Tokens that end a turn.
        name: What trajectories call it.
        max_cached: Pictures whose features are kept.
    """

    def __init__(
        self,
        client: TokenClient,
        chat_format: ChatFormat,
        store: ImageStore,
        stop_ids: Sequence[int],
        name: str = "policy",
        *,
        max_cached: int = 4096,
    ) -> None:
        self.client = client
        self.format = chat_format
        self.store = store
        self.stop_ids = frozenset(stop_ids)
        self.name = name
        self.max_cached = max_cached
        self._features: OrderedDict[tuple[str, ...], dict[str, Any]] = OrderedDict()

    def open(self, conversation: str) -> None:
        """Nothing to announce: the server batches by itself."""

    def close(self, conversation: str) -> None:
        """Nothing is held per conversation; the server's prefix cache does that."""

    async def generate(
        self,
        token_ids: Sequence[int],
        images: Sequence[ImageRef],
        sampling: Sampling,
        *,
        seed: int = 0,
        conversation: str = "",
    ) -> Sampled:
        """Continue `token_ids`.

        Raises:
            ModelUnreachable: If the server does not answer.
            ModelReplyInvalid: If its answer is not of the expected form.
            TranscriptError: If it makes another number of features of a picture than there are placeholders.
        """
        return await asyncio.to_thread(self._generate, list(token_ids), list(images), sampling, seed)

    def _generate(self, ids: list[int], images: list[ImageRef], sampling: Sampling, seed: int) -> Sampled:
        settings: dict[str, Any] = {
            "seed": seed % 2**31,
            "stop_token_ids": sorted(self.stop_ids),
            "logit_bias": {str(token): BANNED_BIAS for token in self.format.banned},
        }
        if sampling.stop:
            settings |= {"stop": list(sampling.stop), "include_stop_str_in_output": True}
        try:
            features = self._features_of(images)
            reply = self.client.generate(
                [ids],
                features=[self._placed(features, ids)] if features is not None else None,
                temperature=sampling.temperature,
                top_p=sampling.top_p,
                max_tokens=sampling.max_tokens,
                logprobs=0,
                generation_kwargs=settings,
            )
        except OSError as error:  # what requests raises when a server cannot be reached
            raise ModelUnreachable(f"The policy server did not answer: {error}.") from error
        return self._sampled(ids, reply, sampling)

    def _sampled(self, ids: list[int], reply: dict[str, Any], sampling: Sampling) -> Sampled:
        try:
            tokens = tuple(int(token) for token in reply["completion_ids"][0])
            logprobs = tuple(float(place[0]) for place in reply["logprobs"][0])
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise ModelReplyInvalid(f"The policy server's reply has not the expected form: {error!r}.") from error
        if len(tokens) != len(logprobs):
            raise ModelReplyInvalid(f"The policy server gave {len(tokens)} tokens and {len(logprobs)} probabilities.")
        ended = bool(tokens) and tokens[-1] in self.stop_ids
        reason = "stop" if ended or len(tokens) < sampling.max_tokens else "length"
        return Sampled(prompt_len=len(ids), token_ids=tokens, logprobs=logprobs, finish_reason=reason)

    def _features_of(self, images: list[ImageRef]) -> dict[str, Any] | None:
        if not images:
            return None
        key = tuple(image.sha256 for image in images)
        if key not in self._features:
            made = self.client.image_features([[self.store.open(image) for image in images]])[0]
            if made is None:
                raise ModelReplyInvalid("The policy server made no features of the pictures.")
            self._features[key] = made
            while len(self._features) > self.max_cached:
                self._features.popitem(last=False)
        return self._features[key]

    def _placed(self, features: dict[str, Any], ids: list[int]) -> dict[str, Any]:
        """The features with their places in our conversation; one run of placeholders per picture, in order."""
        runs = placeholder_runs(ids, self.format.image_pad)
        theirs = [place["length"] for place in features["mm_placeholders"]["image"]]
        if theirs != [length for _, length in runs]:
            raise TranscriptError(
                f"The server makes {theirs} features of the pictures, but {[length for _, length in runs]} "
                "placeholders stand for them; give both the same bound on pixels."
            )
        placed = [{"offset": offset, "length": length} for offset, length in runs]
        return {**features, "mm_placeholders": {**features["mm_placeholders"], "image": placed}}


def placeholder_runs(ids: Sequence[int], image_pad: int) -> list[tuple[int, int]]:
    """Offset and length of every run of placeholders; pictures are apart because each has its own start and end."""
    runs = []
    at = 0
    for is_pad, run in groupby(ids, key=lambda token: token == image_pad):
        length = sum(1 for _ in run)
        if is_pad:
            runs.append((at, length))
        at += length
    return runs
