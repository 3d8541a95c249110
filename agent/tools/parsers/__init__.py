"""Parsers of foreign bytes, each a module with a function `parse` that is run isolated, never in this process."""

MAX_TITLE_CHARS = 200  # of a page's title
