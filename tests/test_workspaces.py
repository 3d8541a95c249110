"""A run's workspace: what it begins with, what is kept of it, and that nothing of it stays."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from agent.state import AgentState, WorkspaceRecord
from evals.file_asserts import FileIs
from evals.sound import unsound
from evals.store import TraceStore
from evals.traces import load
from evals.verify import verify
from evals.workspaces import MAX_TEXT_BYTES, checked_name, fresh_workspace, keep_workspace, listed, listed_at
from tests.support_cli import Desk, Outcome, answer
from tests.support_runs import new_run
from tests.support_sandbox import isolation


def test_it_holds_the_cases_files_and_is_gone_afterwards() -> None:
    with fresh_workspace({"a.txt": "one\n", "sub/b.txt": "two"}) as root:
        assert (root / "sub" / "b.txt").read_text() == "two"
        assert [(file.path, file.text) for file in listed(root)] == [("a.txt", "one\n"), ("sub/b.txt", "two")]
        (root / "c.txt").write_text("three")
    assert not root.exists()


def test_two_runs_never_share_one() -> None:
    with fresh_workspace({}) as one, fresh_workspace({}) as other:
        assert one != other


@pytest.mark.parametrize(
    "name",
    [
        "",
        "/etc/x",
        "../x",
        "a/../b",
        "a//b",
        "./a",
        "a/",
        "a\\b",
        "a\x00b",
        "a\nb",
        "x" * 201,
        "d/" * 20 + "x",
        "\N{FIRE}" * 64,
    ],
)
def test_a_name_that_is_no_plain_path_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="file's name m"):
        checked_name(name)


def test_links_pipes_and_binaries_are_not_taken_for_texts(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("outside")
    with fresh_workspace({"real.txt": "x"}) as root:
        (root / "link.txt").symlink_to(tmp_path / "secret")
        os.mkfifo(root / "pipe")
        (root / "data.bin").write_bytes(b"\xff\xfe\x00")
        (root / "long.txt").write_text("x" * (MAX_TEXT_BYTES + 1))
        found = {file.path: file.text for file in listed(root)}
    assert found == {"real.txt": "x", "data.bin": None, "long.txt": None}


def test_the_texts_of_many_files_are_bounded_together() -> None:
    with fresh_workspace({f"{n:02}.txt": "x" * MAX_TEXT_BYTES for n in range(20)}) as root:
        texts = [file.text for file in listed(root)]
    assert sum(text is not None for text in texts) == 8


def test_what_stands_deep_or_behind_a_link_is_not_recorded(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("outside")
    with fresh_workspace({"a/b.txt": "x"}) as root:
        (root / "link").symlink_to(tmp_path)
        deep = root.joinpath(*["d"] * 30)
        deep.mkdir(parents=True)
        (deep / "x").touch()
        assert [file.path for file in listed(root)] == ["a/b.txt"]
        assert [file.path for file in listed_at(root, ["a/b.txt", "a", "link/secret", "none", "a/b.txt"])] == [
            "a/b.txt"
        ]


@contextmanager
def deep_workspace() -> Iterator[tuple[Path, str]]:
    """A workspace with a plain file, and one that only a path of over 4,096 bytes leads to: that path."""
    with fresh_workspace({"plain.txt": "x"}) as root:
        handle, parts = os.open(root, os.O_RDONLY), ["d" * 250] * 17
        for part in parts:
            os.mkdir(part, dir_fd=handle)
            outer, handle = handle, os.open(part, os.O_RDONLY, dir_fd=handle)
            os.close(outer)
        os.close(os.open("f", os.O_WRONLY | os.O_CREAT, dir_fd=handle))
        os.close(handle)
        yield root, "/".join([*parts, "f"])


def test_a_path_that_is_too_long_for_the_system_is_recorded_and_judged_like_others(tmp_path: Path) -> None:
    with deep_workspace() as (root, deep):
        files = listed(root)
        assert listed_at(root, [deep, "plain.txt"]) == files
    assert [(file.path, file.text) for file in files] == [(deep, ""), ("plain.txt", "x")]
    state = new_run([]).state.model_copy(update={"workspace": WorkspaceRecord(after=files)})
    assert FileIs(type="file", path=deep, equals="").check(state).passed
    assert not FileIs(type="file", path=deep, absent=True).check(state).passed
    assert unsound(state) is None
    assert not root.exists()


# -- what is kept -----------------------------------------------------------------------------------------------------


def test_files_are_kept_beside_the_trace_and_nothing_that_leads_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("outside")
    with fresh_workspace({"a/b.txt": "x", "c": "y"}) as root:
        (root / "link").symlink_to(tmp_path / "secret")
        (root / "folder").symlink_to(tmp_path)
        os.mkfifo(root / "pipe")
        (root / "big").touch()
        os.truncate(root / "big", 1 << 40)
        kept = keep_workspace(root, tmp_path / "run-1.json")
        assert keep_workspace(root, tmp_path / "run-1.json") == kept == tmp_path / "workspaces" / "run-1"
    assert sorted(str(path.relative_to(kept)) for path in kept.rglob("*")) == ["a", "a/b.txt", "c"]
    with fresh_workspace({}) as root:
        assert keep_workspace(root, tmp_path / "run-2.json") is None


def test_a_file_whose_path_is_too_long_is_not_kept_and_that_is_told(tmp_path: Path) -> None:
    told = list[str]()
    with deep_workspace() as (root, _):
        kept = keep_workspace(root, tmp_path / "run-1.json", tell=told.append)
        assert kept is not None
        assert [path.name for path in kept.rglob("*") if path.is_file()] == ["plain.txt"]
        (root / "plain.txt").unlink()
        assert keep_workspace(root, tmp_path / "run-1.json", tell=told.append) is None
    assert list((tmp_path / "workspaces").iterdir()) == []
    assert told == ["not kept of its workspace: 1 files whose paths are too long there, or of another system"] * 2


def moves_to_a_long_path() -> list[dict[str, Any]]:
    """Calls that write a file and move its folder into others until its path has over 4,096 bytes."""
    parts = ["\N{FIRE}" * 62 + letter for letter in "abcdefghijklmnopq"]
    moves = [("write_file", {"path": f"{parts[0]}/{parts[1]}/{parts[16]}/x", "content": "mine"})]
    for place in range(0, 14, 2):
        target = "/".join((*parts[place + 2 : place + 4], parts[place]))
        moves.append(("manage_path", {"action": "move", "path": parts[place], "destination": target}))
    return calls(*moves)


def test_a_path_that_cannot_be_kept_costs_neither_its_run_nor_the_batch(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    limits = "{max_cost_usd: 9, max_completion_tokens: 2000}"
    case = f"  task: Do it.\n  toolset: fs\n  limits: {limits}\n  asserts: [{{type: answer_contains, value: Done}}]\n"
    (tmp_path / "suite.yaml").write_text(f"cases:\n- id: long\n{case}- id: second\n{case}")
    replies = {
        "long": [*moves_to_a_long_path(), {"content": answer("No.")}],
        "second": [*calls(WRITE), {"content": answer("Done.")}],
    }
    done = desk.inside_suite("suite.yaml", "--backend", "scripted", "--scripted", desk.script(replies))
    assert done.code == 1, done.err
    assert "2 runs: 1 passed, 1 failed, 0 invalid" in done.out
    assert not (tmp_path / "traces" / "workspaces").exists()
    state = next(load(path) for path in desk.traces() if "long" in path.name)
    assert state.workspace is not None
    assert [len(file.path.encode()) > 4096 for file in state.workspace.after] == [True]
    assert desk.inside("verify", "traces").code == 0


def test_no_secret_and_nothing_that_programs_obey_is_kept(tmp_path: Path) -> None:
    secrets, told = ("ghp_of-the-person",), list[str]()
    bad = {".git/config": "fsmonitor", "sub/.GIT": "gitdir: x", "bare/HEAD": "ref: refs/heads/m", ".env": "A=1"}
    bad |= {"sub/.vscode/tasks.json": "{}", "key.txt": "x ghp_of-the-person", "b64": "Z2hwX29mLXRoZS1wZXJzb24="}
    with fresh_workspace({**bad, "bare/config": "x", "notes.md": "fine"}) as root:
        (root / "data.bin").write_bytes(b"\xff\xfeghp_of-the-person")
        kept = keep_workspace(root, tmp_path / "run-1.json", secrets, told.append)
    assert kept is not None
    files = sorted(str(path.relative_to(kept)) for path in kept.rglob("*") if path.is_file())
    assert files == ["bare/config", "notes.md"]
    assert told == ["not kept of its workspace: 8 files that hold a secret or that other programs would act upon"]


@pytest.mark.skipif(sys.platform != "linux", reason="programs are isolated on Linux only")
def test_a_file_that_holds_a_secret_leaves_the_trace_true(tmp_path: Path) -> None:
    isolation("bubblewrap")
    desk = Desk(tmp_path)
    (tmp_path / ".env").write_text("GITHUB_TOKEN=ghp_othertoken0002\n")
    program = {"code": "open('a.txt', 'w').write('ghp_' + 'othertoken0002'); print('written')"}
    replies = [*calls(("execute_code", program), WRITE), {"content": answer("Done.")}]
    done, state = task(desk, replies, "--toolset", "core,fs", "--keep-workspaces")
    assert (done.code, state.steps[0].results[0].data) == (0, "written")
    assert state.workspace is not None
    assert [(file.path, file.size, file.text) for file in state.workspace.after] == [
        ("a.txt", 18, None),
        ("notes.txt", 4, "mine"),
    ]
    assert "not kept of its workspace: 1 files" in done.out
    assert desk.inside("verify", "traces").code == 0
    whole = b"".join(path.read_bytes() for path in (tmp_path / "traces").rglob("*") if path.is_file())
    assert b"ghp_othertoken0002" not in whole
    assert b"mine" in whole


def calls(*actions: tuple[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """Replies that make these calls, one each."""
    return [
        {
            "content": {
                "progress_check": "on_track",
                "thought": "next",
                "action": {"tool": tool, "args": args},
                "final_answer": None,
            }
        }
        for tool, args in actions
    ]


WRITE = ("write_file", {"path": "notes.txt", "content": "mine"})


def task(desk: Desk, replies: list[dict[str, Any]], *flags: str) -> tuple[Outcome, AgentState]:
    """One task with the file tools, and its trace, which has kept its promises."""
    script = desk.script(replies)
    done = desk.inside("Do it.", "--toolset", "fs", "--backend", "scripted", "--scripted", script, *flags)
    (path,) = desk.traces()
    state = AgentState.model_validate_json(path.read_text("utf-8"))
    assert verify(state) == []
    return done, state


@pytest.mark.parametrize("flags", [[], ["--keep-workspaces"]])
@pytest.mark.parametrize("completes", [True, False])
def test_the_files_of_a_run_are_kept_where_it_failed_or_all_are(
    tmp_path: Path, flags: list[str], completes: bool
) -> None:
    desk = Desk(tmp_path)
    done, state = task(desk, [*calls(WRITE), *([{"content": answer("Done.")}] if completes else [])], *flags)
    kept = tmp_path / "traces" / "workspaces" / desk.traces()[0].stem
    assert (state.status == "completed") == completes
    assert kept.exists() == (bool(flags) or not completes)
    assert (str(kept.relative_to(tmp_path)) in done.out.replace("\n", "")) == kept.exists()
    if kept.exists():
        assert (kept / "notes.txt").read_text() == "mine"


def test_kept_files_go_to_the_history_with_their_traces(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    task(desk, calls(WRITE))
    (trace,) = desk.traces()
    with TraceStore(tmp_path / "traces") as store, store.begin_batch("next"):
        (moved,) = (tmp_path / "traces" / "history").glob("*/*.json")
    assert moved.name == trace.name
    assert (moved.parent / "workspaces" / moved.stem / "notes.txt").read_text() == "mine"
    assert not (tmp_path / "traces" / "workspaces").exists()


# -- a person's own ---------------------------------------------------------------------------------------------------


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A person's folder."""
    folder = tmp_path / "home"
    folder.mkdir()
    (folder / "diary.txt").write_text("very private")
    return folder


