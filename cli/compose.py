"""The only place that builds Settings and chooses a backend. Everything below is handed what it needs."""

from __future__ import annotations

import shutil
import subprocess
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from pydantic import SecretStr

from agent.config import Settings, load_settings
from agent.egress.fetch import Reach
from agent.egress.intranet import Intranet
from agent.errors import BackendError, NotSentError, UsageError
from agent.llm.backends.base import Backend
from agent.llm.backends.http_call import is_loopback
from agent.llm.backends.ollama import OllamaBackend
from agent.llm.backends.openai import OpenAIBackend
from agent.llm.backends.scripted import ScriptedBackend, load_script
from agent.sandbox.ladder import EXTERNAL_WARNING
from agent.tools.base import WebAccess
from agent.tools.fetching import persons_target
from evals.disk import make_folder
from evals.plan import Plan

ROOT = Path(__file__).resolve().parent.parent
# Which setting each flag stands over.
FLAGS = {
    "backend": "llm_backend",
    "model": "llm_model",
    "strategy": "strategy",
    "toolset": "toolset",
    "max_calls": "max_llm_calls",
    "max_cost": "max_cost_usd",
    "max_batch_cost": "max_batch_cost_usd",
    "seed": "seed",
    "temperature": "temperature",
    "scripted": "scripted_replies",
    "workspace": "workspace_dir",
    "keep_workspaces": "keep_workspaces",
    "mcp_config": "mcp_config",
    "sandbox": "sandbox",
    "traces": "traces_dir",
    "out": "traces_dir",
}
GGUF = ".gguf"

BackendFor = Callable[[Plan], Backend]
Tell = Callable[[str], None]


def settings_of(args: Namespace) -> tuple[Settings, frozenset[str]]:
    """The settings with the flags over them, and the names of the settings that a flag gave.

    Raises:
        UsageError: a value that cannot be, or two that contradict each other.
    """
    given = {FLAGS[flag]: value for flag, value in vars(args).items() if flag in FLAGS and value is not None}
    settings = load_settings(**given)
    if "scripted_replies" in given and settings.llm_backend != "scripted":
        raise UsageError("--scripted names replies that are only played with --backend scripted; give both")
    web_access(settings)  # what cannot be is said before anything is run
    return settings, frozenset(given)


def web_access(settings: Settings) -> WebAccess:
    """Where the tools of the web may go, as the settings say.

    Raises:
        UsageError: INTRANET_HOSTS cannot be read, or WEATHER_BASE_URL or SEARXNG_URL is no address.
    """
    persons_target("WEATHER_BASE_URL", settings.weather_base_url)
    if settings.searxng_url is not None:
        persons_target("SEARXNG_URL", settings.searxng_url)
    return WebAccess(
        reach=Reach(Intranet.of(settings.intranet_hosts)),
        weather_url=settings.weather_base_url,
        searxng_url=settings.searxng_url,
        search_api_key=plain(settings.search_api_key),
        chromium_path=settings.chromium_path,
    )


def warn_of_external(settings: Settings, tell: Tell) -> None:
    """Say that nothing isolates programs, where a command's runs show no notices of their own."""
    if settings.sandbox == "external":
        tell(EXTERNAL_WARNING)


@contextmanager
def backends(settings: Settings, plans: Iterable[Plan], tell: Tell) -> Iterator[BackendFor]:
    """The model server that each plan's run is to ask, ready to answer; closed at the end.

    Raises:
        UsageError: the backend lacks a setting, or does not have the model.
        BackendError: it does not answer.
    """
    if settings.llm_backend == "scripted":
        yield _scripts(settings, plans)
        return
    backend = choose(settings, tell)
    try:
        _make_ready(backend, settings, tell)
        yield lambda _plan: backend
    finally:
        backend.close()


def plain(value: SecretStr | None) -> str | None:
    """A secret setting as it is sent, None where it is not set."""
    return value.get_secret_value() if value else None


def with_model(settings: Settings, model: str | None) -> Settings:
    """The settings as if this model had been set; as they are where it is None."""
    return settings if model is None else settings.model_copy(update={"llm_model": model})


def check_models(settings: Settings, plans: Iterable[Plan], tell: Tell) -> None:
    """Where there are several models, whether each is there, before the first run starts.

    Raises:
        UsageError, BackendError: as `backends`.
    """
    models = list(dict.fromkeys(plan.model for plan in plans))
    if len(models) < 2 or settings.llm_backend == "scripted":
        return
    for model in models:
        backend = choose(with_model(settings, model), tell)
        try:
            if backend.name != "embedded":  # which has its file, and would load all of it
                _make_ready(backend, settings, tell)
        finally:
            backend.close()


