"""How the scripted expert words its thoughts: a few ways of saying each thing, picked by a seed."""

from __future__ import annotations

import random

PHRASES: dict[str, tuple[str, ...]] = {
    "look": (
        "I should find out what the picture shows before anything else.",
        "The question starts from the picture, so I look it up first.",
        "First I need to know what img_1 shows. A reverse image search should tell.",
        "Let me identify the subject of the picture.",
    ),
    "read": (
        "There may be lettering in the picture that names it. I will read it.",
        "Several things could look like this; a name written on it would settle which one it is.",
        "I will read the text in {image}.",
        "A sign in the picture could give the name. Let me run OCR on {image}.",
    ),
    "repair_sharpen": (
        "The picture looks blurred. Sharpening it should make the lettering readable.",
        "The edges in {image} are soft, so I sharpen it before reading.",
    ),
    "repair_super_resolution": (
        "The picture has too few pixels to read its lettering. I enlarge it first.",
        "The letters in {image} are tiny; super resolution should help.",
    ),
    "repair_perspective_correct": (
        "The lettering is skewed. I straighten the picture first.",
        "The sign in {image} is seen at an angle; correcting the perspective should make it readable.",
    ),
    "name": (
        "The lettering says “{sign}”. I look for a page about it.",
        "I can read “{sign}”. Let me search for that.",
        "It reads “{sign}”, so I search for that name.",
    ),
    "follow": (
        "This is {entity}. Next I need its {label}.",
        "So I am looking at {entity}. The question leads on to the {label}.",
        "{entity} it is. Now I need to find the {label}.",
        "Now I look for the {label} of {entity}.",
    ),
    "inverse": (
        "I have {entity}. Now I need what names it as its {label}.",
        "Next: which page gives {entity} as its {label}?",
        "The question leads to something whose {label} is {entity}. I search for that.",
    ),
    "attribute": (
        "The chain ends at {entity}. What is asked for is the {label}.",
        "{entity} is the one asked about. I still need the {label}.",
        "Now only the {label} of {entity} is missing.",
    ),
    "again": (
        "That did not show it. I try other words.",
        "Not in these results. Let me put it differently.",
        "The results do not say; I rephrase the query.",
    ),
    "retry": (
        "The tool did not answer. I try once more.",
        "That failed for a reason that may have passed; I repeat the call.",
    ),
    "visit": (
        "The summaries leave it out. I open the page itself.",
        "I will read the page {entity} in full.",
    ),
    "answer": (
        "The page on {entity} gives the {label}: {value}. That answers the question.",
        "{entity}: {label} {value}. Every link of the chain is confirmed, so I can answer.",
        "I found it: the {label} of {entity} is {value}.",
    ),
    "give_up": (
        "I could not find this in any source, and I will not guess.",
        "The evidence is missing, so I have to say that I could not verify it.",
    ),
    "noise_useless": (
        "Perhaps some background helps.",
        "Let me search more widely for a moment.",
    ),
    "noise_call": (
        "Let me try this.",
        "Another way to look at it.",
    ),
    "recover": (
        "That did not help. Back to the plan.",
        "That was not useful; I go on as planned.",
        "That led nowhere. I return to what is known.",
    ),
}

# Names are left to queries and answers, where they stand behind a space as they do in observations: a tokenizer of the
# Qwen kind then writes them alike, and a small model copies a name once a turn instead of twice.
BRIEF: dict[str, str] = {
    "look": "What is shown?",
    "read": "Read {image}.",
    "repair_sharpen": "Blurred. Sharpen.",
    "repair_super_resolution": "Too small. Enlarge.",
    "repair_perspective_correct": "Skewed. Straighten.",
    "name": "It can be read.",
    "follow": "Need {label}.",
    "inverse": "Whose {label} is it?",
    "attribute": "Need {label}.",
    "again": "Not found. Rephrase.",
    "retry": "Failed. Once more.",
    "visit": "Open the page.",
    "answer": "Found {label}.",
    "give_up": "Not found.",
    "noise_useless": "More background.",
    "noise_call": "Try this.",
    "recover": "No use.",
}


class Voice:
    """Words a thought.

    Args:
        rng: Picks among the ways of saying it.
        brief: Use the one short wording instead, for policies with a small context.
    """

    def __init__(self, rng: random.Random, *, brief: bool = False) -> None:
        self._rng = rng
        self._brief = brief

    def say(self, key: str, **values: str) -> str:
        """The thought `key` with its placeholders filled; values are not scanned for placeholders."""
        chosen = self._rng.choice(PHRASES[key])
        return (BRIEF[key] if self._brief else chosen).format(**values)
