"""Secrets taken out of text before it is kept, shown or sent: a server may echo a key, and a program may read one.

What is found, and nothing else:

- A text is read as it stands, and with its escapes undone, over and over: percent-encoding and the escapes of JSON and
  Python, in any mixture and also within each other (`_readings`).
- In each reading a secret is found as it is, without the white space at its ends, and with other white space where it
  has some (the line ends of another system, or all on one line). Where it is long, white space counts for nothing: it
  is found broken into lines as well.
- So is its base64, broken into lines too, in both alphabets and inside the base64 of more.
- A line of a secret of several lines counts as a secret where it is one long word (`_is_telling`): a line of a key,
  and not its header.
- At the end of a text that was cut off there, what a secret begins with is found, from 12 characters on
  (of a long one without its white space).

All in time linear to the text, whatever is in it: readings are made by an expression that matches a few characters and
repeats nothing, and what is looked for in them is literal.
"""

from __future__ import annotations

import base64
import functools
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

MARK = "[redacted]"
MIN_SECRET_CHARS = 4  # a shorter one would take ordinary words apart, and protects nothing
_MIN_OTHER_CHARS = 8  # what is looked for in other forms than its own: a shorter one stands in them by chance
_LONG_CHARS = 24  # without white space: by chance no text holds so long a one
_TELLING_KINDS = 10  # different characters of a line that counts by itself: a ruled line has fewer
_MIN_CUT_CHARS = 12
_LAYERS = 4  # how often escapes are undone

Span = tuple[int, int]

_ESCAPE = re.compile(
    r"\\(?:u[Dd][89ABab][0-9A-Fa-f]{2}\\u[Dd][C-Fc-f][0-9A-Fa-f]{2}"  # a character in two halves
    r"|u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8}|x[0-9A-Fa-f]{2}|[abfnrtv0]|[^\w\s])"
    r"|%(?:[0-7][0-9A-Fa-f]|[CDcd][0-9A-Fa-f]%[89ABab][0-9A-Fa-f]"  # a character is one to four bytes
    r"|[Ee][0-9A-Fa-f](?:%[89ABab][0-9A-Fa-f]){2}|[Ff][0-7](?:%[89ABab][0-9A-Fa-f]){3})"
)
_LETTERS = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "0": "\0"}
_MAX_ESCAPE = 16  # more characters than one takes
_WHITE = re.compile(r"\s+")
_FILL = re.compile(r"={0,2}")
_SHARED_AND_FILL = re.compile(r"[A-Za-z0-9+/]?={0,2}")
# An escape, or a character, that the cut went through.
_BROKEN_END = re.compile(r"(?:\\{1,8}(?:[uUx][0-9A-Fa-f]{0,7})?|(?:%[0-9A-Fa-f]{0,2}){1,4}|\ufffd)\Z")
_BETWEEN_DIGITS = re.compile(r"(?<!\\)\\++x|0x|[\s:,-]")  # a run of backslashes is tried from its first alone


def redacted(text: str, secrets: Iterable[str], *, is_cut: bool = False, keep_lines: bool = False) -> str:
    """The text with every whole occurrence of a secret replaced.

    `is_cut` says that the text went on where it ends. With `keep_lines` it has as many lines as before.
    """
    pieces, end = [], 0
    for start, after in secret_spans(text, secrets, is_cut=is_cut):
        lines = text.count("\n", start, after) if keep_lines else 0
        pieces += [text[end:start], "\n".join([MARK] * (lines + 1))]
        end = after
    return "".join([*pieces, text[end:]]) if pieces else text


def redacted_values(value: Any, secrets: tuple[str, ...]) -> Any:
    """A JSON value with the secrets taken out of all its texts, the names of fields among them."""
    if isinstance(value, str):
        return redacted(value, secrets)
    if isinstance(value, list):
        return [redacted_values(item, secrets) for item in value]
    if isinstance(value, dict):
        return {redacted(name, secrets): redacted_values(item, secrets) for name, item in value.items()}
    return value


def texts_of(value: Any) -> Iterator[str]:
    """Every text of a JSON value in order, the names of fields among them, and its numbers as they are written."""
    left = [value]
    while left:
        item = left.pop()
        if isinstance(item, dict):
            left += [part for pair in reversed(item.items()) for part in reversed(pair)]
        elif isinstance(item, list):
            left += reversed(item)
        elif item is not None and not isinstance(item, bool):
            yield str(item)


def holds_secret(text: str, secrets: Iterable[str]) -> bool:
    """Whether a text that is to be sent away holds a secret, also in letters of the other case and as hexadecimal
    digits, or the mark of one that was taken out of it."""
    known = tuple(secrets)
    sought = _sought(known)
    if sought is None:
        return False
    if MARK in text or secret_spans(text, known):
        return True
    return any(_in_other_letters(reading, sought) for reading in _readings(text, _LAYERS))


