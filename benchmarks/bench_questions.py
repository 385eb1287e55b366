"""Measures question building: yield, the independent checker, shortcut rates, killed runs, speed of the rules.

    python benchmarks/bench_questions.py             # 20,000 pages, 20 kills, 1,000,000 paths
    SIZE=small python benchmarks/bench_questions.py  # 600 pages, 3 kills, 5,000 paths: about a minute

Writes `benchmarks/results/questions.json`: `items`, `checker_failures`, `stages` (sums match), `shortcut` by variant
and solver with 95 % Wilson bounds (solvers not used in filtering), `blind_agent`, `blind_agent_absolute` (descriptors
that may find a page by themselves), `kill_digests_equal`, `paths`, `paths_seconds`, `paths_peak_mb`,
`million_paths_seconds`. Of the four variants, `no_hub` is built from walks over pages with any number of links.
"""

import asyncio
import json
import os
import platform
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from opensearch_vl.backends.image_index import LocalImageIndex
from opensearch_vl.backends.passages import LocalSearch
from opensearch_vl.backends.readers import WikiPageReader
from opensearch_vl.images import ImageStore
from opensearch_vl.questions.audit import audit_solvers
from opensearch_vl.questions.build import QuestionTools, build_questions
from opensearch_vl.questions.counterfactual import counterfactuals, solve_all
from opensearch_vl.questions.draft import draft
from opensearch_vl.questions.facts import Facts
from opensearch_vl.questions.settings import FuzzSettings, QuestionSettings
from opensearch_vl.questions.solvers import GuessCommonValue, OneImageSearch, common_values
from opensearch_vl.questions.stages import Rejection
from opensearch_vl.runs import RunFolder, digest
from opensearch_vl.scoring.judges import ExactJudge
from opensearch_vl.scoring.metrics import accuracy
from opensearch_vl.wiki.dump import build_wiki
from opensearch_vl.wiki.miniature import write_miniature
from opensearch_vl.wiki.tables import WikiFolder
from opensearch_vl.wiki.walks import WalkRules, sample_walks

HERE = Path(__file__).parent
SMALL = os.environ.get("SIZE") == "small"
PAGES, PICTURES, KILLS, PATHS = (600, 90, 3, 5_000) if SMALL else (20_000, 3_000, 20, 1_000_000)
SEED = 0


def tools_for(wiki, folder):
    """The rule-based filter, as `osvl questions build` uses it; OCR left out, so look-alikes stay `unknown`."""
    pictures = LocalImageIndex(folder / "pictures")
    guess = GuessCommonValue(common_values(Facts(wiki)))
    return QuestionTools(
        judge=ExactJudge(), filters=(guess, OneImageSearch(pictures, wiki.images)), image_index=pictures
    )


def build(wiki, folder, out, settings, *, filtered=True, resume=False, num=None):
    with RunFolder(out, settings, {"seed": SEED}, resume=resume) as run:
        tools = tools_for(wiki, folder) if filtered else QuestionTools()
        return build_questions(wiki, settings, seed=SEED, num=num, tools=tools, run=run)


def rate(cell):
    found = accuracy(cell.verdicts)
    return {"correct": found.correct, "of": found.scored, "rate": found.rate, "low": found.low, "high": found.high}


def shortcuts(wiki, folder, tasks, store, variants=("full", "no_fuzz", "answer_anchored")):
    search, pictures = LocalSearch(folder / "passages"), LocalImageIndex(folder / "pictures")
    solvers = audit_solvers(tasks, search, pictures, store, WikiPageReader(wiki))
    text, image = solvers[1], solvers[2]
    cells = asyncio.run(counterfactuals(tasks, wiki, (text, image), ExactJudge(), seed=SEED, variants=variants))
    table = {}
    for cell in cells:
        table.setdefault(cell.variant, {})["text" if cell.solver == text.name else "image"] = rate(cell)
    audit = asyncio.run(solve_all(tasks, solvers, ExactJudge(), seed=SEED))
    return table, {cell.solver: rate(cell) for cell in audit}


