"""The model in the box: llama.cpp (xllamacpp) on loopback with a GGUF file, started at the first use.

Facts about its server, measured with xllamacpp 2026.10: `/v1/chat/completions/input_tokens` counts a prompt exactly as
the completion will (24 of 24 conversations); an empty conversation, a cap of 0 and `tools` are accepted and do
something else than was asked, so they are refused here; a prompt over the window is a 400, never cut.
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
from agent.llm.backends.http import Transport
from agent.llm.backends.http_call import Call
from agent.llm.backends.openai import OpenAIBackend, wire_messages
from agent.llm.envelopes import object_of
from agent.state import ModelInfo

COUNT = "/v1/chat/completions/input_tokens"
COUNT_SECONDS = 30.0
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
        self._wire: OpenAIBackend | None = None
        self._counter: Transport | None = None
        self._info: ModelInfo | None = None

    def describe(self) -> ModelInfo:
        """The file's name and hash, and what llama.cpp says of it. Starts the server.

        Raises:
            UsageError: there is no such file, or it is no GGUF.
            BackendError: llama.cpp cannot load it.
        """
        self._started()
        if self._info is None:
            raise BackendError("server_error", "the embedded model was stopped")
        return self._info

    def count_prompt_tokens(self, request: ChatRequest) -> int | None:
        """The exact count; tool definitions never reach the embedded model's prompt.

        Raises:
            BackendError: the server does not answer.
        """
        self._refuse_odd(request)
        self._started()
        if self._counter is None:
            return None
        call = Call("POST", COUNT, COUNT_SECONDS, {"messages": wire_messages(request.messages)})
        count = object_of(self._counter.send(call)).get("input_tokens")
        if not isinstance(count, int) or isinstance(count, bool) or count < 1:
            raise BackendError("bad_reply", f"the embedded server counted a prompt as {count!r:.60}")
        return count

    def send(self, request: ChatRequest, on_text: OnText | None = None) -> RawReply:
        """One chat completion.

        Raises:
            NotSentError, BackendError: see `Transport.send`.
        """
        self._refuse_odd(request)
        return self._started().send(request, on_text)

    def close(self) -> None:
        """Stop the server. Harmless when called twice; a later request starts it anew."""
        with self._lock:
            if self._process is not None:
                _stop(self._process)
            if self._wire is not None:
                self._wire.close()
            self._process = self._wire = self._counter = None

    def _refuse_odd(self, request: ChatRequest) -> None:
        if not request.messages or request.max_completion_tokens < 1:
            raise RequestError("request_invalid", "llama.cpp would generate from nothing, or a token nobody asked for")
        if request.tools:
            raise BackendError("tools_unsupported", "the embedded server ignores tools without a word")
        if request.num_ctx != self._num_ctx:
            raise RequestError("request_invalid", f"the embedded server has a window of {self._num_ctx}")

    def _started(self) -> OpenAIBackend:
        with self._lock:
            if self._process is not None and self._process.poll() is not None:  # ended by itself, or for its memory
                _stop(self._process)
                self._process = self._wire = self._counter = None
            if self._wire is None:
                self._start()
            if self._wire is None:
                raise BackendError("server_error", "the embedded server did not start")
            return self._wire

    def _start(self) -> None:
        _refuse_no_gguf(self._model_path)
        key, alias = secrets.token_urlsafe(24), self._model_path.stem
        settings = {
            "model_path": str(self._model_path.resolve()),
            "alias": alias,
            "num_ctx": self._num_ctx,
            "threads": self._threads,
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
        self._wire = OpenAIBackend(ready["url"], alias, api_key=key, extra_body={"cache_prompt": True, **SAMPLER})
        self._counter = Transport(ready["url"], bearer=key)
        self._info = self._ask_model(self._wire, alias, str(ready.get("version") or ""))

    def _ask_model(self, wire: OpenAIBackend, alias: str, version: str) -> ModelInfo:
        meta = ((wire.models() or {}).get(alias) or {}).get("meta") or {}
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
