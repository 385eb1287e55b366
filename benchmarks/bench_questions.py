"""Measures question building: yield, the independent checker, shortcut rates, killed runs, speed of the rules.

    python benchmarks/bench_questions.py              # 20,000 pages, 20 kills, 1,000,000 paths
    SIZE=medium python benchmarks/bench_questions.py  # 2,000 pages, 20 kills, 100,000 paths
    SIZE=small python benchmarks/bench_questions.py   # 600 pages, 3 kills, 5,000 paths: about a minute
    python benchmarks/bench_questions.py kills paths  # only these parts (`PARTS`, in their order)
    WORK=DIR python benchmarks/bench_questions.py     # keep the encyclopedia and its indexes there for other parts

Figures go to `benchmarks/results/questions.json` by name as soon as a part ends; figures of parts that are not run
again are kept, and `runs` says of every part how, when and where it was last measured. Every part runs in a process of
its own, whose peak of resident memory is `peak_mb`.

- `items`, `checker_failures`, `stages` (`sums_match`): all seeds through the rule-based filter; OCR is left out, so
  anchors told by lettering alone count as look-alikes of one another and only one of a series is kept.
- `shortcut` by variant and solver with 95 % Wilson bounds, a part each (`full`, `no_fuzz`, `answer_anchored`), and
  `solvers`, the audit: all of them solvers that the filter did not use. `no_hub` is built from walks over pages with
  any number of links; `uniqueness`: how often a rewrite is refused as not unique with a hub as a bridge and without.
- `blind_agent`: the questions as they are; `blind_agent_absolute`: the same with the last bridge described by
  attributes of its own, not relative to the node before it; both over the questions that have both forms.
- `kill_digests_equal`: builds killed at seeded random fractions of an uninterrupted run's time, and resumed.
- `million_paths_seconds`: rule-based stages over sampled paths, rejected ones included, in one process on one core;
  `paths_growth_mb` is how much resident memory grew over the last nine tenths of them.
"""

import asyncio
import json
import os
import platform
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from functools import partial
from pathlib import Path

from opensearch_vl.backends.image_index import LocalImageIndex
from opensearch_vl.backends.passages import LocalSearch
from opensearch_vl.backends.readers import WikiPageReader
from opensearch_vl.images import ImageStore
from opensearch_vl.questions.audit import audit_solvers
from opensearch_vl.questions.build import QuestionTools, build_questions
from opensearch_vl.questions.counterfactual import (
    NO_HUB_RULE,
    VARIANTS,
    absolute_of,
    solve_all,
    variant_of,
    without_hub_rule,
)
from opensearch_vl.questions.draft import draft
from opensearch_vl.questions.facts import Facts
from opensearch_vl.questions.settings import QuestionSettings
from opensearch_vl.questions.solvers import GuessCommonValue, OneImageSearch, common_values
from opensearch_vl.questions.stages import Rejection
from opensearch_vl.runs import RunFolder, digest, read_manifest, read_records
from opensearch_vl.scoring.judges import ExactJudge
from opensearch_vl.scoring.metrics import accuracy
from opensearch_vl.types import QuestionRecord, Task
from opensearch_vl.wiki.dump import build_wiki
from opensearch_vl.wiki.miniature import write_miniature
from opensearch_vl.wiki.tables import WikiFolder
from opensearch_vl.wiki.walks import WalkRules, resolve_rules, sample_walks

HERE = Path(__file__).resolve().parent
SIZES = {
    "small": (600, 90, 3, 5_000, 25, 10),
    "medium": (2_000, 3_000, 20, 100_000, 160, 20),
    "full": (20_000, 1_600, 20, 1_000_000, 160, 40),
}
SIZE = os.environ.get("SIZE", "full")
PAGES, PICTURES, KILLS, PATHS, ASKED, KILLED_QUESTIONS = SIZES[SIZE]
"""`ASKED` questions a row of the audit is measured on: more than the 150 that its bounds are promised for."""
SEED = 0


