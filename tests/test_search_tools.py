"""The search tools: exact matches, bounds, and nothing that leads out or runs."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest

from agent.state import ToolCall, ToolResult
from agent.tools.base import ToolContext
from agent.tools.registry import ToolRegistry, toolset
from agent.tools.search import MAX_SEARCHED_BYTES
from agent.tools.search_codebase import Match, matches
from tests.support_files import SECRET, Files, refused


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


# -- search -----------------------------------------------------------------------------------------------------------


def test_a_text_is_found_in_any_case_with_its_line(files: Files) -> None:
    files.write("notes.txt", "one\n  The Budget is reserved\nand spent")
    files.write("sub/code.py", "budget = 1\n")
    files.write("other.txt", "nothing here")
    expected = "2 matches:\nnotes.txt:2: The Budget is reserved\nsub/code.py:1: budget = 1"
    assert files.search("BUDGET").data == expected
    assert files.search("budget", path="sub").data == "1 match:\nsub/code.py:1: budget = 1"
    assert files.search("budget", path="notes.txt").data == "1 match:\nnotes.txt:2: The Budget is reserved"
    assert files.search("stra\u00dfe").data == "no match"


def test_it_is_the_text_that_is_searched_and_no_pattern(files: Files) -> None:
    files.write("a", "f(x) = x.*\n")
    assert files.search("x.*").data == "1 match:\na:1: f(x) = x.*"
    assert files.search("f.x").data == "no match"


def test_names_of_files_and_folders_are_found(files: Files) -> None:
    files.write("Report/annual-report.md", "x")
    files.write("summary.txt", "report")
    assert files.search("report", target="names").data == "2 matches:\nReport/\nReport/annual-report.md"


def test_what_is_private_linked_binary_or_somebody_elses_is_passed_over(files: Files, tmp_path: Path) -> None:
    for path in (".env", ".git/config", ".cache/x", "node_modules/lib.js", "sub/__pycache__/x", "image"):
        (files.root / path).parent.mkdir(parents=True, exist_ok=True)
        (files.root / path).write_text(SECRET)
    (files.root / "image").write_text(f"{SECRET}\0")
    (files.root / "link").symlink_to(tmp_path / "outside.txt")
    (files.root / "folder").symlink_to(tmp_path)
    (files.root / "loop").symlink_to(".")
    assert files.search("secret").data == "no match"
    found = files.search("secret", path="node_modules").data
    assert found == f"1 match:\nnode_modules/lib.js:1: {SECRET}"
    for path in ("link", "folder", "folder/outside.txt", ".git", ".env"):
        assert refused(files.search("secret", path=path))


@pytest.mark.parametrize("query", ["", " ", "a\nb", "a\0", "x" * 201])
def test_a_query_that_cannot_stand_in_a_line_is_refused(files: Files, query: str) -> None:
    assert files.search(query).error_type in {"bad_query", "bad_args"}


def test_results_are_bounded_and_printable(files: Files) -> None:
    files.write("many", "\n".join(f"\x1b[2J needle {number} {'x' * 300}" for number in range(60)))
    result = files.search("needle", max_results=5)
    lines = result.data.split("\n")
    assert result.truncated
    assert lines[0] == "60 matches:"
    assert lines[1].startswith("many:1: [2J needle 0 xxx")
    assert lines[1].endswith("x...")
    assert len(lines[1]) == len("many:1: ") + 120
    assert lines[6:] == ["[cut here: 60 matches in all]"]
    assert refused(files.search("needle", max_results=51), "bad_args")


def test_very_much_is_searched_in_part_and_said_so(files: Files) -> None:
    for number in range(40):
        (files.root / f"{number:02}").write_text("x" * 1_000_000)
    (files.root / "99").write_text("needle")
    (files.root / "00").write_text("x" * MAX_SEARCHED_BYTES)
    started = time.monotonic()
    assert files.search("needle").data == "no match in what could be searched (name a path to look in less)"
    assert time.monotonic() - started < 5
    assert files.search("needle", path="99").data == "1 match:\n99:1: needle"
    (files.root / "00").write_text("y needle\n" * 30 + "x" * MAX_SEARCHED_BYTES)
    lines = files.search("needle", max_results=5).data.split("\n")
    assert lines[0] == "30 matches in what could be searched (name a path to look in less):"
    assert lines[-1] == "[cut here: over 30 matches in all]"


# -- search_codebase: the real ripgrep, isolated ----------------------------------------------------------------------


class Code:
    """A workspace of sources, searched by the real ripgrep in the real sandbox."""

    def __init__(self, folder: Path, *, persons_folder: bool = False):
        self.root = folder / "workspace"
        self.root.mkdir(parents=True)
        (folder / "outside.py").write_text(SECRET)
        self.tools = ToolRegistry(toolset("code"), ToolContext(workspace=self.root, persons_folder=persons_folder))

    def add(self, path: str, text: str) -> None:
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text)

    def search(self, pattern: str, **more: object) -> ToolResult:
        return self.tools.execute(ToolCall(name="search_codebase", arguments={"pattern": pattern, **more}))


@pytest.fixture
def code(tmp_path: Path) -> Code:
    if shutil.which("rg") is None:
        pytest.skip("ripgrep is not installed")
    code = Code(tmp_path)
    if code.search("x").error_type == "no_sandbox":
        pytest.skip("no sandbox works on this machine")
    return code


def test_a_plain_text_is_found_with_path_and_line(code: Code) -> None:
    code.add("lib/budget.py", "import x\n\n    def reserve(self):\n")
    code.add("main.py", "RESERVED = reserve(1)\n")
    assert code.search("reserve(").data == (
        "2 matches:\nlib/budget.py:3: def reserve(self):\nmain.py:1: RESERVED = reserve(1)"
    )
    assert code.search("RESERVE", directory="lib").data == "no match"  # with capitals, they count
    assert code.search("reserved").data == "1 match:\nmain.py:1: RESERVED = reserve(1)"
    for more in ({"directory": "lib"}, {"path": "./lib/"}, {"directory": "/workspace/lib"}):
        assert code.search("reserve(", **more).data == "1 match:\nlib/budget.py:3: def reserve(self):"
    assert code.search(r"def \w+\(", regex=True).data == "1 match:\nlib/budget.py:3: def reserve(self):"
    assert code.search(r"def \w+\(").data == "no match"


@pytest.mark.parametrize("pattern", ["-x", "--pre=./p.sh", "-f/etc/passwd", "--", "-e", "*.py", "$(id)", "a:b", "\t"])
def test_a_pattern_is_never_an_option(code: Code, pattern: str) -> None:
    code.add("p.sh", "#!/bin/sh\ntouch ran\n")
    (code.root / "p.sh").chmod(0o755)
    code.add("a.txt", f"root [{pattern}] here\n")
    assert code.search(pattern).data.split("\n")[0] == "1 match:"
    assert code.search(f"{pattern} is not there").data == "no match"
    assert sorted(path.name for path in code.root.iterdir()) == ["a.txt", "p.sh"]


@pytest.mark.parametrize("directory", ["--hostname-bin=./p.sh", "-f", "../", "/etc", ".git", "link", "~", "a\0"])
def test_a_directory_is_never_an_option_and_never_leads_out(code: Code, directory: str, tmp_path: Path) -> None:
    (code.root / "link").symlink_to(tmp_path)
    (code.root / "--hostname-bin=." / "p.sh").mkdir(parents=True)
    for name in ("directory", "path"):
        assert refused(code.search("secret", **{name: directory}))
    assert code.search("secret").data == "no match"


def test_what_is_ignored_hidden_or_linked_is_not_searched(code: Code, tmp_path: Path) -> None:
    for path in ("build/out.py", ".env", ".git/config", "seen.py"):
        code.add(path, SECRET)
    code.add(".gitignore", "build/\n")
    (code.root / "link.py").symlink_to(tmp_path / "outside.py")
    assert code.search("secret").data == f"1 match:\nseen.py:1: {SECRET}"


@pytest.mark.parametrize("ignoring", [".ignore", ".rgignore", ".gitignore", "lib/.ignore"])
def test_no_ignore_file_calls_back_what_is_private(code: Code, ignoring: str) -> None:
    private = [".env", ".ENV", ".env.local", ".git/config", "lib/.ssh/id_rsa", "lib/.Env", "lib/deep/.netrc"]
    for path in (*private, "seen.py", ".seen"):
        code.add(path, SECRET)
    code.add(ignoring, "".join(f"!{name}\n" for name in (".*", ".env", ".ENV", ".git", ".ssh", "**/.ssh/**", "*")))
    assert not any(name in code.search("secret").data for name in (".e", ".E", ".git", ".ssh", ".netrc"))
    assert "seen.py:1: " in code.search("secret").data
    assert ".env" not in code.search("secret", directory="lib").data


def test_in_a_persons_folder_no_key_is_searched(code: Code, tmp_path: Path) -> None:
    own = Code(tmp_path / "own", persons_folder=True)
    for place in (code, own):
        for path in (".aws/credentials", "deep/ID_RSA", "server.pem", "a.key", "seen.py"):
            place.add(path, SECRET)
        place.add(".ignore", "!*\n!.*\n!.aws\n")
    assert own.search("secret").data == f"1 match:\nseen.py:1: {SECRET}"
    assert str(code.search("secret").data).startswith("5 matches:")


def test_a_name_with_a_line_end_passes_for_no_other_path(code: Code) -> None:
    code.add("x\nreal.py", SECRET)
    code.add("y\n.py\n3:z.py", SECRET)
    assert code.search("secret").data == f"2 matches:\nx\ufffdreal.py:1: {SECRET}\ny\ufffd.py\ufffd3:z.py:1: {SECRET}"


def test_a_configuration_file_of_the_persons_is_not_read(code: Code, monkeypatch: pytest.MonkeyPatch) -> None:
    code.add("rc", "--invert-match\n")
    monkeypatch.setenv("RIPGREP_CONFIG_PATH", str(code.root / "rc"))
    code.add("a.py", "needle\nhay\n")
    assert code.search("needle").data == "1 match:\na.py:1: needle"


def test_a_flood_is_cut_short(code: Code) -> None:
    for number in range(40):
        code.add(f"{number:02}.py", "\n".join(f"x.{line} \x1b[2J{'y' * 400}" for line in range(200)))
    result = code.search(".")
    lines = result.data.split("\n")
    assert result.truncated
    assert lines[0] == "15 matches:"
    assert [line.split(":")[0] for line in lines[1:16]] == ["00.py"] * 5 + ["01.py"] * 5 + ["02.py"] * 5
    assert all(len(line) <= len("00.py:5: ") + 120 and line.isprintable() for line in lines[1:])
    assert lines[16] == "[cut here: over 15 matches in all]"
    code.add("long.py", "\n".join(f"needle {'z' * 100_000}" for _ in range(6)))
    assert code.search("needle", directory=".").truncated


def test_no_pattern_takes_long_and_a_wrong_one_is_told(code: Code) -> None:
    code.add("a.txt", "a" * 3_000_000)
    assert code.search("(a+)+$b").data == "no match"
    assert code.search("(a+)+$b", regex=True).data == "no match"
    assert code.search("(a", regex=True).error == (
        "The pattern is no regular expression here: regex parse error:     (a     ^ error: unclosed group"
    )
    for pattern in ("a\nb", "a\0"):
        assert refused(code.search(pattern), "bad_pattern")


def test_without_ripgrep_the_command_that_mends_it_is_told(code: Code, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent.tools.search_codebase._WHERE", str(code.root))
    result = code.search("x")
    assert refused(result, "missing_program")
    assert "apt-get install ripgrep" in (result.error or "")


def test_what_it_prints_is_read_whatever_it_is() -> None:
    printed = b"./a\xff\x00" + b"3:b:c\nwarning\nx\n\x00\n./d\x00y:z\n./e\x0012\n./f\x001:\n"
    assert [(match.path, match.number, match.line) for match in matches(printed)] == [
        ("a\N{REPLACEMENT CHARACTER}", "3", "b:c"),
        ("f", "1", ""),
    ]
    assert matches(b"./a\x001:x\n./d\ne\x003:w") == [Match("a", "1", "x"), Match("d\ne", "3", "w")]
