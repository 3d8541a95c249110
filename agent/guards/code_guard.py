"""Whether a user's message is source code or holds some: arithmetic that stands in code is no question.

Positive signs only: what has none of them is prose. No model is asked; the time is linear in the message's length.
"""

from __future__ import annotations

import re

MAX_CHARS = 20_000  # of a message that are looked at
_MAX_LINE = 400  # characters of a line; it bounds the patterns' steps

_NAME = r"[A-Za-z_$][\w$]{0,40}"
# Algebra has `x = 5; y = 7` and `let x = 5`: a name of one letter alone says nothing.
_PATH = r"[A-Za-z_$][\w$]{1,40}" + rf"(?:\.{_NAME}){{0,4}}(?:\[[^\[\]]{{1,40}}\])?"
# Functions of arithmetic are written with parentheses by people as well.
_MATHS = r"(?:sqrt|sin|cos|tan|log|log2|log10|ln|exp|abs|pow|floor|ceil|round|min|max|factorial|comb|[A-Za-z])\("
# Names that no prose and no algebra has.
_NAME_OF_CODE = r"(?:[a-z]+_\w{1,40}|[A-Z]+_[A-Z_0-9]{1,40}|[a-z]+[A-Z]\w{0,40})"
_VALUE = r"(?:[\"'\[{(]|[\w.]{1,40}[\[(]|-?[0-9.]+(?: ?(?:[-+*/%]|\*\*) ?-?[0-9.]+)* ?(?:$|`))"

_SIGNS = {
    "fence": r"```|~~~",
    "statement": rf"\b{_PATH} ?(?:[-+*/%&|^]|<<|>>|:)?= ?[^=;\s][^;]{{0,120}};|\b{_PATH}\([^()]{{0,120}}\) ?;",
    "call of a method": rf"\b{_NAME}\.{_NAME}\(",
    "call of a function": rf"(?<![\w.])(?!{_MATHS}){_NAME}"
    r"\((?:\)|[^()]{0,80}[0-9\"'.,=+*/_\[{-][^()]{0,80}(?<!%)\))",
    "definition": rf"\b(?:def|fn|func|(?<!the )(?<!a )function) {_PATH} ?\("
    r"|(?:^|[:;`]) *(?:(?:public|abstract|export|final|static) ){0,3}(?:class|struct|enum|interface|impl)"
    rf" {_NAME} ?[:({{]",
    "import": r"^ *import [\w.]+(?: as \w+)? ?;?$|^ *from [\w.]+ import |#include ?[<\"]|\} from ['\"]",
    "declaration": rf"\b(?:const|var|int|float|double|char|bool|auto|String) {_NAME} ?=[^=]",
    "assignment": rf"\b{_NAME_OF_CODE} ?[-+*/]?= ?\S|(?:^|[:`]) *[a-z]\w{{1,40}} = {_VALUE}",
    "marked assignment": r"`[^`]{0,80}\w ?= ?\w[^`]{0,80}`",
    "block": r"\) ?\{|\} ?else\b|\b(?:else|try|finally|do) ?\{|^ *(?:while|if|elif) .{0,80}(?:[<>]|==|True).{0,80}: *$",
    "loop": r"\bfor \w{1,20} in (?:(?:range|enumerate|zip)\(|\w{1,40}\.\w|\[)|\bfor ?\([^()]{0,80};"
    r"|\blambda \w{1,20}:",
    # Prose borrows some of these (2 + 2 == 4, km->miles, (5 km) => miles, C++): they count beside what no prose has.
    "operator": rf"\b{_NAME} ?[-+*/%|&]= ?[\w\"'(\[]|[\w\])] ?(?:&&|\|\|) ?[A-Za-z_!(]|:= ?[\w\"'(\[{{]"
    rf"|\b(?!(?:[Cg]|[Nn]otepad)\+){_NAME}\+\+[;)]|[A-Za-z_]\w{{0,40}}::[A-Za-z_]",
    "comparison": rf"(?:\b{_NAME_OF_CODE}|\]|\b{_NAME}\.{_NAME}|[A-Za-z][\"']) ?[!=]==? ?\S|\b{_PATH} ?[!=]== ?\S"
    rf"|\S ?[!=]==? ?(?:{_NAME_OF_CODE}\b|[\"'\[]|True\b|False\b|None\b|null\b|true\b|false\b)"
    r"|`[^`]{0,80}[A-Za-z_] ?[!=]==? ?[^`]{1,80}`",
    "arrow": rf"\((?:{_NAME}(?:, ?{_NAME}){{0,6}})? ?\) ?=> ?(?:[{{(]|{_NAME}(?:[(\[]|\.\w| ?[-+*/] ?\w))"
    rf"|\b{_NAME} ?=> ?\{{|(?:\$\w{{1,40}}|\bthis|\bself|\b{_NAME_OF_CODE})->\w"
    rf"|\w->(?:{_NAME_OF_CODE}\b|{_NAME}(?:[(\[]|->{_NAME}\(|;$| ?[-+*/]?= ?\w))",
    "return": r"^ *return (?!(?:the|me|my|an?|only|just|to|it|that|this)\b).{0,80}[;(\[*/+]",
    "query": r"\bSELECT\b.{1,120}\bFROM\b|\bINSERT INTO\b|\bCREATE TABLE\b|\bDELETE FROM\b",
    "markup": r"</[A-Za-z][\w-]{0,30}>|<[a-z][\w-]{0,30} [\w-]{1,30}=[\"']|^#!/|<\?php|\$\{\w+\}",
}
_CODE = re.compile("|".join(f"(?:{sign})" for sign in _SIGNS.values()))

# What is asked about code and answered by reading it.
_DISCUSSES = re.compile(
    r"\b(?:review|explain|describe|comment|critique|improve|refactor|simplify|rewrite|optimi[sz]e|translate|convert"
    r"|debug|understand|bugs?|mistakes?|readable|naming|wrong with|what (?:is|does|do you think)|how does"
    r"|why (?:is|does)|(?:is|are|does) (?:this|that|it|these|there))\b",
    re.IGNORECASE,
)
# What needs a tool. Names and calls inside the code (`app.run()`, `file = 1`) ask for nothing.
_NEEDS_A_TOOL = re.compile(
    r"(?<![\w.])(?:run|execute|output|prints?|save|store|write|append|files?|folder|look up|search|try it)\b"
    r"(?! ?[(=.\[;:])",
    re.IGNORECASE,
)


def holds_code(text: str) -> bool:
    """Whether the message is source code or holds some, in whatever language."""
    return any(_CODE.search(line[:_MAX_LINE]) for line in text[:MAX_CHARS].splitlines())


def only_discusses_code(text: str) -> bool:
    """Whether a message that holds code asks for words about it, and for nothing that needs a tool."""
    looked_at = text[:MAX_CHARS]
    return _DISCUSSES.search(looked_at) is not None and _NEEDS_A_TOOL.search(looked_at) is None
