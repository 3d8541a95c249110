"""Tool calls as Python writes them, read without Python: `name(key="value")`, `print(name(...))`, `[a(...), ...]`."""

from __future__ import annotations

import re
from typing import Any

from agent.llm.lenient_json import Reader

_CALL = re.compile(r"[A-Za-z_][\w.-]*\(")
_KEYWORD = re.compile(r"(?P<key>[A-Za-z_]\w*)\s*=(?!=)\s*")


def begins_at(text: str, start: int) -> bool:
    """Whether a call may begin at `start`: a name with its bracket right behind it."""
    return _CALL.match(text, start) is not None


def calls_at(text: str, start: int, repairs: list[str]) -> tuple[list[tuple[str, Any]], int]:
    """The (name, arguments) pairs from `start` on, and where they end.

    Arguments without a name are given as a list: whoever takes the call says that there is no guessing at places.

    Raises:
        ValueError: no call begins there, or one is broken.
    """
    reader = Reader(text, start)
    in_list = reader.take("[")
    pairs = [_call(reader)]
    while reader.take(",") or reader.take(";") or not in_list:
        reader.skip()
        if not begins_at(text, reader.place):
            break
        pairs.append(_call(reader))
    if in_list and not reader.take("]"):
        raise ValueError("a list of calls without its end")
    # Quotes and literals are Python's own here.
    repairs += [repair for repair in reader.repairs if repair not in ("python_literals", *repairs)]
    return pairs, reader.place


def _call(reader: Reader, depth: int = 0) -> tuple[str, Any]:
    reader.skip()
    name = reader.word()
    if not name or not reader.take("(") or depth > 1:
        raise ValueError("no call where one is due")
    if name == "print":
        inner = _call(reader, depth + 1)
        if not reader.take(")"):
            raise ValueError("print( without its end")
        return inner
    keyed: dict[str, Any] = {}
    placed: list[Any] = []
    while not reader.take(")"):
        reader.skip()
        keyword = _KEYWORD.match(reader.text, reader.place)
        if keyword is None:
            placed.append(reader.value())
        elif keyword["key"] in keyed:
            raise ValueError(f"{keyword['key'][:40]} stands twice")
        else:
            reader.place = keyword.end()
            keyed[keyword["key"]] = reader.value()
        reader.skip()
        if not reader.take(",") and reader.peek() != ")":
            raise ValueError("neither a comma nor ) after an argument")
    return name.removesuffix(".call"), placed or keyed
