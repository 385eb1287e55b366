"""The page of an entity: infobox, lead, sections, gallery, categories, as wikitext."""

from __future__ import annotations

import random

from opensearch_vl.seeds import generator
from opensearch_vl.wiki.miniature import markup, names
from opensearch_vl.wiki.miniature.hubs import Hubs
from opensearch_vl.wiki.miniature.pictures.plan import PictureSpec
from opensearch_vl.wiki.miniature.prose import Narrator, paragraphs
from opensearch_vl.wiki.miniature.schema import Kind
from opensearch_vl.wiki.miniature.world import World

COUNTRY_KEYS = {
    "Infobox settlement": "subdivision_name",
    "Infobox officeholder": "citizenship",
    "Infobox building": "location_country",
    "Infobox artifact": "culture",
    "Infobox company": "hq_location_country",
}
"""Where a template states the country; persons use `nationality`, the rest `country`."""
MAX_INVERSE = 6
"""An infobox lists at most this many works, students, tributaries."""
HEADINGS = {
    "Person": ("Early life", "Career", "Legacy"),
    "Building": ("History", "Description", "Reception"),
    "Location": ("Geography", "History", "Places and people"),
    "Organism": ("Description", "History", "Relations with people"),
    "Artifact": ("Description", "History", "Reception"),
    "": ("History", "Structure", "Influence"),
}


def article(world: World, entity: int, pictures: tuple[PictureSpec, ...]) -> str:
    """Wikitext of the entity's page."""
    rng = generator(world.seed, "page", entity)
    narrator = Narrator(world, entity, rng)
    if world.stub[entity]:
        return _stub(world, entity, narrator)
    parts = [_head(world, entity, rng), _infobox(world, entity, narrator, pictures)]
    parts.append(lead(world, entity, narrator))
    parts += _sections(world, entity, narrator, pictures)
    parts += _tail(world, entity, rng)
    return "\n\n".join(part for part in parts if part)


def _head(world: World, entity: int, rng: random.Random) -> str:
    kind = world.kind(entity)
    out = ""
    if rng.random() < 0.6:
        out += f"{{{{Short description|{kind.name.capitalize()} in {_country(world, entity)}}}}}\n"
    if rng.random() < 0.4:
        out += "{{Use dmy dates|date=March 2021}}\n"
    if world.titles[entity] != world.name(entity):
        out += f"{{{{about|the {kind.name}|other uses|{world.name(entity)} (disambiguation)}}}}\n"
    return out.strip()


def _country(world: World, entity: int) -> str:
    return world.hubs.countries[world.country(entity)].title


def _infobox(world: World, entity: int, narrator: Narrator, pictures: tuple[PictureSpec, ...]) -> str:
    rng, kind = narrator.rng, world.kind(entity)
    rows: list[tuple[str, str]] = [("name", world.name(entity))]
    if entity in world.native:
        rows.append(("native_name", f"{{{{lang|xx|{world.native[entity]}}}}}"))
    if pictures:
        rows += [("image", _image_value(pictures[0], rng)), ("caption", pictures[0].caption)]
    multi: dict[str, list[str]] = {}
    for relation, target in world.relations_of(entity):
        multi.setdefault(relation.key, []).append(narrator.link(target, plain=True))
    for relation, source in world.mentions_of(entity):
        if relation.inverse and len(multi.setdefault(relation.inverse, [])) < MAX_INVERSE:
            multi[relation.inverse].append(narrator.link(source, plain=True))
    facts = [(key, _note(markup.listing(links, rng.choice(markup.LIST_STYLES)), rng)) for key, links in multi.items()]
    facts += [(attribute.key, _note(value.wikitext, rng)) for attribute, value in narrator.literals]
    facts += _hub_facts(world, entity, kind, rng)
    rng.shuffle(facts)
    return markup.infobox(kind.template, rows + facts, rng)


def _image_value(picture: PictureSpec, rng: random.Random) -> str:
    match rng.randrange(8):
        case 0:
            return f"[[File:{picture.file}|250px|alt={picture.caption_plain}]]"
        case 1:
            return picture.file.replace(" ", "_")
        case 2:
            return f"File:{picture.file}"
        case _:
            return picture.file


def _note(value: str, rng: random.Random) -> str:
    luck = rng.random()
    if luck < 0.05:
        return value + '<ref name="register">Register of Works, vol.&nbsp;3</ref>'
    return value + " <!-- checked -->" if luck < 0.08 else value


