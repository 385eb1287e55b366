"""Structured replies: the strictest form that a server takes, found out once, and the same reading everywhere."""

import asyncio
import json

import pytest
from stub_openai import StubOpenAI, Trouble, completion

from opensearch_vl.backends.openai_chat import OpenAIChat
from opensearch_vl.backends.structured import FORMS, fields
from opensearch_vl.errors import ModelRefused
from opensearch_vl.images import ImageStore
from opensearch_vl.protocols import Message, Sampling, TextPart
from opensearch_vl.questions.asking import Asker
from opensearch_vl.questions.extract import Extracted
from opensearch_vl.questions.writer import Question, Uniqueness

HELLO = (Message("user", (TextPart("hello"),)),)
WRITTEN = '{"question": "Is this a question?"}'


def form_of(body: dict) -> str:
    return body["response_format"]["type"] if "response_format" in body else "text"


def taking(*forms: str, status: int = 400):
    """A server that refuses every other form."""
    return lambda body: completion(WRITTEN) if form_of(body) in forms else Trouble(status)


@pytest.mark.parametrize("status", [400, 422])
@pytest.mark.parametrize(
    ("forms", "tried"),
    [
        (FORMS, ["json_schema"]),
        (("json_object", "text"), ["json_schema", "json_object"]),
        (("text",), ["json_schema", "json_object", "text"]),
    ],
)
async def test_the_form_is_found_out_once(forms, tried, status, tmp_path) -> None:
    async with StubOpenAI([taking(*forms, status=status)]) as server:
        chat = OpenAIChat("stub", base_url=server.url, store=ImageStore(tmp_path), max_retries=0)
        asker = Asker(chat)
        asked = [asker.ask("s", f"prompt {number}", Question) for number in range(4)]
        found = await asyncio.gather(*asked)
        await chat.aclose()
    assert {reply.question for reply in found} == {"Is this a question?"}
    assert [form_of(body) for body in server.requests] == tried + [tried[-1]] * 3
    assert chat.format.form == tried[-1]


async def test_a_refusal_in_every_form_is_not_the_forms_fault(tmp_path) -> None:
    async with StubOpenAI([Trouble(400)] * 3 + [taking(*FORMS)]) as server:
        chat = OpenAIChat("stub", base_url=server.url, store=ImageStore(tmp_path), max_retries=0)
        with pytest.raises(ModelRefused):
            await chat.complete(HELLO, (), Sampling(schema='{"type": "object", "properties": {}}'))
        assert chat.format.form is None
        await chat.complete(HELLO, (), Sampling(schema='{"type": "object", "properties": {}}'))
        assert chat.format.form == "json_schema"
        await chat.aclose()


async def test_once_found_a_refusal_changes_nothing_and_talk_stays_free(tmp_path) -> None:
    async with StubOpenAI([completion(WRITTEN), Trouble(400), completion("hi")]) as server:
        chat = OpenAIChat("stub", base_url=server.url, store=ImageStore(tmp_path), max_retries=0)
        asker = Asker(chat)
        await asker.ask("s", "p", Question)
        with pytest.raises(Exception, match="model_refused"):
            await asker.ask("s", "q", Question)
        assert (await chat.complete(HELLO)).content == "hi"
        await chat.aclose()
    assert chat.format.form == "json_schema"
    assert [form_of(body) for body in server.requests] == ["json_schema", "json_schema", "text"]


@pytest.mark.parametrize("shape", [Question, Uniqueness, Extracted])
def test_strict_schemas_have_every_field_and_no_sizes(shape) -> None:
    sent = fields("json_schema", json.dumps(shape.model_json_schema()))["response_format"]["json_schema"]["schema"]
    assert sent["required"] == list(shape.model_fields) == list(sent["properties"])
    assert sent["additionalProperties"] is False
    text = json.dumps(sent)
    assert not any(f'"{keyword}"' in text for keyword in ("minLength", "maxLength", "maxItems", "default", "title"))
