"""Attacks carried out: each component of Shoestring's, driven the way a run drives it, and what harm came of it.

`RUNS` names every component that is known; `run_case` takes one case through it.
"""

from __future__ import annotations

import io
import json
import re
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from agent.config import environment_of_programs
from agent.errors import UsageError
from agent.state import ToolCall, ToolResult
from agent.tools.execute_code import ExecuteCode
from agent.tools.mcp.config import read_servers
from agent.tools.mcp.tools import McpToolsets
from agent.tools.query_pdf import QueryPdf
from agent.tools.registry import TOOLSETS, AnyTool, ToolRegistry, toolset
from cli.terminal import TerminalReporter, make_console
from evals.cases import load_suite
from evals.report import render_report
from evals.store import TraceStore
from evals.traces import load
from tests import support_attack_store as disks
from tests.support_attack_fixtures import world
from tests.support_attacks import CANARY, KEY, SECRET, Case, World, weather_asked
from tests.support_foreign import said
from tests.support_traces import genuine, judged

BRIEF = 2.0  # seconds for what is meant to be stopped, or has no end of its own
GRACE = 6.0  # more than a tool's own limit, on a machine that is busy
PAGES = {"fetch_url", "fetch_url_markdown", "browse"}
ABSENT = {"no_sandbox", "missing_program", "missing_extra", "no_browser"}
SERVERS = Path(__file__).resolve().parent / "mcp_servers"
MISBEHAVES = {"crash": "exit", "nonjson": "garbage", "non-json": "garbage", "big": "huge", "loop": "hang"}
HOSTILE = ("exit", "hang", "garbage", "huge", "binary", "form", "flood", "error", "stubborn")
ENVIRONMENT_OF_SERVERS = {"PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR"}
# What a terminal acts on: controls but for tabs and line ends, and what reorders or hides.
ACTIVE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]"
)
STYLES = re.compile(r"\x1b\[[0-9;]*m")
LIVE_MARKUP = re.compile(r"<[A-Za-z/!]|javascript:|vbscript:|data:text|!\[", re.IGNORECASE)
FRAMED = re.compile(
    r"\ABetween the two lines with ([0-9a-f]{8}) stands data .*\n--- begin \1 ---\n.*\n--- end \1 ---", re.DOTALL
)
# What a person is told in words when a suite is refused, and the short word for it.
FILE_FAULTS = (
    (r"aliases|larger than|nested deeper|nesting depth|more than [\d,]+ values|is too long", "too_large"),
    ("tags", "forbidden_tag"),
)


@dataclass
class Outcome:
    """What came of a case. `harm` says what was done that must not be; `limit` is how long it may have taken; `unset`
    is a fixture that nothing here can set up."""

    success: bool
    text: str
    error_type: str | None = None
    truncated: bool = False
    seconds: float = 0.0
    limit: float = 15.0
    harm: list[str] = field(default_factory=list)
    unset: str = ""

    @classmethod
    def of(cls, result: ToolResult, limit: float) -> Outcome:
        text = str(result.data or "") if result.success else str(result.error)
        return cls(result.success, text, result.error_type, result.truncated, result.seconds, limit)


class _Tty(io.StringIO):
    def isatty(self) -> bool:
        return True


def run_case(case: Case) -> Outcome:
    """Carry out one case in a world of its own.

    Raises:
        pytest.skip.Exception: its component does not exist, or this machine lacks a part that it needs.
    """
    run = run_tool if tool_class(case.tool) else RUNS.get(case.tool)
    if run is None or (case.tool == "report" and "csv" in case.id):
        pytest.skip(f"{case.id}: there is no {'CSV export' if run else case.tool} yet")
    with tempfile.TemporaryDirectory(prefix="attack-", ignore_cleanup_errors=True) as name:
        folder = Path(name).resolve()
        folder.chmod(0o711)  # a program of another user reaches its workspace below it
        with world(folder, case) as made:
            before = outside(made)
            outcome = run(made)
            outcome.harm += harm(made, outcome, before)
    if not made.understood:
        outcome.unset = case.fixture
    if outcome.error_type in ABSENT and case.must != f"error_type:{outcome.error_type}":
        pytest.skip(f"{case.id}: {outcome.error_type}: {outcome.text}")
    return outcome


