"""Texts for fuzz_reader: what replies are made of, and how one is bent into another. All of it follows from the rng."""

# ruff: noqa: RUF001  # models write quotes and bars that look alike

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass

LONGEST = 20_000  # characters of one input


@dataclass(frozen=True)
class Markers:
    """Openings of calls, values and thinking; their ends; and what stands between."""

    openings: tuple[str, ...]
    ends: tuple[str, ...]
    parts: tuple[str, ...]
    closed: dict[str, str]  # an opening with what closes it again

    @property
    def all(self) -> tuple[str, ...]:
        """Every piece, whatever its role."""
        return (*self.openings[1:], *self.ends, *self.parts)


MARKERS = Markers(
    openings=(
        *(
            "",
            "<tool_call>",
            "<|tool_call|>",
            "<function_call>",
            "<function=get_weather>",
            '<invoke name="get_weather">',
        ),
        *(
            "<|python_tag|>",
            "[TOOL_CALLS]",
            "[TOOL_CALLS]get_weather[ARGS]",
            "functools[",
            "```tool_code\n",
            "```json\n",
        ),
        *(
            "<｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n",
            "<start_function_call>call:get_weather{",
            "<think>",
        ),
        *(
            "[THINK]",
            '{"name": "get_weather", "arguments": {',
            "{'city': '",
            "{a:[",
            "[",
            "[get_weather(city=",
            "print(",
        ),
    ),
    ends=(
        *("</tool_call>", "</function_call>", "</parameter>", "</function>", "</invoke>", "<｜tool▁call▁end｜>", "```"),
        *(
            "<end_function_call>",
            "</think>",
            "[/THINK]",
            "<|eom_id|>",
            "</s>",
            "}",
            "]",
            ")",
            '"',
            "'",
            "”",
            "}}",
            "*/",
        ),
    ),
    parts=(
        *(
            "{",
            "{}",
            "[]",
            ",",
            ":",
            "\\",
            '\\"',
            "/*",
            "//",
            "\n",
            " ",
            "“",
            "<escape>",
            "<parameter=city>",
            "{{",
            "[[",
        ),
        *(
            '{"a":',
            "{'a':",
            "{a:",
            "{a:{},",
            '{"a": 1 x}',
            "{/**/}",
            "x(",
            "a(b=",
            "[{",
            "{}{",
            '{"',
            "{“",
            "{ ",
            "<",
            "|",
        ),
        *(
            "<tool_call></tool_call>",
            "<tool_call>{</tool_call>",
            "<tool_call>x(</tool_call>",
            "<function=a></function>",
        ),
        *("<function=a><parameter=b>", "<function=a><parameter=b></parameter>", "<think></think>", "<tool_response>"),
        *('{"city": "Oslo"}', "'city': 'Oslo'", "city=Oslo", "None", "NaN", "1e999", "-", "9" * 400, "\\u", "\\ud83d"),
        *('{"name": "get_weather", "arguments": {"city": "Oslo"}}\n', "get_weather", "timezone", "payload", "null"),
        "{},",
    ),
    closed={"{a:[": "]}", "[": "]"},
)
_LOOKALIKES = {'"': "“”'", "'": '’‘"', "{": "｛(", "}": "｝)", "<": "＜", ">": "＞", "|": "｜", ":": "：=", ",": "，;"}
_ODD = "\x00\x1b\u200b\u2028\u202e\ufeff\ufffd\ud83d\ude00\U0001f600\u0130ßİ\x85\xa0"


def mutated(rng: random.Random, text: str, other: str) -> str:
    """A text near `text`, with some of `other` perhaps, or one of pieces or bytes alone."""
    kind = rng.random()
    if kind < 0.1:
        text = "".join(rng.choice(MARKERS.all) for _ in range(rng.randrange(1, 40)))
    elif kind < 0.15:
        text = rng.randbytes(rng.randrange(200)).decode("utf-8", "replace")
    for _ in range(rng.randrange(1, 7)):
        text = rng.choice(_MUTATIONS)(rng, text, other)[:LONGEST]
    return text


def _inserted(rng: random.Random, text: str, _other: str) -> str:
    place = rng.randrange(len(text) + 1)
    return text[:place] + rng.choice(MARKERS.all) + text[place:]


def _deleted(rng: random.Random, text: str, _other: str) -> str:
    begin, end = _slice(rng, text)
    return text[:begin] + text[end:]


def _cut(rng: random.Random, text: str, _other: str) -> str:
    return text[: rng.randrange(len(text) + 1)]


def _repeated(rng: random.Random, text: str, _other: str) -> str:
    begin, end = _slice(rng, text)
    return text[:end] + text[begin:end] * rng.choice((1, 2, 3, 70, 300)) + text[end:]


def _spliced(rng: random.Random, text: str, other: str) -> str:
    return text[: rng.randrange(len(text) + 1)] + other[rng.randrange(len(other) + 1) :]


def _nested(rng: random.Random, text: str, other: str) -> str:
    place = rng.randrange(len(text) + 1)
    return text[:place] + other + text[place:]


def _wrapped(rng: random.Random, text: str, _other: str) -> str:
    return rng.choice(MARKERS.openings) + text + rng.choice(MARKERS.ends)


def _encoded(rng: random.Random, text: str, _other: str) -> str:
    return json.dumps(text, ensure_ascii=rng.random() < 0.5)


def _swapped(rng: random.Random, text: str, _other: str) -> str:
    sign = rng.choice(list(_LOOKALIKES))
    return text.replace(sign, rng.choice(_LOOKALIKES[sign]), rng.choice((1, 2, -1)))


def _odd(rng: random.Random, text: str, _other: str) -> str:
    place = rng.randrange(len(text) + 1)
    return text[:place] + rng.choice(_ODD) + text[place:]


def _recased(rng: random.Random, text: str, _other: str) -> str:
    begin, end = _slice(rng, text)
    return text[:begin] + text[begin:end].swapcase() + text[end:]


def _slice(rng: random.Random, text: str) -> tuple[int, int]:
    begin = rng.randrange(len(text) + 1)
    return begin, min(len(text), begin + rng.choice((1, 2, 5, 20, 100)))


_MUTATIONS: tuple[Callable[[random.Random, str, str], str], ...] = (
    *(_inserted, _deleted, _cut, _repeated, _spliced, _nested, _wrapped, _encoded, _swapped, _odd, _recased),
)
