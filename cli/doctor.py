"""main.py doctor: what a run needs, a line each, and the command that mends what is missing."""

from __future__ import annotations

import os
import shutil
import sys
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from agent.config import Settings
from agent.errors import BackendError, UsageError
from agent.llm.backends.base import Backend
from agent.sandbox.ladder import EXTERNAL_WARNING, MEND, MENDS, tried
from agent.sandbox.leftovers import prefix
from agent.tools.base import ToolError
from agent.tools.browser_process import NAMES as CHROMIUM
from agent.tools.web_search import search_live
from cli.compose import embedded, embedded_file, ollama, openai, settings_of, start_of, why_not
from cli.embeddings import embedding_server
from cli.escape import inert_line
from cli.outcome import INVALID, OK
from cli.terminal import make_console, print_labelled

OLDEST_PYTHON = (3, 11)
PROBE = "boiling point of water"
# What is imported of each extra, which is called as the toolset is.
EXTRAS = {"web": "trafilatura", "pdf": "pypdf", "browser": "playwright", "mcp": "mcp"}


@dataclass(frozen=True)
class Check:
    """One thing that was looked at. `mend` is the command that helps where it is missing.

    `optional`: a run can do without it.
    """

    name: str
    is_ok: bool
    detail: str
    mend: str = ""
    optional: bool = False


def doctor(args: Namespace) -> int:
    """Check everything; exit 3 where something that a run needs is missing.

    Raises:
        UsageError: a setting that cannot be.
    """
    settings, _ = settings_of(args)
    console = make_console(sys.stdout, color=not args.no_color)
    found: list[Check] = []
    for check in checks(settings):
        found.append(check)
        print_labelled(console, "ok" if check.is_ok else "missing", inert_line(described(check)))
    return INVALID if any(not check.is_ok and not check.optional for check in found) else OK


def described(check: Check) -> str:
    """A check in one line, without its verdict."""
    name = f"{check.name} (optional)" if check.optional and not check.is_ok else check.name
    return f"{name}: {check.detail}" + (f"; to mend it: {check.mend}" if check.mend else "")


def checks(settings: Settings) -> Iterator[Check]:
    """Every check, one after the other: some wait for a server."""
    yield check_python(sys.version_info[:2])
    yield from check_backend(settings)
    yield check_embeddings(settings)
    yield check_search(settings)
    yield from check_sandbox(settings)
    yield from check_programs(settings)
    yield from check_extras()
    yield check_folder("traces", settings.traces_dir)
    yield check_folder("report", Path())


def check_python(version: tuple[int, int]) -> Check:
    """The interpreter that runs this."""
    shown = ".".join(map(str, version))
    if version >= OLDEST_PYTHON:
        return Check("python", True, shown)
    return Check("python", False, f"{shown} is too old", "install Python 3.11 or newer, then: make distclean setup")


def check_backend(settings: Settings) -> Iterator[Check]:
    """The server that the settings name, its model and window; the embedded model, which `auto` falls back on."""
    if settings.llm_backend == "scripted":
        yield Check("backend", True, "scripted: replies come from a file, no model is asked")
    elif settings.llm_backend == "openai":
        yield from _openai(settings)
    elif settings.llm_backend == "embedded":
        yield from _embedded(settings, needed=True)
    else:
        yield from _ollama(settings)


def _ollama(settings: Settings) -> Iterator[Check]:
    server, is_auto = ollama(settings), settings.llm_backend == "auto"
    refusal = why_not(server)
    if refusal is None:
        yield Check("backend", True, f"Ollama {server.version() or ''} at {server.url}")
        yield from _model(settings, server, f"ollama pull {server.model}")
        yield from _embedded(settings, needed=False)
    else:
        yield Check("backend", False, refusal, start_of(server), optional=is_auto)
        yield from _embedded(settings, needed=is_auto)


def _openai(settings: Settings) -> Iterator[Check]:
    try:
        server = openai(settings)
    except UsageError as error:
        yield Check("backend", False, str(error), "set LLM_BASE_URL, for example to http://127.0.0.1:8080/v1")
        return
    try:
        server.models()
    except BackendError as error:
        yield Check("backend", False, f"{server.url}: {error}", "start that server, or mend LLM_BASE_URL")
        return
    yield Check("backend", True, f"a /v1 server at {server.url}")
    yield from _model(settings, server, "set LLM_MODEL (main.py models lists what there is)")


def _model(settings: Settings, server: Backend, mend: str) -> Iterator[Check]:
    try:
        model = server.describe()
    except BackendError as error:
        yield Check("model", False, str(error), mend)
        return
    yield Check("model", True, " ".join(filter(None, (model.name, model.parameters, model.quantization))))
    yield check_window(settings.num_ctx, model.context_window)


