"""Remote tools in a local toolbox, over a loopback socket."""

import gc
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from agent_fakes import answer, say, task
from aiohttp import web
from aiohttp.test_utils import TestServer
from tool_fakes import FakeIndex, FakeOcr, FakeSearch, FakeSummariser, NearestUpscaler

from opensearch_vl.agent.environment import Environment
from opensearch_vl.agent.rollout import rollout
from opensearch_vl.agent.settings import AgentSettings
from opensearch_vl.errors import BackendDown, ConfigError, DataError
from opensearch_vl.images import ImageBank, ImageStore
from opensearch_vl.protocols import Passage
from opensearch_vl.tools.remote import RemoteTools
from opensearch_vl.tools.server import ToolServer
from opensearch_vl.tools.standard import standard_tools
from opensearch_vl.tools.toolbox import Toolbox
from opensearch_vl.tools.visual import SharpenTool
from opensearch_vl.types import FailureKind, Termination, ToolCall

TOKEN = "a-token-for-tests-only"


class Both:
    """A server, a client, a toolbox of remote tools, and one of the very same tools at hand."""

    def __init__(self, state: ToolServer, remote: RemoteTools, toolbox: Toolbox, local: Toolbox) -> None:
        self.state, self.remote, self.toolbox, self.local = state, remote, toolbox, local


@pytest.fixture
async def both(tmp_path: Path) -> AsyncIterator[Both]:
    search = FakeSearch([Passage("Halden", "w://1", "A town.")])
    tools = standard_tools(search, FakeIndex(), FakeOcr(), NearestUpscaler(), FakeSummariser())
    state = ToolServer(Toolbox(tools, ImageStore(tmp_path / "there")), TOKEN)
    async with (
        TestServer(state.app(), host="127.0.0.1") as server,
        RemoteTools(str(server.make_url("/")), TOKEN) as remote,
    ):
        store = ImageStore(tmp_path / "here")
        yield Both(state, remote, Toolbox(await remote.tools(), store), Toolbox(tools, store))


def call(name: str, **arguments: Any) -> ToolCall:
    return ToolCall(name=name, arguments=arguments)


async def test_models_are_told_the_same(both: Both) -> None:
    assert both.toolbox.schemas() == both.local.schemas()


CALLS = [
    call("crop", image="img_1", x=0, y=0, width=20, height=10),
    call("sharpen", image="img_1"),
    call("text_search", q="Halden"),
    call("text_search", q="Halden", colour="red"),
    call("layout_parsing", image="img_1"),
    call("image_search", url="img_1"),
    call("crop"),
    call("crop", image="img_1", x="a", y=0, width=1, height=1),
    call("sharpen", image="img_7"),
    call("nope"),
]


@pytest.mark.parametrize("made", CALLS, ids=lambda made: f"{made.name}-{len(made.arguments)}")
async def test_a_call_comes_back_as_if_it_were_run_here(both: Both, made: ToolCall) -> None:
    images = task(both.toolbox.store).images
    there = await both.toolbox.call(made, ImageBank(images))
    here = await both.local.call(made, ImageBank(images))
    assert there.observation == here.observation and there.failure == here.failure
    if there.observation.image is not None:
        assert both.toolbox.store.read(there.observation.image)


async def test_a_rollout_numbers_pictures_as_with_local_tools(both: Both) -> None:
    from agent_fakes import Script

    script = (
        say("a", "crop", image="img_1", x=0, y=0, width=20, height=10),
        say("b", "sharpen", image="img_2"),
        answer("x"),
    )
    done = []
    for toolbox in (both.toolbox, both.local):
        env = Environment(toolbox, AgentSettings(), toolbox.store)
        done.append(await rollout(task(toolbox.store), Script(*script), env, seed=0))
    assert done[0].termination is Termination.ANSWERED and done[0].tools == done[1].tools
    assert [step.observation for step in done[0].steps] == [step.observation for step in done[1].steps]


