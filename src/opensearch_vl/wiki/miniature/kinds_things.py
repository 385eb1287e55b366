"""Kinds of organisms, artefacts and organisations, with the infobox keys of English Wikipedia's templates."""

from opensearch_vl.wiki.miniature.schema import Attribute, Kind, Relation, relation
from opensearch_vl.wiki.miniature.values import binomial, code, coined, count, day, measure, motto, words

_DESCRIBED = relation("described_by", "scientist", 0.95,
    "{s} was described by {t}|The first description of {n} is by {t}",
                      "{s} described {t}|In a monograph {n} described {t}")  # fmt: skip
_TYPE = relation("type_locality", "wild", 0.94,
    "{s} was first found on the grounds of {t}|The type locality of {n} is {t}",
                 "{s} is the type locality of {t}|Naturalists know {n} as the type locality of {t}")  # fmt: skip
_NAMED = relation("named_after", "person", 0.56, "{s} is named after {t}|The name of {n} honours {t}",
                  "The name of {n} lives on in {t}")  # fmt: skip
_HOLOTYPE_AT = relation(
    "holotype_repository", "museum", 0.69, "The holotype of {n} is kept at {t}", "{s} keeps the holotype of {t}"
)
_SISTER = relation("sister_species", "organism", 0.55, "The closest relative of {n} is {t}",
                   "{s} is the closest relative of {t}")  # fmt: skip
_WILD = (
    "The biology of the species is not well studied",
    "Records from the coast are considered doubtful",
    "The population appears to be stable",
    "It is easily confused with its relatives when young",
    "Keepers report that it does poorly in captivity",
)
_NATURE: tuple[Relation, ...] = (_DESCRIBED, _TYPE, _NAMED, _HOLOTYPE_AT, _SISTER)


def _organism(name: str, weight: float, titles: str, drawing: str, extra: tuple[Attribute, ...]) -> Kind:
    common = (
        Attribute("taxon", binomial, 0.9, "The scientific name is {v}"),
        Attribute("described_date", day(0, 6), 0.75, "The description of {n} appeared on {v}"),
        Attribute("holotype", code("Spec.", 5), 0.7, "The holotype of {n} carries the number {v}"),
        Attribute("local_name", coined("{}", 3), 0.5, "In the countryside {n} is called {v}"),
        Attribute("status", words("LC", "NT", "VU", "EN"), 0.4),
    )
    return Kind(name, "Organism", weight, "Speciesbox", ("organism", name), tuple(titles.split("|")), 0.7, (drawing,),
                _NATURE, (*common, *extra), _WILD)  # fmt: skip


ORGANISMS = (
    _organism("bird", 4, "{} heron|{} warbler|{} finch|{} owl", "bird",
              (Attribute("wingspan", measure(14, 210, "cm"), 0.6, "The wingspan of {n} is {v}"),)),
    _organism("mammal", 3.5, "{} fox|{} antelope|{} marten|{} hare", "mammal",
              (Attribute("shoulder_height", measure(12, 140, "cm"), 0.6, "{s} stands {v} at the shoulder"),
               Attribute("gestation", count(28, 290, "days"), 0.5, "Gestation takes {v}"))),
    _organism("butterfly", 3, "{} fritillary|{} swallowtail|{} moth", "butterfly",
              (Attribute("forewing_length", measure(11, 92, "mm"), 0.6, "The forewing of {n} measures {v}"),)),
    _organism("flower", 3, "{} lily|{} orchid|{} bellflower", "flower",
              (Attribute("flower_diameter", measure(8, 170, "mm"), 0.6, "The flower of {n} is {v} across"),)),
    _organism("fish", 2, "{} perch|{} trout|{} bream", "fish",
              (Attribute("max_length", measure(9, 180, "cm"), 0.6, "{s} grows to {v}"),)),
)  # fmt: skip

_KEPT = (
    "Its early history is unknown",
    "Conservators removed a later coat of varnish",
    "A copy is shown while the original travels",
    "Scholars disagree about its first use",
    "It was cleaned and photographed for the new catalogue",
)
_ACCESSION = Attribute("accession", code("Inv.", 5), 0.8, "The inventory number of {n} is {v}")
_MUSEUM = relation(
    "museum",
    "museum",
    0.75,
    "{s} is kept at {t}|{s} is on show at {t}",
    "{s} shows {t}|The collection of {n} includes {t}",
)
_OWNER = relation("owner", "patron", 0.38, "{s} belongs to {t}", "{s} owns or owned {t}")
_PENDANT = relation("companion_piece", "exhibit", 0.45, "The companion piece of {n} is {t}|{s} is shown beside {t}",
                    "{s} is the companion piece of {t}")  # fmt: skip
_COMMISSION = relation(
    "commissioned_by",
    "patron",
    0.4,
    "{s} was commissioned by {t}|The commission for {n} came from {t}",
    "{s} commissioned {t}",
)

