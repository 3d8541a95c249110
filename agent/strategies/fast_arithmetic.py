"""Messages that are arithmetic and nothing else, read without a model into one exact expression for calculate_math.

A positive match of the whole message: apart from a fixed set of polite and asking words all of it must be numbers and
operators. What is also written for something else (a date, a range, a telephone number) is left to the model.
"""

from __future__ import annotations

import re
from typing import Literal

from agent.strategies.expression import NUMBER, written_out

MAX_CHARS = 200  # of a message that may be arithmetic, and of an earlier result that it may go on from

# How a message puts its expression: as a command to work it out, as a question, or bare.
Manner = Literal["computes", "asks", "states"]

# The times, division and minus signs, dots that mean times, and the apostrophe of printed text.
_SIGNS = str.maketrans(
    {"\u00d7": "*", "\u00f7": "/", "\u2212": "-", "\u00b7": "*", "\u22c5": "*", "\u2019": "'", "\u221a": "sqrt "}
)
_COURTESY = re.compile(
    r"(?:hi|hello|hey|please|okay|ok|so|now|then|and|well|great|good|thanks|thank you|next|also|do you know"
    r"|(?:can|could|would|will) you|(?:tell|give|show) me|i need(?: to know)?|i want to know|just)(?:[,.:!]+ ?| )"
)
_COMPUTES = re.compile(r"(?:calculate|compute|evaluate|work out|figure out|solve):? ")
_ASKS = re.compile(r"(?:what is|what's|whats|what does|what do you get for|how much (?:is|does)):? ")
_NOUN = re.compile(r"(?:the )?(?:exact )?(?:value|result|answer) (?:of|to|for) ")
_TAIL = re.compile(
    r"(?: ?[?.!,=]| (?:please|for me|equal to|equals?|is|make|be|exactly|again|now|thanks|thank you"
    r"|(?:use|using|with) (?:a|the) (?:tool|calculator)))$"
)

_IT = r"the (?:previous |last )?(?:result|answer|total|sum|product|number)|that(?: number| result)?|this|it"
_OPERAND = f"-?(?:{NUMBER})|{_IT}"
_PHRASES = [
    (re.compile(re.sub("[AB]", lambda _: f"({_OPERAND})", phrase)), signs)
    for phrase, signs in (
        ("multiply A (?:by|with|and) B", "{0} * {1}"),
        ("divide A by B", "{0} / {1}"),
        ("add A and B", "{0} + {1}"),
        ("add A to B", "{1} + {0}"),
        ("(?:subtract|deduct|take) A (?:away )?from B", "{1} - {0}"),
        ("multiply by A", "it * {0}"),
        ("divide by A", "it / {0}"),
        ("add A", "it + {0}"),
        ("subtract A", "it - {0}"),
        ("double A", "{0} * 2"),
        ("triple A", "{0} * 3"),
        ("halve A", "{0} / 2"),
        ("square A", "{0} ** 2"),
        ("cube A", "{0} ** 3"),
        ("raise A to the power of B", "{0} ** {1}"),
        ("(?:the )?product of A and B", "{0} * {1}"),
        ("(?:the )?sum of A and B", "{0} + {1}"),
        ("A ?(?:%|percent) of B", "{0} * {1} / 100"),
    )
]
# An operation that goes on from the number before. Of several it is not clear which comes first.
_GOES_ON = re.compile(
    rf"(?:(?:plus|minus|times|multiplied by|divided by|to the power of) |[*/+] ?|x )(?:{_OPERAND})|squared|cubed"
)
_WORDS = {
    "plus": "+",
    "minus": "-",
    "times": "*",
    "multiplied by": "*",
    "divided by": "/",
    "modulo": "%",
    "mod": "%",
    "to the power of": "**",
    "squared": "** 2",
    "cubed": "** 3",
    "take the square root of": "sqrt",
    "the square root of": "sqrt",
    "square root of": "sqrt",
}
_WORD = re.compile(rf"\b(?:{'|'.join(_WORDS)})\b")
# What these words take in ends with a number or with a parenthesis: the square root of 16 plus 9 is 5 or 13.
_TAKES_IN = re.compile(rf"\b(?:square root of|to the power of) (?!\(|(?:{_OPERAND})$)")
# Between digits, or with blanks on both sides; 2x - 4 and 2 x - 4 are algebra, and 0x10 is a number of programs.
_TIMES = re.compile(r"(?<=[0-9])(?<!\b0)x(?=[0-9.])|(?<=[0-9)]) x (?=[0-9(.]|sqrt|-[0-9(.])")
_THIS = re.compile(rf"\b(?:{_IT})\b")

