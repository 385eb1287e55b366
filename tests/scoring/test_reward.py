"""Composition of the reward, with every special case of the recipe."""

import math

import pytest
from scoring_samples import answer, call, task, trajectory

from opensearch_vl.protocols import JudgedCase, QueryScore
from opensearch_vl.scoring.reward import compose, format_reward, prefix
from opensearch_vl.scoring.score import RewardSettings, score_rollout
from opensearch_vl.types import FailureKind, Step, Termination, Trajectory, Verdict

BAD = FailureKind.BAD_ARGUMENTS


def good() -> Step:
    return call("text_search", q="x")


def bad() -> Step:
    return call("text_search", failure=BAD, q="x")


def test_a_faultless_right_answer_with_perfect_searches_is_one() -> None:
    parts = compose(trajectory(good(), answer("a")), correct=True, query=1.0)
    assert (parts.fmt, parts.acc, parts.query, parts.total) == (1, 1, 1, 1)


def test_weights() -> None:
    rollout = trajectory(good(), answer("a"))
    assert compose(rollout, correct=True, query=0.5).total == pytest.approx(0.8 + 0.2 * 0.5)
    assert compose(rollout, correct=False, query=0.5).total == pytest.approx(0.1)
    assert compose(rollout, correct=False, query=0.5, alpha=0.5).total == pytest.approx(0.25)


def test_format_is_the_mean_over_all_steps_the_response_included() -> None:
    rollout = trajectory(good(), bad(), call("x", well_formed=False), answer("a"))
    assert format_reward(rollout) == pytest.approx(2 / 4)
    assert compose(rollout, correct=True, query=1.0).total == pytest.approx(0.5)
    assert format_reward(trajectory(answer("a", well_formed=False))) == 0
    assert format_reward(trajectory(Step(index=0, well_formed=True))) == 0  # neither a call nor a response
    assert format_reward(trajectory()) == 0


def test_a_fatal_trajectory_is_rewarded_on_its_prefix_only() -> None:
    rollout = trajectory(good(), bad(), bad(), bad(), termination=Termination.FATAL)
    parts = compose(rollout, correct=None, query=0.5, fatal=1)
    assert (parts.fmt, parts.acc, parts.query) == (1, 0, 0.5)
    assert parts.total == pytest.approx(0.2 * 0.5)
    assert compose(rollout, correct=None, query=0.5, fatal=3).fmt == pytest.approx(1 / 3)


def test_fatal_from_the_first_step_is_zero_throughout() -> None:
    rollout = trajectory(bad(), bad(), bad(), termination=Termination.FATAL)
    parts = compose(rollout, correct=None, query=None, fatal=0)
    assert (parts.fmt, parts.acc, parts.query, parts.total) == (0, 0, 0, 0)


def test_a_response_after_a_cascade_earns_nothing() -> None:
    rollout = trajectory(bad(), bad(), bad(), answer("a"))
    assert compose(rollout, correct=True, query=1.0, fatal=0).acc == 0


@pytest.mark.parametrize("end", [Termination.TURNS, Termination.TOKENS, Termination.TIME, Termination.IMAGES])
def test_cut_off_before_a_response_is_zero_accuracy_whatever_the_judge_says(end: Termination) -> None:
    parts = compose(trajectory(good(), termination=end), correct=None, query=0.5)
    assert parts.acc == 0
    assert parts.total == pytest.approx(0.1)


@pytest.mark.parametrize("end", [Termination.ERROR, Termination.CANCELLED])
def test_a_rollout_stopped_from_outside_is_unscored(end: Termination) -> None:
    parts = compose(trajectory(good(), termination=end), correct=None, query=0.5)
    assert parts.acc is None
    assert parts.total is None


def test_a_failed_judge_leaves_the_total_unscored() -> None:
    rollout = trajectory(good(), answer("a"))
    assert compose(rollout, correct=None, query=1.0).total is None
    assert compose(rollout, correct=True, query=None).total is None
    assert compose(rollout, correct=True, query=None, alpha=1.0).total == 1.0
    assert compose(rollout, correct=None, query=0.5, alpha=0.0).total == 0.5


def test_no_tool_call_means_no_search_quality() -> None:
    parts = compose(trajectory(answer("a")), correct=True, query=None)
    assert parts.query == 0
    assert parts.total == pytest.approx(0.8)


@pytest.mark.parametrize("wrong", [{"alpha": 1.1}, {"query": -0.1}, {"query": math.nan}])
def test_values_out_of_range_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="must lie in"):
        compose(trajectory(good(), answer("a")), **{"correct": True, "query": 1.0, **wrong})


def test_prefix_keeps_everything_but_the_steps() -> None:
    rollout = trajectory(good(), bad(), answer("a"))
    assert prefix(rollout, None) is rollout
    assert prefix(rollout, 1).steps == rollout.steps[:1]
    assert prefix(rollout, 1).id == rollout.id


class SpyJudge:
    name = "spy"

    def __init__(self, correct: bool | None = True, score: float | None = 0.5) -> None:
        self.correct, self.score = correct, score
        self.asked: list[object] = []

    async def accuracy(self, case: JudgedCase) -> Verdict:
        self.asked.append(case)
        return Verdict(correct=self.correct, judge=self.name)

    async def query(self, case: JudgedCase, rollout: Trajectory) -> QueryScore:
        self.asked.append(rollout)
        return QueryScore(self.score)


async def test_the_query_judge_sees_the_prefix_of_a_fatal_trajectory() -> None:
    judge = SpyJudge()
    rollout = trajectory(good(), bad(), bad(), bad(), termination=Termination.FATAL)
    scored = await score_rollout(task(), rollout, judge)
    assert scored.fatal == 1
    assert scored.verdict.correct is False
    assert [r.steps for r in judge.asked] == [rollout.steps[:1]]  # type: ignore[attr-defined]


async def test_nothing_is_asked_about_a_rollout_without_response_and_calls() -> None:
    judge = SpyJudge()
    scored = await score_rollout(task(), trajectory(termination=Termination.TOKENS), judge)
    assert scored.reward.total == 0
    assert scored.verdict.correct is False
    assert judge.asked == []


async def test_an_unreachable_model_leaves_the_rollout_unscored() -> None:
    rollout = trajectory(good(), termination=Termination.ERROR).model_copy(update={"error": "no connection"})
    scored = await score_rollout(task(), rollout, SpyJudge())
    assert scored.verdict.unscored
    assert "no connection" in scored.verdict.reason
    assert scored.reward.total is None


async def test_settings_reach_the_fatal_step_and_the_weights() -> None:
    rollout = trajectory(good(), bad(), bad(), answer("a"))
    assert (await score_rollout(task(), rollout, SpyJudge())).fatal is None
    settings = RewardSettings(fatal_after=2, onset="threshold", alpha=0.5)
    scored = await score_rollout(task(), rollout, SpyJudge(), settings)
    assert scored.fatal == 2
    lenient = RewardSettings(fatal_after=2, counts={BAD: False})
    assert (await score_rollout(task(), rollout, SpyJudge(), lenient)).fatal is None
