"""The whole chain on a small miniature: sums match, nothing twice, killed and resumed to the same digest."""

import copy
import importlib.util
import json
from collections import Counter
from pathlib import Path

import pytest
from typer.testing import CliRunner

from opensearch_vl.cli.questions import app
from opensearch_vl.errors import UsageError
from opensearch_vl.protocols import VisualMatch
from opensearch_vl.questions.audit import check_against_wiki, read_tasks
from opensearch_vl.questions.build import QuestionTools, build_questions
from opensearch_vl.questions.counterfactual import absolute_of, variant_of, without_hub_rule
from opensearch_vl.questions.facts import Facts
from opensearch_vl.questions.leak import leaks
from opensearch_vl.questions.settings import AnchorSettings, AnswerSettings, FuzzSettings, QuestionSettings
from opensearch_vl.questions.stages import StageTable
from opensearch_vl.questions.variety import shape
from opensearch_vl.runs import RunFolder, digest, read_json_lines, read_manifest, read_records
from opensearch_vl.scoring.judges import ExactJudge
from opensearch_vl.types import Gold, Provenance, QuestionRecord, Step, Task, Termination, Trajectory
from opensearch_vl.wiki.dump import build_wiki
from opensearch_vl.wiki.miniature import write_miniature
from opensearch_vl.wiki.tables import WikiFolder
from opensearch_vl.wiki.walks import WalkRules, resolve_rules

SETTINGS = QuestionSettings(
    walks=WalkRules(min_in_degree=1, walks_per_seed=2),
    answer=AnswerSettings(min_key_pages=3),
    fuzz=FuzzSettings(min_shared=3),
    shallow_first_hop=True,
    max_per_picture=2,
)


@pytest.fixture(scope="module")
def wiki(tmp_path_factory) -> WikiFolder:
    folder = tmp_path_factory.mktemp("mini")
    info = write_miniature(folder, pages=300, seed=3, max_pictures=40, workers=1)
    return build_wiki(info.dump, folder / "wiki", images=info.images)


class Fixed:
    """Answers every question with the same words; counts what it is asked; may be told to stop."""

    def __init__(self, name="no_tools", text="nothing", stop_after=None):
        self.name, self.text, self.stop_after, self.asked = name, text, stop_after, []

    async def solve(self, task, seed):
        if self.stop_after is not None and len(self.asked) >= self.stop_after:
            raise KeyboardInterrupt
        self.asked.append(task.id)
        step = Step(index=0, response=self.text)
        return Trajectory(id="x", task_id=task.id, steps=(step,), termination=Termination.ANSWERED)


class Unambiguous:
    """Finds every picture's own page."""

    name = "unambiguous"

    def __init__(self, wiki):
        self.by_sha = {
            wiki.images.read(image.ref): (page.title, wiki.url(page.page_id))
            for page in wiki.pages()
            for image in wiki.page_images(page.page_id)
        }

    async def search(self, image, top_k):
        title, url = self.by_sha[image]
        return [VisualMatch(title, url, "memory", score=0.9, exact=True)]


def build(wiki, out, solver, resume=False, num=None):
    with RunFolder(out, SETTINGS, resume=resume) as run:
        tools = QuestionTools(judge=ExactJudge(), filters=(solver,), image_index=Unambiguous(wiki))
        return build_questions(wiki, SETTINGS, seed=5, num=num, tools=tools, run=run)


