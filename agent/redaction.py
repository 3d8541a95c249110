"""Secrets taken out of text before it is kept, shown or sent: a server may echo a key, and a program may read one.

A secret is found as it is, with any of its characters percent-encoded or escaped as JSON does, and inside base64.
What is to be sent away is looked through for other spellings too (`holds_secret`).
"""

from __future__ import annotations

import base64
import functools
import re
from collections.abc import Iterable
from urllib.parse import unquote_plus

MARK = "[redacted]"
MIN_SECRET_CHARS = 4  # a shorter one would take ordinary words apart, and protects nothing
_MIN_PACKED_CHARS = 8  # the base64 of a shorter one stands in other base64 by chance
_BETWEEN_DIGITS = re.compile(r"\\+x|0x|[\s:,-]")
_MAX_UNQUOTED = 3  # how often an address may be percent-encoded and still be looked through


def redacted(text: str, secrets: Iterable[str]) -> str:
    """The text with every whole occurrence of a secret replaced."""
    pattern = _pattern(tuple(secrets))
    return pattern.sub(MARK, text) if pattern else text


def holds_secret(text: str, secrets: Iterable[str]) -> bool:
    """Whether a text that is to be sent away holds a secret, however often it is percent-encoded, in any case and in
    hexadecimal digits too, or the mark of one that was taken out of it."""
    known = tuple(secrets)
    pattern = _pattern(known)
    if pattern is None:
        return False
    if MARK in text:
        return True
    for _ in range(_MAX_UNQUOTED):
        if pattern.search(text) or _in_other_letters(text, known):
            return True
        text = unquote_plus(text)
    return pattern.search(text) is not None or _in_other_letters(text, known)


def _in_other_letters(text: str, known: tuple[str, ...]) -> bool:
    """Whether a text holds a secret in letters of another case, or as the hexadecimal digits of its bytes, whatever
    stands between those. Only what is sent is judged so: taken out of what is read, it would hit ordinary words."""
    folded = text.casefold()
    digits = _BETWEEN_DIGITS.sub("", folded)
    return any(
        secret.casefold() in folded or secret.encode("utf-8", "surrogatepass").hex() in digits
        for secret in known
        if len(secret) >= _MIN_PACKED_CHARS
    )


@functools.lru_cache(maxsize=64)
def _pattern(secrets: tuple[str, ...]) -> re.Pattern[str] | None:
    """One expression for all of them, the longest first, so that none is left over of one that begins with another."""
    known = sorted({secret for secret in secrets if len(secret) >= MIN_SECRET_CHARS}, key=lambda secret: -len(secret))
    forms = [form for secret in known for form in _forms(secret)]
    if not forms:
        return None
    # What a match can begin with, said first: most places of a text are passed over by this alone.
    starts = {*"%\\+-/_", *(secret[0] for secret in known), *(form[0] for form in forms)}
    return re.compile(f"(?=[{re.escape(''.join(sorted(starts)))}])(?:{'|'.join(forms)})")


def _forms(secret: str) -> list[str]:
    forms = ["".join(_any_spelling(char) for char in secret)]
    if len(secret) >= _MIN_PACKED_CHARS:
        forms += [rf"{packed}[A-Za-z0-9+/_-]{{0,2}}={{0,2}}" for packed in _packed(secret)]
    return forms


def _any_spelling(char: str) -> str:
    """A character as it is, percent-encoded, or escaped in JSON."""
    quoted = "".join(f"%{byte:02x}" for byte in char.encode("utf-8", "surrogatepass"))
    units = char.encode("utf-16-be", "surrogatepass").hex()
    escaped = "".join(rf"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))
    plain = rf"\\?{re.escape(char)}" if char in '"\\/' else re.escape(char)
    return f"(?:{plain}|(?i:{quoted}|{escaped}))"


def _packed(secret: str) -> list[str]:
    """The base64 of a secret at each of the three places of a byte, without the characters that its neighbours share.

    Both alphabets are covered.
    """
    data = secret.encode("utf-8", "surrogatepass")
    forms = []
    for shift in range(3):
        text = base64.b64encode(bytes(shift) + data).decode("ascii")
        first, last = (shift * 8 + 5) // 6, (shift + len(data)) * 8 // 6
        forms.append("".join({"+": "[+-]", "/": "[/_]"}.get(char, char) for char in text[first:last]))
    return forms