def test_in_a_persons_folder_reads_are_allowed_and_writes_ask(tmp_path: Path, home: Path) -> None:
    desk = Desk(tmp_path)
    read = ("read_file", {"path": "diary.txt"})
    done, state = task(desk, calls(read, WRITE), "--workspace", "home")
    assert (done.code, state.status) == (1, "confirmation_required")
    assert state.steps[0].results[0].data == "very private"
    assert state.steps[1].actions[0].arguments == {**WRITE[1]}
    assert state.approve["write"] == "ask"
    assert state.workspace == WorkspaceRecord(folder="home")
    assert sorted(path.name for path in home.iterdir()) == ["diary.txt"]
    assert not (tmp_path / "traces" / "workspaces").exists()


def test_of_a_persons_folder_the_trace_holds_what_was_written_alone(tmp_path: Path, home: Path) -> None:
    desk = Desk(tmp_path)
    replies = [*calls(WRITE, ("manage_path", {"action": "mkdir", "path": "x"})), {"content": answer("Done.")}]
    done, state = task(desk, replies, "--workspace", str(home), "--approve", "write=allow", "--keep-workspaces")
    assert done.code == 0
    assert state.workspace is not None
    assert state.workspace.folder == str(home)
    assert [(file.path, file.text) for file in state.workspace.after] == [("notes.txt", "mine")]
    assert state.workspace.before == []
    assert sorted(path.name for path in home.iterdir()) == ["diary.txt", "notes.txt", "x"]
    assert not (tmp_path / "traces" / "workspaces").exists()
    replayed = desk.inside("replay", str(desk.traces()[0]), "--live-tools")
    assert replayed.code == 2
    assert "leave out --live-tools" in replayed.line


def test_a_workspace_that_is_no_folder_is_refused_before_anything_runs(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    for name in ("nowhere", "file\x1b"):
        (tmp_path / "file\x1b").touch()
        done = desk.inside("Do it.", "--workspace", name)
        assert done.code == 2
        assert "is no folder; name one that is there" in done.line
        assert done.line.isprintable()
    assert "leave out --workspace" in desk.inside("--all-tests", "--workspace", ".").line
    assert "unrecognized arguments: --workspace" in desk.inside_suite("--workspace", ".").line
