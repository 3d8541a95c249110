"""The trace: AgentState and all it holds. Shared types on one page; start reading here.

One run leaves one AgentState, written to `traces/*.json`. Amounts of money are integer micro-dollars (1 USD =
1,000,000), durations are seconds, counts are tokens as the server counted them (None: it did not say). Whatever the
model wrote is kept as it came; nothing in here is escaped, whoever shows it escapes it.
"""

from __future__ import annotations

import hashlib
import json
from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

SCHEMA_VERSION = 2

Role = Literal["system", "user", "assistant", "tool"]
Status = Literal[
    "running",
    "completed",
    "budget_exhausted",
    "loop_detected",
    "confirmation_required",
    "timeout",
    "cancelled",
    "error",
]
Outcome = Literal["pass", "fail", "invalid"]
BoundKind = Literal["exact", "grown", "rendered", "sent_bytes"]
SettledAs = Literal["open", "counted", "unknown", "overshoot", "refunded"]
# What a call is for: an action or the answer of the model that is driven, or vectors of an embedding model.
Purpose = Literal["act", "answer", "embed"]
Permission = Literal["allow", "ask", "deny"]
# What may go wrong with a tool call between the model's mind and the tool.
ToolFault = Literal[
    "lost_by_server",  # tokens were written and nothing of them came back
    "in_text",  # the call stood in the text, or where none was asked for; the reader found it
    "wrong_name",
    "bad_arguments",
    "truncated",
    "thinking_ate_budget",
]


# Error types of results that the loop gives in a tool's stead; no tool may use one. Of the first kind the call was not
# made at all, so that it is none of those that a verdict counts; the others are calls that were made and refused.
NOT_MADE = frozenset({"repeated", "answer_only", "skipped", "out_of_time"})
LOOP_REFUSALS = NOT_MADE | {"prompt_bleed", "forbidden", "denied"}


class Record(BaseModel):
    """Base of all that stands in a trace: unknown fields are refused, so that a typo is never silently dropped."""

    model_config = ConfigDict(extra="forbid")


class ToolCall(Record):
    """A call the model asked for, after reading; `arguments` are as the model gave them, typed by the schema."""

    name: str
    arguments: dict[str, Any]
    id: str | None = None


class ToolResult(Record):
    """What a tool gave back. `data` is what the model is shown on success, `error` on failure."""

    success: bool
    data: str = ""
    error: str | None = None
    error_type: str | None = None
    seconds: float = 0.0
    truncated: bool = False


class Message(Record):
    """One message of a conversation, in the roles that every chat server knows."""

    role: Role
    content: str
    tool_calls: list[ToolCall] | None = None
    tool_name: str | None = None
    tool_call_id: str | None = None


class Usage(Record):
    """Tokens as the server counted them. None means that it did not say, which is never the same as zero."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None


class Timing(Record):
    """Where the time of a call went, in seconds. `load` is a cold model load and is kept apart from the rest."""

    total: float = 0.0
    load: float | None = None
    prompt: float | None = None
    completion: float | None = None


class LedgerEntry(Record):
    """One reservation and what became of it. `index` is the place in the run's ledger, from 0.

    `reserved_microusd` is the worst case taken before sending: the price of `prompt_tokens_bound` prompt tokens and
    `max_completion_tokens` completion tokens, at the prices that stand beside it. The answer that is kept back beside
    an action holds `answer_tokens_bound` of its prompt, where that is less than all. `settled_microusd` is what was
    charged. `shrunk_by` says whose money made the completion cap smaller than was asked for: the run's or the batch's.
    """

    index: int
    purpose: Purpose
    prompt_tokens_bound: int
    bound_kind: BoundKind
    answer_tokens_bound: int | None = None
    max_completion_tokens: int
    prompt_microusd_per_1k: int
    completion_microusd_per_1k: int
    shrunk_by: Literal["run", "batch"] | None = None
    reserved_microusd: int
    settled_microusd: int = 0
    settled_as: SettledAs = "open"


class CallError(Record):
    """Why a call gave no usable reply, and whose fault that is."""

    error_type: str
    message: str
    fault: Literal["model", "server", "harness"]
    detail: str | None = None
    retry: bool = False


class LLMCall(Record):
    """One request that reached (or tried to reach) a model. `index` is also its entry's index in the ledger.

    The prompt of a call is the first `carried` messages of the prompt of call `after`, then `appended`: a trace grows
    linearly though every prompt repeats its conversation. `after` is None where nothing is carried over. `phase` is
    the strategy's own word for the call, `answer_caps` are the tokens that it was told an answer might take, since the
    call before. With `continues` the last message was the model's own and the reply goes on from it. `raw` is the body
    as it came off the wire. Of a call for vectors `appended` are the texts, a message each, and in `raw` the vectors
    stand as their number and their length only.
    """

    index: int
    step: int
    attempt: int
    phase: str = ""
    after: int | None = None
    carried: int
    appended: list[Message]
    continues: bool = False
    stop: list[str] = Field(default_factory=list)
    answer_caps: list[int] = Field(default_factory=list)
    schema_hash: str | None = None
    tools_hash: str | None = None
    temperature: float
    seed: int
    num_ctx: int
    endpoint: str
    streamed: bool = False
    http_status: int | None = None
    content_type: str = ""
    raw: str = ""
    usage: Usage = Field(default_factory=Usage)
    timing: Timing = Field(default_factory=Timing)
    repairs: list[str] = Field(default_factory=list)
    error: CallError | None = None


class GuardEvent(Record):
    """A guard acted: which one, at which tier, and what it said (to the model, or to the person).

    `measure` names what a guard measured with, and `score` what it found, where it is one that measures.
    """

    guard: str
    tier: int
    message: str
    measure: str | None = None
    score: float | None = None


class Approval(Record):
    """What became of an action that a person had to be asked about; `action` is its place in the step's actions."""

    action: int
    verdict: Literal["allowed", "denied", "unanswered"]


