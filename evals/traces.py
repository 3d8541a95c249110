"""Trace files: one run, one JSON file, written whole or not at all; and reading them back with a clear word on faults.

A file name is a slug of the case id (or task), the strategy, and a short hash of the run id: never a raw id, which may
hold `../` or anything else. A file that is being written is hidden and does not end in `.json`.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable
from pathlib import Path
from secrets import token_hex
from typing import Any, NoReturn

from pydantic import ValidationError
from pydantic_core import PydanticSerializationError

from agent.errors import UsageError
from agent.redaction import redacted, redacted_values, texts_of
from agent.state import SCHEMA_VERSION, AgentState
from evals.sound import unsound

MAX_TRACE_BYTES = 256 * 1024 * 1024  # far above any run; a larger file is something else
READABLE_BY_ALL = 0o644  # results are read on the host of a container, by another user


def slug(text: str, limit: int = 40) -> str:
    """Lowercase ASCII letters, digits and single hyphens, at most `limit` of them; "run" where none are left."""
    return re.sub(r"[^a-z0-9]+", "-", text[: 4 * limit].lower()).strip("-")[:limit].strip("-") or "run"


def trace_name(state: AgentState) -> str:
    """The name of a run's file: the same for the same run, and safe whatever its ids hold."""
    run = hashlib.sha256(state.run_id.encode("utf-8", "surrogatepass")).hexdigest()[:10]
    return f"{slug(state.case_id or state.task)}-{slug(state.strategy, 20)}-{run}.json"


def dump(state: AgentState, secrets: tuple[str, ...] = ()) -> bytes:
    """The bytes of a trace: ASCII, never NaN or infinity, and without the secrets."""
    try:
        text = state.model_dump_json(ensure_ascii=True)
    except PydanticSerializationError:
        # A model may write half a surrogate pair, which is legal in JSON and refused by the fast serializer. NaN
        # becomes null, as it does there.
        plain = json.loads(json.dumps(state.model_dump()), parse_constant=lambda _: None)
        text = json.dumps(plain, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    if secrets and _holds_secret(value := json.loads(text), secrets):  # rare: what comes into a run leaves them outside
        clean = redacted_values(value, secrets)
        text = json.dumps(clean, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.encode("ascii") + b"\n"


def _holds_secret(value: Any, secrets: tuple[str, ...]) -> bool:
    """Whether a secret stands in any text of a JSON value. They are looked through as one, which is fast; no secret
    spans two of them, for none holds what stands between."""
    texts = "\0".join(texts_of(value))
    return redacted(texts, secrets) != texts


def write_trace(folder: Path, state: AgentState, secrets: tuple[str, ...] = ()) -> Path:
    """Write a run's trace so that after a crash or a full disk there is either all of it or what stood there before.

    Raises:
        OSError: as the system gave it; the temporary file is gone then.
    """
    path = folder / trace_name(state)
    temporary = folder / f".{path.stem}.{token_hex(4)}.tmp"
    try:
        _write_synced(temporary, dump(state, secrets))
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(folder)
    return path


def _write_synced(path: Path, data: bytes) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, READABLE_BY_ALL)
    try:
        os.fchmod(handle, READABLE_BY_ALL)  # whatever the umask says
        view = memoryview(data)
        while view:
            view = view[os.write(handle, view) :]
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_folder(folder: Path) -> None:
    """Make renames in a folder last through a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def trace_paths(target: Path) -> list[Path]:
    """The traces of a folder by name (not of the folders within), or the one file that was named.

    Raises:
        UsageError: there is no such file or folder, or it cannot be listed.
    """
    try:
        if target.is_file():
            return [target]
        return sorted(path for path in target.iterdir() if path.suffix == ".json" and path.is_file())
    except OSError as error:
        raise UsageError(f"{target}: {error.strerror}; name a folder of traces or one trace file") from None


def load(path: Path) -> AgentState:
    """One trace, read and checked against its schema, and sound enough to be worked with.

    Raises:
        UsageError: it cannot be read, is no JSON, holds NaN, is no trace, was written by a newer version, or holds what
            no run leaves.
    """
    data = _parse(path, _read(path))
    if not isinstance(data, dict) or "run_id" not in data:
        raise UsageError(f"{path}: is not a trace (it has no run_id); name a file that a run has left")
    version = data.get("schema_version")
    if isinstance(version, int) and version > SCHEMA_VERSION:
        raise UsageError(
            f"{path}: has trace schema {version}, and this Shoestring reads up to {SCHEMA_VERSION}; update it"
        )
    try:
        state = AgentState.model_validate(_upgraded(data) if version == 1 else data)
    except ValidationError as error:
        fault = error.errors(include_url=False, include_context=False)[0]
        place = ".".join(str(part) for part in fault["loc"])
        more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
        raise UsageError(f"{path}: is not a valid trace: {place}: {fault['msg']}{more}; restore or remove it") from None
    if (why := unsound(state)) is not None:
        raise UsageError(f"{path}: is not a valid trace: {why}; restore or remove it")
    return state


def _upgraded(data: dict[str, Any]) -> dict[str, Any]:
    """A trace of schema 1 in today's form: there each prompt went on from the last call that was sent."""
    new = {**data, "schema_version": SCHEMA_VERSION}
    known = new.pop("system_prompt_hash", None)
    new["system_prompt_hashes"] = [known] if known is not None else []
    calls, ledger = new.get("calls"), new.get("ledger")
    if not isinstance(calls, list) or not isinstance(ledger, list):
        return new  # the schema says what is wrong with it
    last: int | None = None
    new["calls"] = []
    for place, call in enumerate(calls):
        if not isinstance(call, dict):
            return data
        new["calls"].append({**call, "after": last if call.get("carried") else None})
        entry = ledger[place] if place < len(ledger) else None
        if isinstance(entry, dict) and entry.get("settled_as") != "refunded":
            last = place
    return new


def load_all(folder: Path, batch: str | None = None) -> list[AgentState]:
    """Every trace of a folder, or those of one batch, in the order in which the runs began.

    Raises:
        UsageError: the folder, or a trace in it, cannot be read.
    """
    states = (load(path) for path in trace_paths(folder))
    return in_order(state for state in states if batch is None or state.batch_id == batch)


def in_order(states: Iterable[AgentState]) -> list[AgentState]:
    """Runs by when they began; the ids decide between equals, so that the order never depends on file names."""
    return sorted(states, key=lambda s: (s.started_at, s.case_id or "", s.strategy, s.model.name, s.epoch, s.run_id))


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_TRACE_BYTES + 1)
        if len(data) > MAX_TRACE_BYTES:
            raise UsageError(f"{path}: is larger than any trace ({MAX_TRACE_BYTES >> 20} MiB); remove it")
        return data.decode("utf-8")
    except OSError as error:
        hint = "; check its permissions" if isinstance(error, PermissionError) else ""
        raise UsageError(f"{path}: cannot be read ({error.strerror}){hint}") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: is not UTF-8 (byte {error.start}); restore or remove it") from None


def _parse(path: Path, text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        raise UsageError(
            f"{path}: line {error.lineno}, column {error.colno}: not JSON ({error.msg}); restore or remove it"
        ) from None
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise UsageError(f"{path}: cannot be a trace ({reason}); restore or remove it") from None


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"it holds {name}, which is no JSON number")
