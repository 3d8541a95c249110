"""web_search: a hermetic corpus where the run has one, else the live web through ddgs."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from agent.errors import UsageError
from agent.tools.base import Params, Tool, ToolContext, ToolError
from agent.tools.corpus import Hit, clean, open_corpus, query_terms

MAX_RESULTS = 8
MAX_SNIPPET = 300
REGION = "us-en"
ENGINE_TIMEOUT_SECONDS = 6  # of each of the engines that ddgs asks; the registry's limit is for all of them
_MAX_TITLE = 80
_MAX_SOURCE = 120
_WHOLE_DOCUMENT = 1000
_SHARED_ROOM = 2400  # what the texts of all results may take together


class WebSearchParams(Params):
    """What web_search takes."""

    query: str = Field(min_length=1, max_length=400, description="The words to look for.")


class WebSearch(Tool[WebSearchParams]):
    """Short excerpts with their sources, best first, one line each."""

    name = "web_search"
    description = "Looks up facts and returns short excerpts with their sources."
    effect = "network"
    max_chars = 3000
    free_text = "query"
    keywords = (
        *("search", "look up", "find out", "who is", "who was", "who wrote", "when was", "when did", "where is"),
        *("capital of", "population of", "latest", "news", "the web", "internet", "online"),
    )
    params = WebSearchParams

    def run(self, params: WebSearchParams, context: ToolContext) -> str:
        """At most eight numbered lines, as many as fit.

        Raises:
            ToolError: bad_args (no word in the query), empty, network or rate_limited.
            UsageError: the corpus cannot be used.
        """
        if not query_terms(params.query):
            raise ToolError("bad_args", "The query holds no word to look for.")
        hits = _corpus(params.query, context) if _hermetic(context) else search_live(params.query)
        if not hits:
            raise ToolError("empty", "No results for that query. Try other or fewer words.")
        return _render(hits, self.max_chars)


def _hermetic(context: ToolContext) -> bool:
    return context.search_provider == "corpus" or (context.search_provider == "auto" and context.corpus is not None)


def _corpus(query: str, context: ToolContext) -> list[Hit]:
    if context.corpus is None:
        raise UsageError(
            "SEARCH_PROVIDER=corpus, but the case names no corpus: give it one, or set SEARCH_PROVIDER=auto"
        )
    return open_corpus(context.corpus).search(query, MAX_RESULTS)


def search_live(query: str) -> list[Hit]:
    """Ask the search engines that ddgs knows.

    Raises:
        ToolError: network or rate_limited.
    """
    from ddgs import DDGS  # noqa: PLC0415 heavy, and only needed for a live search
    from ddgs.exceptions import DDGSException, RatelimitException  # noqa: PLC0415 as above

    try:
        rows = DDGS(timeout=ENGINE_TIMEOUT_SECONDS).text(query, region=REGION, max_results=MAX_RESULTS)
    except RatelimitException:
        raise ToolError("rate_limited", "The search service asks to wait. Go on without searching, or later.") from None
    except DDGSException as error:
        if "No results found" in str(error):  # ddgs has no type of its own for this
            return []
        raise ToolError("network", f"The search failed: {clean(str(error))[:160]}") from None
    return live_hits(rows)


def live_hits(rows: list[dict[str, Any]]) -> list[Hit]:
    """What ddgs returned, cleaned: pages write whatever they like into their titles."""
    texts = [{key: clean(str(row.get(key, ""))) for key in ("title", "href", "body")} for row in rows]
    return [Hit(text["title"], text["href"], text["body"]) for text in texts]


def _render(hits: list[Hit], limit: int) -> str:
    """As many lines, best first, as fit into the limit. Few hits leave room for short documents as a whole."""
    room = max(MAX_SNIPPET, min(_WHOLE_DOCUMENT, _SHARED_ROOM // len(hits)))
    lines: list[str] = []
    for number, hit in enumerate(hits, 1):
        text = hit.body if 0 < len(hit.body) <= room else _shortened(hit.snippet, MAX_SNIPPET)
        line = f"{number}. {_shortened(hit.title, _MAX_TITLE)} \u2014 {text} ({_shortened(hit.source, _MAX_SOURCE)})"
        if sum(map(len, lines)) + len(lines) + len(line) > limit:
            break
        lines.append(line)
    return "\n".join(lines)


def _shortened(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "\u2026"