def prepare(work):
    """The encyclopedia, its tables and indexes, made once a folder."""
    if not (work / "wiki" / "meta.json").exists():
        info = write_miniature(work, pages=PAGES, seed=SEED, max_pictures=PICTURES)
        build_wiki(info.dump, work / "wiki", images=info.images)
    wiki = WikiFolder(work / "wiki")
    for kind, name in ((LocalSearch, "passages"), (LocalImageIndex, "pictures")):
        if not (work / "wiki" / "index" / name).exists():
            kind.build(wiki, work / "wiki" / "index" / name)
    return wiki


def engines(work):
    index = work / "wiki" / "index"
    return LocalSearch(index / "passages"), LocalImageIndex(index / "pictures")


def build(work, out, *, num=None, resume=False):
    """The rule-based filter, as `osvl questions build` uses it; OCR left out."""
    wiki = WikiFolder(work / "wiki")
    pictures = LocalImageIndex(work / "wiki" / "index" / "pictures")
    guess = GuessCommonValue(common_values(Facts(wiki)))
    filters = (guess, OneImageSearch(pictures, wiki.images))
    tools = QuestionTools(judge=ExactJudge(), filters=filters, image_index=pictures)
    with RunFolder(out, QuestionSettings(), {"seed": SEED, "num": num}, resume=resume) as run:
        return build_questions(wiki, QuestionSettings(), seed=SEED, num=num, tools=tools, run=run)


def rate(cell):
    found = accuracy(cell.verdicts)
    return {
        "correct": found.correct, "of": found.scored, "unscored": found.unscored,
        "rate": found.rate, "low": found.low, "high": found.high,
    }  # fmt: skip


def solved(tasks, solvers, variant="full"):
    cells = asyncio.run(solve_all(tasks, solvers, ExactJudge(), seed=SEED, variant=variant))
    return {cell.solver: rate(cell) for cell in cells}


def audited(work, tasks):
    """The audit's solvers on a wiki, and the pair that the table of counterfactuals shows."""
    wiki = WikiFolder(work / "wiki")
    store = ImageStore(work / "run" / "images", fallbacks=(wiki.images,))
    search, pictures = engines(work)
    solvers = audit_solvers(tasks, search, pictures, store, WikiPageReader(wiki))
    return solvers, solvers[1], solvers[2]


def built(work):
    """Final questions and those that the filter dropped: what is there with the filter off."""
    records = list(read_records(work / "run", QuestionRecord))
    final = [record.task for record in records if record.task is not None]
    dropped = [Task.model_validate(r.draft["task"]) for r in records if r.task is None and r.stage == "screen"]
    return final, dropped


# ------------------------------------------------------------------------------------------------- parts


def part_items(work):
    clock = time.perf_counter()
    report = build(work, work / "run", resume=True)  # a part that was stopped goes on
    seconds = time.perf_counter() - clock
    command = [sys.executable, HERE / "check_questions.py", work / "run", work / "wiki", "--json"]
    checked = json.loads(subprocess.run(command, capture_output=True, text=True).stdout)
    stages = read_manifest(work / "run")["report"]["stages"]
    came_in = [row["came_in"] for row in stages]
    return {
        "pages": PAGES,
        "items": checked["items"],
        "checker_failures": checked["checker_failures"],
        "stages": stages,
        "sums_match": came_in[0] == report.stages.total
        and all(row["came_in"] == row["passed"] + sum(row["reasons"].values()) for row in stages)
        and [row["passed"] for row in stages] == [*came_in[1:], checked["items"]],
        "hops": {str(hops): num for hops, num in sorted(report.hops.items())},
        "domains": dict(sorted(report.domains.items())),
        "build_seconds": seconds,
    }


def unfiltered(work, wiki):
    """More questions with the filter off: three walks a seed."""
    walks = QuestionSettings().walks.model_copy(update={"walks_per_seed": 3})
    settings = QuestionSettings().model_copy(update={"walks": walks, "max_per_picture": 3})
    with RunFolder(work / "more", settings, {"seed": SEED + 1}, resume=True) as run:
        return build_questions(wiki, settings, seed=SEED + 1, num=None, tools=QuestionTools(), run=run).tasks


