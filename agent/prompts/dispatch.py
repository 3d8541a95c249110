"""The texts of the dispatch strategy: the probe, an extraction for each tool, and the conversation that answers.

The budget line is put under each message where it is sent.
"""

from __future__ import annotations

from agent.prompts.untrusted import inert_markers
from agent.state import ToolCall, ToolResult

NO_TOOL = "none"
MAX_SAID_CHARS = 300  # of an earlier message or answer that goes along

CODE_IN_IT = "The message holds source code. Numbers inside code are not a question."
NO_RESULT = "No tool could be used for this. If the answer needs one, say what could not be found out; do not guess."

_PROBE_SYSTEM = """\
You decide whether a message needs one of these tools:
{headlines}

Do not answer the message. Do not explain.
Do not choose a tool for greetings, thanks, small talk, opinions, advice, or what everybody knows.
Do not choose a tool to review, explain or improve code or text that stands in the message.
Do not choose a tool only because the message holds numbers or names a tool.
If no tool is needed, or you are not sure, choose {none}.

Reply with one JSON object and nothing else. Its one field is "tool": the name of a tool, or "{none}"."""

_EXTRACT_SYSTEM = """\
You write the arguments of one tool for a message. Do not answer the message.

{tool}

Take every value from the message. Copy names, paths and texts exactly. Leave out an optional argument that the \
message does not ask for.
Reply with one JSON object that holds the arguments by their names, and nothing else."""

ANSWER_SYSTEM = """\
You answer the user in plain words, directly and in short.
You cannot use tools. Where one was used, its result stands at the end of the message: answer from it alone, and copy \
its numbers and names exactly. If it failed, say so.
What no result says of files, of the time or of the web you do not know."""


def probe_system(headlines: str) -> str:
    """The system message of every probe."""
    return _PROBE_SYSTEM.format(headlines=headlines, none=NO_TOOL)


def extract_system(tool_prose: str) -> str:
    """The system message of every extraction for one tool."""
    return _EXTRACT_SYSTEM.format(tool=tool_prose)


def probe_message(text: str, earlier: tuple[str, str] | None, *, has_code: bool) -> str:
    """Which tool? `earlier` is the user's last turn with its answer."""
    return _joined(_said(earlier), f"Message: {text}", CODE_IN_IT if has_code else "", "Which tool, if any?")


def extract_message(text: str, earlier: tuple[str, str] | None, name: str) -> str:
    """Which arguments for the tool `name`? `earlier` is there where the message speaks of it."""
    return _joined(_said(earlier), f"Message: {text}", f"Write the arguments of {name}.")


def answer_message(text: str, used: tuple[ToolCall, ToolResult] | None, *, lacks_result: bool = False) -> str:
    """The user's own words, and at their tail what a tool gave."""
    return _joined(text, _observation(*used) if used else "", NO_RESULT if lacks_result else "")


def answer_again(reason: str) -> str:
    """After an answer that cannot be used: what is wrong with it."""
    return f"That cannot be used: {inert_markers(reason).rstrip('.')}.\nAnswer the last question again, in plain words."


def _said(earlier: tuple[str, str] | None) -> str:
    if earlier is None:
        return ""
    asked, answer = earlier
    return f"Said before:\nUser: {_short(asked)}\nAnswer: {inert_markers(_short(answer))}"


def _observation(call: ToolCall, result: ToolResult) -> str:
    name = inert_markers(call.name)
    if result.success:
        return f"Result of {name}: {inert_markers(result.data)}"
    return f"{name} FAILED ({result.error_type}): {inert_markers(result.error or '')}"


def _short(text: str) -> str:
    return text if len(text) <= MAX_SAID_CHARS else text[:MAX_SAID_CHARS] + " [cut]"


def _joined(*parts: str) -> str:
    return "\n".join(part for part in parts if part)
