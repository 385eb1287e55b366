"""The viewer and the report: self-contained, escaped, complete."""

import math
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from expert_world import make_task, store_with_photo
from hypothesis import given, settings
from hypothesis import strategies as st
from scoring_samples import answer, call, hits, task, trajectory

from opensearch_vl.images import ImageStore
from opensearch_vl.scoring.metrics import accuracy
from opensearch_vl.types import FailureKind, ImageRef, RewardParts, RolloutRecord, Step, Verdict
from opensearch_vl.viewer.charts import MOST_BARS, bar_chart, line_chart
from opensearch_vl.viewer.html import bar, esc
from opensearch_vl.viewer.page import render_trajectories
from opensearch_vl.viewer.report import (
    CostRow,
    Counterfactual,
    Curve,
    Figure,
    ReportData,
    ScoreRow,
    StageRow,
    render_report,
)

ATTACKS = (
    "<script>alert(1)</script>",
    "\"><img src=x onerror=alert(1)>",
    "'><svg onload=alert(1)>",
    "</pre></details></article><h1>mine</h1>",
    "<style>*{display:none}</style>",
    "javascript:alert(1)",
    "&lt;b&gt; &amp;amp; &#x3C;script>",
    "\u202egnp.exe\u2066",
    "a\x00b\x1b[31mc\x85",
    "\ud800 lone surrogate",
    "]]> --> <!-- ",
    "https://evil.invalid/x.png",
    "{{title}} %s {0}",
)  # fmt: skip
VOID = {"meta", "img", "br", "rect", "path", "link", "input"}