def outside(made: World) -> dict[str, tuple[int, int]]:
    """All that stands beside the workspace: sizes and times of change."""
    found = {}
    for path in made.folder.rglob("*"):
        if made.workspace not in (path, *path.parents):
            status = path.lstat()
            found[str(path.relative_to(made.folder))] = (status.st_size, status.st_mtime_ns if path.is_file() else 0)
    return found


def harm(made: World, outcome: Outcome, before: dict[str, tuple[int, int]]) -> list[str]:
    """What was reached, changed, shown or left that must not be."""
    found = made.trap.reached()
    if outside(made) != before:
        found.append("something beside the workspace changed")
    found += [f"it shows {what!r}" for what in (SECRET, KEY, CANARY, "root:x:", "root:*:") if what in outcome.text]
    if (made.workspace / "ran").exists():
        found.append("a program of the workspace ran")
    if outcome.seconds > outcome.limit + GRACE:
        found.append(f"it took {outcome.seconds:.1f} s")
    return found


# -- tools ------------------------------------------------------------------------------------------------------------


def tool_class(name: str) -> type[AnyTool] | None:
    return next((tool for tools in TOOLSETS.values() for tool in tools if tool.name == name), None)


def run_tool(made: World) -> Outcome:
    """A tool by its registry, in a real context."""
    case, arguments = made.case, dict(made.case.args)
    if isinstance(arguments.get("url"), str):
        arguments["url"] = made.address(arguments["url"])
    if made.kills:
        return disks.killed_writes(made)
    tool, times = _tool(case), 200 if made.swapped else 1
    with closing(ToolRegistry([tool], made.context())) as tools:
        if case.tool == "execute_code":
            return _program(made, tools, arguments, BRIEF if _is_brief(case) else tool.timeout_seconds)
        if case.tool == "browse" and arguments.get("action") != "open":
            first = {"action": "open", "url": made.address("http://pub.test/")}
            tools.execute(ToolCall(name="browse", arguments=first))
        results = [tools.execute(ToolCall(name=case.tool, arguments=arguments)) for _ in range(times)]
    # Where something changes meanwhile, one success among many is the one that counts.
    outcome = Outcome.of(next((each for each in results if each.success), results[-1]), tool.timeout_seconds)
    outcome.harm += weather_asked(made) if case.tool == "get_weather" else []
    outcome.harm += _of_a_page(made, outcome) if case.tool in PAGES else []
    return outcome


def _tool(case: Case) -> AnyTool:
    if case.tool == "query_pdf" and case.must == "error_type:timeout":
        return QueryPdf(parse_seconds=BRIEF)
    if case.tool == "execute_code":
        return ExecuteCode(BRIEF if _is_brief(case) else ExecuteCode.timeout_seconds)
    found = tool_class(case.tool)
    assert found is not None
    return found()


def _is_brief(case: Case) -> bool:
    """Whether a program is given less time than it usually has: it is meant to be stopped, or may have no end."""
    return case.must in ("error_type:timeout", "contain")


def _of_a_page(made: World, outcome: Outcome) -> list[str]:
    """What a page did that it must not, and whether a request went astray."""
    found = []
    if outcome.success and "no text" not in outcome.text and not FRAMED.match(outcome.text):
        found.append(f"foreign text without its frame: {outcome.text[:100]!r}")
    if made.case.must == "escape" and (live := LIVE_MARKUP.search(outcome.text.partition("--- begin")[2])):
        found.append(f"markup that acts: {live[0]!r}")
    host = re.match(r"(?i)https?://([^/?#:]+)", str(made.case.args.get("url", "")))
    if made.case.must == "refuse" and (host is None or host[1] not in made.allowed) and made.site.asked:
        found.append(f"the inside was asked for {made.site.asked[0]}")
    if any(KEY in path for path in made.site.asked):
        found.append("a secret was sent")
    if any(path.suffix == ".sh" and path.name != "p.sh" for path in made.workspace.rglob("*")):
        found.append("a download was saved")
    return found


