"""What a chat server's refusal means: one typed error with one line that says how to mend it.

Kept apart from the client because servers differ in how they say one thing that a rollout must know for certain: that
the conversation has outgrown the model's context. See `is_context_full`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import httpx2
import openai

from opensearch_vl.backends.pacing import MAX_RETRY_AFTER_S, retry_after
from opensearch_vl.errors import (
    ModelContextFull,
    ModelError,
    ModelKeyRefused,
    ModelRateLimited,
    ModelRefused,
    ModelUnreachable,
)
from opensearch_vl.redaction import redact

_MAX_DETAIL = 400


@dataclass(frozen=True, slots=True)
class Limits:
    """How patient the client was: waits in seconds, and retries."""

    timeout_s: float
    connect_timeout_s: float
    max_retries: int


_FULL_CODES = frozenset({"context_length_exceeded", "context_window_exceeded", "model_context_window_exceeded"})
"""Error codes: OpenAI's, which hosted services copy, and two variants of gateways."""
_FULL_TYPES = frozenset({"exceed_context_size_error", "context_length_exceeded"})
"""Error types: llama.cpp's server has a type and no code."""
_FULL_PARAM = "input_tokens"
"""vLLM from 0.14 on names the parameter that is too large, alone or first of several (``input_tokens, max_tokens``)."""
_FULL_STATUS = frozenset({400, 413, 422})
_FULL_MESSAGE = re.compile(
    r"maximum context length (?:is|of) \(?\d"  # OpenAI's sentence, which vLLM (< 0.14), SGLang and Mistral repeat
    r"|context length is only \d"  # vLLM, prompt and reply together
    r"|maximum model length of \d"  # vLLM, a prompt with pictures
    r"|too long to fit into the model"  # vLLM 0.6
    r"|longer than the model's context length"  # SGLang
    r"|exceeds the available context size"  # llama.cpp before it had the type
    r"|prompt is too long: \d+ tokens"  # hosted services that translate Anthropic's error
    r"|input token count .{0,40}exceeds the maximum",  # Gemini's
    re.IGNORECASE,
)


def is_context_full(error: openai.APIStatusError) -> bool:
    """Whether a refusal says that the conversation is too long for the model.

    Code, type and parameter of the error decide where a server fills them in. Some (SGLang, older vLLM, gateways) say
    it in the message alone; for these, and only when the status is one of a refused request, the known sentences are
    looked for. A message is never consulted to find out anything else.
    """
    if _text(error.code) in _FULL_CODES or _text(error.type) in _FULL_TYPES:
        return True
    if error.status_code not in _FULL_STATUS:
        return False
    if _text(error.param).split(",")[0].strip() == _FULL_PARAM:
        return True
    return _FULL_MESSAGE.search(_said(error)) is not None


def explain(error: openai.OpenAIError, model: str, base_url: str, limits: Limits) -> ModelError:
    """What happened, in one line, and how to mend it."""
    where = redact(base_url)
    said = _detail(error) if isinstance(error, openai.APIStatusError) else ""
    match error:
        case openai.APITimeoutError() if isinstance(error.__cause__, httpx2.ConnectTimeout):
            return ModelUnreachable(
                f"No connection to {where} within {limits.connect_timeout_s:g} s.", "Is the server running, or overrun?"
            )
        case openai.APITimeoutError():
            return ModelUnreachable(
                f"{where} did not answer within {limits.timeout_s:g} s.",
                "Is the model loaded, or the request too long?",
            )
        case openai.APIConnectionError():
            return ModelUnreachable(f"No connection to {where}.", "Is the server running, and the address right?")
        case openai.AuthenticationError() | openai.PermissionDeniedError():
            return ModelKeyRefused(
                f"{where} refused the key (HTTP {error.status_code}).",
                "Put the right key into .env as OSVL_API_KEY or OPENAI_API_KEY.",
            )
        case openai.RateLimitError(code="insufficient_quota"):
            return ModelRefused(f"{where}: the account has no credit left.", "Top it up, or use another server.")
        case openai.RateLimitError():
            asked = retry_after(error.response.headers)
            if asked is not None and asked > MAX_RETRY_AFTER_S:
                return ModelRateLimited(f"{where} asks for a pause of {asked:.0f} s (HTTP 429).", "Try again later.")
            return ModelRateLimited(
                f"{where} keeps asking to slow down (HTTP 429), after {limits.max_retries} retries.",
                "Run fewer rollouts in parallel.",
            )
        case openai.NotFoundError():
            return ModelRefused(
                f"{where} knows no model {model!r}, or no chat completions (HTTP 404).{said}",
                "Check --model, and that --base-url ends in /v1.",
            )
        case openai.APIStatusError() if is_context_full(error):
            return ModelContextFull(
                f"The conversation is too long for {model}.{said}",
                "Lower max_tokens of the agent or sampling.max_tokens, or serve the model with a longer context.",
            )
        case openai.APIStatusError() if error.status_code >= 500:
            return ModelUnreachable(
                f"{where} failed (HTTP {error.status_code}) on {limits.max_retries + 1} tries.{said}",
                "Look at the server's log.",
            )
        case openai.APIStatusError():
            return ModelRefused(
                f"{where} refused the request (HTTP {error.status_code}).{said}", "Does the model take pictures?"
            )
        case _:
            return ModelError(f"{where}: {redact(str(error))[:_MAX_DETAIL]}")


def _said(error: openai.APIStatusError) -> str:
    return _text(error.body.get("message")) if isinstance(error.body, dict) else ""


def _detail(error: openai.APIStatusError) -> str:
    """What the server itself said, if it said it as such servers do."""
    said = " ".join(_said(error).split())
    return f" It says: {redact(said)[:_MAX_DETAIL]}" if said else ""


def _text(value: Any) -> str:
    """A field of a foreign error, which may hold anything: vLLM's `code` is a number."""
    return value if isinstance(value, str) else ""
