"""fetch_url: the text of one page."""

from __future__ import annotations

from pydantic import Field

from agent.egress.target import MAX_URL_CHARS
from agent.tools.base import Excerpt, Params, Tool, ToolContext
from agent.tools.fetching import PAGE_TIMEOUT_SECONDS, fetched_page, is_html, parsed_html, plain_text, shown_page


class FetchUrlParams(Params):
    """What fetch_url takes."""

    url: str = Field(
        min_length=1, max_length=MAX_URL_CHARS, description="The whole address of the page, with its scheme."
    )


class FetchUrl(Tool[FetchUrlParams]):
    """HTML becomes text, which is done isolated; plain text and JSON stay as they are."""

    name = "fetch_url"
    description = "Fetches one page of the web and returns its text."
    effect = "network"
    timeout_seconds = PAGE_TIMEOUT_SECONDS
    max_chars = 4000
    keywords = (
        *("fetch", "url", "http", "https", "www", "web page", "webpage", "website", "the page at", "the address"),
        *("download", "open the link", "open the page", "visit"),
    )
    params = FetchUrlParams

    def run(self, params: FetchUrlParams, context: ToolContext) -> str | Excerpt:
        """The page's text between marks that say it is foreign.

        Raises:
            ToolError: the page may not or cannot be fetched, or is no text; of HTML also what keeps it from being
                parsed isolated.
        """
        page = fetched_page(params.url, context)
        text = parsed_html(page, context, "html_text") if is_html(page) else plain_text(page)
        return shown_page(page, text, self.max_chars)