def _program(made: World, tools: ToolRegistry, arguments: dict[str, Any], seconds: float) -> Outcome:
    """A program, with the places it goes to replaced by traps; then the file tools go over what it left."""
    code = str(arguments.get("code", "")).replace("/var/run/docker.sock", made.trap.path)
    arguments["code"] = re.sub(r"('127\.0\.0\.1',\s*)\d+", rf"\g<1>{made.trap.port}", code)
    outcome = Outcome.of(tools.execute(ToolCall(name="execute_code", arguments=arguments)), seconds)
    outcome.harm += _left_running(made.workspace) + _planted(made)
    shown = _on_a_terminal(outcome.text)
    if ACTIVE.search(shown):
        outcome.harm.append("a terminal would act on what was printed")
    json.loads(ToolResult(success=True, data=outcome.text).model_dump_json())
    return outcome


def _left_running(workspace: Path) -> list[str]:
    """Processes that still stand in the workspace, or have it mounted."""
    found, own = [], workspace.stat()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            where = (process / "cwd").stat()
            mounts = (process / "mountinfo").read_text()
        except OSError:
            continue
        if (where.st_dev, where.st_ino) == (own.st_dev, own.st_ino) or str(workspace) in mounts:
            found.append(f"process {process.name} is left")
    return found


def _planted(made: World) -> list[str]:
    """What the tools that run outside of the sandbox make of the files that a program left."""
    tools, found = ToolRegistry(toolset("fs"), made.context()), []
    started = time.monotonic()
    for path in sorted(made.workspace.rglob("*"))[:50]:
        name = str(path.relative_to(made.workspace))
        result = tools.execute(ToolCall(name="read_file", arguments={"path": name}))
        ordinary = path.is_file() and not path.is_symlink()
        if result.success != ordinary or SECRET in str(result.data):
            found.append(f"read_file of {name!r} gave {result.error_type or 'its text'}")
    tools.execute(ToolCall(name="list_directory", arguments={"recursive": True}))
    if time.monotonic() - started > GRACE:
        found.append("a file that it left held up the tools")
    return found


# -- what a person sees -----------------------------------------------------------------------------------------------


def _on_a_terminal(text: str) -> str:
    """What a terminal is sent of a text, in every place that a run shows one; without rich's own styles."""
    stream = _Tty()
    reporter = TerminalReporter(make_console(stream))
    call = ToolCall(name=text, arguments={text: text})
    reporter.text(text)
    reporter.act(call)
    reporter.observe(call, ToolResult(success=True, data=text))
    reporter.observe(call, ToolResult(success=False, error=text, error_type=text))
    reporter.notice(text)
    return STYLES.sub("", stream.getvalue())


def run_cli_print(made: World) -> Outcome:
    """A text that a model wrote, on a terminal."""
    shown = _on_a_terminal(str(made.case.args["text"]))
    active = ACTIVE.search(shown)
    return Outcome(success=True, text=shown, harm=[f"a terminal acts on {active[0]!a}"] if active else [])


def run_report(made: World) -> Outcome:
    """A text that a model wrote, in a report; read as Markdown with HTML."""
    from tests.test_report import OUR_TAGS, hostile_run, read  # noqa: PLC0415  those tests' own way to read one

    report = render_report([hostile_run(str(made.case.args["cell"]))])
    page = read(report)
    found = [f"the report holds <{tag}>" for tag in page.tags.keys() - OUR_TAGS]
    found += [f"the report holds the attribute {name}" for name, _ in page.attributes if name != "class"]
    return Outcome(success=True, text=report, harm=found)


# -- suites, traces ---------------------------------------------------------------------------------------------------


def run_suite_loader(made: World) -> Outcome:
    """A suite file; an alias bomb that is only named is made."""
    text = str(made.case.args["file"])
    if "bomb" in text:
        layers = "".join(f"{chr(98 + n)}: &{chr(98 + n)} [{', '.join([f'*{chr(97 + n)}'] * 9)}]\n" for n in range(8))
        text = f"a: &a [{', '.join(['x'] * 9)}]\n{layers}"
    path = made.folder / "suite.yaml"
    path.write_text(text, encoding="utf-8")
    started = time.monotonic()
    try:
        suite = load_suite(path)
    except UsageError as error:
        said = str(error).removeprefix(str(path))
        kind = next((kind for words, kind in FILE_FAULTS if re.search(words, said)), "bad_file")
        outcome = Outcome(False, said, kind, seconds=time.monotonic() - started, limit=1.0)
    else:
        outcome = Outcome(True, str(suite), seconds=time.monotonic() - started, limit=1.0)
    path.unlink()
    return outcome