def check_window(asked: int, trained: int | None) -> Check:
    """Whether the model was trained for the window that is asked for."""
    if trained is None:
        return Check("window", True, f"{asked:,} tokens asked for; the server does not tell the model's own")
    if asked <= trained:
        return Check("window", True, f"{asked:,} tokens asked for, of {trained:,}")
    return Check("window", False, f"{asked:,} tokens asked for, of {trained:,} the model has", f"NUM_CTX={trained}")


def _embedded(settings: Settings, *, needed: bool) -> Iterator[Check]:
    try:
        path = embedded_file(settings)
    except UsageError as error:
        yield Check("embedded", False, str(error), optional=not needed)
        return
    yield Check("embedded", True, str(path))
    if not needed:
        return
    with TemporaryDirectory(prefix=prefix("check")) as folder:  # a doctor leaves nothing behind
        server = embedded(settings, log_folder=Path(folder))
        try:  # half a second, and the only way to know that llama.cpp runs here
            yield from _model(settings, server, "make setup")
        finally:
            server.close()


def check_embeddings(settings: Settings) -> Check:
    """The model that compares texts by their meaning, where one is set."""
    if settings.embedding_model is None:
        return Check("embeddings", True, "no EMBEDDING_MODEL: query_pdf compares words")
    try:
        server = embedding_server(settings)
    except UsageError as error:
        return Check("embeddings", False, str(error), "set EMBEDDING_BASE_URL")
    try:
        model = server.describe()
    except BackendError as error:
        return Check("embeddings", False, str(error), "start that server, or leave EMBEDDING_MODEL empty")
    finally:
        server.close()
    return Check("embeddings", True, f"{model.name} ({model.backend})")


def check_search(settings: Settings) -> Check:
    """One live search, unless only corpora are searched."""
    if settings.search_provider == "corpus":
        return Check("search", True, "only the corpora that cases name")
    try:
        hits = search_live(PROBE)
    except ToolError as error:
        mend = "connect to the internet; cases with a corpus need none"
        return Check("search", False, inert_line(str(error), 120), mend, optional=True)
    return Check("search", True, f"ddgs gave {len(hits)} results")


def check_sandbox(settings: Settings) -> Iterator[Check]:
    """What isolates programs here: the level, and each attack of the self-test of every rung that was tried.

    Without one only the tools that run programs refuse, so that a run can do without it.
    """
    if settings.sandbox == "external":
        yield Check("sandbox", True, f"external: {EXTERNAL_WARNING}")
        return
    found = tried(settings.sandbox)
    if settings.sandbox == "auto" and found[-1].level != "landlock":
        found = [*found, *tried("landlock")]  # what would be left if the first did not work
    usable = next((rung.level for rung in found if rung.sandbox is not None), None)
    if usable is None:
        yield Check("sandbox", False, "no program can be run: none passed its self-test", MEND, optional=True)
    else:
        yield Check("sandbox", True, usable)
    for rung in found:
        if not rung.probes:
            yield Check(rung.level, False, inert_line(rung.why, 200), MENDS[rung.level], optional=True)
        for probe in rung.probes:
            seen = "refused" if probe.held else inert_line(probe.detail, 200)
            mend = "" if probe.held else MENDS[rung.level]
            yield Check(f"{rung.level}, {probe.name}", probe.held, seen, mend, optional=True)


def check_programs(settings: Settings) -> Iterator[Check]:
    """The programs that single tools start."""
    own = settings.chromium_path
    chromium = next(filter(None, map(shutil.which, [str(own)] if own else CHROMIUM)), None)
    mend = "set CHROMIUM_PATH to a program that is there" if own else "apt-get install chromium"
    yield _installed("chromium", chromium, mend)
    yield _installed("ripgrep", shutil.which("rg"), "apt-get install ripgrep")
    yield _installed("node", shutil.which("node"), "apt-get install nodejs")


def check_extras() -> Iterator[Check]:
    """The libraries of the toolsets that are extras."""
    for name, library in EXTRAS.items():
        yield _installed(f"extra {name}", library if find_spec(library) else None, "make extras")


def _installed(name: str, found: str | None, mend: str) -> Check:
    if found is None:
        return Check(name, False, "not installed", mend, optional=True)
    return Check(name, True, found)


def check_folder(name: str, folder: Path) -> Check:
    """Whether files can be made in a folder, or the folder itself in the nearest one above it that is there."""
    there = folder.absolute()
    while not there.exists() and there != there.parent:
        there = there.parent
    if there.is_dir() and os.access(there, os.W_OK | os.X_OK):
        return Check(name, True, f"{folder.absolute()} is writable")
    return Check(name, False, f"{folder.absolute()} is not writable", f"chmod u+wx {there}, or set TRACES_DIR")
