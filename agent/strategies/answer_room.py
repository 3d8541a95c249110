"""How many characters of an answer a grammar may let a model write, so that the answer ends before its tokens do.

Small models run on where nothing stops them, often in digits at a token each.
"""

from __future__ import annotations

FIELDS_TOKENS = 40  # the names of the fields around the answer, quotes, and white space
CHARS_PER_TOKEN = 2.5  # on the safe side: English has about 4
MIN_ANSWER_CHARS = 60


def answer_chars(tokens: int, longest: int) -> int:
    """The room of an answer that shares so many tokens with the fields around it, from the least that is of use."""
    return min(max(MIN_ANSWER_CHARS, int((tokens - FIELDS_TOKENS) * CHARS_PER_TOKEN)), longest)
