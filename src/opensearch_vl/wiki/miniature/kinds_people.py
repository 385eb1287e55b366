"""Kinds of persons: their infobox keys follow English Wikipedia's person templates."""

from opensearch_vl.wiki.miniature.schema import Attribute, Kind, Relation, relation
from opensearch_vl.wiki.miniature.values import code, coined, day, order, person_name, span

_BORN = relation("birth_place", "settlement", 0.95, "{s} was born in {t}|{s} grew up in {t}",
                 "{s} is the birthplace of {t}|Among those born in {n} is or was {t}")  # fmt: skip
_SPOUSE = relation("spouse", "person", 0.56,
    "{s} was married to {t}|{s} shared a household with {t}, to whom {n} was married",
                   "{s} was married to {t}", mutual=True, exclusive=True)  # fmt: skip
_REST = relation("resting_place", "church", 0.44, "{s} is buried at {t}|The grave of {n} lies at {t}",
                 "{s} holds the tomb of {t}")  # fmt: skip
_STUDY = relation("alma_mater", "university", 0.62, "{s} studied at {t}|{s} took a degree at {t}",
                  "{s} counts {t} among its graduates")  # fmt: skip
_EMPLOYER = relation("employer", "employer", 0.62, "{s} worked for {t}|For many years {n} was on the staff of {t}",
                     "{s} employed {t}|The staff of {n} has included {t}")  # fmt: skip

_COMMON = (_BORN, _SPOUSE, _REST)
_LIFE = (
    Attribute("birth_date", day(-36, 6, "birth date"), 0.92, "{s} was born on {v}"),
    Attribute("death_date", day(32, 10, "death date"), 0.72, "{s} died on {v}"),
    Attribute("birth_name", person_name(), 0.3, "The registers give the name at birth as {v}"),
    Attribute("awards", order, 0.5, "Among the honours of {n} is the decoration '{v}'"),
)
_FILLER = (
    "Letters from this period survive only in copies",
    "Accounts of these years differ in tone, though not in substance",
    "Colleagues described a quiet manner and a long memory",
    "Later writers have judged this work more kindly than the press of the day",
    "The early papers were lost when the attic of the family house was cleared",
    "A small street bears the family name",
)


def _person(
    name: str,
    weight: float,
    template: str,
    tags: str,
    professions: str,
    relations: tuple[Relation, ...],
    attributes: tuple[Attribute, ...],
    pictured: float = 0.24,
) -> Kind:
    return Kind(
        name, "Person", weight, template, ("person", *tags.split()), ("person",), pictured, ("portrait",),
        (*_COMMON, *relations), (*_LIFE, *attributes), _FILLER, tuple(professions.split("|")),
    )  # fmt: skip


PEOPLE = (
    _person("architect", 5.5, "Infobox architect", "architect designer", "architect",
            (_STUDY, relation("practice", "company", 0.5, "{s} practised with {t}", "{s} gave work to {t}"),),
            (Attribute("medal", code("", 4), 0.4, "{s} received the builders' medal numbered {v}"),
             Attribute("active_years", span(30), 0.6, "{s} was in practice {v}"))),
    _person("artist", 7, "Infobox artist", "artist designer", "painter|sculptor|engraver",
            (relation("patrons", "patron", 0.62, "{s} enjoyed the support of {t}|The chief patron of {n} was {t}",
                      "{s} was a patron of {t}|The patronage of {n} went to {t}"),
             relation("training", "university", 0.62, "{s} was trained at {t}", "{s} trained {t}")),
            (Attribute("movement", coined("{} circle", 2), 0.5, "{s} belonged to the {v}"),
             Attribute("pseudonym", coined("{}", 3), 0.35, "Many sheets are signed with the pseudonym {v}"))),
    _person("scientist", 9, "Infobox scientist", "scientist scholar", "botanist|naturalist|zoologist|physician",
            (relation("doctoral_advisor", "scientist", 0.88,
                "{s} wrote a dissertation under {t}|The doctoral advisor of {n} was {t}",
                      "{s} supervised the dissertation of {t}|{s} was the doctoral advisor of {t}",
                          "doctoral_students"),
             relation("workplaces", "learned", 0.56, "{s} held a post at {t}", "{s} was the workplace of {t}")),
            (Attribute("known_for", coined("{} method"), 0.6, "{s} is remembered for the {v}"),
             Attribute("author_abbrev_zoo", coined("{}", 1), 0.5,
                 "In the literature {n} is cited with the abbreviation {v}"),
             Attribute("thesis_year", day(-8, 2), 0.4, "{s} defended the thesis on {v}"))),
    _person("engineer", 4.5, "Infobox person", "engineer scholar", "engineer|clockmaker|cartographer",
            (_STUDY, _EMPLOYER),
            (Attribute("known_for", coined("{} escapement"), 0.5, "{s} devised the {v}"),
             Attribute("patent", code("", 5), 0.5, "The first patent of {n} was filed under {v}"))),
    _person("officeholder", 5, "Infobox officeholder", "officeholder patron", "politician",
            (relation("successor", "officeholder", 0.81,
                "{s} was succeeded in office by {t}|The successor of {n} was {t}",
                      "{s} succeeded {t} in office|In office {n} followed {t}", "predecessor", exclusive=True),
             _STUDY),
            (Attribute("term_start", day(0, 4), 0.85, "{s} took office on {v}"),
             Attribute("term_end", day(8, 3), 0.7, "{s} left office on {v}"),
             Attribute("party", coined("{} League", 2), 0.5, "{s} stood for the {v}"))),
    _person("writer", 4, "Infobox writer", "writer scholar", "novelist|poet|historian",
            (_EMPLOYER, relation("influenced_by", "writer", 0.38, "{s} admired {t}", "{s} was admired by {t}")),
            (Attribute("pen_name", coined("{}", 3), 0.5, "{s} also published under the pen name {v}"),
             Attribute("years_active", span(35), 0.5, "{s} was active {v}"))),
    _person("explorer", 4, "Infobox person", "explorer patron", "explorer|archaeologist|philanthropist",
            (_EMPLOYER, relation("partner", "explorer", 0.44,
                "{s} travelled with {t}|The companion of {n} on most journeys was {t}",
                                 "{s} travelled in the company of {t}")),
            (Attribute("vessel", coined("the {}", 2), 0.5, "{s} sailed on {v}"),
             Attribute("expedition_start", day(-4, 3), 0.5, "The great expedition of {n} set out on {v}"))),
)  # fmt: skip
