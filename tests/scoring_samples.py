"""Hand-made steps and trajectories for the tests of scoring, synthesis, viewer and report."""

from collections.abc import Sequence

from opensearch_vl.types import (
    FailureKind,
    Gold,
    ImageRef,
    Observation,
    Step,
    Task,
    Termination,
    ToolCall,
    ToolFailure,
    Trajectory,
)


def call(
    name: str,
    /,
    text: str = "ok",
    *,
    failure: FailureKind | None = None,
    picture: ImageRef | None = None,
    image_id: str | None = None,
    well_formed: bool = True,
    thought: str = "Next.",
    **arguments: object,
) -> Step:
    return Step(
        index=0,
        thought=thought,
        call=ToolCall(name=name, arguments=arguments),
        observation=Observation(text=text, image=picture, image_id=image_id),
        failure=None if failure is None else ToolFailure(kind=failure, message="it failed"),
        well_formed=well_formed,
    )


def answer(text: str, *, well_formed: bool = True) -> Step:
    return Step(index=0, thought="Done.", response=text, well_formed=well_formed)


def trajectory(*steps: Step, termination: Termination | None = None, task_id: str = "t", sample: int = 0) -> Trajectory:
    numbered = tuple(step.model_copy(update={"index": i}) for i, step in enumerate(steps))
    answered = bool(steps) and steps[-1].response is not None
    return Trajectory(
        id=f"{task_id}#{sample}",
        task_id=task_id,
        sample=sample,
        steps=numbered,
        termination=termination or (Termination.ANSWERED if answered else Termination.TURNS),
    )


def task(
    answer: str = "15 May 1931",
    kind: str = "date",
    question: str = "When was the architect of the building in the picture born?",
    aliases: Sequence[str] = (),
    **fields: object,
) -> Task:
    gold = Gold(answer=answer, kind=kind, aliases=tuple(aliases))  # type: ignore[arg-type]
    return Task(**{"id": "t", "question": question, "gold": gold, **fields})  # type: ignore[arg-type]


def hits(*pages: tuple[str, str]) -> str:
    """The text of a `text_search` observation."""
    return "\n\n".join(
        f"[Passage {i}]\nTitle: {title}\nURL: https://w.invalid/{i}\nSummary: {text}"
        for i, (title, text) in enumerate(pages, 1)
    )


def matches(*titles: str) -> str:
    """The text of an `image_search` observation."""
    blocks = [
        f"[Match {i}]\nTitle: {t}\nSource: w\nURL: https://w.invalid/{i}\nSnippet: {t}."
        for i, t in enumerate(titles, 1)
    ]
    return "\n\n".join(blocks) or "No confident match."
