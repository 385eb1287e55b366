"""The expert through the real dump reader, BM25 index, summaries, toolbox and environment, in every layout."""

from collections.abc import Sequence
from pathlib import Path
from xml.sax.saxutils import escape

import pytest
from expert_world import hop, store_with_photo

from opensearch_vl.agent.environment import Environment
from opensearch_vl.agent.rollout import rollout
from opensearch_vl.agent.settings import AgentSettings
from opensearch_vl.backends.passages import LocalSearch
from opensearch_vl.backends.readers import WikiPageReader
from opensearch_vl.backends.summarise import ExtractiveSummariser
from opensearch_vl.errors import ToolTimeout
from opensearch_vl.protocols import ImageIndex, TextBlock, VisualMatch
from opensearch_vl.scoring.judges import ExactJudge
from opensearch_vl.scoring.score import Scored, score_rollout
from opensearch_vl.sft.expert import ScriptedExpert
from opensearch_vl.tools.standard import standard_tools
from opensearch_vl.tools.toolbox import Toolbox
from opensearch_vl.types import Descriptor, Gold, PathHop, PictureSource, Predicate, Provenance, Task, Trajectory
from opensearch_vl.wiki.dump import build_wiki
from opensearch_vl.wiki.tables import WikiFolder

TOWNS = ("Aldermere", "Brunnach", "Cotswell", "Dorvane", "Estrella", "Falkenau", "Gravelin", "Hovland")
NAMES = ("Mira Solen", "Tobin Ashe", "Ilse Varga", "Piet Halden", "Rosa Quill", "Emre Dost", "Nadia Krol", "Otto Bern")


def person(n: int) -> str:
    name, other, town = NAMES[n], NAMES[(n + 3) % 8], TOWNS[n]
    return (
        "{{Infobox person\n"
        f"| name = {name}\n| birth_date = {{{{birth date|{1900 + n}|{n + 1}|{n + 10}}}}}\n| birth_place = [[{town}]]\n"
        f"| spouse = [[{other}|{other.split()[1]}]]\n| occupation = architect\n}}}}\n"
        f"'''{name}''' was an architect from [[{town}]]. {name} built [[{town} Hall]] and married [[{other}]]."
    )


def hall(n: int) -> str:
    return (
        "{{Infobox building\n"
        f"| name = {TOWNS[n]} Hall\n| architect = [[{NAMES[n]}]]\n| location = [[{TOWNS[n]}]]\n| height = {30 + n} m\n}}}}\n"
        f"'''{TOWNS[n]} Hall''' is a hall in [[{TOWNS[n]}]], built by [[{NAMES[n]}]] in {1930 + n}. Its opening was a feast."
    )


def clock(n: int) -> str:
    return (
        "{{Infobox artifact\n"
        f"| name = Clock {n} of {TOWNS[n]}\n| creator = [[{NAMES[(n + 5) % 8]}]]\n| catalogue_number = {n}-{chr(65 + n)}\n}}}}\n"
        f"The '''Clock {n} of {TOWNS[n]}''' stands in [[{TOWNS[n]} Hall]]."
    )


def town(n: int) -> str:
    return f"{{{{Infobox settlement\n| name = {TOWNS[n]}\n| mayor = [[{NAMES[(n + 2) % 8]}]]\n}}}}\n'''{TOWNS[n]}''' is a town."


@pytest.fixture(scope="module")
def wiki(tmp_path_factory: pytest.TempPathFactory) -> WikiFolder:
    folder = tmp_path_factory.mktemp("wiki")
    pages = {}
    for n in range(8):
        pages |= {
            NAMES[n]: person(n),
            f"{TOWNS[n]} Hall": hall(n),
            f"Clock {n} of {TOWNS[n]}": clock(n),
            TOWNS[n]: town(n),
        }
    items = "".join(
        f"<page><title>{escape(title)}</title><ns>0</ns><id>{n}</id><revision><id>{n}</id><model>wikitext</model>"
        f'<format>text/x-wiki</format><text xml:space="preserve">{escape(text)}</text></revision></page>'
        for n, (title, text) in enumerate(pages.items(), 1)
    )
    dump = folder / "dump.xml"
    dump.write_text(
        '<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/" version="0.11" xml:lang="en"><siteinfo>'
        "<sitename>Small</sitename><dbname>small</dbname><base>https://small.invalid/wiki/Main_Page</base>"
        '<case>first-letter</case><namespaces><namespace key="0" case="first-letter" />'
        '<namespace key="6" case="first-letter">File</namespace></namespaces></siteinfo>'
        f"{items}</mediawiki>",
        encoding="utf-8",
    )
    built = build_wiki(dump, folder / "wiki")
    LocalSearch.build(built, folder / "index")
    return built


class OneMatch:
    """An image index that knows what the photo shows."""

    name = "one"

    def __init__(self, *titles: str) -> None:
        self.titles = titles

    async def search(self, image: bytes, top_k: int) -> list[VisualMatch]:
        return [
            VisualMatch(title, f"https://small.invalid/wiki/{title}", "small", score=0.9, exact=True)
            for title in self.titles
        ]


class DeadAtFirst(OneMatch):
    """One whose first search runs into its time limit."""

    def __init__(self, *titles: str) -> None:
        super().__init__(*titles)
        self.num_searches = 0

    async def search(self, image: bytes, top_k: int) -> list[VisualMatch]:
        self.num_searches += 1
        if self.num_searches == 1:
            raise ToolTimeout("too slow")
        return await super().search(image, top_k)


