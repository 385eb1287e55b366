"""Pages around the articles: hubs, lists, disambiguation, redirects, files, and the other namespaces' noise."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from opensearch_vl.seeds import generator
from opensearch_vl.wiki.miniature import markup
from opensearch_vl.wiki.miniature.hubs import HubPage
from opensearch_vl.wiki.miniature.kinds import KINDS
from opensearch_vl.wiki.miniature.pictures.plan import PictureSpec
from opensearch_vl.wiki.miniature.world import World

MAX_LISTED = 150
"""Entries of a list page."""


@dataclass(frozen=True, slots=True)
class Page:
    """One page of the dump: title with its namespace prefix, namespace number, wikitext, redirect target if any."""

    title: str
    namespace: int
    text: str
    redirect: str | None = None
    model: str = "wikitext"


@dataclass(frozen=True, slots=True)
class ListPlan:
    """A list page to come: its title and which entities it holds (kind name, country number, decade; None = any)."""

    title: str
    kind: str | None
    country: int | None
    decade: int | None


def list_plans(countries: tuple[str, ...], number: int) -> list[ListPlan]:
    """The first `number` list pages, of all four sorts in turn."""
    lists = [
        ListPlan(f"List of {kind.plural} in {title}", kind.name, place, None)
        for kind in KINDS
        for place, title in enumerate(countries)
    ]
    timelines = [ListPlan(f"Timeline of the {decade}s", None, None, decade) for decade in range(1850, 1960, 10)]
    outlines = [ListPlan(f"Outline of {title}", None, place, None) for place, title in enumerate(countries)]
    indexes = [
        ListPlan(f"Index of {title}-related articles", None, place, None) for place, title in enumerate(countries)
    ]
    mixed: list[ListPlan] = []
    while len(mixed) < number and (lists or timelines or outlines or indexes):
        for queue in (lists, lists, timelines, outlines, indexes):
            if queue:
                mixed.append(queue.pop(0))
    return mixed[:number]


def list_page(world: World, plan: ListPlan) -> Page:
    """A list page: links to entities, up to `MAX_LISTED`."""
    found: list[str] = []
    start = generator(world.seed, "list", plan.title).randrange(world.num_entities)
    step = 1 if plan.country is None else 0
    for offset in range(min(world.num_entities, 60_000)):
        entity = (start + offset) % world.num_entities if step else offset_in_country(world, plan.country, offset)
        if entity is None:
            break
        if plan.kind is not None and world.kind(entity).name != plan.kind:
            continue
        if plan.decade is not None and world.year(entity) // 10 * 10 != plan.decade:
            continue
        found.append(f"* {markup.link(world.titles[entity])}")
        if len(found) == MAX_LISTED:
            break
    body = "\n".join(found) or "* ''none yet''"
    return Page(plan.title, 0, f"This is the page '''{plan.title}'''.\n\n{body}\n\n[[Category:Lists]]")


def offset_in_country(world: World, country: int | None, offset: int) -> int | None:
    """The entity `offset` places after the first of the country, None beyond its end."""
    if country is None:
        return None
    first = int(world.hubs.countries[country - 1].ends_at * world.num_entities) + 1 if country else 0
    entity = first + offset
    return entity if entity < world.num_entities and world.country(entity) == country else None


def disambiguation_page(world: World, surname: str) -> Page:
    """The page of a shared surname."""
    people = world.shared[surname]
    lines = [
        f"* {markup.link(world.titles[entity])} (active about {world.year(entity)}), {world.kind(entity).name}"
        for entity in people
    ]
    text = f"'''{surname}''' is a surname. Notable people with it include:\n" + "\n".join(lines)
    return Page(surname, 0, text + "\n\n{{disambiguation|surname}}")


def redirect_pages(world: World, entity: int) -> Iterator[Page]:
    """The entity's redirects; a chain's last one points at another redirect."""
    for alias in world.aliases.get(entity, ()):
        word = "#REDIRECT" if len(alias.title) % 3 else "#redirect"
        note = "\n\n{{R from misspelling}}" if not alias.shown else ""
        yield Page(alias.title, 0, f"{word} [[{alias.target}]]{note}", redirect=alias.target)


def file_page(picture: PictureSpec) -> Page:
    """The description page of a picture, with author and licence as Commons writes them."""
    licence = f"self|{picture.licence}" if picture.licence.startswith("cc") else picture.licence
    text = (
        "== {{int:filedesc}} ==\n{{Information\n"
        f"|description = {{{{en|1={picture.caption_plain}}}}}\n|date = 2021-03-03\n|source = {{{{own}}}}\n"
        f"|author = [[User:{picture.author}|{picture.author}]]\n|permission = \n}}}}\n\n"
        f"== {{{{int:license-header}}}} ==\n{{{{{licence}}}}}\n"
    )
    return Page(f"File:{picture.file}", 6, text)


def hub_page(world: World, hub: HubPage) -> Page:
    """A hub's page."""
    rng = generator(world.seed, "hub", hub.title)
    hubs = world.hubs
    country = hubs.countries[rng.randrange(len(hubs.countries))].title
    match hub.sort:
        case "country":
            first = offset_in_country(world, hub.number, 0) or 0
            towns = [
                entity
                for offset in range(200)
                if (entity := offset_in_country(world, hub.number, offset)) is not None
                and world.kind(entity).name == "town"
            ][:3]
            capital = markup.link(world.titles[towns[0] if towns else first])
            rows = [
                ("conventional_long_name", f"Commonwealth of {hub.title}"),
                ("capital", capital),
                ("official_languages", hubs.countries[hub.number].language.name),
                ("area_km2", f"{rng.randint(20_000, 900_000):,}"),
            ]
            box = markup.infobox("Infobox country", rows, rng)
            text = f"{box}\n'''{hub.title}''' is a country. Its capital is {capital}."
        case "profession":
            text = f"A '''{hub.title.lower()}''' works in the trade of that name, which is old in [[{country}]]."
        case "material":
            text = f"'''{hub.title}''' is a material used for objects of every kind, above all in [[{country}]]."
        case "family":
            text = (
                f"'''{hub.title}''' is a family of living things. Its members are found from [[{country}]] to the sea."
            )
        case "era":
            text = f"The '''{hub.title}''' is a period of history. It began late in [[{country}]]."
        case "decade":
            century = hubs.century(int(hub.title[:4]))
            text = f"The '''{hub.title}''' were a decade of the [[{century}]]. Trade in [[{country}]] grew."
        case _:
            decade = f"{int(hub.title) // 10 * 10}s"
            text = f"'''{hub.title}''' was a year of the [[{decade}]]. The harvest in [[{country}]] was good."
    return Page(hub.title, 0, f"{text}\n\n{{{{reflist}}}}\n[[Category:{hub.sort.capitalize()} pages]]")