def run_trace_store(made: World) -> Outcome:
    """The traces folder: secrets, names, kills, other processes and full disks."""
    args, event = made.case.args, str(made.case.args.get("event", ""))
    made.workspace.joinpath("traces").mkdir()
    folder = made.workspace / "traces"
    if "text" in args:
        return _secret_text(folder, str(args["text"]))
    if "task_id" in args:
        return _names(folder, str(args["task_id"]).split(" / "))
    for word, run in disks.EVENTS.items():
        if word in event:
            said, found = run(folder, made.case.fixture)
            return Outcome(success=True, text=said, limit=60.0, harm=found)
    pytest.skip(f"{made.case.id}: nothing here knows the event {event!r}")


def _secret_text(folder: Path, text: str) -> Outcome:
    """A run in which a tool gave this text, kept, and read again as text."""
    state = genuine("completed")
    state.steps[0].results[0].data = text
    state.answer = f"{text} {disks.packed(text)}"
    with TraceStore(folder, (KEY,)) as store:
        path = store.write(state)
    return Outcome(success=True, text=path.read_text())


def _names(folder: Path, ids: Sequence[str]) -> Outcome:
    """Runs of tasks with these ids: each has a file of its own on every file system, and the id stands in it."""
    with TraceStore(folder) as store:
        paths = [store.write(judged(genuine("completed"), case_id=name)) for name in ids]
    names = {path.name.casefold() for path in paths}
    found = [] if len(names) == len(ids) else ["two runs share a file"]
    found += [f"{path.name} is no plain name" for path in paths if not re.fullmatch(r"[a-z0-9-]+\.json", path.name)]
    found += [f"{path.name} is reserved" for path in paths if path.stem in {"con", "nul", "aux", "prn", "com1"}]
    found += [] if [load(path).case_id for path in paths] == list(ids) else ["an id was lost"]
    found += [] if all(path.parent == folder for path in paths) else ["a file stands elsewhere"]
    return Outcome(success=True, text=" ".join(names), harm=found)


# -- MCP --------------------------------------------------------------------------------------------------------------


def run_mcp(made: World) -> Outcome:
    """A tool of a server's (`srv.NAME`), a name of ours that a server has too, or a server and what it is given."""
    pytest.importorskip("mcp", reason=f"{made.case.id}: the extra mcp is not installed")
    args = dict(made.case.args)
    name = str(args.pop("tool", "srv.surroundings"))
    server, dot, own = name.rpartition(".")
    does = MISBEHAVES.get(own, own)
    program = ["hostile.py", does] if dot and does in HOSTILE else ["notes.py"]
    offered = "crash" if program[0] == "hostile.py" else own
    listing = {"command": sys.executable, "args": [str(SERVERS / program[0]), *program[1:]], "timeout": BRIEF * 5}
    path = made.workspace / "mcp.json"
    path.write_text(json.dumps({"mcpServers": {server or "srv": listing}}))
    tools = McpToolsets(lambda: read_servers(path), environment_of_programs(), lambda _said: None).tools(
        server or "srv"
    )
    with closing(ToolRegistry([*tools], made.context())) as registry:
        called = f"mcp_{server}_{offered}" if dot else name
        given = {} if "server" in args else args
        result = registry.execute(ToolCall(name=called, arguments=given))
    outcome = Outcome.of(result, BRIEF * 5)
    if own == "surroundings":
        told = dict(line.partition("=")[::2] for line in said(result).splitlines())
        outcome.harm += [f"it was given {name}" for name in told.keys() - ENVIRONMENT_OF_SERVERS - {"cwd", "pid"}]
        outcome.harm += ["it runs in our folder"] if told.get("cwd") in {str(Path.cwd()), str(made.workspace)} else []
    outcome.harm += ["the server's tool has a name of ours"] if any(tool_class(tool.name) for tool in tools) else []
    return outcome


RUNS: dict[str, Callable[[World], Outcome]] = {
    "cli_print": run_cli_print,
    "report": run_report,
    "suite_loader": run_suite_loader,
    "trace_store": run_trace_store,
    "mcp": run_mcp,
}
