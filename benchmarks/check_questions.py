"""Checks every question of a run against the tables of its wiki, by brute force and without the builder's code.

    python benchmarks/check_questions.py RUN WIKI [--json]

Reads `records.jsonl` as plain JSON and the Parquet files with pyarrow; imports nothing of `opensearch_vl`. For each
final question it checks: the path exists and has no repeated page; each hop is stated by the infobox it names; the
answer is what the answer page states under the attribute (or says in its text, where a model read it there), at most
six words long, stated once, and nowhere on the pages before it; the predicates of every descriptor, counted over *all*
rows, fit exactly the described entity; bridges and answer are described in order, each relative to the page before it;
no title, redirect or alias of any page of the path, nor the answer, can be read in the question; the picture belongs
to the anchor's page and lies in the run; no picture and no (answer page, attribute) is used more often than the run's
settings allow; records are counted once each and the stage table of the manifest adds up. Exit status 1 if anything
fails.
"""

import argparse
import hashlib
import json
import re
import sys
import unicodedata
from collections import Counter, defaultdict
from pathlib import Path

import pyarrow.parquet as pq

STAGES = ["relations", "compose", "fuzz", "leak", "write", "anchor", "dedupe", "screen"]
MONTHS = [
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
]  # fmt: skip


def folded(text):
    plain = unicodedata.normalize("NFKD", text.casefold())
    return unicodedata.normalize("NFC", "".join(ch for ch in plain if not unicodedata.combining(ch)))


def same(text):
    return " ".join(folded(text).split())


def tokens(text):
    return re.findall(r"\w+", folded(text))


def occurs(needle, haystack):
    """Whether the words of `needle` stand side by side in `haystack`."""
    size = len(needle)
    return size > 0 and any(haystack[at : at + size] == needle for at in range(len(haystack) - size + 1))


class Wiki:
    """Plain dictionaries of everything."""

    def __init__(self, folder):
        def table(name):
            return pq.read_table(folder / f"{name}.parquet").to_pylist()

        self.titles = [row["title"] for row in table("pages")]
        self.ids = {title: number for number, title in enumerate(self.titles)}
        self.rows = [(r["page_id"], r["key"], r["value"], r["target_id"]) for r in table("infobox")]
        self.boxes = defaultdict(list)
        for page, key, value, target in self.rows:
            self.boxes[page].append((key, value, target))
        self.names = defaultdict(set)
        for row in table("aliases"):
            self.names[row["page_id"]].add(row["alias"])
        for row in table("redirects"):
            self.names[row["target_id"]].add(row["title"])
        for page, title in enumerate(self.titles):
            self.names[page] |= {title, re.sub(r" \(.*", "", title)}
        self.text = {row["page_id"]: row["text"] for row in table("text")}
        self.pictures = defaultdict(dict)
        for row in table("images"):
            self.pictures[row["page_id"]][row["file"]] = row

    def satisfying(self, predicate):
        """Scan all rows; no index, no shortcuts."""
        key, value, kind = predicate["key"], predicate["value"], predicate["kind"]
        if kind == "attr":
            return {page for page, k, v, _ in self.rows if k == key and same(v) == same(value)}
        node = self.ids.get(value)
        if predicate["inverse"]:
            return {target for page, k, _, target in self.rows if k == key and page == node and target is not None}
        return {page for page, k, _, target in self.rows if k == key and target == node and node is not None}


def check(record, wiki, run, common):
    """All that is wrong with one final question."""
    task = record["task"]
    why = task["provenance"]
    path = [wiki.ids.get(title) for title in why["path"]]
    if None in path or len(path) < 3 or len(set(path)) != len(path):
        yield f"path {why['path']}"
        return
    hops = why["hops"]
    if [hop["source"] for hop in hops] != why["path"][:-1] or [hop["target"] for hop in hops] != why["path"][1:]:
        yield "hops do not follow the path"
    for hop, source, target in zip(hops, path[:-1], path[1:], strict=True):
        if hop["direction"] == "prose":
            continue  # no table states it: not applicable
        holder, value = (source, target) if hop["direction"] == "forward" else (target, source)
        if not any(key == hop["relation"] and linked == value for key, _, linked in wiki.boxes[holder]):
            yield f"no infobox states {hop['source']} -{hop['relation']}- {hop['target']}"
    yield from check_answer(task, why, path, wiki)
    described = [d["entity"] for d in why["descriptors"]]
    if described != why["path"][::-1]:
        yield f"descriptors of {described}"
    for place, descriptor in enumerate(why["descriptors"][:-1]):
        if hops[len(hops) - 1 - place]["direction"] == "prose":
            continue
        conditions = [wiki.satisfying(p) for p in descriptor["predicates"]]
        entity = path[len(path) - 1 - place]
        if not conditions or set.intersection(*conditions) != {entity}:
            yield f"descriptor of {descriptor['entity']} does not fit it alone"
        previous = why["path"][len(path) - 2 - place]
        if not any(p["kind"] == "rel" and p["value"] == previous for p in descriptor["predicates"]):
            yield f"descriptor of {descriptor['entity']} is not relative to {previous}"
    question = tokens(task["question"])
    for page in path:
        for name in wiki.names[page]:
            words = tokens(name)
            if occurs(words, question) and not all(word in common for word in words):
                yield f"{name!r} can be read in the question"
    if occurs(tokens(task["gold"]["answer"]), question):
        yield "the answer can be read in the question"
    yield from check_picture(task, why, path[0], wiki, run)


