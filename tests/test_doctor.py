"""doctor and models: what is there, what is missing, and the command that mends it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from agent.llm.backends.ollama import OllamaBackend
from agent.sandbox.ladder import Asked
from cli.compose import start_of
from cli.doctor import EXTRAS, check_extras, check_folder, check_python, check_window
from cli.models import aligned
from tests.support_cli import CALCULATE, NOBODY, Desk, answer
from tests.support_sandbox import RUNGS, isolation
from tests.support_wire import Seen, Wire, http_reply, serving

DETAILS = {"parameter_size": "3.2B", "quantization_level": "Q4_K_M", "context_length": 131072}
LLAMA = {"name": "llama3.2:3b", "size": 2_019_393_189, "details": DETAILS, "capabilities": ["completion", "tools"]}
OLD = {"name": "old:latest", "size": 300_000_000, "details": {"quantization_level": "Q4_0"}}
OF_THE_MACHINE = ("sandbox", "bubblewrap", "landlock", "chromium", "ripgrep", "node", "extra")
OLD_SHOWN = {
    "capabilities": ["completion"],
    "model_info": {"general.architecture": "old", "old.context_length": 2048},
}


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


@contextmanager
def ollama(*models: dict[str, Any]) -> Iterator[Wire]:
    """An Ollama that holds these models; `/api/pull` brings llama3.2:3b, and chats are answered in two turns."""
    held = list(models)
    turns = iter([CALCULATE, answer("It is 42.")])

    def serve(seen: Seen) -> Iterable[bytes]:
        if seen.path == "/api/version":
            return [http_reply('{"version": "0.12.3"}')]
        if seen.path == "/api/tags":
            return [http_reply(json.dumps({"models": held}))]
        if seen.path == "/api/show":
            return [http_reply(json.dumps(OLD_SHOWN))]
        if seen.path == "/api/pull":
            held.append(LLAMA)
            lines = [{"status": "pulling \x1b[2J", "total": 9, "completed": 4}, {"status": "success"}]
            return [http_reply("".join(json.dumps(line) + "\n" for line in lines), content_type="application/x-ndjson")]
        message = {"role": "assistant", "content": json.dumps(next(turns))}
        reply = {"model": "m", "message": message, "done": True, "done_reason": "stop"}
        return [http_reply(json.dumps(reply | {"prompt_eval_count": 300, "eval_count": 30}))]

    with serving(serve) as wire:
        yield wire


def checks_of(out: str) -> dict[str, str]:
    """The verdict of each line, by what was looked at."""
    pairs = (line.partition(":")[0].split(maxsplit=1) for line in out.splitlines())
    return {name: verdict for verdict, name in pairs}


# -- doctor -----------------------------------------------------------------------------------------------------------


def test_a_machine_that_has_everything_is_ok(desk: Desk) -> None:
    gguf = desk.folder / "m.gguf"
    gguf.write_bytes(b"GGUF")
    with ollama(LLAMA) as wire:
        done = desk.inside("doctor", OLLAMA_HOST=wire.url, SEARCH_PROVIDER="corpus", EMBEDDED_MODEL=str(gguf))
    assert done.code == 0
    expected = ["python", "backend", "model", "window", "embedded", "embeddings", "search", "traces", "report"]
    found = {name: verdict for name, verdict in checks_of(done.out).items() if not name.startswith(OF_THE_MACHINE)}
    assert found == dict.fromkeys(expected, "ok")
    assert "Ollama 0.12.3 at " in done.out
    assert "llama3.2:3b 3.2B Q4_K_M" in done.out


def test_programs_and_libraries_of_single_tools_are_looked_for(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "rg").touch(mode=0o755)
    surroundings = {"SEARCH_PROVIDER": "corpus", "PATH": str(tmp_path / "bin"), "SANDBOX": "external"}
    done = desk.inside("doctor", **surroundings)
    found = checks_of(done.out)
    assert found["ripgrep"] == "ok"
    assert (found["chromium (optional)"], found["node (optional)"]) == ("missing", "missing")
    assert "chromium (optional): not installed; to mend it: apt-get install chromium" in done.out
    assert "node (optional): not installed; to mend it: apt-get install nodejs" in done.out
    assert {name.removesuffix(" (optional)") for name in found} >= {f"extra {name}" for name in EXTRAS}
    named = desk.inside("doctor", CHROMIUM_PATH=str(tmp_path / "bin" / "rg"), **surroundings)
    assert checks_of(named.out)["chromium"] == "ok"


def test_an_extra_that_is_missing_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(EXTRAS, "pdf", "no_library_of_this_name")
    found = {check.name: check for check in check_extras()}
    assert list(found) == ["extra web", "extra pdf", "extra browser", "extra mcp"]
    assert (found["extra pdf"].is_ok, found["extra pdf"].optional, found["extra pdf"].mend) == (
        False,
        True,
        "make extras",
    )


def test_landlock_is_listed_beside_bubblewrap(desk: Desk) -> None:
    for level in RUNGS:
        isolation(level)
    found = checks_of(desk.inside("doctor", SEARCH_PROVIDER="corpus").out)
    assert found["bubblewrap, reading"] == found["landlock, reading"] == "ok"


@pytest.mark.parametrize("level", RUNGS)
def test_each_attempt_of_the_self_test_is_shown(desk: Desk, level: Asked) -> None:
    isolation(level)
    done = desk.inside("doctor", SEARCH_PROVIDER="corpus", SANDBOX=level)
    found = checks_of(done.out)
    assert found["sandbox"] == "ok"
    for attack in ("reading", "writing", "tcp", "udp", "unix", "signals", "processes", "daemon", "memory"):
        assert found[f"{level}, {attack}"] == "ok"


def test_a_sandbox_that_is_none_is_said_to_be_none(desk: Desk) -> None:
    done = desk.inside("doctor", SEARCH_PROVIDER="corpus", SANDBOX="external")
    assert "sandbox: external: programs are NOT isolated" in done.out


def test_a_missing_model_names_the_pull(desk: Desk) -> None:
    with ollama(OLD) as wire:
        done = desk.inside("doctor", OLLAMA_HOST=wire.url, SEARCH_PROVIDER="corpus")
    assert done.code == 3
    assert checks_of(done.out)["model"] == "missing"
    assert "ollama pull llama3.2:3b" in done.out


def test_a_window_the_model_was_not_trained_for_names_the_setting(desk: Desk) -> None:
    with ollama(OLD) as wire:
        done = desk.inside("doctor", "--model", "old", OLLAMA_HOST=wire.url, SEARCH_PROVIDER="corpus")
    assert done.code == 3
    assert checks_of(done.out)["window"] == "missing"
    assert "NUM_CTX=2048" in done.out


def test_without_ollama_the_embedded_model_is_enough(desk: Desk) -> None:
    done = desk.inside("doctor", SEARCH_PROVIDER="corpus")
    assert done.code == 0
    found = checks_of(done.out)
    assert found["backend (optional)"] == "missing"
    assert (found["embedded"], found["model"], found["window"]) == ("ok", "ok", "ok")
    assert list(desk.folder.iterdir()) == []


def test_a_model_that_llama_cpp_cannot_load_is_missing(desk: Desk) -> None:
    gguf = desk.folder / "m.gguf"
    gguf.write_bytes(b"GGUF" + bytes(100))
    done = desk.inside("doctor", SEARCH_PROVIDER="corpus", EMBEDDED_MODEL=str(gguf))
    assert done.code == 3
    assert checks_of(done.out)["model"] == "missing"


@pytest.mark.parametrize("backend", ["auto", "embedded"])
def test_without_any_model_the_setup_is_named(desk: Desk, backend: str) -> None:
    gone = str(desk.folder / "gone.gguf")
    done = desk.inside("doctor", "--backend", backend, SEARCH_PROVIDER="corpus", EMBEDDED_MODEL=gone)
    assert done.code == 3
    assert checks_of(done.out)["embedded"] == "missing"
    assert "make setup" in done.out


def test_a_backend_that_is_asked_for_is_needed(desk: Desk) -> None:
    done = desk.inside("doctor", "--backend", "ollama", SEARCH_PROVIDER="corpus")
    assert done.code == 3
    assert checks_of(done.out)["backend"] == "missing"
    assert "ollama serve" in done.out


def test_a_v1_server_is_checked_with_its_model(desk: Desk) -> None:
    assert "LLM_BASE_URL" in desk.inside("doctor", "--backend", "openai", SEARCH_PROVIDER="corpus").out
    with serving(lambda _seen: [http_reply('{"data": [{"id": "mine", "max_model_len": 16384}]}')]) as wire:
        settings = {"LLM_BASE_URL": f"{wire.url}/v1", "SEARCH_PROVIDER": "corpus"}
        good = desk.inside("doctor", "--backend", "openai", "--model", "mine", **settings)
        bad = desk.inside("doctor", "--backend", "openai", "--model", "other", **settings)
    assert (good.code, checks_of(good.out)["model"]) == (0, "ok")
    assert (bad.code, checks_of(bad.out)["model"]) == (3, "missing")


def test_an_old_python_names_the_newer_one() -> None:
    assert check_python((3, 11)).is_ok
    old = check_python((3, 10))
    assert not old.is_ok
    assert "3.11" in old.mend


@pytest.mark.parametrize(("asked", "trained", "ok"), [(8192, 8192, True), (8192, None, True), (8193, 8192, False)])
def test_the_window_may_be_as_large_as_the_models(asked: int, trained: int | None, ok: bool) -> None:
    assert check_window(asked, trained).is_ok is ok


def test_a_folder_is_judged_by_the_nearest_one_that_is_there(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    assert check_folder("traces", tmp_path / "not" / "yet" / "there").is_ok
    assert not check_folder("traces", tmp_path / "file" / "traces").is_ok
    assert list(tmp_path.iterdir()) == [tmp_path / "file"], "looking made a folder"


# -- models -----------------------------------------------------------------------------------------------------------


def test_models_lists_what_each_backend_offers(desk: Desk) -> None:
    gguf = desk.folder / "tiny-Q4_1.gguf"
    gguf.write_bytes(b"GGUF" + bytes(2_000_000))
    with ollama(LLAMA, OLD) as wire:
        done = desk.inside("models", OLLAMA_HOST=wire.url, EMBEDDED_MODEL=str(gguf))
    assert [line.split() for line in done.out.splitlines()[:4]] == [
        ["backend", "model", "size", "quantization", "context", "capabilities"],
        ["ollama", "llama3.2:3b", "2.0", "GB", "Q4_K_M", "131,072", "completion,", "tools"],
        ["ollama", "old:latest", "300", "MB", "Q4_0", "2,048", "completion"],
        ["embedded", "tiny-Q4_1.gguf", "2", "MB", "Q4_1", "-", "-"],
    ]
    assert done.code == 0


def test_no_model_at_all_says_what_to_do(desk: Desk) -> None:
    done = desk.inside("models", EMBEDDED_MODEL=str(desk.folder / "gone.gguf"))
    assert done.code == 3
    for command in ("ollama serve", "ollama pull llama3.2:3b", "make setup", "LLM_BASE_URL"):
        assert command in done.out


@pytest.mark.parametrize(
    ("is_installed", "mend"),
    [
        (True, "ollama serve (or set OLLAMA_HOST)"),
        (False, "install Ollama (https://ollama.com/download), then: ollama serve (or set OLLAMA_HOST)"),
    ],
)
def test_how_ollama_is_started_is_said_wherever_it_does_not_answer(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, mend: str, *, is_installed: bool
) -> None:
    programs = desk.folder / "programs"
    programs.mkdir()
    if is_installed:
        (programs / "ollama").symlink_to("/bin/true")
    monkeypatch.setenv("PATH", str(programs))
    task = desk.inside("Hello!", "--backend", "ollama")
    assert task.code == 3
    assert task.line.startswith(f"shoestring: {NOBODY} cannot be reached (")
    assert task.line.endswith(
        f"); is the server running? To mend it: {mend}, or use the embedded model (--backend embedded)"
    )
    assert f"To mend it: {mend}\n" in desk.inside("models").out
    named = desk.inside("Hello!", "--model", "tiny").line
    assert named.endswith(
        f"so there is no tiny; to mend it: {mend}, or leave the model to the embedded backend (--backend embedded)"
    )
    doctor = desk.inside("doctor", "--backend", "ollama", SEARCH_PROVIDER="corpus")
    assert f"to mend it: {mend}\n" in doctor.out


def test_an_ollama_elsewhere_is_started_there() -> None:
    server = OllamaBackend("http://ollama.example:11434", "tiny")
    assert start_of(server) == "start Ollama on that machine, or set OLLAMA_HOST"


def test_a_server_that_is_no_ollama_is_not_started_again(desk: Desk) -> None:
    with serving(lambda _seen: [http_reply("{}", status=404)]) as wire:
        done = desk.inside("models", OLLAMA_HOST=wire.url)
    assert "no such path as /api/tags on this server; set OLLAMA_HOST to where Ollama is" in done.out


def test_names_that_a_server_made_up_stay_inert(desk: Desk) -> None:
    with ollama({"name": "evil\x1b[2J\nname", "capabilities": ["\u202etools"], "details": DETAILS}) as wire:
        done = desk.inside("models", OLLAMA_HOST=wire.url)
    assert "evil\u241b[2J name" in done.out
    assert "<U+202E>tools" in done.out


def test_columns_are_aligned_by_what_a_terminal_shows() -> None:
    assert aligned([["a", "b"], ["\u4e2d\u6587", "c"]]) == ["a     b", "\u4e2d\u6587  c"]


# -- choosing ---------------------------------------------------------------------------------------------------------


def test_auto_takes_ollama_where_it_answers(desk: Desk) -> None:
    with ollama(LLAMA) as wire:
        done = desk.inside("What is 6 * 7?", "--json", OLLAMA_HOST=wire.url)
    assert (done.code, json.loads(done.out)["answer"]) == (0, "It is 42.")


def test_a_model_that_ollama_lacks_is_one_line_that_names_the_pull(desk: Desk) -> None:
    with ollama(OLD) as wire:
        done = desk.inside("What is 6 * 7?", OLLAMA_HOST=wire.url)
    assert "ollama pull llama3.2:3b" in done.line
    assert (done.code, done.out) == (2, "")


def test_auto_pull_fetches_the_model_and_goes_on(desk: Desk) -> None:
    with ollama(OLD) as wire:
        done = desk.inside("What is 6 * 7?", OLLAMA_HOST=wire.url, OLLAMA_AUTO_PULL="true")
    assert done.code == 0
    assert "pulling it (OLLAMA_AUTO_PULL)" in done.out
    assert "ANSWER    It is 42." in done.out
    assert [seen.path for seen in wire.seen].count("/api/pull") == 1


def test_auto_says_aloud_that_it_falls_back(desk: Desk) -> None:
    done = desk.inside("What is 6 * 7?", EMBEDDED_MODEL=str(desk.folder / "gone.gguf"))
    assert "using the embedded model instead" in done.out
    assert "make setup" in done.line
    assert done.code == 2


def test_a_model_asked_for_by_name_is_never_replaced_by_another(desk: Desk) -> None:
    done = desk.inside("What is 6 * 7?", "--model", "qwen3:4b")
    assert "there is no qwen3:4b" in done.line
    assert (done.code, done.out) == (3, "")
