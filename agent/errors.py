"""Every error that crosses a room, and whose fault each one is.

ShoestringError
├── UsageError            the person's: bad flag, setting, suite or file   -> one line, exit 2
├── BudgetExceededError   nobody's: a cap was reached before a call        -> the run ends with its partial answer
│   └── OnlyAnswerLeftError   the next call must be the final answer
├── ModelError            the model's: a reply that cannot be used         -> an observation for the model, scored
│   └── ToolCallError         one tool call of it: says which tool, and what is missing or was meant
├── BackendError          the server's or the machine's                    -> the run is invalid, never scored, exit 3
│   ├── NotSentError      nothing left this process: the reservation is given back
│   └── RequestError      the server says our request was wrong (our bug); invalid, and logged
├── CancelledRunError     the person asked to stop                         -> the run ends with its partial answer
├── ReplayMismatchError   a replayed run asked for something the trace does not hold
└── StoreError            the disk: a trace or the store cannot be written -> stop taking tasks, exit 3

Anything else that is raised is a bug of ours and crashes with its traceback.
"""

from __future__ import annotations

from typing import Literal

ModelErrorType = Literal[
    "not_json",
    "schema_mismatch",
    "truncated",
    "empty_reply",
    "thinking_only",
    "model_tool_parse_failed",
    "repetition",
    "unknown_tool",
    "bad_arguments",
    "missing_arguments",
    "malformed_tool_call",
]

BackendErrorType = Literal[
    "unreachable",
    "model_not_found",
    "tools_unsupported",
    "thinking_unsupported",
    "server_busy",
    "out_of_memory",
    "server_error",
    "proxy_error",
    "forbidden",
    "unauthorized",
    "not_found",
    "context_overflow",
    "prompt_truncated",
    "request_invalid",
    "stream_error",
    "stream_incomplete",
    "empty_load",
    "bad_reply",
    "deadline",
]


class ShoestringError(Exception):
    """The root: catch this to say something in one line instead of a traceback."""


class UsageError(ShoestringError):
    """Bad input from a person. The message says what is wrong, where, and how to mend it, in one line."""


class BudgetExceededError(ShoestringError):
    """A cap would be passed by the call that was asked for; nothing was sent.

    `cap` names it: calls, cost, seconds, context (the model's window), or overshoot (the server counted more than it
    was allowed, so the run may not go on). `scope` is "run", or "batch" where a parent's cap refused; the message then
    says so, since a trace holds nothing else of its batch.
    """

    def __init__(
        self,
        cap: Literal["calls", "cost", "seconds", "context", "overshoot"],
        message: str,
        scope: Literal["run", "batch"] = "run",
    ):
        super().__init__(message if scope == "run" else f"{message} ({scope})")
        self.cap = cap
        self.scope = scope


class OnlyAnswerLeftError(BudgetExceededError):
    """What is left pays for one final answer and not for a further action; ask for the answer instead."""


class ModelError(ShoestringError):
    """The model's reply cannot be used. It was paid for; the model is told, and the run goes on.

    `detail` narrows the type (for `truncated`: "thinking" when the whole cap went into thinking).
    """

    def __init__(self, error_type: ModelErrorType, message: str, *, detail: str | None = None):
        super().__init__(message)
        self.error_type: str = error_type
        self.detail = detail
        self.retry = False


class ToolCallError(ModelError):
    """A tool call that cannot be made: unknown_tool, bad_arguments, missing_arguments or malformed_tool_call.

    `tool` is the name the model gave, `missing` the required arguments it left out, `suggest` the offered tool whose
    name is nearest to an unknown one (a hint for the model; nothing is run on a guess).
    """

    def __init__(
        self,
        error_type: ModelErrorType,
        message: str,
        *,
        tool: str | None = None,
        missing: tuple[str, ...] = (),
        suggest: str | None = None,
        detail: str | None = None,
    ):
        super().__init__(error_type, message, detail=detail)
        self.tool = tool
        self.missing = missing
        self.suggest = suggest


class BackendError(ShoestringError):
    """The server or the machine failed. The run is invalid: it says nothing about the model.

    `retry` is True only where the fault may heal by itself (shared facts of Ollama's wire: a full queue, a crashed
    runner, a gateway). `detail` narrows the type.
    """

    def __init__(self, error_type: BackendErrorType, message: str, *, retry: bool = False, detail: str | None = None):
        super().__init__(message)
        self.error_type: str = error_type
        self.retry = retry
        self.detail = detail


class NotSentError(BackendError):
    """The request never left (connection refused, name not found): the reservation is given back."""


class RequestError(BackendError):
    """The server refused our request as malformed. A bug of ours or a server we do not understand."""


class CancelledRunError(ShoestringError):
    """The person asked to stop; raised between calls, never in the middle of one."""


class ReplayMismatchError(ShoestringError):
    """A replayed run made a request that the trace does not hold at this place; the message shows the difference."""


class StoreError(ShoestringError):
    """A trace or the store could not be written (disk full, no permission): no further task may start."""
