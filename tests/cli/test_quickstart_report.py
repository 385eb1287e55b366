"""What the report says about an enhancement subset that fell short."""

from collections import Counter
from typing import Any, cast

from opensearch_vl.cli.pipeline import Results
from opensearch_vl.cli.quickstart_report import _notes
from opensearch_vl.cli.quickstart_settings import QuickstartSettings
from opensearch_vl.questions.tally import BuildReport
from opensearch_vl.scoring.metrics import accuracy
from opensearch_vl.sft.synthesis import SynthesisReport
from opensearch_vl.types import Gold, Task


def results(degraded: dict[str, int]) -> Results:
    tasks = [Task(id=f"t{n}", question="?", gold=Gold(answer="a")) for n in range(100)]
    build = BuildReport(tasks=tasks, degraded=Counter(degraded), identified_by=Counter(lettering=30))
    return Results(cast(Any, None), build, SynthesisReport(), accuracy([]), (), ())


def test_a_short_enhancement_subset_is_said_with_its_reason() -> None:
    notes = _notes(results({"blur": 4, "perspective": 3}), QuickstartSettings())
    assert any("7 pictures were damaged" in note and "blur 4, perspective 3" in note for note in notes)
    assert any("7 of 10 wanted" in note and "(30 here)" in note for note in notes)


def test_a_full_one_is_not_called_short() -> None:
    assert not any("short" in note for note in _notes(results({"blur": 10}), QuickstartSettings()))