async def test_pictures_of_local_tools_and_dropped_ones_keep_the_banks_in_step(both: Both) -> None:
    store = both.toolbox.store
    mixed = Toolbox([tool for tool in await both.remote.tools() if tool.name == "crop"] + [SharpenTool()], store)
    bank = ImageBank(task(store).images)
    box = {"x": 0, "y": 0, "width": 20, "height": 10}
    bank.add((await mixed.call(call("crop", image="img_1", **box), bank)).observation.image)
    bank.add(
        (await mixed.call(call("sharpen", image="img_1"), bank)).observation.image
    )  # the server has not seen this one
    third = await mixed.call(call("crop", image="img_3", x=1, y=1, width=9, height=9), bank)
    assert third.failure is None and third.observation.image.width_px == 9
    # not added here, so that the server has a picture more than the rollout: the next img_4 is another one
    bank.add((await mixed.call(call("sharpen", image="img_2"), bank)).observation.image)
    fourth = await mixed.call(call("crop", image="img_4", **{**box, "width": 15}), bank)
    assert fourth.failure is None and fourth.observation.image.width_px == 15
    await both.toolbox.call(call("crop", image="img_1", **box), ImageBank(bank))
    assert len(both.state) == 2, "the session that was out of step is closed"


async def test_rollouts_have_sessions_of_their_own_that_end_with_them(both: Both) -> None:
    banks = [ImageBank(task(both.toolbox.store).images), ImageBank()]
    assert (await both.toolbox.call(call("text_search", q="x"), banks[0])).failure is None
    missing = await both.toolbox.call(call("sharpen", image="img_1"), banks[1])
    assert missing.failure is not None and missing.failure.kind is FailureKind.BAD_INPUT
    assert len(both.state) == 2
    del banks[1]
    gc.collect()
    await both.toolbox.call(call("text_search", q="x"), banks[0])
    assert len(both.state) == 1
    await both.remote.aclose()
    assert len(both.state) == 0


async def test_a_session_that_expired_is_opened_anew(both: Both) -> None:
    bank = ImageBank(task(both.toolbox.store).images)
    assert (await both.toolbox.call(call("sharpen", image="img_1"), bank)).failure is None
    for session in both.state._sessions.values():
        session.used_s -= both.state.idle_s + 1
    assert (await both.toolbox.call(call("sharpen", image="img_1"), bank)).failure is None
    assert len(both.state) == 2  # the old one goes with the next sweep


async def test_the_same_call_has_the_same_key_however_it_is_written(both: Both) -> None:
    assert both.toolbox.key(call("crop", x=1, y=2)) == both.toolbox.key(call("crop", y=2, x=1))


async def test_what_is_wrong_with_a_server(tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        RemoteTools("localhost:8765", TOKEN)
    state = ToolServer(Toolbox([SharpenTool()], ImageStore(tmp_path)), TOKEN)
    async with TestServer(state.app(), host="127.0.0.1") as server:
        url = str(server.make_url("/"))
        async with RemoteTools(url, "another-token-altogether") as remote:
            with pytest.raises(BackendDown, match="token"):
                await remote.tools()
        async with RemoteTools(url, TOKEN) as remote:
            toolbox = Toolbox(await remote.tools(), ImageStore(tmp_path))
            await server.close()
            result = await toolbox.call(call("sharpen", image="img_1"), ImageBank())
            assert result.failure is not None and result.failure.kind is FailureKind.BACKEND_DOWN


async def test_a_server_of_another_kind(tmp_path: Path) -> None:
    async def other(request: web.Request) -> web.Response:
        return web.json_response({"tools": [{"name": "x"}]})

    app = web.Application()
    app.router.add_get("/tools", other)
    async with TestServer(app, host="127.0.0.1") as server, RemoteTools(str(server.make_url("/")), TOKEN) as remote:
        with pytest.raises(DataError):
            await remote.tools()