# What is written for other things as well: 7/11, 555-0199; 1920x1080; 17% 5; a day; 10 - 12, 9 / 11; (555) 123-4567.
_TIGHT = re.compile(r"[0-9.,]+(?:[-/][0-9.,]+)+")
_SIZE = re.compile(r"[0-9.]+(?:x[0-9.]+)+")
_PERCENT = re.compile(r"[^ ]% |% ?-")
_DATE = re.compile(r"[12][0-9]{3} ?[-/] ?[0-9]{1,2} ?[-/] ?[0-9]{1,2}|[0-9]{1,2} ?[-/] ?[0-9]{1,2} ?[-/] ?[12][0-9]{3}")
_PAIR = re.compile(r"([0-9]+(?:\.[0-9]+)?) [-/] ([0-9]+(?:\.[0-9]+)?)")
_TELEPHONE = re.compile(r"\([0-9]{2,5}\) ?-? ?[0-9].*")


def arithmetic(message: str, previous: str | None = None) -> str | None:
    """The expression that the whole message asks for, as calculate_math takes it; None where it is anything else.

    `previous` is the number that the user's last turn came to: "that" and "it" stand for it, and an operator at the
    message's beginning goes on from it.
    """
    if len(message) > MAX_CHARS or len(previous or "") > MAX_CHARS:
        return None
    body, manner = _bare(" ".join(message.translate(_SIGNS).casefold().split()))
    if _TAKES_IN.search(body) or _PERCENT.search(body.replace("% of ", "")):
        return None
    if manner != "computes" and _may_be_another_thing(body, manner):
        return None
    try:
        expression = written_out(_in_signs(body, previous))
    except ValueError:
        return None
    return expression if " " in expression or "sqrt" in expression else None  # a lone number asks for nothing


def _bare(text: str) -> tuple[str, Manner]:
    """The message without its polite and asking words, and its manner."""
    manner: Manner = "states"
    while ends := _TAIL.search(text):
        manner = "computes" if "=" in ends[0] else manner
        text = text[: ends.start()]
    while starts := _COURTESY.match(text):
        text = text[starts.end() :]
    if starts := _ASKS.match(text):
        manner, text = "asks" if manner == "states" else manner, text[starts.end() :]
    elif starts := _COMPUTES.match(text):
        manner, text = "computes", text[starts.end() :]
    starts = _NOUN.match(text)
    return text[starts.end() :] if starts else text, manner


def _may_be_another_thing(body: str, manner: Manner) -> bool:
    if any(form.fullmatch(body) for form in (_TIGHT, _DATE, _TELEPHONE)):
        return True
    pair = _PAIR.fullmatch(body)
    rises = pair is not None and float(pair[1]) < float(pair[2])
    return manner == "states" and (rises or _SIZE.fullmatch(body) is not None)


def _in_signs(body: str, previous: str | None) -> str:
    """The words of arithmetic as signs, and the previous number in the place of what stands for it."""
    for phrase, signs in _PHRASES:
        if found := phrase.fullmatch(body):
            body = signs.format(*map(_apart, found.groups()))
            break
    if _GOES_ON.fullmatch(body):
        body = f"it {body}"
    if previous is not None:
        body = _THIS.sub(_apart(previous), body)
    body = _WORD.sub(lambda word: f" {_WORDS[word[0]]} ", body)
    return _TIMES.sub("*", body).replace("^", "**")


def _apart(operand: str) -> str:
    """An operand as it may stand beside any sign: -5 squared is (-5) ** 2."""
    return f"({operand})" if operand.startswith("-") else operand
