"""The vocabulary: what is frozen, what is hidden from agents, what is refused."""

import pytest
from pydantic import ValidationError

from opensearch_vl.types import (
    COUNTS_TOWARDS_FATAL,
    FailureKind,
    Gold,
    Provenance,
    Sampled,
    Step,
    Task,
    Termination,
    ToolCall,
    Trajectory,
)


def make_task() -> Task:
    return Task(id="t1", question="Who?", gold=Gold(answer="the gold answer"), provenance=Provenance(path=("Secret",)))


def test_the_view_of_a_task_carries_neither_gold_nor_provenance() -> None:
    text = make_task().view().model_dump_json()
    assert "gold answer" not in text and "Secret" not in text
    assert set(make_task().view().model_dump()) == {"id", "question", "images"}


def test_models_are_frozen_and_refuse_unknown_fields() -> None:
    with pytest.raises(ValidationError):
        make_task().question = "other"  # type: ignore[misc]
    with pytest.raises(ValidationError):
        Gold.model_validate({"answer": "a", "answr": "b"})


def test_sampled_ids_and_logprobs_have_one_length() -> None:
    with pytest.raises(ValidationError, match="2 token ids but 1"):
        Sampled(prompt_len=0, token_ids=(1, 2), logprobs=(0.0,))


def test_a_step_cannot_both_call_and_respond() -> None:
    with pytest.raises(ValidationError):
        Step(index=0, call=ToolCall(name="crop"), response="done")


def test_every_failure_kind_is_in_the_table_of_fatal_errors() -> None:
    assert set(COUNTS_TOWARDS_FATAL) == set(FailureKind)


def test_trajectory_round_trip_and_properties() -> None:
    steps = (Step(index=0, call=ToolCall(name="crop", arguments={"x": 1})), Step(index=1, response="1931"))
    trajectory = Trajectory(id="t1#0", task_id="t1", steps=steps, termination=Termination.ANSWERED)
    assert trajectory.response == "1931" and trajectory.num_calls == 1
    assert Trajectory.model_validate_json(trajectory.model_dump_json()) == trajectory
    assert Trajectory(id="t1#1", task_id="t1", termination=Termination.ERROR).response is None


def test_a_stored_record_of_another_schema_version_is_refused() -> None:
    row = make_task().model_dump() | {"schema_version": 2}
    with pytest.raises(ValidationError):
        Task.model_validate(row)