def choose(settings: Settings, tell: Tell) -> Backend:
    """The backend that the settings name; for `auto`, Ollama where it answers, else embedded, said aloud.

    Raises:
        UsageError: a setting that the backend needs is missing.
        NotSentError: a model was asked for by name, and there is no server that could have it.
    """
    if settings.llm_backend == "ollama":
        return ollama(settings)
    if settings.llm_backend == "openai":
        return openai(settings)
    if settings.llm_backend == "embedded":
        return embedded(settings)
    server = ollama(settings)
    refusal = why_not(server)
    if refusal is None:
        return server
    if "llm_model" in settings.model_fields_set and not settings.llm_model.endswith(GGUF):
        raise BackendError(
            "unreachable",
            f"{refusal}, so there is no {settings.llm_model}; to mend it: {start_of(server)}, or leave the model to the"
            " embedded backend (--backend embedded)",
        )
    tell(f"{refusal}: using the embedded model instead (--backend says otherwise)")
    return embedded(settings)


def why_not(server: OllamaBackend) -> str | None:
    """None where the server answers, else in a few words that it does not."""
    try:
        server.version()
    except BackendError as error:
        return f"Ollama does not answer at {server.url} ({error.error_type})"
    return None


def start_of(server: OllamaBackend) -> str:
    """What a person does to have Ollama answer where it was looked for."""
    if not is_loopback(urlsplit(server.url).hostname or ""):
        return "start Ollama on that machine, or set OLLAMA_HOST"
    here = "" if shutil.which("ollama") else "install Ollama (https://ollama.com/download), then: "
    return f"{here}ollama serve (or set OLLAMA_HOST)"


def ollama(settings: Settings) -> OllamaBackend:
    """Ollama at OLLAMA_HOST."""
    return OllamaBackend(settings.ollama_host, settings.llm_model)


def openai(settings: Settings) -> OpenAIBackend:
    """The server at LLM_BASE_URL.

    Raises:
        UsageError: there is no LLM_BASE_URL.
    """
    if settings.llm_base_url is None:
        raise UsageError("--backend openai needs LLM_BASE_URL; set it to the server's address, ending in /v1")
    return OpenAIBackend(settings.llm_base_url, settings.llm_model, api_key=plain(settings.llm_api_key))


def embedded(settings: Settings, *, log_folder: Path | None = None) -> Backend:
    """llama.cpp in a process of its own, with the file that `embedded_file` names. Its log goes to the traces folder.

    Raises:
        UsageError: there is no such file.
        StoreError: its log cannot be written.
    """
    from agent.llm.backends.embedded import EmbeddedBackend  # noqa: PLC0415  # loads a native library

    path = embedded_file(settings)
    folder = log_folder or settings.traces_dir
    make_folder(folder)
    log, threads = folder / "llama.log", settings.embedded_threads
    return EmbeddedBackend(path, num_ctx=settings.num_ctx, log_path=log, threads=threads)


def embedded_file(settings: Settings) -> Path:
    """The GGUF file: LLM_MODEL where it names one, else EMBEDDED_MODEL.

    Raises:
        UsageError: it is not there; the message says how to get it.
    """
    named = settings.llm_model.endswith(GGUF)
    path = Path(settings.llm_model) if named else settings.embedded_model
    if not path.is_file():
        mend = "name a GGUF file that is there" if named else "unpack it with: make setup"
        raise UsageError(f"the embedded model {path} is not there; {mend}")
    return path


def git_commit() -> str | None:
    """Which commit of Shoestring this is, with `-dirty` where its files were changed; None outside a checkout."""
    git = shutil.which("git")
    if git is None or not (ROOT / ".git").exists():
        return None
    command = [git, "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() or None


def _scripts(settings: Settings, plans: Iterable[Plan]) -> BackendFor:
    """A script for each plan, all read before the first run starts."""
    path = settings.scripted_replies
    if path is None:
        raise UsageError("--backend scripted needs a file of replies; name it with --scripted FILE")
    ids = {plan.case.id if plan.case else None for plan in plans}
    scripts = {case_id: load_script(path, case_id) for case_id in ids}
    name = settings.llm_model if "llm_model" in settings.model_fields_set else "scripted"
    return lambda plan: ScriptedBackend(scripts[plan.case.id if plan.case else None], model=name)


def _make_ready(backend: Backend, settings: Settings, tell: Tell) -> None:
    """Have the model there before the first run: an unknown name is the person's mistake and not a failed run."""
    try:
        backend.describe()
    except NotSentError as error:
        if not isinstance(backend, OllamaBackend):
            raise
        ways = f"{start_of(backend)}, or use the embedded model (--backend embedded)"
        raise NotSentError("unreachable", f"{error} To mend it: {ways}") from None
    except BackendError as error:
        if error.error_type != "model_not_found":
            raise
        if not (isinstance(backend, OllamaBackend) and settings.ollama_auto_pull):
            raise UsageError(str(error)) from None
        from cli.pull import pull  # noqa: PLC0415  # a progress bar that few runs need

        pull(backend, tell)
        backend.describe()
