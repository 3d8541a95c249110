"""web_search: a hermetic corpus where the run has one, else a person's SearXNG server, else the web through ddgs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from urllib.parse import urlencode

from pydantic import BaseModel, Field, ValidationError

from agent.egress.fetch import Wanted
from agent.errors import UsageError
from agent.redaction import redacted
from agent.tools.base import Excerpt, Params, Tool, ToolContext, ToolError
from agent.tools.corpus import Hit, clean, open_corpus, query_terms
from agent.tools.fetching import fetched, reach_of
from agent.tools.foreign import ROOM_FOR_MARKS, foreign

MAX_RESULTS = 8
MAX_SNIPPET = 300
REGION = "us-en"
ENGINE_TIMEOUT_SECONDS = 6  # of each of the engines that ddgs asks; the registry's limit is for all of them
SEARXNG_SECONDS = 12.0
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

    def run(self, params: WebSearchParams, context: ToolContext) -> str | Excerpt:
        """At most eight numbered lines, as many as fit; what the web says, as foreign data. A corpus is the case's own.

        Raises:
            ToolError: bad_args (no word in the query), empty, network or rate_limited; what keeps a SearXNG server
                from being asked.
            UsageError: the corpus, or a setting of the server, cannot be used.
        """
        if not query_terms(params.query):
            raise ToolError("bad_args", "The query holds no word to look for.")
        hits = _found(params.query, context)
        if not hits:
            raise ToolError("empty", "No results for that query. Try other or fewer words.")
        if _provider(context) == "corpus":
            return _render(hits, self.max_chars)
        return foreign(_render(hits, self.max_chars - ROOM_FOR_MARKS), "a search of the web", self.max_chars)


def check_search(context: ToolContext) -> None:
    """Refuse settings with which no search can ever be made.

    Raises:
        UsageError: the corpus or the server that is to be searched is not named, or its key cannot be sent.
    """
    provider, key = _provider(context), context.web.search_api_key
    if provider == "corpus" and context.corpus is None:
        raise UsageError("SEARCH_PROVIDER=corpus, and there is no corpus to search; set it to auto or ddgs")
    if provider == "searxng" and not context.web.searxng_url:
        raise UsageError("SEARCH_PROVIDER=searxng needs SEARXNG_URL; set it to the server's address")
    if provider == "searxng" and key is not None and not (key.isascii() and key.isprintable() and " " not in key):
        raise UsageError("SEARCH_API_KEY holds characters that cannot stand in an HTTP header; copy it again")


def _found(query: str, context: ToolContext) -> list[Hit]:
    check_search(context)
    provider, server = _provider(context), context.web.searxng_url
    if provider == "corpus" and context.corpus is not None:
        return open_corpus(context.corpus, context.secrets).search(query, MAX_RESULTS)
    found = search_searxng(query, server, context) if provider == "searxng" and server else search_live(query)
    return [_without_secrets(hit, context.secrets) for hit in found]


def _without_secrets(hit: Hit, secrets: tuple[str, ...]) -> Hit:
    title, source, snippet = (redacted(text, secrets) for text in (hit.title, hit.source, hit.snippet))
    return replace(hit, title=title, source=source, snippet=snippet)


def _provider(context: ToolContext) -> str:
    if context.search_provider != "auto":
        return context.search_provider
    if context.corpus is not None:
        return "corpus"
    return "searxng" if context.web.searxng_url else "ddgs"


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


class _Row(BaseModel):
    title: str | None = ""
    url: str | None = ""
    content: str | None = ""


class _Rows(BaseModel):
    results: list[_Row]


def search_searxng(query: str, base: str, context: ToolContext) -> list[Hit]:
    """Ask the person's SearXNG server at `base`, which has to offer JSON.

    Raises:
        ToolError: bad_reply, it is no such server; or what keeps it from being asked.
        UsageError: its address is none.
    """
    reach = reach_of("SEARXNG_URL", base, context)
    wanted = Wanted(("application/json",), SEARXNG_SECONDS, same_origin=True, bearer=context.web.search_api_key)
    words = urlencode({"q": query, "format": "json"})
    page = fetched(f"{base.rstrip('/')}/search?{words}", wanted, reach)
    try:
        rows = _Rows.model_validate_json(page.body).results[:MAX_RESULTS]
    except ValidationError:
        raise ToolError("bad_reply", "The search server's answer cannot be read. Go on without searching.") from None
    return live_hits([{"title": row.title, "href": row.url, "body": row.content} for row in rows])


def live_hits(rows: list[dict[str, Any]]) -> list[Hit]:
    """What a search returned, cleaned: pages write whatever they like into their titles."""
    texts = [{key: clean(str(row.get(key) or "")) for key in ("title", "href", "body")} for row in rows]
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
