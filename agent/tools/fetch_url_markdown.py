"""fetch_url_markdown: the main content of one page, without what stands around it."""

from __future__ import annotations

from importlib.util import find_spec

from pydantic import Field

from agent.egress.target import MAX_URL_CHARS
from agent.tools.base import Excerpt, Params, Tool, ToolContext, ToolError
from agent.tools.fetching import PAGE_TIMEOUT_SECONDS, fetched_page, is_html, parsed_html, plain_text, shown_page

INSTALL = ".venv/bin/pip install trafilatura lxml_html_clean"


class FetchUrlMarkdownParams(Params):
    """What fetch_url_markdown takes."""

    url: str = Field(
        min_length=1, max_length=MAX_URL_CHARS, description="The whole address of the page, with its scheme."
    )


class FetchUrlMarkdown(Tool[FetchUrlMarkdownParams]):
    """HTML becomes Markdown, which is done isolated; what is no HTML stays as it is."""

    name = "fetch_url_markdown"
    description = "Fetches one page of the web and returns its main content as Markdown, without menus and footers."
    effect = "network"
    timeout_seconds = PAGE_TIMEOUT_SECONDS
    max_chars = 3000
    keywords = (
        *("markdown", "as markdown", "main content", "main text", "the article", "article at", "blog post"),
        *("read the article", "the headings", "the tables"),
    )
    params = FetchUrlMarkdownParams

    def run(self, params: FetchUrlMarkdownParams, context: ToolContext) -> str | Excerpt:
        """The page's main content between marks that say it is foreign.

        Raises:
            ToolError: as fetch_url; and missing_extra, the library is not installed.
        """
        if find_spec("trafilatura") is None:
            raise ToolError("missing_extra", f"{self.name} needs a library; install it with: {INSTALL}")
        page = fetched_page(params.url, context)
        text = parsed_html(page, context, "html_markdown") if is_html(page) else plain_text(page)
        return shown_page(page, text, self.max_chars)
