"""fetch_url: the text of one page."""

from __future__ import annotations

from agent.tools.base import Excerpt, Tool, ToolContext
from agent.tools.fetching import PAGE_TIMEOUT_SECONDS, PageParams, page_text


class FetchUrl(Tool[PageParams]):
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
    params = PageParams

    def run(self, params: PageParams, context: ToolContext) -> str | Excerpt:
        """The page's text between marks that say it is foreign.

        Raises:
            ToolError: the page may not or cannot be fetched, or is no text; of HTML also what keeps it from being
                parsed isolated.
        """
        return page_text(params.url, context, "html_text", self.max_chars)
