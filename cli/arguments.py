"""The command lines, and nothing else: `--help` must be quick, so this module imports little more than argparse.

Values that a setting has are passed on as they were typed: Settings checks them, so that a flag and a line in `.env`
are refused in the same words.
"""

from __future__ import annotations

import argparse
from typing import NoReturn

from agent.errors import UsageError

MAIN_EPILOG = """\
subcommands (main.py SUBCOMMAND --help):
  chat [MESSAGE]      talk to a model at the terminal, within one budget
  report [DIR]        write test_results.md from the traces of the latest batch
  verify PATH...      recompute every cap from the traces alone; exit 1 where one was broken
  replay TRACE        run a trace again without a model; report the first step that differs
  show TRACE          the run as a person reads it
  mcp-serve           offer Shoestring's own tools to other programs, over the Model Context Protocol
  models              what each backend that answers has to offer
  doctor              what is missing on this machine, and the command that mends it

A task that is one of these words needs -- before it: main.py -- report

exit codes: 0 completed or all passed, 1 some did not, 2 wrong usage or configuration,
3 the backend or the machine failed (the run is invalid), 70 a bug of Shoestring (traceback in its log),
130 interrupted (what was done is kept)
"""

SUITE_EPILOG = """\
exit codes: 0 all passed, 1 some did not, 2 wrong usage or configuration, 3 any run invalid (backend or machine),
70 a bug of Shoestring (traceback in its log), 130 interrupted (finished runs are kept)
"""


STRATEGIES_LISTED = "react, native, pipeline, two_phase, dispatch, auto"
TOOLSETS_LISTED = "core, fs, code, web, pdf, browser"
APPROVE_HELP = (
    "what is done with calls of an effect (read, write, execute, network) or a tool: write=ask, execute_code=deny;"
    " allow, ask or deny"
)
SANDBOX_HELP = (
    "what isolates programs: bubblewrap, landlock, or external (nothing: this machine may be lost); default: auto, the"
    " first of them that works"
)


class Parser(argparse.ArgumentParser):
    """argparse, but a wrong flag is one UsageError instead of a page, and no flag is guessed from its beginning."""

    def __init__(self, prog: str, description: str, epilog: str | None = None) -> None:
        super().__init__(
            prog=prog,
            description=description,
            epilog=epilog,
            allow_abbrev=False,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )

    def error(self, message: str) -> NoReturn:
        """Refuse in one line.

        Raises:
            UsageError: always.
        """
        hint = " (a task of several words goes in quotes)" if message.startswith("unrecognized") else ""
        raise UsageError(f"{message}{hint}; see {self.prog} --help")


def task_parser() -> Parser:
    """main.py "TASK"."""
    parser = Parser(
        "main.py",
        "Run one task through a local model acting as an agent, within a hard budget, and leave one trace.",
        MAIN_EPILOG,
    )
    parser.add_argument("task", nargs="?", metavar="TASK", help="what to do, in quotes; - reads it from standard input")
    parser.add_argument("--all-tests", action="store_true", help="run every suite in suites/, as run_tests.py does")
    parser.add_argument("--json", action="store_true", help="print one JSON object on standard output, nothing else")
    add_model_flags(parser)
    _add_run_flags(parser)
    return parser


def chat_parser() -> Parser:
    """main.py chat."""
    parser = Parser(
        "main.py chat",
        "Talk to a local model. A chat is one run: its caps hold for all of it, and it leaves one trace.\n"
        "/quit or Ctrl-D ends it, /help lists what else there is. Where the input is no terminal, its lines are"
        " messages.",
        "exit codes: 0 the person ended it, 1 the budget or a loop did, 2 wrong usage or configuration,\n"
        "3 the backend or the machine failed, 130 interrupted (what was said is kept)",
    )
    parser.add_argument("message", nargs="?", metavar="MESSAGE", help="what to say first; else it is asked for")
    add_model_flags(parser)
    _add_run_flags(parser)
    return parser