def spelling_room(secrets: Iterable[str]) -> int:
    """How many characters, or bytes, the longest secret takes at most in any usual spelling: whoever reads a part of a
    long text reads so much more before and after it."""
    return 16 * max(map(len, secrets), default=0)


def secret_spans(text: str, secrets: Iterable[str], *, is_cut: bool = False, layers: int = 0) -> list[Span]:
    """Where secrets stand in a text, in order and apart: from a first character to behind a last one.

    `layers` says how many wrappings there are around the texts that will be read out of this one.
    """
    sought = _sought(tuple(secrets))
    if sought is None or not text:
        return []
    whole, broken = text, _BROKEN_END.search(text, max(0, len(text) - _MAX_ESCAPE)) if is_cut else None
    if is_cut:
        text = text[: broken.start() if broken else None].rstrip()
    readings = _readings(text, _LAYERS + layers)
    spans: list[Span] = []
    for depth in range(len(readings) - 1, -1, -1):
        spans = _apart([*spans, *_spans_in(readings[depth], sought, is_cut=is_cut)])
        if spans and depth:
            spans = _traced(spans, readings[depth - 1], _ESCAPE, _unescaped)
    if broken and spans and spans[-1][1] == len(text):
        spans[-1] = (spans[-1][0], len(whole))
    return spans


# -- what is looked for -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Sought:
    """What is looked for: `forms` is all of it, `short` and `long` are these by their length. `long` and `packed`
    (base64, of the alphabet with + and /) are looked for where all white space is left out; with a packed one stands
    what may follow that belongs to it."""

    forms: tuple[str, ...]
    short: tuple[str, ...]
    spaced: tuple[re.Pattern[str], ...]
    long: tuple[str, ...]
    packed: tuple[tuple[str, re.Pattern[str]], ...]


@functools.lru_cache(maxsize=64)
def _sought(secrets: tuple[str, ...]) -> _Sought | None:
    forms = dict.fromkeys(form for secret in secrets for form in _forms(secret.strip()))
    if not forms:
        return None
    long = {form: dense for form in forms if len(dense := _dense(form)) >= _LONG_CHARS}
    return _Sought(
        forms=tuple(forms),
        short=tuple(form for form in forms if form not in long),
        spaced=tuple(_spaced(form) for form in forms if _WHITE.search(form)),
        long=tuple(dict.fromkeys(long.values())),
        packed=tuple(dict.fromkeys(packed for form in forms for packed in _packed(form))),
    )


def _forms(secret: str) -> Iterator[str]:
    """The secret; what comes of undoing escapes in it, and what its bytes are to who takes each for a character; and
    the telling lines of all these."""
    if len(secret) < MIN_SECRET_CHARS:
        return
    readings = _readings(secret, _LAYERS)
    bytewise = secret.encode("utf-8", "surrogatepass").decode("latin-1")
    for form in (*readings, bytewise):
        if form == secret or len(form.strip()) >= _MIN_OTHER_CHARS:
            yield form.strip()
        lines = form.splitlines()
        yield from (line.strip() for line in lines if len(lines) > 1 and _is_telling(line.strip()))


def _is_telling(line: str) -> bool:
    return len(line) >= _LONG_CHARS and not _WHITE.search(line) and len(set(line)) >= _TELLING_KINDS


def _dense(text: str) -> str:
    return "".join(text.split())


def _spaced(secret: str) -> re.Pattern[str]:
    """The secret with other white space where it has some, or as many plus signs, as in the query of an address."""
    pieces = re.split(r"(\s+)", secret)
    return re.compile(
        "".join(
            rf"(?:\s++|\+{{{len(piece)}}})" if place % 2 else re.escape(piece) for place, piece in enumerate(pieces)
        )
    )


def _packed(secret: str) -> Iterator[tuple[str, re.Pattern[str]]]:
    """The base64 of a secret at each of the three places of a byte, without the characters that it shares with its
    neighbours; and what is to be taken out behind it: the character that it shares, and the signs that fill it up."""
    data = secret.encode("utf-8", "surrogatepass")
    for shift in range(3) if len(secret) >= _MIN_OTHER_CHARS else ():
        text = base64.b64encode(bytes(shift) + data).decode("ascii")
        first, last = (shift * 8 + 5) // 6, (shift + len(data)) * 8 // 6
        yield text[first:last], _SHARED_AND_FILL if (shift + len(data)) % 3 else _FILL


# -- where it is looked for -------------------------------------------------------------------------------------------


