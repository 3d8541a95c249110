"""What is read of a page: the script that reads it, and the form in which that answers.

The script runs in a JavaScript world of our own beside the page's, is bounded there, and is believed no further than
its form: what it answers is the page's text all the same.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from agent.egress.target import MAX_URL_CHARS

MAX_LINKS = 30
MAX_FIELDS = 20
MAX_TEXT_CHARS = 20_000
MAX_TITLE_CHARS = 200
MAX_LABEL_CHARS = 80
MAX_LINK_CHARS = 500

READ = f"""(selector => {{
  const clip = (text, most) => String(text || '').replace(/\\s+/g, ' ').trim().slice(0, most);
  const shown = e => e.getClientRects().length > 0;
  const links = [], fields = [], seen = new Set();
  for (const a of document.links) {{
    if (links.length >= {MAX_LINKS}) break;
    if (!/^https?:/.test(a.href) || a.href.length > {MAX_LINK_CHARS} || seen.has(a.href) || !shown(a)) continue;
    seen.add(a.href);
    links.push({{text: clip(a.innerText || a.getAttribute('aria-label') || a.title, {MAX_LABEL_CHARS}), url: a.href}});
  }}
  for (const e of document.querySelectorAll('input, textarea, select, button')) {{
    if (fields.length >= {MAX_FIELDS}) break;
    if (e.type === 'hidden' || !shown(e)) continue;
    const tag = e.tagName.toLowerCase(), name = e.getAttribute('name');
    const selector = e.id ? '#' + CSS.escape(e.id) : name ? `${{tag}}[name="${{CSS.escape(name)}}"]` : tag;
    const label = (e.labels && e.labels.length ? e.labels[0].innerText : '') || e.placeholder || e.innerText
      || (e.type === 'submit' ? e.value : '');
    const kind = clip(e.type || tag, 20);
    fields.push({{selector: clip(selector, 100), kind, label: clip(label, {MAX_LABEL_CHARS})}});
  }}
  const root = selector === null ? document.body : document.querySelector(selector);
  if (selector !== null && !root) return null;
  const text = root ? root.innerText || '' : '';
  return {{url: location.href.slice(0, {MAX_URL_CHARS}), title: clip(document.title, {MAX_TITLE_CHARS}),
    text: text.slice(0, {MAX_TEXT_CHARS}), chars: text.length, links, fields}};
}})"""


class Link(BaseModel):
    """Where a page leads."""

    text: str = Field(max_length=MAX_LABEL_CHARS)
    url: str = Field(max_length=MAX_LINK_CHARS)


class FormField(BaseModel):
    """What can be typed into or pressed."""

    selector: str = Field(max_length=100)
    kind: str = Field(max_length=20)
    label: str = Field(max_length=MAX_LABEL_CHARS)


class Seen(BaseModel):
    """A page as it stands, and where. `chars` is how long its whole text is."""

    model_config = ConfigDict(extra="forbid", strict=True)

    url: str = Field(max_length=MAX_URL_CHARS)
    title: str = Field(max_length=MAX_TITLE_CHARS)
    text: str = Field(max_length=MAX_TEXT_CHARS)
    chars: int = Field(ge=0)
    links: list[Link] = Field(max_length=MAX_LINKS)
    fields: list[FormField] = Field(max_length=MAX_FIELDS)