def part_variant(work, variant):
    wiki = WikiFolder(work / "wiki")
    final, dropped = built(work)
    _, text, image = audited(work, final)
    tasks = [made for task in [*final, *dropped] if (made := variant_of(task, variant, wiki)) is not None]
    if len(tasks) < ASKED:  # few answer pages have a picture
        known = {task.question for task in tasks}
        more = (variant_of(task, variant, wiki) for task in unfiltered(work, wiki))
        tasks += [task for task in more if task is not None and task.question not in known]
    tasks = tasks[:ASKED]
    found = solved(tasks, (text, image), variant)
    return {"shortcut": {variant: {"text": found[text.name], "image": found[image.name]}}}


def part_solvers(work):
    final, _ = built(work)
    solvers = audited(work, final)[0]
    return {"solvers": solved(final[:ASKED], solvers[:4])}


def part_no_hub(work):
    wiki, settings = WikiFolder(work / "wiki"), QuestionSettings()
    made = without_hub_rule(wiki, settings, seed=SEED, num=ASKED)
    _, text, image = audited(work, made.tasks)
    found = solved(made.tasks, (text, image), "no_hub")
    hub = resolve_rules(wiki, settings.walks).hub
    hubs = {page.title for page in wiki.pages() if page.in_degree > hub}
    through = sum(any(title in hubs for title in task.provenance.path[1:-1]) for task in made.tasks)
    row = {"text": found[text.name], "image": found[image.name], "through_a_hub": through}
    return {"shortcut": {"no_hub": row}, "uniqueness": uniqueness(wiki, settings, hub)}


def uniqueness(wiki, settings, hub):
    """Of paths that reach the fuzzing stage, how many are refused as not unique, with a hub as a bridge and without."""
    facts, degrees = Facts(wiki), wiki.in_degrees()
    changes = {"hub": NO_HUB_RULE, "max_retries": 0, "walks_per_seed": 20}
    rules = resolve_rules(wiki, settings.walks.model_copy(update=changes))
    counted = Counter()

    def accept(walk):
        outcome = draft(facts, walk, settings, walk.seed)
        stage = outcome.stage if isinstance(outcome, Rejection) else "passed"
        if stage not in ("relations", "compose"):
            kind = "hub" if any(degrees[node] > hub for node in walk.nodes[1:-1]) else "other"
            counted[kind, isinstance(outcome, Rejection) and outcome.reason == "not_unique"] += 1

    for _ in sample_walks(wiki, rules, SEED, None, accept=accept):
        pass
    return {
        kind: {"refused": counted[kind, True], "of": counted[kind, True] + counted[kind, False]}
        for kind in ("hub", "other")
    }


def part_blind(work):
    facts = Facts(WikiFolder(work / "wiki"))
    final, dropped = built(work)
    both = [(task, other) for task in [*final, *dropped] if (other := absolute_of(task, facts)) is not None][:ASKED]
    blind = audited(work, final)[0][4]
    return {
        "blind_agent": solved([task for task, _ in both], (blind,))[blind.name],
        "blind_agent_absolute": solved([other for _, other in both], (blind,))[blind.name],
    }


def part_kills(work):
    """Build in a child process, kill it at random moments, resume, and compare with the run never killed."""
    whole, out, moments = work / "whole", work / "killed", random.Random(SEED)
    command = [sys.executable, __file__, "--child", str(work), str(out)]
    shutil.rmtree(whole, ignore_errors=True)
    clock = time.perf_counter()
    subprocess.run([*command[:-1], str(whole)], check=True)
    taken = time.perf_counter() - clock
    equal, fractions, landed, torn = [], [], 0, 0
    for _ in range(KILLS):
        shutil.rmtree(out, ignore_errors=True)
        fractions.append(moments.uniform(0.05, 1.0))
        process = subprocess.Popen(command)
        try:
            process.wait(fractions[-1] * taken)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
        landed += process.wait() == -signal.SIGKILL
        records = out / "records.jsonl"
        torn += records.exists() and 0 < records.stat().st_size < (whole / "records.jsonl").stat().st_size
        subprocess.run(command, check=True)
        equal.append(digest(out) == digest(whole))
    return {
        "kills": len(equal),
        "kills_landed": landed,
        "kills_with_records_written": torn,
        "kill_fractions": [round(fraction, 3) for fraction in fractions],
        "kill_digests_equal": all(equal),
        "uninterrupted_seconds": taken,
    }