def _add_run_flags(parser: Parser) -> None:
    """What a single run is given beside its model."""
    parser.add_argument(
        "--toolset", metavar="NAME", help=f"the tools: {TOOLSETS_LISTED}, mcp:NAME; several with commas (default: core)"
    )
    parser.add_argument("--workspace", metavar="DIR", help="work in this folder of yours: reads it, asks before writes")
    parser.add_argument("--traces", metavar="DIR", help="where the trace is written (default: traces)")
    add_color_flag(parser)


def suite_parser() -> Parser:
    """run_tests.py [SUITE ...]."""
    parser = Parser(
        "run_tests.py",
        "Run suites of tasks, each run within a hard budget; leave a trace a run, and test_results.md.",
        SUITE_EPILOG,
    )
    parser.add_argument("suite", nargs="*", metavar="SUITE", help="suite files (default: suites/core.yaml)")
    parser.add_argument("--only", action="append", metavar="ID", help="only cases whose id matches (may hold * and ?)")
    parser.add_argument("--jobs", type=_count, default=1, metavar="N", help="runs at a time (default: 1)")
    parser.add_argument("--epochs", type=_count, metavar="N", help="how often each case is run (default: as it says)")
    parser.add_argument("--out", metavar="DIR", help="where the traces are written (default: traces)")
    parser.add_argument("--report", default="test_results.md", metavar="FILE", help="default: test_results.md")
    add_model_flags(parser, several=True)
    parser.add_argument("--max-batch-cost", metavar="USD", help="simulated US dollars for all the runs together")
    add_color_flag(parser)
    return parser


def add_model_flags(parser: Parser, *, several: bool = False) -> None:
    """What decides which model is driven how, within which caps; each overrides a setting of .env.example.

    With `several`, each case is run with every one of several strategies and models.
    """
    name, more = ("NAME,...", "; several: each case with each") if several else ("NAME", "")
    parser.add_argument("--backend", metavar="NAME", help="auto, ollama, openai, embedded, scripted (default: auto)")
    parser.add_argument("--model", metavar=name, help=f"the model's name; for embedded, a GGUF file{more}")
    parser.add_argument("--strategy", metavar=name, help=f"{STRATEGIES_LISTED} (default: react){more}")
    parser.add_argument("--approve", action="append", metavar="RULE", help=APPROVE_HELP)
    keep = "keep the files of every run's folder, in the folder workspaces beside its trace; else only where it failed"
    parser.add_argument("--keep-workspaces", action="store_true", default=None, help=keep)
    parser.add_argument("--sandbox", metavar="NAME", help=SANDBOX_HELP)
    parser.add_argument("--max-calls", metavar="N", help="calls to the model a run may make (default: 10)")
    parser.add_argument("--max-cost", metavar="USD", help="simulated US dollars a run may cost (default: 0.20)")
    parser.add_argument("--seed", metavar="N", help="where sampling starts (default: 7)")
    parser.add_argument("--temperature", metavar="T", help="0 to 2 (default: 0)")
    parser.add_argument("--scripted", metavar="FILE", help="JSON replies for --backend scripted (docs/suites.md)")
    add_mcp_flag(parser)
    add_plugin_flag(parser)


def add_mcp_flag(parser: Parser) -> None:
    """Where the tools of an MCP server may be asked for."""
    text = "the list of MCP servers, whose tools are the toolsets mcp:NAME (default: mcp.json)"
    parser.add_argument("--mcp-config", metavar="FILE", help=text)


def add_plugin_flag(parser: Parser) -> None:
    """Where a tool or a strategy of the person's own may be needed."""
    text = "a Python file of your own that registers tools or strategies; may be given again"
    parser.add_argument("--plugin", action="append", metavar="FILE", help=text)


def add_color_flag(parser: Parser) -> None:
    """Every command can be told to be plain."""
    parser.add_argument("--no-color", action="store_true", help="no colours (NO_COLOR in the environment does it too)")


def report_parser() -> Parser:
    """main.py report."""
    parser = Parser("main.py report", "Write the report of a batch from its traces alone; the same bytes every time.")
    parser.add_argument("dir", nargs="?", metavar="DIR", help="folder of traces (default: traces)")
    parser.add_argument(
        "--out", default="test_results.md", metavar="FILE", help="default: test_results.md; - prints it"
    )
    parser.add_argument("--batch", metavar="ID", help="which batch (default: the latest)")
    return parser