def _readings(text: str, layers: int) -> list[str]:
    """The text as it stands, and with its escapes undone once, twice and so on, as often as that changes it."""
    readings = [text]
    while len(readings) <= layers and (further := _ESCAPE.sub(_unescaped, readings[-1])) != readings[-1]:
        readings.append(further)
    return readings


def _unescaped(found: re.Match[str]) -> str:
    return _character(found.group())


@functools.lru_cache(maxsize=4096)
def _character(escape: str) -> str:
    """What an escape stands for; one that stands for nothing stays."""
    if escape.startswith("%"):
        try:
            return bytes.fromhex(escape.replace("%", "")).decode("utf-8", "surrogatepass")
        except UnicodeDecodeError:
            return escape
    kind, digits = escape[1], escape[2:]
    if not digits:
        return _LETTERS.get(kind, kind)
    if "\\" in digits:
        return bytes.fromhex(digits.replace("\\u", "")).decode("utf-16-be")
    return chr(int(digits, 16)) if int(digits, 16) <= 0x10FFFF else escape


def _spans_in(reading: str, sought: _Sought, *, is_cut: bool) -> list[Span]:
    """Where secrets stand in one reading of a text, in no order; they may overlap."""
    dense = _dense(reading)
    one_alphabet = dense.replace("-", "+").replace("_", "/")
    spans = [span for word in sought.short for span in _places(reading, word)]
    spans += [found.span() for pattern in sought.spaced for found in pattern.finditer(reading)]
    inner = [span for word in sought.long for span in _places(dense, word)]
    for word, rest in sought.packed:
        inner += [(start, _end(rest, one_alphabet, after)) for start, after in _places(one_alphabet, word)]
    if is_cut:
        spans += [span for word in sought.short for span in _begun(reading, word)]
        inner += [span for word in sought.long for span in _begun(dense, word)]
        inner += [span for word, _ in sought.packed for span in _begun(one_alphabet, word)]
    return [*spans, *_traced(_apart(inner), reading, _WHITE, lambda _: "")]


def _places(text: str, word: str) -> Iterator[Span]:
    at = text.find(word)
    while at >= 0:
        yield at, at + len(word)
        at = text.find(word, at + len(word))


def _end(pattern: re.Pattern[str], text: str, start: int) -> int:
    found = pattern.match(text, start)
    return found.end() if found else start


def _begun(text: str, word: str) -> Iterator[Span]:
    """The end of a text where a word begins there that went on; of a short word two thirds are enough."""
    head = word[: min(_MIN_CUT_CHARS, -(-2 * len(word) // 3))]
    at = text.find(head, max(0, len(text) - len(word) + 1))
    while at >= 0:
        if word.startswith(text[at:]):
            yield at, len(text)
            return
        at = text.find(head, at + 1)


def _in_other_letters(text: str, sought: _Sought) -> bool:
    """Whether a text holds a secret in letters of another case, or as the hexadecimal digits of its bytes, whatever
    stands between those. Only what is sent is judged so: taken out of what is read, it would hit ordinary words."""
    folded = text.casefold()
    dense, digits = _dense(folded), _BETWEEN_DIGITS.sub("", folded)
    return any(word.casefold() in dense for word in sought.long) or any(
        word.casefold() in folded or word.encode("utf-8", "surrogatepass").hex() in digits
        for word in sought.forms
        if len(word) >= _MIN_OTHER_CHARS
    )


# -- places -----------------------------------------------------------------------------------------------------------


def _apart(spans: Iterable[Span]) -> list[Span]:
    """The spans in order, with those that overlap as one."""
    joined: list[Span] = []
    for start, after in sorted(spans):
        if joined and start < joined[-1][1]:
            joined[-1] = (joined[-1][0], max(after, joined[-1][1]))
        else:
            joined.append((start, after))
    return joined


def _traced(
    spans: list[Span], source: str, pattern: re.Pattern[str], read: Callable[[re.Match[str]], str]
) -> list[Span]:
    """Where in `source` stands what is at `spans` in `pattern.sub(read, source)`."""
    if not spans:
        return []
    made, came = [0], [0]  # where pieces begin there and here: one that stays, one that was read, and so on
    for found in pattern.finditer(source):
        if made[-1] > spans[-1][1]:
            break
        begins = made[-1] + found.start() - came[-1]
        made += (begins, begins + len(read(found)))
        came += found.span()

    def first(place: int) -> int:
        piece = bisect_right(made, place) - 1
        return came[piece] if piece % 2 else came[piece] + place - made[piece]

    def behind(place: int) -> int:
        piece = bisect_right(made, place - 1) - 1
        return came[piece + 1] if piece % 2 else came[piece] + place - made[piece]

    return [(first(start), behind(after)) for start, after in spans]
