"""What an obedient model replies to each prompt of the package, by the marks of the prompt."""

import json
import re

MARKS = {
    "answer": "Find one fact in an encyclopedia",
    "relation": "An encyclopedia article links",
    "canonical": "Write one question in plain English",
    "descriptor": "so that a name disappears",
    "visual": "one question that comes with a picture",
    "unique": "has exactly one answer",
    "judge": "You check one answer against a reference",
    "process": "You rate how well an agent searched",
}


def stage_of(prompt: str) -> str:
    """The stage that a prompt belongs to; `expert` for everything that is no prompt of ours."""
    return next((stage for stage, mark in MARKS.items() if mark in prompt), "expert")


def line(prompt: str, label: str) -> str:
    return re.search(rf"{label}: (.*)", prompt)[1]


def obey(prompt: str, answer: str = "Silver Reed", needed: tuple[str, ...] = ()) -> str:
    """The reply. The evaluator finds one answer if all `needed` words are in the question."""
    match stage_of(prompt):
        case "answer":
            quote = "In 1991 she won the Silver Reed for her garden."
            return json.dumps({"quote": quote, "attribute": "prize won", "answer": "Silver Reed", "type": "name"})
        case "relation":
            return json.dumps({"stated": True, "phrase": "the keeper that {X} dismissed"})
        case "canonical":
            draft = prompt.partition("stiff words:\n")[2].partition("\n")[0]
            return json.dumps({"question": re.sub(r" \(the [^()]*\)", "", draft)})
        case "descriptor":
            put = line(prompt, "in your own words")
            return json.dumps({"question": line(prompt, "Question").replace(line(prompt, "Name to remove"), put)})
        case "visual":
            name = re.search(r"shows (.*?), which is", prompt)[1]
            return json.dumps({"question": line(prompt, "Question").replace(name, "the thing in the picture")})
        case "unique":
            question = prompt.partition("): ")[2].partition("\n")[0]
            unique = all(word in question for word in needed)
            return json.dumps({"unique": unique, "fitting": [], "answer": answer if unique else ""})
        case "judge":
            return "correct: yes\nreason: the same day"
        case "process":
            return "score: 0.9\nreason: to the point"
    return "<think>I know.</think><response>15 May 1931</response>"
