r"""The released format of questions for reinforcement learning, both ways: JSON lines, one question and picture each.

```
{"question": str, "answer": str, "images": [path], "dataset": str, "aliases": [str], "answer_kind": str, "id": str}
```

The release has the first four; we add the other three so that nothing of what a judge needs is lost. Released answers
are long, and half of them box the short one: ``\boxed{Ana Boro}``. The boxed answer is then the reference, and the
whole text is kept with the task.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

from opensearch_vl.errors import ImageError, RecordError
from opensearch_vl.images import ImageStore
from opensearch_vl.questions.answers import Kind, boxed, kind_of
from opensearch_vl.questions.corpora import Unread
from opensearch_vl.runs import read_json_lines
from opensearch_vl.seeds import derive
from opensearch_vl.sft.sharegpt import MARKER, escape, picture_beside, unescape
from opensearch_vl.text import encodable
from opensearch_vl.types import Gold, Provenance, Task

FIELDS = ("question", "answer", "images", "dataset")
"""What every row of the release has."""


def to_rl_row(task: Task, image: str) -> dict[str, Any]:
    """A question with one picture as a row; `image` is the picture's path."""
    return {
        "question": escape(task.question),
        "answer": str(task.provenance.extra.get("answer_text", task.gold.answer)),
        "images": [image],
        "dataset": task.provenance.corpus,
        "aliases": list(task.gold.aliases),
        "answer_kind": task.gold.kind,
        "id": task.id,
    }


def read_rl(file: Path, store: ImageStore) -> Iterator[Task | Unread]:
    """Questions of a file in the released format. Picture paths are looked up beside the file and must not leave it.

    Raises:
        DataError: If the file is missing.
        RecordError: If a line is not an object of this format; names the line.
    """
    for number, row in enumerate(read_json_lines(file), 1):
        if missing := [name for name in FIELDS if name not in row]:
            raise RecordError(f"{file}, line {number} has no {', '.join(missing)}; rows need {', '.join(FIELDS)}.")
        yield _task(row, number, store, file.parent)


def _task(row: Mapping[str, Any], number: int, store: ImageStore, base: Path) -> Task | Unread:
    question, answer, paths = row["question"], row["answer"], row["images"]
    if not isinstance(question, str) or not (question := _plain(question)).strip():
        return Unread(number, "no_question")
    if not isinstance(answer, str) or not answer.strip():
        return Unread(number, "no_answer")
    question, answer = encodable(question), encodable(answer)
    if not isinstance(paths, list) or len(paths) != 1:
        return Unread(number, "no_picture", f"images should hold one path, not {str(paths)[:80]}")
    try:
        image = picture_beside(paths[0], store, base)
    except ImageError as error:
        return Unread(number, "bad_picture", error.message[:300])
    corpus = encodable(str(row["dataset"]))
    short = boxed(answer)
    gold = short if short is not None else answer
    aliases = row.get("aliases")
    kind = row.get("answer_kind")
    return Task(
        id=encodable(str(row["id"]))
        if row.get("id")
        else f"{corpus}-{derive(corpus, question, answer, image.sha256):016x}",
        question=question,
        images=(image,),
        gold=Gold(
            answer=gold,
            aliases=tuple(encodable(str(alias)) for alias in aliases) if isinstance(aliases, list) else (),
            kind=kind if kind in get_args(Kind) else kind_of(gold),
        ),
        provenance=Provenance(corpus=corpus, extra={} if short is None else {"answer_text": answer}),
    )


def _plain(question: str) -> str:
    """The question without picture markers; what was escaped as text is text again."""
    return unescape(question.replace(MARKER, "").strip() if MARKER in question else question)
