"""Bytes of a page to text, by one of the encodings that pages have. Some of Python's are slow on purpose-made bytes."""

from __future__ import annotations

import codecs
import re

_UNICODE = ("utf-8", "utf-16", "utf-16-le", "utf-16-be")
_MARKS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))
_OTHERS = re.compile(
    r"ascii|iso8859-[0-9]{1,2}|cp(?:125[0-8]|866|874|932|949|950)|koi8-[ru]|mac-(?:roman|cyrillic)"
    r"|gb2312|gbk|gb18030|big5|big5hkscs|shift_jis|euc_jp|euc_kr|iso2022_jp|tis-620"
)
# What servers call Latin-1 is read by every browser as the set that Windows made of it.
_AS_WINDOWS = frozenset({"ascii", "iso8859-1"})


def charset_of(data: bytes, named: str | None) -> str:
    """The encoding to read bytes in: what their first ones say, else the one that was named, else UTF-8."""
    for mark, name in _MARKS:
        if data.startswith(mark):
            return name
    try:
        name = codecs.lookup(named).name if named else "utf-8"
    except (LookupError, ValueError):
        return "utf-8"
    if name in _AS_WINDOWS:
        return "cp1252"
    return name if name in _UNICODE or _OTHERS.fullmatch(name) else "utf-8"


def decoded(data: bytes, charset: str) -> str:
    """The text; bytes that mean nothing become the replacement character."""
    return data.decode(charset, "replace").removeprefix("\ufeff")