class Checker(HTMLParser):
    """Collects elements and attributes, and checks that tags are balanced."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open, f"</{tag}> closes nothing"
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not self.open or self.open[-1] not in ("style", "script"):
            self.text.append(data)


def check(page: str) -> Checker:
    """Parse a page and hold it to what every page promises."""
    page.encode("utf-8")
    found = Checker()
    found.feed(page)
    found.close()
    assert found.open == []
    assert not {"script", "iframe", "object", "embed", "form", "link", "base"} & set(found.tags)
    for tag, name, value in found.attributes:
        assert not name.startswith("on"), (tag, name, value)
        if name == "src":
            assert value.startswith("data:image/"), value[:80]
        if name == "href":
            assert value.startswith("#"), value
    styles = re.search(r"<style>(.*?)</style>", page, re.DOTALL)
    assert styles is not None
    assert "url(" not in styles[1]
    assert "@import" not in styles[1]
    assert "default-src 'none'" in html_unescape(page)
    return found


def html_unescape(page: str) -> str:
    return page.replace("&#x27;", "'")


def record(*steps: Step, **fields: object) -> RolloutRecord:
    subject = fields.pop("task", None) or task()
    rollout = trajectory(*(steps or (call("text_search", hits(("A", "b")), q="x"), answer("15 May 1931"))))
    return RolloutRecord(id=rollout.id, task=subject, trajectory=rollout, **fields)  # type: ignore[arg-type]


@pytest.fixture
def store(tmp_path: Path) -> ImageStore:
    return store_with_photo(tmp_path / "images")[0]


def test_a_trajectory_is_shown_whole(tmp_path: Path) -> None:
    store, photo = store_with_photo(tmp_path / "images")
    steps = (
        call(
            "sharpen",
            "Done.\nNew image ID: img_2",
            picture=photo,
            image_id="img_2",
            image="img_1",
            thought="It is blurred.",
        ),
        call("crop", "No such picture.", failure=FailureKind.BAD_INPUT, image="img_9", well_formed=False),
        answer("It was 15 May 1931."),
    )
    shown = record(
        *steps,
        task=make_task(3, images=(photo,)),
        verdict=Verdict(correct=True, reason="same day", judge="exact"),
        reward=RewardParts(fmt=0.5, acc=1.0, query=0.25, total=0.42),
        accepted=False,
        reason="too_many_failures",
    )
    found = check(render_trajectories([shown], store, title="Run 7"))
    text = " ".join(found.text)
    for piece in (
        "Run 7", "What is the thing in the picture about?", "It is blurred.", "sharpen", '"image": "img_1"', "New image ID: img_2",
        "failed: bad_input", "No such picture.", "not in the required form", "It was 15 May 1931.", "2 March 1900", "same day",
        "right", "not kept: too_many_failures", "0.42", "Grand Hall → Ana Boro → Óla Vik (sculptor)", "img_2 · 64 × 48 px",
    ):  # fmt: skip
        assert piece in text, piece
    assert sum(tag == "img" for tag in found.tags) == 2


@pytest.mark.parametrize("attack", ATTACKS)
def test_attacks_stay_text_wherever_they_stand(attack: str, store: ImageStore) -> None:
    safe = attack.encode("utf-8", "replace").decode()  # pydantic refuses lone surrogates itself
    steps = (
        call(safe, safe, failure=FailureKind.TIMEOUT, thought=safe, **{safe: safe}),
        Step(index=0, text=safe, thought=safe),
        answer(safe),
    )
    subject = task(answer=safe, kind="text", question=safe, aliases=(safe,))
    shown = record(*steps, task=subject, verdict=Verdict(correct=None, reason=safe, judge=safe), reason=safe)
    shown = shown.model_copy(update={"trajectory": shown.trajectory.model_copy(update={"model": safe, "error": safe})})
    data = ReportData(
        title=safe,
        summary=safe,
        figures=(Figure(label=safe, value=safe),),
        stages=(StageRow(stage=safe, entered=1, passed=0, reasons={safe: 1}),),
        scores=(ScoreRow.of(safe, accuracy([None]), safe),),
        counterfactuals=(
            Counterfactual(variant=safe, explanation=safe, scores={safe: ScoreRow.of(safe, accuracy([]))}),
        ),
        costs=(CostRow(part=safe, seconds=1, note=safe),),
        curves=(Curve(title=safe, x_label=safe, x=(1, 2), series={safe: (1, 2)}),),
        settings={safe: safe},
        notes=(safe,),
    )
    for page in (render_trajectories([shown, shown], store, title=safe), render_report(data, [shown], store)):
        found = check(page)
        assert found.tags.count("h1") == 1
        if attack.isprintable():
            assert attack in "".join(found.text)


def test_control_characters_and_surrogates_are_replaced() -> None:
    assert esc("a\x00b\ud800") == "a\ufffdb?"
    assert esc("<&\">'") == "&lt;&amp;&quot;&gt;&#x27;"


@settings(max_examples=30, deadline=None)
@given(st.text(max_size=400))
def test_any_text_gives_a_sound_page(noise: str) -> None:
    clean = noise.encode("utf-8", "replace").decode()
    shown = record(call("text_search", clean, thought=clean, q=clean), answer(clean or "x"))
    check(render_trajectories([shown], ImageStore("unused")))


def test_long_observations_are_folded_and_huge_ones_cut(store: ImageStore) -> None:
    long = hits(("First page", "x" * 600), ("Second page", "y"))
    page = render_trajectories(
        [record(call("text_search", long, q="a"), call("text_search", "z" * 200_000, q="b"))], store
    )
    found = check(page)
    assert "First page · Second page" in " ".join(found.text)
    assert found.tags.count("details") >= 2
    assert len(page) < 80_000
    assert "170,000 more characters" in page


def test_a_missing_picture_is_said_not_hidden(store: ImageStore) -> None:
    lost = ImageRef(sha256="b" * 64, mime="image/png", width_px=10, height_px=10)
    found = check(render_trajectories([record(task=make_task(2, images=(lost,)))], store))
    assert "is missing" in " ".join(found.text)


def test_no_more_than_asked_for_are_shown_and_the_rest_is_counted(store: ImageStore) -> None:
    found = check(render_trajectories([record() for _ in range(5)], store, max_records=2))
    assert found.tags.count("article") == 2
    assert "3 more are not shown" in " ".join(found.text)
    assert "no trajectories" in render_trajectories([], store)


def test_pictures_are_scaled_down(tmp_path: Path) -> None:
    from PIL import Image

    store = ImageStore(tmp_path)
    noise = Image.effect_noise((1600, 900), 80).convert("RGB")
    page = render_trajectories([record(task=make_task(2, images=(store.put(noise),)))], store, thumb_px=200)
    assert 'width="200" height="112"' in page
    assert len(page) < 60_000


# --------------------------------------------------------------------------------------------- report


def test_the_report_shows_every_part(store: ImageStore) -> None:
    verdicts = [Verdict(correct=True)] * 8 + [Verdict(correct=False)] * 2 + [None]
    data = ReportData(
        title="Quickstart",
        figures=(Figure(label="questions", value="151"),),
        stages=(StageRow(stage="walks", entered=500, passed=200, reasons={"hub": 290, "dead_end": 10}),),
        scores=(ScoreRow.of("expert", accuracy(verdicts), "≥ 95 %"), ScoreRow.of("nobody", accuracy([]))),
        counterfactuals=(
            Counterfactual(variant="full", scores={"one text search": ScoreRow.of("", accuracy(verdicts))}),
            Counterfactual(variant="no fuzzing", explanation="names stay", scores={}),
        ),
        costs=(CostRow(part="walks", seconds=3), CostRow(part="rollouts", seconds=9, cost=0.5)),
        curves=(Curve(title="loss", x_label="step", x=(0, 1, 2), series={"train": (3.0, math.nan, 1.0)}),),
        settings={"seed": "0"},
        notes=("A note.",),
    )
    found = check(render_report(data, [record()], store))
    text = " ".join(found.text)
    for piece in (
        "Quickstart", "151", "questions", "hub: 290", "500", "80.0%", "49.0% to 94.3%", "8 / 10", "n/a", "≥ 95 %", "no fuzzing",
        "names stay", "not measured", "12.0 s", "$0.5000", "loss", "A note.", "seed",
    ):  # fmt: skip
        assert piece in text, piece
    assert text.index("hub: 290") < text.index("dead_end: 10")
    assert found.tags.count("svg") >= 6


def test_an_empty_report_is_a_page(store: ImageStore) -> None:
    found = check(render_report(ReportData(title="Nothing"), [], store))
    assert "h2" not in found.tags


def test_bars_stay_within_their_frame() -> None:
    assert 'width="160.0"' in bar(7.0)
    assert 'width="0.0"' in bar(-1.0)


def test_bars_keep_the_order_and_add_up_the_rest() -> None:
    chart = bar_chart("Hops", {"3": 30, "2": 10, "<b>": 0})
    assert chart.index(">3<") < chart.index(">2<") < chart.index("&lt;b&gt;")
    assert "30 (75%)" in chart and "10 (25%)" in chart and "40 in all" in chart
    many = bar_chart("Keys", {f"key {n}": 100 - n for n in range(MOST_BARS + 5)})
    assert many.count("<rect") == MOST_BARS
    rest = sum(100 - n for n in range(MOST_BARS - 1, MOST_BARS + 5))
    assert "6 others</text>" in many and f">{rest} (" in many
    assert "nothing counted" in bar_chart("Empty", {"a": 0})


def test_charts_leave_gaps_and_refuse_ragged_series() -> None:
    assert line_chart("c", "x", (0, 1, 2), {"a": (1.0, math.nan, 2.0)}).count("M") >= 2
    assert "nothing measured" in line_chart("c", "x", (), {})
    assert "nothing measured" in line_chart("c", "x", (1,), {"a": (math.nan,)})
    assert "<svg" in line_chart("c", "x", (1,), {"a": (5.0,)})
    with pytest.raises(ValueError, match="2 values for 1 points"):
        line_chart("c", "x", (1,), {"a": (1.0, 2.0)})


@given(st.lists(st.floats(allow_nan=True, allow_infinity=True, width=32), min_size=1, max_size=50))
def test_any_series_can_be_drawn(values: list[float]) -> None:
    chart = line_chart("c", "x", list(range(len(values))), {"a": values})
    assert "nan" not in chart.replace("nothing", "")
    assert "inf" not in chart
