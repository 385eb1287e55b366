"""A small wiki in memory, shaped like a `WikiFolder`, and walks over it."""

from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from opensearch_vl.images import ImageStore
from opensearch_vl.wiki.tables import InfoboxItem, LinkRow, PageImage, PageRow, label
from opensearch_vl.wiki.walks import Walk


@dataclass
class Entry:
    title: str
    domain: str = ""
    kind: str = ""
    infobox: list = field(default_factory=list)  # (key, value) or (key, value, title of the target)
    text: str = ""
    aliases: tuple = ()


class MemoryWiki:
    """What the questions room reads of a wiki folder."""

    def __init__(self, entries, images: ImageStore, pictures=()):
        self.entries, self.images = list(entries), images
        self.meta = {"name": "memory", "lang": "en", "base": "https://memory.invalid/wiki/"}
        self._ids = {entry.title: n for n, entry in enumerate(self.entries)}
        self._names = {alias: n for n, entry in enumerate(self.entries) for alias in entry.aliases} | self._ids
        self._pictures = dict(pictures)

    def __len__(self):
        return len(self.entries)

    def id(self, title):
        return self._ids[title]

    def page(self, n):
        e = self.entries[n]
        return PageRow(n, e.title, "article", e.domain, len(e.text), 5, e.kind)

    def pages(self):
        return (self.page(n) for n in range(len(self)))

    def resolve(self, title):
        return self._names.get(title)

    def url(self, n):
        return self.meta["base"] + self.entries[n].title.replace(" ", "_")

    def page_at(self, url):
        return self.resolve(url.removeprefix(self.meta["base"]).replace("_", " "))

    def text(self, n):
        return self.entries[n].text

    def infobox(self, n):
        seen, items = {}, []
        for key, value, *target in self.entries[n].infobox:
            seen[key] = seen.get(key, -1) + 1
            items.append(InfoboxItem(n, key, value, seen[key], self._names[target[0]] if target else None))
        return tuple(items)

    def document(self, n):
        values = {}
        for item in self.infobox(n):
            values.setdefault(item.key, []).append(item.value)
        lines = "\n".join(f"{label(key)}: {', '.join(items)}" for key, items in values.items())
        return "\n\n".join(part for part in (lines, self.text(n)) if part)

    def aliases(self, n):
        return tuple(self.entries[n].aliases)

    def page_images(self, n):
        return tuple(
            PageImage(n, f"File {n}-{k}.png", ref, "CC0", "Ann", k)
            for k, ref in enumerate(self._pictures.get(self.entries[n].title, ()))
        )

    def neighbours(self, n):
        return np.array(sorted({i.target_id for i in self.infobox(n) if i.target_id is not None}), dtype=np.int32)

    def sql(self):
        import duckdb

        connection = duckdb.connect()
        connection.execute(
            "CREATE TABLE infobox (page_id INTEGER, key VARCHAR, value VARCHAR, ord INTEGER, target_id INTEGER)"
        )
        rows = [(i.page_id, i.key, i.value, i.ord, i.target_id) for n in range(len(self)) for i in self.infobox(n)]
        if rows:
            connection.executemany("INSERT INTO infobox VALUES (?, ?, ?, ?, ?)", rows)
        return connection

    def walk(self, *titles):
        nodes = tuple(self.id(title) for title in titles)
        links = tuple(
            LinkRow(a, b, self.entries[b].title, f"A sentence about {self.entries[b].title}.", "", 0)
            for a, b in pairwise(nodes)
        )
        return Walk(nodes=nodes, links=links, seed=7, domain=self.entries[nodes[0]].domain)


def zoo_entries():
    """The paper's worked example in spirit: a zoo, its manager, his spouse, and their neighbours."""
    return [
        Entry("Orla Zoo", "Building", "zoo",
              [("managed_by", "Stefan Irvald", "Stefan Irvald"), ("opened", "3 June 1970"),
               ("location", "Orla", "Orla"), ("keeper", "Tam Oru", "Tam Oru"), ("keeper", "Ila Vey", "Ila Vey"),
               ("keeper", "Bo Sand", "Bo Sand")],
              "Orla Zoo is a zoo." + " It has many paths." * 40, ("Zoo of Orla",)),
        Entry("Stefan Irvald", "Person", "person",
              [("spouse", "Teresa Rainö", "Teresa Rainö"), ("birth_date", "22 February 1962"),
               ("occupation", "zookeeper")], "Stefan Irvald managed Orla Zoo.", ("S. Irvald",)),
        Entry("Teresa Rainö", "Person", "person",
              [("spouse", "Stefan Irvald", "Stefan Irvald"), ("birth_date", "20 July 1964"),
               ("citizenship_date", "20 November 2009"), ("occupation", "writer"), ("rank", "7")],
              "Teresa Rainö married Stefan Irvald.", ("Teresa Raino",)),
        Entry("Orla", "Location", "settlement", [("mayor", "Ila Vey", "Ila Vey"), ("population", "12,345")], "A town."),
        Entry("Tam Oru", "Person", "person", [("occupation", "zookeeper"), ("birth_date", "1 May 1950")], "A keeper."),
        Entry("Ila Vey", "Person", "person", [("occupation", "writer"), ("birth_date", "2 May 1951")], "A keeper."),
        Entry("Bo Sand", "Person", "person", [("occupation", "zookeeper"), ("birth_date", "3 May 1952")], "A keeper."),
        Entry("Extra One", "Person", "person", [("occupation", "writer"), ("birth_date", "4 May 1953")], "A writer."),
        Entry("Extra Two", "Person", "person", [("occupation", "writer"), ("birth_date", "4 May 1953")], "A writer."),
    ]  # fmt: skip
