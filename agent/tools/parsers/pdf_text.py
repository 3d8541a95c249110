"""The text of a PDF, page by page. To be run isolated."""

from __future__ import annotations

import io
import logging
from typing import Any

from pypdf import PasswordType, PdfReader
from pypdf.errors import DependencyError, LimitReachedError, PyPdfError


def parse(request: dict[str, Any], data: bytes) -> dict[str, Any]:
    """The pages as PdfText, or what kept them from being read.

    `request` holds `max_pages` and `max_chars` (of all pages together); what is beyond them is not read.
    """
    logging.disable()  # every oddity of a file would be a line
    try:
        reader = PdfReader(io.BytesIO(data))
        if reader.is_encrypted and reader.decrypt("") == PasswordType.NOT_DECRYPTED:
            return {"problem": "encrypted"}
        return _pages(reader, request["max_pages"], request["max_chars"])
    except LimitReachedError:  # a stream that unpacks to too much, a tree of too many pages, ...
        return {"problem": "too_large"}
    except DependencyError:  # a cipher that needs a package which is not there
        return {"problem": "encrypted"}
    except (PyPdfError, RecursionError):
        return {"problem": "broken"}


def _pages(reader: PdfReader, max_pages: int, max_chars: int) -> dict[str, Any]:
    texts: list[str] = []
    room = max_chars
    for page in reader.pages[:max_pages]:
        text = page.extract_text()[:room]
        texts.append(text)
        room -= len(text)
        if room == 0:
            break
    return {"pages": texts, "count": len(reader.pages)}