ARTIFACTS = (
    Kind("relic", "Artifact", 5.5, "Infobox artifact", ("artifact", "object"),
         ("{} Vase", "{} Mask", "{} Shield", "{} Amphora", "{} Disc"), 0.7, ("vessel", "mask", "shield"),
         (relation("discovered_by", "finder", 0.88, "{s} was found by {t}|The finder of {n} was {t}",
             "{s} discovered {t}|{s} unearthed {t}"),
          _PENDANT,
          relation("discovered_place", "locality", 0.75, "{s} was unearthed at {t}", "{s} is the find spot of {t}"),
          relation("location", "museum", 0.95, "{s} is kept at {t}|{s} is on show at {t}",
              "{s} shows {t}|The collection of {n} includes {t}")),
         (Attribute("discovered_date", day(0, 6, "start date"), 0.75, "{s} was discovered on {v}"),
          Attribute("height", measure(6, 98, "cm"), 0.7, "{s} is {v} high"),
          Attribute("weight", measure(210, 9_600, "g", 0), 0.7, "{s} weighs {v}"),
          Attribute("id", code("Inv.", 5), 0.8, "The catalogue number of {n} is {v}"),
          Attribute("writing", motto, 0.35, "A line of writing on {n} reads '{v}'")), _KEPT),
    Kind("clock", "Artifact", 3, "Infobox artifact", ("artifact", "object"), ("{} Clock", "{} Astrolabe",
        "{} Orrery"), 0.75, ("clock",),
         (relation("creator", "engineer", 0.95, "{s} was made by {t}|The maker of {n} is {t}",
             "{s} made {t}|{s} built {t}", "notable_works"),
          relation("location", "museum", 0.88, "{s} is kept at {t}", "{s} shows {t}"), _COMMISSION, _OWNER, _PENDANT),
         (Attribute("created", day(0, 6, "start date"), 0.8, "{s} was completed on {v}"),
          Attribute("weight", measure(140, 9_800, "g", 0), 0.6, "{s} weighs {v}"),
          Attribute("wheels", count(11, 240, "wheels"), 0.5, "The movement of {n} has {v}"),
          Attribute("id", code("Inv.", 5), 0.8, "The inventory number of {n} is {v}")), _KEPT),
    Kind("artwork", "Artifact", 4.5, "Infobox artwork", ("artifact", "artwork"),
         ("The {} Garden", "View of {}", "{} Triptych", "The {} Bell", "Night at {}"), 0.65, ("painting",),
         (relation("artist", "artist", 0.95, "{s} is a work by {t}|{s} was painted by {t}",
             "{s} painted {t}|Works by {n} include {t}", "notable_works"),
          _MUSEUM, _COMMISSION, _OWNER, _PENDANT,
          relation("subject", "sitter", 0.38, "{s} shows {t}", "{s} is the subject of {t}")),
         (Attribute("completion_date", day(0, 5, "start date"), 0.8, "{s} was finished on {v}"),
          Attribute("height_metric", measure(24, 310, "cm"), 0.7, "The panel of {n} is {v} high"),
          Attribute("width_metric", measure(24, 410, "cm"), 0.6, "The panel of {n} is {v} wide"),
          _ACCESSION), _KEPT),
    Kind("book", "", 3, "Infobox book", ("book",), ("The {} Letters", "Songs of {}", "A Winter in {}",
        "The {} Almanac"), 0.0, (),
         (relation("author", "writer", 0.95, "{s} was written by {t}", "{s} wrote {t}|Books by {n} include {t}",
             "notable_works"),
          relation("illustrator", "artist", 0.56, "{s} was illustrated by {t}", "{s} illustrated {t}"),
          relation("subject", "novelty", 0.6, "{s} tells the story of {t}", "{s} is the subject of {t}", at_most=2),
          relation("publisher", "company", 0.75, "{s} was published by {t}", "{s} published {t}"),
          relation("followed_by", "book", 0.44, "The sequel to {n} is {t}", "{s} continues {t}", "preceded_by",
              exclusive=True)),
         (Attribute("release_date", day(0, 5, "start date"), 0.85, "{s} was published on {v}"),
          Attribute("pages", count(84, 980), 0.7, "The first edition of {n} has {v} pages"),
          Attribute("oclc", count(1_000_000, 98_000_000), 0.4),
          Attribute("dedication", coined("To {}", 3), 0.4, "The dedication of {n} reads '{v}'")),
         ("Reviews were mixed, sales were not", "The manuscript has not survived", "Later editions add a map")),
)  # fmt: skip

_FIRM = (
    "The archive was destroyed by a flood",
    "Its annual report is read with interest abroad",
    "The crest shows three keys",
)

ORGANISATIONS = (
    Kind("company", "", 3.5, "Infobox company", ("company", "employer", "patron", "organisation"), ("{} Works",
        "{} Press", "{} Company", "{} Guild"), 0.0, (),
         (relation("founder", "person", 0.95, "{s} was founded by {t}", "{s} founded {t}"),
          relation("hq_location_city", "settlement", 0.95, "{s} has its seat in {t}", "{s} is the seat of {t}"),
          relation("key_people", "person", 0.62, "{s} was led for years by {t}",
              "{s} was among the leading figures of {t}", at_most=3)),
         (Attribute("foundation", day(-8, 6, "start date"), 0.85, "{s} was founded on {v}"),
          Attribute("num_employees", count(40, 8_900), 0.6, "{s} employs {v} people"),
          Attribute("revenue", count(41_000, 980_000, "marks"), 0.5, "The last stated revenue of {n} is {v}"),
          Attribute("slogan", motto, 0.4, "The slogan of {n} is '{v}'")), _FIRM),
    Kind("university", "", 2, "Infobox university", ("university", "employer", "learned", "organisation"),
        ("{} University", "{} Academy"), 0.0, (),
         (relation("founder", "patron", 0.62, "{s} was founded by {t}", "{s} founded {t}"),
          relation("city", "settlement", 0.95, "{s} is in {t}", "{s} is a university town, home of {t}"),
          relation("president", "scholar", 0.88, "{s} is headed by {t}", "{s} heads or headed {t}")),
         (Attribute("established", day(-30, 20, "start date"), 0.85, "{s} was chartered on {v}"),
          Attribute("students", count(310, 19_000), 0.7, "{s} has {v} students"),
          Attribute("motto", motto, 0.6, "The motto of {n} is '{v}'"),
          Attribute("mascot", coined("the {}", 2), 0.4, "The mascot of {n} is called {v}")), _FIRM),
)  # fmt: skip