def _hub_facts(world: World, entity: int, kind: Kind, rng: random.Random) -> list[tuple[str, str]]:
    country, hubs = markup.link(_country(world, entity)), world.hubs
    if kind.domain == "Person":
        professions = [markup.link(hub_title(hubs, name), name) for name in _professions(kind, world, entity)]
        return [("nationality", country), ("occupation", markup.listing(professions, "comma"))]
    if kind.domain == "Organism":
        return [("familia", markup.link(family_of(world, entity)))]
    if kind.domain == "Artifact":
        material = hubs.materials[entity % len(hubs.materials)]
        era = hubs.eras[entity // 3 % len(hubs.eras)]
        return [("material", markup.link(material)), ("period", markup.link(era)), ("culture", country)]
    return [(COUNTRY_KEYS.get(kind.template, "country"), country)]


def hub_title(hubs: Hubs, profession: str) -> str:
    """Title of a profession's page; in a small world the page may be missing and the link is red."""
    return profession.capitalize()


def _professions(kind: Kind, world: World, entity: int) -> list[str]:
    first = entity % len(kind.professions)
    second = (first + 1) % len(kind.professions)
    return (
        [kind.professions[first]]
        if first == second or entity % 3
        else [kind.professions[first], kind.professions[second]]
    )


def family_of(world: World, entity: int) -> str:
    """The family hub of an organism: neighbours share it."""
    return world.hubs.families[entity // 7 % len(world.hubs.families)]


def lead(world: World, entity: int, narrator: Narrator) -> str:
    """The opening: bold names, what it is, its country and time."""
    rng, kind, hubs = narrator.rng, world.kind(entity), world.hubs
    shown = [alias.title for alias in world.aliases.get(entity, ()) if alias.shown]
    also = f" (also '''{shown[0]}''')" if shown else ""
    others = "".join(f" Older sources call it '''{title}'''." for title in shown[1:]) if kind.domain != "Person" else ""
    country = _country(world, entity)
    people = f"[[{country}]]n" if country.endswith("a") else f"{markup.link(country)}'s"
    decade, _ = hubs.year_link(world.year(entity))
    period = markup.link(f"{world.year(entity) // 10 * 10}s") if hubs.decades else markup.link(decade, "its century")
    name = f"'''{world.name(entity)}'''{also}"
    if kind.domain == "Person":
        trades = markup.enumeration(
            [markup.link(hub_title(hubs, word), word) for word in _professions(kind, world, entity)]
        )
        article_word = "an" if country[0] in "AEIOU" else "a"
        opening = f"{name} was {article_word} {people} {trades}, best known for work of the {period}."
    elif kind.domain == "Organism":
        opening = (
            f"{name} is {kind.a_noun} of the family {markup.link(family_of(world, entity))}, native to [[{country}]]."
        )
        opening += f" It became known to science in the {period}."
    elif kind.domain == "Artifact":
        material = hubs.materials[entity % len(hubs.materials)]
        made = markup.link(material, material.lower()) if rng.random() < 0.5 else f"[[{material.lower()}]]"
        opening = f"{name} is {kind.a_noun} from [[{country}]], worked in {made}, known since the {period}."
    else:
        opening = f"{name} is {kind.a_noun} in [[{country}]]." + (
            f" Its best years were the {period}." if rng.random() < 0.6 else ""
        )
    return opening + others


def _sections(world: World, entity: int, narrator: Narrator, pictures: tuple[PictureSpec, ...]) -> list[str]:
    rng, kind = narrator.rng, world.kind(entity)
    facts = narrator.relations() + narrator.attributes() + narrator.filler(rng.randint(1, 3))
    rng.shuffle(facts)
    half = len(facts) // 2
    missing = names.coin(rng, world.language(entity), 4).capitalize()
    headings = HEADINGS[kind.domain]
    chunks = [paragraphs(facts[:half], rng), paragraphs(facts[half:], rng), paragraphs(narrator.mentions(), rng)]
    out = []
    for heading, chunk in zip(headings, chunks, strict=True):
        if not chunk:
            continue
        if rng.random() < 0.3:
            chunk.insert(rng.randint(0, len(chunk)), markup.hazard(rng, world.titles[entity], missing))
        out.append(f"== {heading} ==\n" + "\n\n".join(chunk))
    if len(pictures) > 1:
        country = markup.link(_country(world, entity))
        rows = "".join(f"File:{picture.file}|{picture.caption}, {country}\n" for picture in pictures[1:])
        out.insert(1, f'<gallery mode="packed">\n{rows}</gallery>')
    elif pictures and rng.random() < 0.15:
        out.insert(
            1,
            f"[[File:{pictures[0].file}|thumb|left|upright|{pictures[0].caption} in [[{_country(world, entity)}]]]]",
        )
    if rng.random() < 0.12:
        entries = [(str(world.year(entity) + step), markup.link(world.titles[entity])) for step in (1, 4, 9)]
        out.append(markup.table(rng, "Entries in the register", entries))
    return out


def _tail(world: World, entity: int, rng: random.Random) -> list[str]:
    kind, country, year = world.kind(entity), _country(world, entity), world.year(entity)
    out = []
    if rng.random() < 0.15:
        out.append(f"== See also ==\n* [[List of {kind.plural} in {country}]]\n* [[Outline of {country}]]")
    if rng.random() < 0.7:
        out.append("== References ==\n{{reflist}}")
    if rng.random() < 0.3:
        out.append(
            "== External links ==\n* [https://register.invalid/entry Entry in the register]\n* {{Official website|https://entry.invalid}}"
        )
    footer = [f"{{{{{country} topics}}}}"] if rng.random() < 0.3 else []
    if kind.domain == "Person":
        given = world.name(entity).removesuffix(world.stems[entity]).strip()
        footer.append(f"{{{{DEFAULTSORT:{world.stems[entity]}, {given}}}}}")
    footer += [f"[[Category:{kind.plural.capitalize()} in {country}]]", f"[[Category:{year // 10 * 10}s]]"]
    if rng.random() < 0.1:
        footer.append(f"[[fr:{world.name(entity)}]]")
    out.append("\n".join(footer))
    return out


def _stub(world: World, entity: int, narrator: Narrator) -> str:
    kind, country = world.kind(entity), _country(world, entity)
    text = f"'''{world.name(entity)}''' is {kind.a_noun} in [[{country}]]."
    said = " ".join(narrator.mentions()[:3])
    return f"{text} {said}\n\n{{{{{country}-stub}}}}\n[[Category:{kind.plural.capitalize()} in {country}]]"