@pytest.fixture(scope="module")
def whole(wiki, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "whole"
    return out, build(wiki, out, Fixed())


def test_sums_match(whole) -> None:
    out, report = whole
    records = list(read_records(out, QuestionRecord))
    assert len(report.tasks) >= 15
    again = StageTable.of(("final", "") if r.task else (r.stage, r.reason) for r in records)
    assert again.as_dict() == report.stages.as_dict() == read_manifest(out)["report"]["stages"]
    assert report.stages.total == len(records)
    assert report.stages.final == len(report.tasks) == sum(report.hops.values()) == sum(report.domains.values())
    assert [r.task for r in records if r.task] == report.tasks == read_tasks(out)


def test_every_question_holds_against_the_wiki(wiki, whole) -> None:
    assert check_against_wiki(whole[1].tasks, Facts(wiki)) == ()


def test_nothing_is_asked_twice(whole) -> None:
    tasks = whole[1].tasks
    assert max(Counter(task.images[0].sha256 for task in tasks).values()) <= SETTINGS.max_per_picture
    assert len({(task.provenance.path[-1], task.provenance.attribute) for task in tasks}) == len(tasks)
    assert len({task.id for task in tasks}) == len(tasks)
    assert shape(tasks)["duplicates"]["answer_page_and_attribute"] == 0


def test_pictures_travel_with_the_run(wiki, whole) -> None:
    out, report = whole
    for task in report.tasks:
        assert (out / "images" / task.images[0].sha256[:2]).is_dir()
        assert task.provenance.picture.identified_by == "appearance"
        assert task.provenance.picture.page == task.provenance.path[0]


def test_killed_and_resumed_it_ends_in_the_same_digest(wiki, whole, tmp_path) -> None:
    out, report = whole
    asked = []
    for stop_after in (0, 3, 1, 7):
        solver = Fixed(stop_after=stop_after)
        with pytest.raises(KeyboardInterrupt):
            build(wiki, tmp_path / "run", solver, resume=bool(asked) or stop_after > 0)
        asked += solver.asked
    torn = tmp_path / "run" / "records.jsonl"
    torn.write_bytes(torn.read_bytes()[:-20])  # kill -9 in the middle of a write
    solver = Fixed()
    resumed = build(wiki, tmp_path / "run", solver, resume=True)
    assert digest(tmp_path / "run") == digest(out)
    assert resumed.as_dict() == report.as_dict()
    assert len(asked) + len(solver.asked) <= len(report.tasks) + 1  # only the torn record is paid for again


@pytest.fixture(scope="module")
def bare_wiki(tmp_path_factory) -> WikiFolder:
    """The same export, its picture files not given."""
    folder = tmp_path_factory.mktemp("bare")
    info = write_miniature(folder, pages=300, seed=3, max_pictures=0, workers=1)
    return build_wiki(info.dump, folder / "wiki")


@pytest.mark.parametrize("required", [False, True])
def test_an_export_without_pictures(bare_wiki, tmp_path, required) -> None:
    """Asked to, the build makes questions that name their anchor, and says so; otherwise each ends in `no_picture`."""
    rules = SETTINGS.walks.model_copy(update={"require_image": False, "edges": "stated"})
    anchor = SETTINGS.anchor.model_copy(update={"required": required})
    settings = SETTINGS.model_copy(update={"walks": rules, "anchor": anchor, "shallow_first_hop": False})
    with RunFolder(tmp_path / "run", settings) as run:
        tools = QuestionTools(judge=ExactJudge(), filters=(Fixed(),))
        report = build_questions(bare_wiki, settings, seed=5, num=None, tools=tools, run=run)
    table = {row.stage: row for row in report.stages.rows()}
    assert table["relations"].reasons.keys() <= {"shallow_first_hop"}
    if required:
        assert report.tasks == []
        assert table["anchor"].reasons == {"no_picture": table["anchor"].came_in}
        assert table["anchor"].came_in > 0
        return
    assert len(report.tasks) == report.num_ungrounded == report.as_dict()["ungrounded"] > 10
    assert shape(report.tasks)["ungrounded"] == len(report.tasks)
    assert check_against_wiki(report.tasks, Facts(bare_wiki)) == ()
    for task in report.tasks:
        assert (task.images, task.provenance.picture) == ((), None)
        assert task.provenance.extra["ungrounded"] == "no_picture"
        assert task.provenance.path[0] in task.question


def test_stops_at_the_number_asked_for(wiki, whole, tmp_path) -> None:
    report = build(wiki, tmp_path / "few", Fixed(), num=4)
    assert [task.id for task in report.tasks] == [task.id for task in whole[1].tasks[:4]]


def test_other_corpora_join_before_the_filter(wiki, whole, tmp_path) -> None:
    picture = whole[1].tasks[0].images
    foreign = [
        Task(
            id=f"m{n}", question="Who?", images=picture, gold=Gold(answer=answer), provenance=Provenance(corpus="fvqa")
        )
        for n, answer in enumerate(("nothing", "Ann"))
    ]
    for resume in (False, True):
        with RunFolder(tmp_path / "run", SETTINGS, resume=resume) as run:
            solver = Fixed(text="nothing")
            tools = QuestionTools(judge=ExactJudge(), filters=(solver,))
            report = build_questions(wiki, SETTINGS, seed=5, num=2, tools=tools, run=run, merge=foreign)
        assert report.corpora == {"wiki": 2, "fvqa": 1}
        assert [task.id for task in report.screened] == ["m0"]
        assert len(solver.asked) == (0 if resume else 4)


def test_what_the_filter_answers_is_dropped_with_its_trace(wiki, whole, tmp_path) -> None:
    target = whole[1].tasks[0]
    report = build(wiki, tmp_path / "run", Fixed(text=target.gold.answer), num=2)
    assert [task.id for task in report.screened] == [target.id]
    dropped = [r for r in read_records(tmp_path / "run", QuestionRecord) if r.stage == "screen"]
    assert [(r.id, r.reason, r.task) for r in dropped] == [(target.id, "no_tools", None)]
    assert Task.model_validate(dropped[0].draft["task"]).question == target.question


def test_variants(wiki, whole) -> None:
    for task in whole[1].tasks:
        plain = variant_of(task, "no_fuzz", wiki)
        assert plain.images == ()
        assert plain.question == task.provenance.canonical
        anchored = variant_of(task, "answer_anchored", wiki)
        if anchored is not None:
            assert anchored.images != task.images
            assert anchored.provenance.picture.page == task.provenance.path[-1]
            assert "in the picture" in anchored.question
        assert variant_of(task, "full", wiki) is task


def test_descriptors_that_hang_on_nothing_need_no_picture(wiki, whole) -> None:
    facts, made = Facts(wiki), 0
    for task in whole[1].tasks:
        other = absolute_of(task, facts)
        if other is None:
            continue
        made += 1
        assert "in the picture" not in other.question and other.images == ()
        assert other.question != task.question and other.gold == task.gold
        for title in task.provenance.path[1:]:
            assert not leaks(other.question, facts.names(facts.resolve(title)))
    assert made > len(whole[1].tasks) // 2


def test_without_the_hub_rule_paths_pass_hubs(wiki, whole) -> None:
    hub = resolve_rules(wiki, SETTINGS.walks).hub

    def through(tasks):
        return sum(any(wiki.in_degrees()[wiki.resolve(t)] > hub for t in x.provenance.path[1:]) for x in tasks)

    made = without_hub_rule(wiki, SETTINGS, seed=5, num=40)
    assert through(whole[1].tasks) == 0
    assert through(made.tasks) > 0
    assert made.stages.final == len(made.tasks) and made.screened == []


def test_a_picture_under_another_name_is_turned_away(wiki, whole, tmp_path) -> None:
    """Every picture counts as a near-duplicate of the first, unless it is the same file."""
    settings = SETTINGS.model_copy(update={"anchor": AnchorSettings(max_hash_distance=64)})
    with RunFolder(tmp_path / "run", settings) as run:
        tools = QuestionTools(image_index=Unambiguous(wiki))
        report = build_questions(wiki, settings, seed=5, num=None, tools=tools, run=run)
    assert len({task.provenance.picture.file for task in report.tasks}) == 1
    turned = report.stages.ended["dedupe", "near_duplicate_picture"]
    assert turned > 10 and report.stages.total == sum(report.stages.ended.values())
    records = [r for r in read_records(tmp_path / "run", QuestionRecord) if r.reason == "near_duplicate_picture"]
    assert {r.draft["detail"] for r in records} == {report.tasks[0].provenance.picture.file}


def test_the_audit_finds_what_is_broken(wiki, whole) -> None:
    facts, task = Facts(wiki), whole[1].tasks[0]
    title = task.provenance.path[1]

    def problems(**changes):
        return {f.problem for f in check_against_wiki([task.model_copy(update=changes)], facts)}

    assert problems() == set()
    assert problems(question=f"Who is {title}?") == {"leak"}
    assert problems(question=f"Is it {task.gold.answer}?") == {"answer_leak"}
    other = task.provenance.model_copy(update={"attribute": "never_a_key"})
    assert problems(provenance=other) == {"answer_not_on_page"}
    assert problems(provenance=task.provenance.model_copy(update={"path": ("No Such Page",)})) == {"missing_page"}
    hops = tuple(hop.model_copy(update={"relation": "never_a_key"}) for hop in task.provenance.hops)
    assert problems(provenance=task.provenance.model_copy(update={"hops": hops})) == {"broken_hop"}
    wrong = tuple(d.model_copy(update={"entity": task.provenance.path[0]}) for d in task.provenance.descriptors)
    assert problems(provenance=task.provenance.model_copy(update={"descriptors": wrong})) == {"not_unique"}


def test_records_are_plain_json_lines(whole) -> None:
    assert all(row["kind"] == "question" for row in read_json_lines(whole[0] / "records.jsonl"))


def test_infobox_keys_survive_the_redaction_of_secrets(whole) -> None:
    stored = (whole[0] / "records.jsonl").read_text(encoding="utf-8")
    assert "[redacted]" not in stored


def checker():
    file = Path(__file__).parents[2] / "benchmarks" / "check_questions.py"
    spec = importlib.util.spec_from_file_location("check_questions", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_independent_checker_passes_every_question_and_can_fail(wiki, whole) -> None:
    module = checker()
    out, _ = whole
    tables = module.Wiki(wiki.root)
    records = list(read_json_lines(out / "records.jsonl"))
    final = [record for record in records if record["task"]]
    assert [p for record in final for p in module.check(record, tables, out, module.COMMON)] == []
    assert list(module.check_run(records, read_manifest(out))) == []

    def broken(change):
        record = copy.deepcopy(final[0])
        change(record["task"])
        return " ".join(module.check(record, tables, out, module.COMMON))

    title = final[0]["task"]["provenance"]["path"][1]
    assert "can be read" in broken(lambda t: t.update(question=f"Who is {title}?"))
    assert "the page states" in broken(lambda t: t["gold"].update(answer="31 May 1700"))
    assert "does not fit it alone" in broken(lambda t: t["provenance"]["descriptors"][1]["predicates"].clear())
    assert "no infobox states" in broken(lambda t: t["provenance"]["hops"][0].update(relation="x"))
    assert "not the page's" in broken(lambda t: t["images"][0].update(sha256="0" * 64))
    assert "is not on the anchor's page" in broken(lambda t: t["provenance"]["picture"].update(file="x.png"))
    assert list(module.check_run([*records, records[0]], read_manifest(out))) != []


def test_the_command_line_builds_resumes_and_audits(wiki, tmp_path) -> None:
    out, index = tmp_path / "run", wiki.root / "index"
    common = ["--index", str(index), "--json"]
    small = [
        option
        for rule in (
            "walks.min_in_degree=1", "answer.min_key_pages=3", "fuzz.min_shared=3", "shallow_first_hop=true", "screen.attempts=2",
        )
        for option in ("--set", rule)
    ]  # fmt: skip
    arguments = ["build", str(wiki.root), "--out", str(out), "--num", "3", "--no-ocr", *small, *common]
    first = CliRunner().invoke(app, arguments)
    assert first.exit_code == 0, first.output
    assert json.loads(first.stdout)["questions"] == 3
    again = CliRunner().invoke(app, [*arguments, "--resume"])
    assert json.loads(again.stdout) == json.loads(first.stdout)
    page = tmp_path / "pages" / "audit.html"
    audited = CliRunner().invoke(app, ["audit", str(out), "--wiki", str(wiki.root), "--out", str(page), *common])
    assert audited.exit_code == 0, audited.output
    result = json.loads(audited.stdout)
    assert result["findings"] == []
    assert sum(result["roles"]["anchor"].values()) == sum(result["roles"]["answer"].values()) == 3
    html = page.read_text(encoding="utf-8")
    assert html.count("<svg") > 20 and "no hub" in html and "http" not in html.replace("http-equiv", "")
    assert {(row["variant"], row["solver"]) for row in result["solvers"]} >= {
        ("full", "no_tools"), ("full", "one_text_search"), ("full", "one_image_search"), ("full", "image_then_text"),
        ("full", "blind_agent"), ("no_fuzz", "one_text_search"), ("answer_anchored", "one_image_search"),
        ("no_hub", "one_text_search"), ("no_hub", "one_image_search"), ("absolute", "blind_agent"),
    }  # fmt: skip
    assert all(row["unscored"] == 0 for row in result["solvers"])
    refused = CliRunner().invoke(app, ["build", str(wiki.root), "--out", str(out), "--budget", "1"])
    assert isinstance(refused.exception, UsageError)
