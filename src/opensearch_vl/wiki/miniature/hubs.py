"""Hub pages: countries, professions, materials, families, eras, decades and years, which very many pages link to.

A walk must not pass through them (paper, 3.1): "a person born in Ostria" describes hundreds of entities. Their texts
are short and name few entities.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from itertools import accumulate

from opensearch_vl.seeds import generator
from opensearch_vl.wiki.miniature import names

FIRST_YEAR, LAST_YEAR = 1850, 1959
"""The calendar of the world; births and deaths reach some decades beyond it."""
MIN_PAGES_FOR_YEARS = 1000
"""Below this the world has decade pages only: 110 year pages would be too large a part of it."""
MIN_PAGES_FOR_DECADES = 400
"""Below this years are linked to their centuries."""
MIN_PAGES_FOR_24 = 50_000
"""From here on the world has 24 countries instead of 8."""

_EIGHT = ("Ostria", "Velia", "Karvonia", "Tolua", "Gwyntha", "Azmeria", "Thessia", "Ruvenia")
_PROFESSIONS = (
    "Architect", "Painter", "Botanist", "Engineer", "Politician", "Explorer", "Sculptor", "Engraver", "Naturalist",
    "Zoologist", "Physician", "Clockmaker", "Cartographer", "Novelist", "Poet", "Historian", "Archaeologist",
    "Philanthropist",
)  # fmt: skip
_MATERIALS = ("Bronze", "Alabaster", "Limewood", "Earthenware", "Granite", "Brass", "Porcelain", "Slate")
_ERAS = ("19th century", "20th century", "Copper Age", "Age of Lanterns", "Harbour Period", "Long Peace")


@dataclass(frozen=True, slots=True)
class Country:
    """A country: its title, its language, and the share of the line after which it ends."""

    title: str
    language: names.Language
    ends_at: float


@dataclass(frozen=True, slots=True)
class HubPage:
    """A hub's title, its sort (country, profession, …) and its number within the sort."""

    title: str
    sort: str
    number: int


class Hubs:
    """The hub pages of a world of `pages` pages."""

    calendar = (FIRST_YEAR, LAST_YEAR)

    def __init__(self, pages: int, seed: int) -> None:
        rng = generator(seed, "hubs")
        num_countries = 24 if pages >= MIN_PAGES_FOR_24 else max(2, min(8, pages // 100))
        share = min(1.0, pages / MIN_PAGES_FOR_YEARS)
        titles = list(_EIGHT[:num_countries])
        while len(titles) < num_countries:
            title = names.ascii_title(names.coin(rng, names.LANGUAGES[len(titles) % 8])).capitalize() + "land"
            if title not in titles:
                titles.append(title)
        sizes = [1.0 / (rank + 1.5) for rank in range(num_countries)]
        ends = [total / sum(sizes) for total in accumulate(sizes)]
        self.countries = tuple(
            Country(title, names.LANGUAGES[place % 8], end)
            for place, (title, end) in enumerate(zip(titles, ends, strict=True))
        )
        self._ends = [country.ends_at for country in self.countries]
        self.professions = _PROFESSIONS[: max(6, round(len(_PROFESSIONS) * share))]
        self.materials = _MATERIALS[: max(2, round(len(_MATERIALS) * share))]
        self.eras = _ERAS[: max(2, round(len(_ERAS) * share))]
        self.families = self._families(seed)[: max(2, round(10 * share))]
        self.decades = tuple(range(1800, 2010, 10)) if pages >= MIN_PAGES_FOR_DECADES else ()
        self.years = tuple(range(FIRST_YEAR, LAST_YEAR + 1)) if pages >= MIN_PAGES_FOR_YEARS else ()

    @staticmethod
    def _families(seed: int) -> tuple[str, ...]:
        rng = generator(seed, "families")
        found: list[str] = []
        while len(found) < 10:
            language = names.LANGUAGES[len(found) % 8]
            title = (
                names.ascii_title(names.coin(rng, language)).rstrip("aeiou").capitalize()
                + ("idae", "aceae")[len(found) % 2]
            )
            if title not in found:
                found.append(title)
        return tuple(found)

    def country_at(self, share: float) -> int:
        """Number of the country at a place of the line, `share` in [0, 1)."""
        return min(bisect_right(self._ends, share), len(self.countries) - 1)

    @staticmethod
    def century(year: int) -> str:
        """Title of the century's page."""
        return "19th century" if year <= 1900 else "20th century"

    def year_link(self, year: int) -> tuple[str, str]:
        """(title, shown text) of the link on a year: its own page, or the decade's."""
        if self.years and FIRST_YEAR <= year <= LAST_YEAR:
            return str(year), str(year)
        decade = year - year % 10
        return (f"{decade}s", str(year)) if decade in self.decades else (self.century(year), str(year))

    def pages(self) -> list[HubPage]:
        """Every hub page, in the order of the dump."""
        sorts: list[tuple[str, list[str]]] = [
            ("country", [country.title for country in self.countries]),
            ("profession", list(self.professions)),
            ("material", list(self.materials)),
            ("family", list(self.families)),
            ("era", list(self.eras)),
            ("decade", [f"{decade}s" for decade in self.decades]),
            ("year", [str(year) for year in self.years]),
        ]
        return [HubPage(title, sort, number) for sort, titles in sorts for number, title in enumerate(titles)]

    def titles(self) -> list[str]:
        """Titles of all hub pages."""
        return [page.title for page in self.pages()]