def noise_pages(world: World) -> Iterator[Page]:
    """Pages outside the article namespace, which link to articles and must not count as any."""
    some = [world.titles[(step * 37) % world.num_entities] for step in range(12)]
    links = "\n".join(f"* [[{title}]]" for title in some)
    for template, noun in {kind.template: kind.name for kind in KINDS}.items():
        yield Page(
            f"Template:{template}",
            10,
            "<includeonly>{{Infobox|title={{{name}}}}}</includeonly>"
            f"<noinclude>For a {noun}, see [[{some[0]}]].</noinclude>",
        )
    for country in world.hubs.countries:
        yield Page(
            f"Template:{country.title} topics",
            10,
            f"{{{{Navbox|title=[[{country.title}]]|list1={' · '.join(f'[[{title}]]' for title in some)}}}}}",
        )
        yield Page(f"Category:{country.title}", 14, f"Pages on [[{country.title}]].\n[[Category:Countries]]")
        yield Page(f"Portal:{country.title}", 100, f"Welcome to the portal of [[{country.title}]].\n{links}")
    yield Page("Help:Contents", 12, f"How to write about [[{some[1]}]].")
    yield Page("Miniature:About", 4, f"This encyclopedia is fictional. Start at [[{some[2]}]].")
    yield Page("User:Archivist", 2, f"My favourites:\n{links}")
    yield Page("User talk:Archivist", 3, f"Thanks for [[{some[3]}]]! [[User:Archivist|me]]")
    yield Page(f"Talk:{some[0]}", 1, f"Is [[{some[4]}]] related?")
    yield Page("Draft:Unfinished page", 118, f"'''Unfinished''' names [[{some[5]}]].")
    yield Page("Module:Lists", 828, "local p = {} -- [[not a link]]\nreturn p", model="Scribunto")
    yield Page("MediaWiki:Sitenotice", 8, f"Read [[{some[6]}]] today.")