def resident_mb():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def part_paths(work):
    """The rule-based stages over `PATHS` sampled paths, rejected ones included, in this process."""
    wiki, settings = WikiFolder(work / "wiki"), QuestionSettings()
    facts, rules = Facts(wiki), WalkRules(walks_per_seed=1_000_000, max_retries=0)
    seen, ended, memory = 0, Counter(), []
    wall, processor = time.perf_counter(), time.process_time()

    def accept(walk):
        nonlocal seen
        seen += 1
        outcome = draft(facts, walk, settings, seen)
        ended[f"{outcome.stage}: {outcome.reason}" if isinstance(outcome, Rejection) else "passed"] += 1
        if seen % max(1, PATHS // 10) == 0:
            memory.append(round(resident_mb(), 1))

    for _ in sample_walks(wiki, rules, SEED, None, accept=accept):
        if seen >= PATHS:
            break
    wall, processor = time.perf_counter() - wall, time.process_time() - processor
    return {
        "paths": seen,
        "paths_ended": dict(ended.most_common()),
        "paths_seconds": wall,
        "paths_processor_seconds": processor,
        "million_paths_seconds": wall / seen * 1_000_000,
        "million_paths_processor_seconds": processor / seen * 1_000_000,
        "paths_resident_mb": memory,
        "paths_growth_mb": round(memory[-1] - memory[0], 1),
    }


PARTS = {
    "items": part_items,
    **{variant: partial(part_variant, variant=variant) for variant in VARIANTS},
    "solvers": part_solvers,
    "no_hub": part_no_hub,
    "blind": part_blind,
    "kills": part_kills,
    "paths": part_paths,
}

# ------------------------------------------------------------------------------------------------ running


def measured(name, work):
    """Run one part in a process of its own: its figures, and how it was run."""
    load, clock = os.getloadavg()[0], time.perf_counter()
    file = work / f"{name}.json"
    process = subprocess.Popen([sys.executable, __file__, "--part", name, str(work), str(file)])
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"Part {name} ended with status {process.returncode}.")
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=HERE).stdout
    how = {
        "size": SIZE,
        "seconds": round(time.perf_counter() - clock, 1),
        "processor_seconds": round(usage.ru_utime + usage.ru_stime, 1),
        "peak_mb": round(usage.ru_maxrss / 1024, 1),
        "load_before": round(load, 1),
        "commit": commit.strip(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "command": f"SIZE={SIZE} python benchmarks/bench_questions.py {name}",
    }
    return json.loads(file.read_text(encoding="utf-8")), how


def merged(old, new):
    """Figures by name; those of `shortcut` come from two parts."""
    return {**old, **new, "shortcut": {**old.get("shortcut", {}), **new.get("shortcut", {})}}


def main(names):
    file = HERE / "results" / "questions.json"
    file.parent.mkdir(exist_ok=True)
    own = Path(os.environ["WORK"]) if "WORK" in os.environ else Path(tempfile.mkdtemp(prefix="bench-questions-"))
    own.mkdir(parents=True, exist_ok=True)
    try:
        prepare(own)
        if "items" not in names and not (own / "run").exists() and {*VARIANTS, "solvers", "blind"} & set(names):
            names = ["items", *names]
        for name in names:
            figures, how = measured(name, own)
            kept = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
            result = merged(kept, figures) | {"runs": {**kept.get("runs", {}), name: how}}
            file.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
            print(json.dumps({name: figures, "run": how}, ensure_ascii=False), flush=True)
    finally:
        if "WORK" not in os.environ:
            shutil.rmtree(own, ignore_errors=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        build(Path(sys.argv[2]), Path(sys.argv[3]), num=KILLED_QUESTIONS, resume=True)
    elif sys.argv[1:2] == ["--part"]:
        found = PARTS[sys.argv[2]](Path(sys.argv[3]))
        Path(sys.argv[4]).write_text(json.dumps(found, ensure_ascii=False), encoding="utf-8")
    else:
        unknown = set(sys.argv[1:]) - set(PARTS)
        if unknown:
            sys.exit(f"There is no part {', '.join(sorted(unknown))}; parts: {', '.join(PARTS)}.")
        main(sys.argv[1:] or list(PARTS))
