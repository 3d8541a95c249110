"""PDFs made byte by byte, so that a test can also make those that no library would write."""

from __future__ import annotations

import textwrap
import zlib
from collections.abc import Sequence

FONT = b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>"
_RESOURCES = b"/Resources<</Font<</F1 3 0 R>>>>"


def document(objects: dict[int, bytes]) -> bytes:
    """A PDF of these objects by their numbers; 1 is the catalog."""
    out, places = bytearray(b"%PDF-1.7\n"), {}
    for number, body in objects.items():
        places[number] = len(out)
        out += b"%d 0 obj\n%b\nendobj\n" % (number, body)
    table, size = len(out), max(objects) + 1
    out += b"xref\n0 %d\n0000000000 65535 f \n" % size
    for number in range(1, size):
        out += b"%010d %b \n" % (places.get(number, 0), b"00000 n" if number in places else b"65535 f")
    out += b"trailer\n<</Size %d/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF\n" % (size, table)
    return bytes(out)


def stream(data: bytes, entries: bytes = b"") -> bytes:
    """A stream object of bytes that are as its entries say."""
    return b"<</Length %d%b>>\nstream\n%b\nendstream" % (len(data), entries, data)


def of_contents(contents: Sequence[bytes], kids: Sequence[int] | None = None) -> bytes:
    """A document with a page for each content stream (objects 4, 6, ... are pages, 5, 7, ... their contents).

    `kids` are the page tree's, where they are not each page once.
    """
    pages = [4 + 2 * index for index in range(len(contents))]
    tree = b" ".join(b"%d 0 R" % number for number in (pages if kids is None else kids))
    objects = {1: b"<</Type/Catalog/Pages 2 0 R>>", 3: FONT}
    objects[2] = b"<</Type/Pages/Kids[%b]/Count %d/MediaBox[0 0 600 800]%b>>" % (tree, len(pages), _RESOURCES)
    for number, content in zip(pages, contents, strict=True):
        objects[number] = b"<</Type/Page/Parent 2 0 R/Contents %d 0 R>>" % (number + 1)
        objects[number + 1] = content
    return document(objects)


def of_texts(*pages: str) -> bytes:
    """A document that holds these texts (ASCII), a page each, in lines of 80 characters where there are blanks."""
    return of_contents([stream(zlib.compress(_shown(page)), b"/Filter/FlateDecode") for page in pages])


def _shown(text: str) -> bytes:
    lines = textwrap.wrap(text, 80, break_long_words=False)
    drawn = b" ".join(b"(%b) Tj T*" % line.encode().replace(b"(", b"\\(").replace(b")", b"\\)") for line in lines)
    return b"BT /F1 10 Tf 12 TL 50 780 Td " + drawn + b" ET"


def flate_bomb(mebibytes: int = 400) -> bytes:
    """One page whose content is packed twice, and unpacks to this much."""
    packed = zlib.compress(zlib.compress(b" " * (mebibytes << 20), 9), 9)
    return of_contents([stream(packed, b"/Filter[/FlateDecode/FlateDecode]")])


def endless() -> bytes:
    """A page tree that comes back to one page ten thousand times, each a tenth of a second of work and no text."""
    busy = zlib.compress(b"BT /F1 10 Tf " + b"1 0 0 1 0 0 Tm " * 200_000 + b"ET")
    return of_contents([stream(busy, b"/Filter/FlateDecode")], kids=[4] * 10_000)


def cyclic() -> bytes:
    """A page tree that holds itself."""
    return of_contents([], kids=[2])


def unended_picture() -> bytes:
    """A page with an inline picture that no EI ends."""
    return of_contents([stream(b"q BI /W 1 /H 1 /BPC 8 /CS /G ID " + b"x" * 300_000)])