def kills(folder, scratch, whole):
    """Build in a child process, kill it at growing moments, resume, and compare with the run never killed."""
    equal, out = [], scratch / "killed"
    for number in range(KILLS):
        shutil.rmtree(out, ignore_errors=True)
        pause = 1.0 + 0.35 * number
        for _ in range(2):
            child = subprocess.Popen([sys.executable, __file__, "--child", str(folder), str(out)])
            time.sleep(pause)
            child.send_signal(signal.SIGKILL)
            child.wait()
        subprocess.run([sys.executable, __file__, "--child", str(folder), str(out)], check=True)
        equal.append(digest(out) == whole)
    return equal


def child(folder, out):
    build(WikiFolder(folder / "wiki"), folder, out, QuestionSettings(), resume=True, num=CHILD_QUESTIONS)


CHILD_QUESTIONS = 10 if SMALL else 40


def paths_per_second(wiki, num):
    """The rule-based stages over `num` sampled paths, rejected ones included, in this process."""
    facts, settings = Facts(wiki), QuestionSettings()
    rules = WalkRules(walks_per_seed=1_000_000, max_retries=0)
    seen = passed = 0
    started = time.perf_counter()

    def accept(walk):
        nonlocal seen, passed
        seen += 1
        outcome = draft(facts, walk, settings, seen)
        passed += not isinstance(outcome, Rejection)
        return None

    for _ in sample_walks(wiki, rules, SEED, None, accept=accept):
        if seen >= num:
            break
    return seen, passed, time.perf_counter() - started


def main():
    scratch = Path(tempfile.mkdtemp(prefix="bench-questions-"))
    try:
        result = measure(scratch)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=HERE).stdout
    result |= {
        "commit": commit.strip(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "command": f"SIZE={'small' if SMALL else 'full'} python benchmarks/bench_questions.py",
    }
    file = HERE / "results" / "questions.json"
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(json.dumps(result, ensure_ascii=False))


def measure(scratch):
    clock = time.perf_counter()
    info = write_miniature(scratch, pages=PAGES, seed=SEED, max_pictures=PICTURES)
    wiki = build_wiki(info.dump, scratch / "wiki", images=info.images)
    LocalSearch.build(wiki, scratch / "passages")
    LocalImageIndex.build(wiki, scratch / "pictures")
    prepared = time.perf_counter() - clock

    clock = time.perf_counter()
    settings = QuestionSettings()
    report = build(wiki, scratch, scratch / "run", settings)
    seconds = time.perf_counter() - clock
    checker = subprocess.run(
        [sys.executable, HERE / "check_questions.py", scratch / "run", scratch / "wiki", "--json"],
        capture_output=True,
        text=True,
    )
    checked = json.loads(checker.stdout)

    store = ImageStore(scratch / "run" / "images", fallbacks=(wiki.images,))
    sample = report.tasks[:400]
    table, audit = shortcuts(wiki, scratch, sample, store)

    hubs = settings.model_copy(update={"walks": WalkRules(hub=10**9)})
    no_hub = build(wiki, scratch, scratch / "no_hub", hubs, filtered=False, num=400)
    table["no_hub"] = shortcuts(wiki, scratch, no_hub.tasks, store, ("full",))[0]["full"]
    table["no_hub"]["not_unique"] = dict(no_hub.stages.ended).get(("fuzz", "not_unique"), 0)

    absolute = settings.model_copy(update={"fuzz": FuzzSettings(min_shared=1)})
    loose = build(wiki, scratch, scratch / "absolute", absolute, filtered=False, num=400)
    loose_audit = shortcuts(wiki, scratch, loose.tasks, store, ("full",))[1]

    build(wiki, scratch, scratch / "whole", settings, num=CHILD_QUESTIONS)
    equal = kills(scratch, scratch, digest(scratch / "whole"))
    seen, passed, taken = paths_per_second(wiki, PATHS)
    return {
        "size": "small" if SMALL else "full",
        "pages": PAGES,
        "seconds": {"prepare": prepared, "build": seconds},
        "items": checked["items"],
        "checker_failures": checked["checker_failures"],
        "stages": report.stages.as_dict(),
        "hops": dict(report.hops),
        "shortcut": table,
        "solvers": audit,
        "blind_agent": audit["blind_agent"],
        "blind_agent_absolute": loose_audit["blind_agent"],
        "kills": len(equal),
        "kill_digests_equal": all(equal),
        "paths": seen,
        "paths_passed": passed,
        "paths_seconds": taken,
        "paths_peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "million_paths_seconds": taken / seen * 1_000_000,
    }


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(Path(sys.argv[2]), Path(sys.argv[3]))
    else:
        main()
