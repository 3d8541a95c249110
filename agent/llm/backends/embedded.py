"""The model in the box: llama.cpp (xllamacpp) on loopback with a GGUF file, started at the first use.

Its server accepts an empty conversation, a cap of 0, and tools that the model's template has no place for, and does
something else than was asked, so they are refused here; a prompt over the window is a 400, never cut (measured with
xllamacpp 2026.10).
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import subprocess  # our own script, with fixed arguments
import sys
import threading
from pathlib import Path
from typing import IO, Any

from agent.errors import BackendError, RequestError, StoreError, UsageError
from agent.llm.backends.base import ChatRequest, OnText, RawReply
from agent.llm.backends.llama_cpp import LlamaCppServer
from agent.state import ModelInfo

# For the prompts that other conversations took the place of. A token of the model in the box takes 23 KB: eleven full
# windows of 8192, and a run makes ten calls.
CACHE_MIB = 2048
START_SECONDS = 300.0
STOP_SECONDS = 5.0
# A model of this size repeats itself until a grammar stops it, in digits above all. llama.cpp's DRY sampler makes each
# further repeat of a sequence less likely; a plain repeat penalty, measured too, drove it into runs of odd signs.
SAMPLER = {"dry_multiplier": 0.8, "dry_base": 1.75, "dry_allowed_length": 4, "dry_penalty_last_n": 256}
_SCRIPT = Path(__file__).with_name("embedded_server.py")


class EmbeddedBackend:
    """One GGUF file served by a child process. `log_path` takes what llama.cpp has to say.

    `num_ctx` is fixed at the start: all requests must ask for the same.
    """

    name = "embedded"
    can_constrain = True

    def __init__(self, model_path: Path, num_ctx: int, *, log_path: Path, threads: int | None = None) -> None:
        self._model_path = model_path
        self._num_ctx = num_ctx
        # llama.cpp's threads wait for each other at every layer: one that shares its processor slows down all.
        self._threads = threads or max(1, (os.cpu_count() or 1) - 1)
        self._log_path = log_path
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._server: LlamaCppServer | None = None
        self._info: ModelInfo | None = None

    def describe(self) -> ModelInfo:
        """The file's name and hash, and what llama.cpp says of it. Starts the server.

        Raises:
            UsageError: there is no such file, or it is no GGUF.
            BackendError: llama.cpp cannot load it.
        """
        self._started()
        return self._known()

    def count_prompt_tokens(self, request: ChatRequest) -> int | None:
        """The exact count.

        Raises:
            BackendError: the server does not answer.
        """
        return self._ready_for(request).count_prompt_tokens(request)

    def rendered_bytes(self, request: ChatRequest) -> int | None:  # noqa: ARG002  # the protocol's signature
        """None: prompts are counted exactly."""
        return None

    def send(self, request: ChatRequest, on_text: OnText | None = None) -> RawReply:
        """One reply, or the rest of one that was begun.

        Raises:
            NotSentError, BackendError: see `Transport.send`.
        """
        return self._ready_for(request).send(request, on_text)

    def close(self) -> None:
        """Stop the server. Harmless when called twice; a later request starts it anew."""
        with self._lock:
            if self._process is not None:
                _stop(self._process)
            if self._server is not None:
                self._server.close()
            self._process = self._server = None

    def _ready_for(self, request: ChatRequest) -> LlamaCppServer:
        """The server, for a request that it will not misread."""
        if len(request.messages) <= request.continues or request.max_completion_tokens < 1:
            raise RequestError("request_invalid", "llama.cpp would generate from nothing, or a token nobody asked for")
        if request.num_ctx != self._num_ctx:
            raise RequestError("request_invalid", f"the embedded server has a window of {self._num_ctx}")
        server = self._started()
        if request.tools and not self._known().tools:
            raise BackendError("tools_unsupported", "the embedded model's template has no place for tools")
        return server

    def _known(self) -> ModelInfo:
        if self._info is None:
            raise BackendError("server_error", "the embedded model was stopped")
        return self._info

    def _started(self) -> LlamaCppServer:
        with self._lock:
            if self._process is not None and (self._server is None or self._process.poll() is not None):
                _stop(self._process)  # it ended by itself or for its memory, or did not say what it serves
                self._process = self._server = None
            if self._server is None:
                self._server = self._start()
            return self._server

    def _start(self) -> LlamaCppServer:
        _refuse_no_gguf(self._model_path)
        key, alias = secrets.token_urlsafe(24), self._model_path.stem
        settings = {
            "model_path": str(self._model_path.resolve()),
            "alias": alias,
            "num_ctx": self._num_ctx,
            "threads": self._threads,
            "cache_mib": CACHE_MIB,
            "key": key,
        }
        try:
            with self._log_path.open("ab") as log:
                self._process = _spawn(log)
        except OSError as error:
            raise StoreError(
                f"{self._log_path}: llama.cpp's log cannot be written ({error.strerror}); check the folder's owner"
            ) from None
        ready = _first_words(self._process, settings)
        if "url" not in ready:
            _stop(self._process)
            self._process = None
            raise BackendError(
                "server_error",
                f"llama.cpp cannot serve {self._model_path} ({ready.get('error', 'it gave no reason')}); its log is"
                f" {self._log_path}; `make setup` installs it and the model",
            )
        server = LlamaCppServer(ready["url"], alias, key=key, sampler=SAMPLER)
        self._info = self._ask_model(server, alias, str(ready.get("version") or ""))
        return server

    def _ask_model(self, server: LlamaCppServer, alias: str, version: str) -> ModelInfo:
        meta = server.facts()
        with self._model_path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        size, trained = meta.get("n_params"), meta.get("n_ctx_train")
        return ModelInfo(
            name=alias,
            backend=self.name,
            backend_version=f"xllamacpp {version}".strip(),
            digest=f"sha256:{digest}",
            quantization=meta.get("ftype") if isinstance(meta.get("ftype"), str) else None,
            parameters=f"{size / 1e6:.0f}M" if isinstance(size, int) else None,
            context_window=trained if isinstance(trained, int) else self._num_ctx,
            sampler=dict(SAMPLER),
            tools=server.calls_tools(),
            continues=True,
        )


def _refuse_no_gguf(path: Path) -> None:
    try:
        with path.open("rb") as file:
            magic = file.read(4)
    except OSError as error:
        raise UsageError(
            f"{path}: the embedded model cannot be read ({error.strerror}); `make setup` unpacks the shipped one,"
            " or set EMBEDDED_MODEL to a GGUF file"
        ) from None
    if magic != b"GGUF":
        raise UsageError(f"{path}: is not a GGUF file; set EMBEDDED_MODEL to one, or run `make setup` again")


def _spawn(log: IO[bytes]) -> subprocess.Popen[str]:
    return subprocess.Popen(  # our own script and interpreter
        [sys.executable, "-I", str(_SCRIPT)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log,
        text=True,
        start_new_session=True,  # Ctrl-C is for us: a server that died of it would make the last run invalid
    )


def _first_words(process: subprocess.Popen[str], settings: dict[str, Any]) -> dict[str, Any]:
    """What the child says when it is ready, within START_SECONDS."""
    killer = threading.Timer(START_SECONDS, process.kill)
    killer.daemon = True
    killer.start()
    try:
        if process.stdin is None or process.stdout is None:
            return {}
        process.stdin.write(json.dumps(settings) + "\n")
        process.stdin.flush()
        words = json.loads(process.stdout.readline() or "{}")
    except (OSError, ValueError) as error:
        return {"error": f"its process ended at once ({error})"}
    finally:
        killer.cancel()
    return words if isinstance(words, dict) else {}


def _stop(process: subprocess.Popen[str]) -> None:
    if process.stdin is not None:
        process.stdin.close()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdout is not None:
        process.stdout.close()
