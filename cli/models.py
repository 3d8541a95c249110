"""main.py models: what each backend that answers has to offer."""

from __future__ import annotations

import re
import sys
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import dataclass, replace

from rich.cells import cell_len
from rich.text import Text

from agent.config import Settings, load_settings
from agent.errors import BackendError, NotSentError, UsageError
from agent.llm.backends.ollama import OllamaBackend
from agent.llm.backends.ollama_models import LocalModel, context_window
from cli.compose import embedded_file, ollama, openai, start_of
from cli.escape import inert_line
from cli.outcome import INVALID, OK
from cli.terminal import make_console

HEADS = ("backend", "model", "size", "quantization", "context", "capabilities")
NOTHING = (
    "no model is there: start Ollama (ollama serve) and fetch one (ollama pull llama3.2:3b),"
    " or unpack the embedded model (make setup)"
)
QUANTIZATION = re.compile(r"\b(I?Q\d\w*|B?F16|F32)\b", re.IGNORECASE)  # as GGUF files carry it in their names


@dataclass(frozen=True)
class Offer:
    """One backend's models, or why it has none to show."""

    backend: str
    models: Sequence[LocalModel] = ()
    why_none: str = ""


def models(args: Namespace) -> int:
    """List them all; exit 3 where there is none.

    Raises:
        UsageError: a setting that cannot be.
    """
    settings = load_settings()
    console = make_console(sys.stdout, color=not args.no_color)
    offers = [_of_ollama(settings), _of_openai(settings), _of_embedded(settings)]
    rows = [_row(offer.backend, model) for offer in offers for model in offer.models]
    lines = aligned([HEADS, *rows]) if rows else []
    lines += [f"{offer.backend}: {inert_line(offer.why_none)}" for offer in offers if offer.why_none]
    for line in lines if rows else [*lines, NOTHING]:
        console.print(Text(line), soft_wrap=True)
    return OK if rows else INVALID


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows as lines with aligned columns. The texts may be anything; the lines are inert."""
    cells = [[inert_line(cell, 200) for cell in row] for row in rows]
    widths = [max(map(cell_len, column)) for column in zip(*cells, strict=True)]
    return [
        "  ".join(cell + " " * (width - cell_len(cell)) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in cells
    ]


def _of_ollama(settings: Settings) -> Offer:
    server = ollama(settings)
    try:
        found = [_completed(model, settings) for model in server.models()]
    except NotSentError as error:
        return Offer("ollama", why_none=f"{error} To mend it: {start_of(server)}")
    except BackendError as error:
        return Offer("ollama", why_none=f"{error}; set OLLAMA_HOST to where Ollama is")
    finally:
        server.close()
    return Offer("ollama", found, "" if found else f"{server.url} holds no model; fetch one: ollama pull llama3.2:3b")


def _completed(model: LocalModel, settings: Settings) -> LocalModel:
    """Older servers tell the window and the capabilities only when asked for that one model."""
    if model.context_window and model.capabilities:
        return model
    try:
        shown = OllamaBackend(settings.ollama_host, model.name).show()
    except BackendError:
        return model  # the list still has its name
    capabilities = shown.get("capabilities")
    return replace(
        model,
        context_window=model.context_window or context_window(shown),
        capabilities=tuple(map(str, capabilities)) if isinstance(capabilities, list) else model.capabilities,
    )


def _of_openai(settings: Settings) -> Offer:
    if settings.llm_base_url is None:
        return Offer("openai", why_none="not set up; set LLM_BASE_URL to use a /v1 server")
    server = openai(settings)
    try:
        listed = server.models()
    except BackendError as error:
        return Offer("openai", why_none=f"{error}; start it, or mend LLM_BASE_URL")
    finally:
        server.close()
    if not listed:
        return Offer("openai", why_none=f"{server.url} lists no model; set LLM_MODEL to the one it serves")
    return Offer("openai", [LocalModel(name) for name in listed])


def _of_embedded(settings: Settings) -> Offer:
    try:
        path = embedded_file(settings)
    except UsageError as error:
        return Offer("embedded", why_none=str(error))
    quantization = QUANTIZATION.search(path.stem)
    model = LocalModel(path.name, size=path.stat().st_size, quantization=quantization[0] if quantization else None)
    return Offer("embedded", [model])


def _row(backend: str, model: LocalModel) -> tuple[str, ...]:
    return (
        backend,
        model.name,
        "-" if model.size is None else _size(model.size),
        model.quantization or "-",
        "-" if model.context_window is None else f"{model.context_window:,}",
        ", ".join(model.capabilities) or "-",
    )


def _size(size: int) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB"