def check_answer(task, why, path, wiki):
    stated = [value for key, value, _ in wiki.boxes[path[-1]] if key == why["attribute"]]
    form, gold = why["extra"]["answer_form"], task["gold"]["answer"]
    if why["extra"].get("answer_source") == "prose":  # no table states it: the page has to say it
        stated = [gold] if occurs(tokens(gold), tokens(wiki.text.get(path[-1], ""))) else []
    if len(stated) != 1:
        yield f"{why['attribute']} is stated {len(stated)} times"
        return
    if form == "plain":
        right = gold == stated[0].strip()
    else:
        day, month, year = read_date(stated[0])
        right = gold == (str(year) if form == "year" else f"{day} {MONTHS[month - 1]}")
    if not right:
        yield f"answer {gold!r}, the page states {stated[0]!r}"
    if not 0 < len(gold.split()) <= 6:
        yield f"answer of {len(gold.split())} words"
    for page in path[:-1]:
        box = " ".join(f"{key} {value}" for key, value, _ in wiki.boxes[page])
        if occurs(tokens(gold), tokens(wiki.text.get(page, ""))) or occurs(tokens(gold), tokens(box)):
            yield f"the answer is on the page {wiki.titles[page]!r} of the path"


def read_date(text):
    if found := re.fullmatch(r"(\d+) (\w+),? (\d+)", text.strip()):
        return int(found[1]), MONTHS.index(found[2]) + 1, int(found[3])
    if found := re.fullmatch(r"(\w+) (\d+),? (\d+)", text.strip()):
        return int(found[2]), MONTHS.index(found[1]) + 1, int(found[3])
    year, month, day = text.strip().split("-")
    return int(day), int(month), int(year)


def check_picture(task, why, anchor, wiki, run):
    file, stored = why["picture"]["file"], task["images"][0]
    known = wiki.pictures[anchor].get(file)
    if known is None:
        yield f"picture {file!r} is not on the anchor's page"
    elif why["degradation"] is None and known["sha256"] != stored["sha256"]:
        yield "the picture is not the page's, though no damage is noted"
    elif why["degradation"] is not None and known["sha256"] == stored["sha256"]:
        yield "the picture is undamaged, though damage is noted"
    suffix = ".png" if stored["mime"] == "image/png" else ".jpg"
    lies = run / "images" / stored["sha256"][:2] / f"{stored['sha256']}{suffix}"
    if not lies.exists() or hashlib.sha256(lies.read_bytes()).hexdigest() != stored["sha256"]:
        yield "the picture is not in the run"


def check_run(records, manifest):
    """What is wrong with the run as a whole."""
    ids = Counter(record["id"] for record in records)
    yield from (f"record {name} occurs {count} times" for name, count in ids.items() if count > 1)
    final = [record for record in records if record["task"] is not None]
    ended = Counter("final" if r["task"] is not None else r["stage"] for r in records)
    reasons = Counter((r["stage"], r["reason"]) for r in records if r["task"] is None)
    came_in = len(records)
    for row in manifest["report"]["stages"]:
        if row["came_in"] != came_in or row["passed"] != came_in - ended[row["stage"]]:
            yield f"stage {row['stage']} does not add up"
        if any(reasons[row["stage"], reason] != num for reason, num in row["reasons"].items()):
            yield f"reasons of {row['stage']} do not add up"
        came_in -= ended[row["stage"]]
    if came_in != len(final) or [row["stage"] for row in manifest["report"]["stages"]] != STAGES:
        yield "the last stage does not give the final questions"
    settings = manifest["config"]
    for what, most, keys in (
        ("picture", settings["max_per_picture"], [r["task"]["provenance"]["picture"]["file"] for r in final]),
        ("answer page", settings["max_per_answer_page"], [r["task"]["provenance"]["path"][-1] for r in final]),
        ("answer", 1, [(r["task"]["provenance"]["path"][-1], r["task"]["provenance"]["attribute"]) for r in final]),
    ):
        yield from (f"{what} {key!r} is used {num} times" for key, num in Counter(keys).items() if num > most)


COMMON = frozenset(
    re.findall(
        r"\w+",
        """a an the of in on at to for from by with and or not is was are it its he she his her they who whom whose
        which what when where how did does do has have one two three four first last old new great long day month year
        date time number name place person people picture image building object species animal plant subject work city
        town village river lake mountain island sea museum church hall house tower bridge station school university
        library castle park art book mayor owner founder architect director spouse mother father student born died open
        opened country state region tall height width weight length area population style material""",
    )
)
"""A name made of these words alone cannot be told from ordinary wording."""


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("wiki", type=Path)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    wiki = Wiki(arguments.wiki)
    lines = (arguments.run / "records.jsonl").read_text(encoding="utf-8").split("\n")
    records = [json.loads(line) for line in lines if line.strip()]
    manifest = json.loads((arguments.run / "manifest.json").read_text(encoding="utf-8"))
    failures = [{"id": "run", "problem": problem} for problem in check_run(records, manifest)]
    items = [record for record in records if record["task"] is not None]
    for record in items:
        failures += [{"id": record["id"], "problem": p} for p in check(record, wiki, arguments.run, COMMON)]
    result = {"items": len(items), "records": len(records), "checker_failures": len(failures), "failures": failures}
    if arguments.json:
        print(json.dumps(result, ensure_ascii=False))
    else:
        print(f"{len(items)} questions of {len(records)} walks checked, {len(failures)} failures")
        for failure in failures[:50]:
            print(f"{failure['id']}: {failure['problem']}")
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