class Sign:
    """OCR that reads one sign."""

    name = "sign"

    def __init__(self, *lines: str) -> None:
        self.lines = lines

    async def read(self, image: bytes, *, orient: bool = False, charts: bool = False) -> list[TextBlock]:
        return [TextBlock(line, "text", (0, 0, 9, 9), 0.99) for line in self.lines]


class NoUpscaler:
    name = describes = "none"

    def upscale(self, image: object, scale: int) -> object:
        raise AssertionError("not needed here")


def ask(path: Sequence[PathHop], attribute: str, answer: str, kind: str, photo: object, **provenance: object) -> Task:
    return Task(
        id=f"t-{len(path)}-{attribute}",
        question="?",
        images=(photo,),  # type: ignore[arg-type]
        gold=Gold(answer=answer, kind=kind),  # type: ignore[arg-type]
        provenance=Provenance(
            path=(path[0].source, *(step.target for step in path)),
            hops=tuple(path),
            attribute=attribute,
            **provenance,  # type: ignore[arg-type]
        ),
    )


def cases(photo: object) -> list[Task]:
    to_architect = hop("Brunnach Hall", "Tobin Ashe", "architect")
    to_spouse = hop("Tobin Ashe", "Rosa Quill", "spouse")
    back_to_clock = hop("Rosa Quill", "Clock 7 of Hovland", "creator", "inverse")
    number = Predicate(kind="attr", key="catalogue_number", value="7-H")
    detail = Descriptor(entity="Clock 7 of Hovland", phrase="the clock", predicates=(number,))
    sign = PictureSource(file="x.png", page="Brunnach Hall", identified_by="lettering")
    return [
        ask((to_architect,), "birth_date", "11 February 1901", "date", photo),
        ask((to_architect, to_spouse), "birth_date", "14 May 1904", "date", photo),
        ask((to_architect, to_spouse), "birth_place", "Estrella", "name", photo, picture=sign),
        ask((to_architect, to_spouse, back_to_clock), "catalogue_number", "7-H", "text", photo, descriptors=(detail,)),
    ]


async def play(
    task: Task,
    wiki: WikiFolder,
    store: object,
    *,
    layout: str = "sft",
    profile: str = "full",
    hide: Sequence[str] = (),
    noise: float = 0.0,
    index: ImageIndex | None = None,
) -> tuple[Trajectory, Scored]:
    hidden = [page for title in hide if (page := wiki.resolve(title)) is not None]
    search = LocalSearch(wiki.root.parent / "index", exclude=hidden)
    tools = standard_tools(
        search,
        index or OneMatch("Brunnach Hall"),
        Sign("BRUNNACH", "HALL"),
        NoUpscaler(),
        ExtractiveSummariser(),
        WikiPageReader(wiki),  # type: ignore[arg-type]
    )
    settings = AgentSettings(layout=layout, profile=profile)  # type: ignore[arg-type]
    env = Environment(Toolbox(tools, store), settings, store)  # type: ignore[arg-type]
    expert = ScriptedExpert(task, noise, seed=1, brief=profile == "miniature")
    trajectory = await rollout(task.view(), expert, env, seed=0)
    return trajectory, await score_rollout(task, trajectory, ExactJudge())


@pytest.mark.parametrize("layout", ["sft", "rl", "infer", "native_tools"])
@pytest.mark.parametrize("profile", ["full", "miniature"])
@pytest.mark.parametrize("number", range(4))
async def test_it_answers_in_every_layout_and_profile(
    number: int, profile: str, layout: str, wiki: WikiFolder, tmp_path: Path
) -> None:
    store, photo = store_with_photo(tmp_path)
    task = cases(photo)[number]
    trajectory, scored = await play(task, wiki, store, layout=layout, profile=profile)
    assert scored.verdict.correct is True, [(step.call, step.observation, step.response) for step in trajectory.steps]
    assert scored.reward.total is not None
    assert scored.reward.total > 0.9
    assert all(step.well_formed and step.failure is None for step in trajectory.steps)
    assert trajectory.num_calls == len(task.provenance.hops) + 2 + (number == 2)


@pytest.mark.parametrize("number", range(4))
async def test_with_the_answer_page_hidden_it_fails(number: int, wiki: WikiFolder, tmp_path: Path) -> None:
    store, photo = store_with_photo(tmp_path)
    task = cases(photo)[number]
    trajectory, scored = await play(task, wiki, store, hide=(task.provenance.path[-1],))
    assert scored.verdict.correct is False
    assert "could not verify" in (trajectory.response or "")


async def test_equally_good_matches_are_told_apart_by_the_lettering(wiki: WikiFolder, tmp_path: Path) -> None:
    store, photo = store_with_photo(tmp_path)
    trajectory, scored = await play(cases(photo)[0], wiki, store, index=OneMatch("Aldermere Hall", "Brunnach Hall"))
    assert scored.verdict.correct is True
    assert [step.call.name for step in trajectory.steps[:2] if step.call] == ["image_search", "layout_parsing"]


async def test_a_time_out_is_tried_again(wiki: WikiFolder, tmp_path: Path) -> None:
    store, photo = store_with_photo(tmp_path)
    trajectory, scored = await play(cases(photo)[0], wiki, store, index=DeadAtFirst("Brunnach Hall"))
    assert scored.verdict.correct is True
    assert [step.failure is not None for step in trajectory.steps] == [True, False, False, False, False]


async def test_noise_shows_as_typed_failures(wiki: WikiFolder, tmp_path: Path) -> None:
    store, photo = store_with_photo(tmp_path)
    trajectory, scored = await play(cases(photo)[1], wiki, store, noise=1.0)
    assert scored.verdict.correct is True
    assert any(step.failure is not None for step in trajectory.steps)
    assert scored.reward.fmt < 1