class StepRecord(Record):
    """One THINK -> ACT -> OBSERVE -> REFLECT turn. `calls` are indexes into AgentState.calls.

    `turn` says which of the user's turns it works on, from 0. `tool_faults` are those of its tool calls, one each.
    """

    index: int
    turn: int = 0
    calls: list[int] = Field(default_factory=list)
    progress_check: str | None = None
    thought: str = ""
    thinking: str = ""
    actions: list[ToolCall] = Field(default_factory=list)
    results: list[ToolResult] = Field(default_factory=list)
    answer: str | None = None
    repairs: list[str] = Field(default_factory=list)
    faults: list[str] = Field(default_factory=list)
    tool_faults: list[ToolFault] = Field(default_factory=list)
    guards: list[GuardEvent] = Field(default_factory=list)
    approvals: list[Approval] = Field(default_factory=list)


class ModelInfo(Record):
    """Which weights answered, as far as the server tells. `sampler` is what the backend adds to the run's sampling.

    `context_window` is the length that the model was made for, in tokens; a run's own is `Sampling.num_ctx`. `tools`
    is whether the server says that this model can call tools (None: it does not say), `continues` whether it can go
    on from a reply that was begun.
    """

    name: str
    backend: str
    backend_version: str | None = None
    digest: str | None = None
    quantization: str | None = None
    parameters: str | None = None
    sampler: dict[str, float] = Field(default_factory=dict)
    context_window: int | None = None
    tools: bool | None = None
    continues: bool = False


class Sampling(Record):
    """What is sent with every call of a run."""

    temperature: float
    seed: int
    num_ctx: int
    max_completion_tokens: int


class LimitsRecord(Record):
    """The caps of a run; None means that there is none of that kind."""

    max_calls: int | None
    max_cost_microusd: int | None
    max_seconds: float | None


class PricesRecord(Record):
    """Simulated prices, in micro-dollars for 1,000 tokens."""

    prompt_microusd_per_1k: int
    completion_microusd_per_1k: int
    embedding_microusd_per_1k: int = 0


class AssertResult(Record):
    """One line of a verdict: what was demanded, whether it held, and what was seen instead."""

    type: str
    expected: Any = None
    passed: bool
    message: str = ""


class Verdict(Record):
    """The judgement of a run. `invalid` is the server's, the machine's or the harness's fault, and is never scored."""

    outcome: Outcome
    asserts: list[AssertResult] = Field(default_factory=list)
    reason: str = ""


class Chosen(Record):
    """Which strategy `auto` came to, and why."""

    strategy: str
    reason: str


class WorkspaceFile(Record):
    """One file of a run's workspace. `path` is relative to it; `text` is left out of what is no text or is long."""

    path: str
    size: int
    sha256: str
    text: str | None = None