def verify_parser() -> Parser:
    """main.py verify."""
    parser = Parser(
        "main.py verify",
        "Recompute every cap from traces alone and say whether the runs kept them. This checks that a trace is\n"
        "consistent; it cannot know who wrote the file.",
        "exit codes: 0 all caps kept, 1 one was broken, or a trace contradicts itself or cannot be read\n"
        "(with --strict: or was not replayed), 2 a path is not there",
    )
    parser.add_argument("path", nargs="+", metavar="PATH", help="trace files, or folders of them")
    parser.add_argument(
        "--strict", action="store_true", help="a trace that cannot be replayed (of another version) counts as broken"
    )
    add_plugin_flag(parser)
    return parser


def replay_parser() -> Parser:
    """main.py replay."""
    parser = Parser(
        "main.py replay",
        "Run a trace again, its recorded replies in place of the model, and report the first step that differs.",
        "exit codes: 0 nothing differs, 1 a step differs, 2 the trace cannot be read",
    )
    parser.add_argument("trace", metavar="TRACE", help="a trace file")
    live = "run the tools again as well, under your own rules: those in the trace count for nothing"
    parser.add_argument("--live-tools", action="store_true", help=live)
    parser.add_argument("--approve", action="append", metavar="RULE", help=f"with --live-tools: {APPROVE_HELP}")
    parser.add_argument("--corpus", metavar="DIR", help="with --live-tools: the folder that web_search reads")
    add_mcp_flag(parser)
    add_plugin_flag(parser)
    add_color_flag(parser)
    return parser


def show_parser() -> Parser:
    """main.py show."""
    parser = Parser("main.py show", "Show a run as a person reads it.")
    parser.add_argument("trace", metavar="TRACE", help="a trace file")
    parser.add_argument("--md", action="store_true", help="as Markdown")
    add_color_flag(parser)
    return parser


def mcp_serve_parser() -> Parser:
    """main.py mcp-serve."""
    parser = Parser(
        "main.py mcp-serve",
        "Offer Shoestring's own tools to another program, over the Model Context Protocol: on standard input and\n"
        "output, or over streamable HTTP on this machine alone. Nobody can be asked about a call, so what would be\n"
        "asked about is refused unless --approve allows it.",
        "exit codes: 0 the client ended it, 2 wrong usage or configuration, 130 interrupted",
    )
    parser.add_argument("--toolset", metavar="NAME", help=f"the tools: {TOOLSETS_LISTED}; several with commas")
    parser.add_argument("--workspace", metavar="DIR", help="the folder of the file tools (default: a fresh one)")
    parser.add_argument("--http", metavar="HOST:PORT", help="serve on this address of the loopback; port 0 takes any")
    parser.add_argument("--approve", action="append", metavar="RULE", help=APPROVE_HELP)
    parser.add_argument("--sandbox", metavar="NAME", help=SANDBOX_HELP)
    add_plugin_flag(parser)
    return parser


def models_parser() -> Parser:
    """main.py models."""
    parser = Parser("main.py models", "List the models of each backend that answers.")
    add_color_flag(parser)
    return parser


def doctor_parser() -> Parser:
    """main.py doctor."""
    parser = Parser(
        "main.py doctor",
        "Check what a run needs, and name the command that mends what is missing.",
        "exit codes: 0 a run can start, 3 something it needs is missing",
    )
    parser.add_argument("--backend", metavar="NAME", help="check this backend (default: LLM_BACKEND)")
    parser.add_argument("--model", metavar="NAME", help="check this model (default: LLM_MODEL)")
    add_color_flag(parser)
    return parser


def _count(text: str) -> int:
    """A whole number from 1 to 1000."""
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:5]) <= 1000):
        raise argparse.ArgumentTypeError(f"must be a whole number from 1 to 1000, not {text!r:.40}")
    return int(text)
