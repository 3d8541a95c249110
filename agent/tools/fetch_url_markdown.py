"""fetch_url_markdown: the main content of one page, without what stands around it."""

from __future__ import annotations

from importlib.util import find_spec

from agent.tools.base import INSTALL_EXTRAS, Excerpt, Tool, ToolContext, ToolError
from agent.tools.fetching import PAGE_TIMEOUT_SECONDS, PageParams, page_text


class FetchUrlMarkdown(Tool[PageParams]):
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
    params = PageParams

    def run(self, params: PageParams, context: ToolContext) -> str | Excerpt:
        """The page's main content between marks that say it is foreign.

        Raises:
            ToolError: as fetch_url; and missing_extra, the library is not installed.
        """
        if find_spec("trafilatura") is None:
            raise ToolError("missing_extra", f"{self.name} needs a library; install it with: {INSTALL_EXTRAS}")
        return page_text(params.url, context, "html_markdown", self.max_chars)
