"""Run by a test in a process of its own, which may be killed: questions written by a served model, with a cache."""

import sys
from pathlib import Path

from opensearch_vl.backends.openai_chat import OpenAIChat, Price
from opensearch_vl.images import ImageStore
from opensearch_vl.questions.asking import Asker
from opensearch_vl.questions.build import QuestionTools, build_questions
from opensearch_vl.questions.facts import Facts
from opensearch_vl.questions.paid import ReplyCache
from opensearch_vl.questions.settings import AnchorSettings, AnswerSettings, FuzzSettings, QuestionSettings
from opensearch_vl.questions.tally import BuildReport
from opensearch_vl.questions.writer import LlmWriter
from opensearch_vl.runs import RunFolder
from opensearch_vl.wiki.tables import WikiFolder
from opensearch_vl.wiki.walks import WalkRules

PARALLEL = 3
SETTINGS = QuestionSettings(
    walks=WalkRules(min_in_degree=12, require_image=False, edges="stated"),
    answer=AnswerSettings(min_key_pages=3),
    fuzz=FuzzSettings(min_shared=3),
    anchor=AnchorSettings(required=False),
    shallow_first_hop=True,
    parallel=PARALLEL,
)


def work(wiki: WikiFolder, out: Path, url: str, *, resume: bool, budget: float | None = None) -> BuildReport:
    with RunFolder(out, SETTINGS, resume=resume) as run:
        chat = OpenAIChat("stub", base_url=url, store=ImageStore(out / "images"), price=Price(10.0, 10.0))
        asker = Asker(chat, ReplyCache(out / "replies.sqlite"), parallel=PARALLEL, budget_usd=budget)
        tools = QuestionTools(writer=LlmWriter(asker, Facts(wiki), SETTINGS.answer))
        return build_questions(wiki, SETTINGS, seed=5, num=None, tools=tools, run=run)


if __name__ == "__main__":
    work(WikiFolder(Path(sys.argv[1])), Path(sys.argv[2]), sys.argv[3], resume=sys.argv[4] == "resume")