class WorkspaceRecord(Record):
    """The workspace's files when the run began and when it ended, by path.

    `folder` is the person's own that it worked in, as they named it (None: a fresh one). Of such a folder nothing is
    kept but the files that tools have written, as they were at the end.
    """

    folder: str | None = None
    before: list[WorkspaceFile] = Field(default_factory=list)
    after: list[WorkspaceFile] = Field(default_factory=list)


class AgentState(Record):
    """One run, whole. See the module's docstring for units.

    `task` is the user's first turn, `follow_ups` are those that came after it. `ended_by` says whose cap ended a run
    that a cap ended: its own, or that of the batch around it. `now` is the fixed time of the case (ISO 8601, with its
    zone), `approve` every rule of its policy, by effect or by tool. `sandbox` is what its programs were isolated
    by (bubblewrap, landlock, external; None: nothing was needed, or to be had). `embedder` is the model that compared
    texts by their meaning for tools (None: they compared words). `tool_faults` counts those of all steps by kind.
    `code` is a hash of the sources that decide how a run goes.
    """

    schema_version: int = SCHEMA_VERSION
    run_id: str
    batch_id: str | None = None
    suite: str | None = None
    case_id: str | None = None
    case_hash: str | None = None
    epoch: int = 0
    task: str
    follow_ups: list[str] = Field(default_factory=list)
    strategy: str
    chosen: Chosen | None = None
    toolset: str = "core"
    tools: list[str] = Field(default_factory=list)
    corpus: str | None = None
    now: str | None = None
    workspace: WorkspaceRecord | None = None
    approve: dict[str, Permission] = Field(default_factory=dict)
    sandbox: str | None = None
    evidence: bool = True
    model: ModelInfo
    embedder: ModelInfo | None = None
    sampling: Sampling
    limits: LimitsRecord
    batch_limits: LimitsRecord | None = None
    prices: PricesRecord
    system_prompt_hashes: list[str] = Field(default_factory=list)
    tools_hash: str | None = None
    git_commit: str | None = None
    code: str | None = None
    started_at: str = ""
    seconds: float = 0.0
    steps: list[StepRecord] = Field(default_factory=list)
    calls: list[LLMCall] = Field(default_factory=list)
    ledger: list[LedgerEntry] = Field(default_factory=list)
    scratchpad: list[str] = Field(default_factory=list)
    replans: int = 0
    tool_faults: dict[ToolFault, int] = Field(default_factory=dict)
    answer: str | None = None
    answer_is_partial: bool = False
    status: Status = "running"
    status_reason: str = ""
    ended_by: Literal["run", "batch"] = "run"
    error: CallError | None = None
    verdict: Verdict | None = None

    @field_validator("now")
    @classmethod
    def _a_time_with_its_zone(cls, value: str | None) -> str | None:
        if value is not None and datetime.fromisoformat(value).utcoffset() is None:
            raise ValueError("must be a time with its zone")
        return value

    @property
    def turn_text(self) -> str:
        """What the user said last."""
        return self.follow_ups[-1] if self.follow_ups else self.task

    @property
    def turn(self) -> int:
        """Which of the user's turns is worked on, from 0."""
        return len(self.follow_ups)

    @property
    def last_chat(self) -> LLMCall | None:
        """The last call to the model that is driven, calls for vectors left out."""
        return next((call for call in reversed(self.calls) if not self.embeds(call.index)), None)

    def embeds(self, index: int) -> bool:
        """Whether the call of that index was one for vectors."""
        return 0 <= index < len(self.ledger) and self.ledger[index].purpose == "embed"

    @property
    def calls_used(self) -> int:
        """Calls that count against the cap: every ledger entry but those given back unsent."""
        return sum(entry.settled_as != "refunded" for entry in self.ledger)

    @property
    def cost_microusd(self) -> int:
        """What the run was charged; an open reservation counts in full."""
        return sum(e.reserved_microusd if e.settled_as == "open" else e.settled_microusd for e in self.ledger)

    @property
    def prompt_tokens(self) -> int:
        """Prompt tokens that the server counted, over all calls (uncounted calls add nothing)."""
        return sum(call.usage.prompt_tokens or 0 for call in self.calls)

    @property
    def completion_tokens(self) -> int:
        """Completion tokens that the server counted, over all calls (uncounted calls add nothing)."""
        return sum(call.usage.completion_tokens or 0 for call in self.calls)


def content_hash(value: object) -> str:
    """A short SHA-256 of any JSON value, blind to key order. A text is hashed as it is."""
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True, ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
