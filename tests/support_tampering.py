"""What a dishonest hand might change in a genuine trace, and a word that must stand in what the verifier says of it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any

from agent.state import AgentState, Approval, AssertResult, CallError, LimitsRecord, Verdict, WorkspaceFile

Tamper = Callable[[AgentState], object]


def set_to(path: str, value: Any) -> Tamper:
    """Put a value, or what a function makes of the old one, in the place that a dotted path names."""

    def tamper(state: AgentState) -> None:
        *parents, last = path.split(".")
        place: Any = state
        for name in parents:
            place = place[int(name)] if name.lstrip("-").isdigit() else getattr(place, name)
        setattr(place, last, value(getattr(place, last)) if callable(value) else value)

    return tamper


def _both(*tampers: Tamper) -> Tamper:
    def tamper(state: AgentState) -> None:
        for one in tampers:
            one(state)

    return tamper


def _raw_count(place: int, change: int) -> Tamper:
    """The server's own words changed."""

    def tamper(state: AgentState) -> None:
        body = json.loads(state.calls[place].raw)
        body["prompt_eval_count"] += change
        state.calls[place].raw = json.dumps(body)

    return tamper


def _usage_and_raw(place: int, change: int) -> Tamper:
    return _both(_raw_count(place, change), set_to(f"calls.{place}.usage.prompt_tokens", lambda count: count + change))


def _charged_again(place: int, change: int) -> Tamper:
    """Raw reply, usage and charge all made to agree with each other."""
    return _both(
        _usage_and_raw(place, change), set_to(f"ledger.{place}.settled_microusd", lambda paid: paid + 10 * change)
    )


def _invent_batch(state: AgentState) -> None:
    """A batch around the run would excuse a shorter reply; here the last answer is not the one that came."""
    state.batch_limits = LimitsRecord(max_calls=None, max_cost_microusd=1_000_000, max_seconds=None)
    state.answer = state.steps[-1].answer = "43"


def _change_file(state: AgentState) -> None:
    assert state.workspace is not None
    data = b"42"
    file = {"path": "notes.txt", "size": len(data), "sha256": hashlib.sha256(data).hexdigest(), "text": data.decode()}
    state.workspace.after = [WorkspaceFile.model_validate(file)]


def _claim_refund(state: AgentState) -> None:
    state.ledger[1].settled_as, state.ledger[1].settled_microusd = "refunded", 0


def _claim_refund_and_error(state: AgentState) -> None:
    _claim_refund(state)
    state.calls[1].error = CallError(error_type="unreachable", message="x", fault="server")


def _no_action(state: AgentState) -> None:
    state.steps[0].actions, state.steps[0].results = [], []


def _two_actions(state: AgentState) -> None:
    step = state.steps[0]
    step.actions, step.results = step.actions * 2, step.results * 2


def _lower_cap(state: AgentState) -> None:
    entry = state.ledger[1]
    entry.max_completion_tokens = 100
    entry.reserved_microusd = 10 * entry.prompt_tokens_bound + 30 * 100


def _cut_off_end(state: AgentState) -> None:
    """The last call and step gone, and the one before it made to look like the end."""
    state.steps[-2].guards = state.steps[-1].guards
    for records in (state.steps, state.calls, state.ledger):
        del records[-1]
    state.replans = sum(event.guard == "replan" for step in state.steps for event in step.guards)


# name: (kind of genuine trace, what is done to it, what the verifier says)
TAMPERED: dict[str, tuple[str, Tamper, str]] = {
    "usage lowered": ("completed", set_to("calls.1.usage.prompt_tokens", 1), "usage.prompt_tokens is 1"),
    "usage removed": ("completed", set_to("calls.1.usage.completion_tokens", None), "usage.completion_tokens is None"),
    "cached invented": ("completed", set_to("calls.1.usage.cached_tokens", 5), "usage.cached_tokens is 5"),
    "raw changed": ("completed", _raw_count(1, -5), "its raw reply says"),
    "raw and usage changed": ("completed", _usage_and_raw(1, -5), "the usage of its call costs"),
    "raw, usage and charge changed": ("completed", _charged_again(1, -5), "the model was told"),
    "prompt price": ("completed", set_to("prices.prompt_microusd_per_1k", 9_999), "its price for prompts"),
    "completion price": ("completed", set_to("prices.completion_microusd_per_1k", 29_999), "its price for completions"),
    "more calls allowed": ("completed", set_to("limits.max_calls", 11), "the model was told"),
    "calls without a cap": ("completed", set_to("limits.max_calls", None), "the model was told"),
    "fewer calls allowed": ("completed", set_to("limits.max_calls", 3), "ledger: 4 calls were made"),
    "more money allowed": ("completed", set_to("limits.max_cost_microusd", 300_000), "the model was told"),
    "less money allowed": (
        "completed",
        set_to("limits.max_cost_microusd", 20_000),
        "limits.max_cost_microusd is 20000",
    ),
    "deadline passed": (
        "completed",
        _both(set_to("limits.max_seconds", 60.0), set_to("calls.1.timing.total", 70.0)),
        "calls[1]: ended 70.0 s into the run",
    ),
    "began too late": (
        "completed",
        _both(set_to("limits.max_seconds", 60.0), set_to("steps.0.results.0.seconds", 70.0)),
        "calls[1]: began 70.0 s into the run",
    ),
    "charged less": ("completed", set_to("ledger.1.settled_microusd", 1), "ledger[1]: settled 1 micro-dollars"),
    "charged more": ("completed", set_to("ledger.3.settled_microusd", lambda paid: paid + 1), "ledger[3]: settled"),
    "reserved less": ("completed", set_to("ledger.1.reserved_microusd", 1), "ledger[1]: what was reserved is 1"),
    "bound lowered": ("completed", set_to("ledger.0.prompt_tokens_bound", 100), "a prompt bound of 100 tokens"),
    "bound of another kind": ("completed", set_to("ledger.0.bound_kind", "grown"), "gives none of that kind"),
    "cap raised": ("completed", set_to("ledger.1.max_completion_tokens", 513), "a completion cap of 513 tokens"),
    "cap under the floor": ("completed", set_to("ledger.1.max_completion_tokens", 20), "a completion cap of 20 tokens"),
    "window passed": (
        "completed",
        _both(set_to("ledger.1.bound_kind", "exact"), set_to("ledger.1.prompt_tokens_bound", 8000)),
        "do not fit the window",
    ),
    "never settled": ("completed", set_to("ledger.1.settled_as", "open"), "ledger[1]: was never settled"),
    "unknown made counted": ("uncounted", set_to("ledger.0.settled_as", "counted"), "makes it unknown"),
    "counted made unknown": ("completed", set_to("ledger.0.settled_as", "unknown"), "makes it counted"),
    "overshoot hidden": ("overshot", set_to("ledger.1.settled_as", "counted"), "makes it overshoot"),
    "refund claimed": ("completed", _claim_refund, "given back"),
    "refund and error claimed": ("completed", _claim_refund_and_error, "given back"),
    "action on the last call": ("calls_used_up", set_to("ledger.3.purpose", "act"), "the budget refuses this call"),
    "negative bound": ("completed", set_to("ledger.1.prompt_tokens_bound", -1), "a bound below zero"),
    "entry removed": ("completed", lambda state: state.ledger.pop(), "3 entries for 4 calls"),
    "entry added": ("completed", lambda state: state.ledger.append(state.ledger[-1]), "5 entries for 4 calls"),
    "call record removed": ("calls_used_up", lambda state: state.calls.pop(), "4 entries for 3 calls"),
    "step removed": ("completed", lambda state: state.steps.pop(1), "steps: their calls are 0, 2, 3"),
    "call of another step": ("completed", set_to("calls.1.step", 0), "belongs to another step"),
    "history cut": ("completed", set_to("calls.2.carried", 2), "does not go on from the call before it"),
    "carries too much": ("completed", set_to("calls.1.carried", 7), "calls[1]: carries 7 messages"),
    "reply changed": ("completed", set_to("calls.1.appended.0.content", "{}"), "appends another reply"),
    "budget line changed": (
        "completed",
        set_to("calls.1.appended.1.content", "Budget: 10 of 10 calls, $0.200000 of $0.200000 left."),
        "the model was told that 10 of 10",
    ),
    "budget line removed": ("completed", set_to("calls.1.appended.1.content", "x"), "does not end with the budget"),
    "task changed": ("completed", set_to("task", "another"), "task: does not stand in the first prompt"),
    "system prompt changed": ("completed", set_to("calls.0.appended.0.content", "x"), "system_prompt_hash"),
    "base changed": ("completed", set_to("calls.2.after", 0), "calls[2]: carries"),
    "base removed": ("completed", set_to("calls.2.after", None), "calls[2]: "),
    "turn skipped": ("two_turns", set_to("follow_ups", ["a", "b"]), "the last step gave no such answer"),
    "turn changed": ("two_turns", set_to("steps.3.turn", 0), "steps: their turns are 0, 0, 1, 0"),
    "answer given early": ("two_turns", set_to("steps.2.answer", "336"), "gave the answer, and the turn went on"),
    "turn invented": ("completed", set_to("steps.3.turn", 1), "the user had 1"),
    "follow-up changed": ("two_turns", set_to("follow_ups", ["Now divide that by 8."]), "replayed: "),
    "person's word changed": ("denied", set_to("steps.0.approvals.0.verdict", "allowed"), "its result says otherwise"),
    "person's word invented": (
        "completed",
        set_to("steps.0.approvals", [Approval(action=3, verdict="allowed")]),
        "an approval of action 3",
    ),
    "person's silence passed over": (
        "allowed",
        set_to("steps.0.approvals.0.verdict", "unanswered"),
        "waits for a person, and the run went on",
    ),
    "waits for nobody": ("unconfirmed", set_to("steps.0.approvals", []), "no action of the last step waits"),
    "policy loosened": ("unconfirmed", set_to("approve", {}), "replayed: "),
    "batch invented": ("completed", _invent_batch, "replayed: "),
    "phase changed": ("completed", set_to("calls.1.phase", "answer"), "replayed: call 2 differs"),
    "tools renamed": ("completed", set_to("tools_hash", "0" * 16), "tools_hash: is not that of its tools"),
    "heads changed": ("completed", set_to("system_prompt_hashes", []), "system_prompt_hashes: are not those"),
    "file's text changed": ("wrote", set_to("workspace.after.0.text", "42"), "not the one that its size and hash say"),
    "file changed throughout": ("wrote", _change_file, "the files in the workspace differ"),
    "file removed": ("wrote", set_to("workspace.after", []), "the files in the workspace differ"),
    "write invented": ("wrote", set_to("steps.0.results.0.data", "wrote 9 characters"), "comes out otherwise"),
    "tool faults changed": ("completed", set_to("tool_faults", {"in_text": 1}), "tool_faults: "),
    "seed changed": ("completed", set_to("calls.1.seed", 8), "calls[1]: temperature, seed or num_ctx"),
    "error hidden": ("server_failed", set_to("calls.2.error", None), "calls[2]: error is None"),
    "error invented": (
        "completed",
        set_to("calls.1.error", CallError(error_type="server_error", message="x", fault="server")),
        "its raw reply is sound",
    ),
    "error without reply blamed on the model": (
        "interrupted",
        set_to("calls.2.error", CallError(error_type="not_json", message="x", fault="model")),
        "there is no reply",
    ),
    "reply without a status": ("completed", set_to("calls.1.http_status", None), "has a reply without an HTTP status"),
    "retry without a cause": ("retried", set_to("calls.1.error.retry", False), "has no error that may heal"),
    "retry miscounted": ("retried", set_to("calls.2.attempt", 2), "attempt 2 of step 1 does not follow"),
    "retry of another prompt": ("retried", set_to("calls.2.carried", 2), "its prompt is not the one before"),
    "completed made exhausted": ("completed", set_to("status", "budget_exhausted"), "the last step gave an answer"),
    "exhausted made completed": ("calls_used_up", set_to("status", "completed"), "the last step gave no such answer"),
    "exhausted for another reason": (
        "calls_used_up",
        set_to("status_reason", "cost: the money left cannot pay a call of 64 tokens"),
        "the money left pays for a further call",
    ),
    "exhausted without a reason": ("calls_used_up", set_to("status_reason", ""), "does not name the cap"),
    "exhausted by an overshoot that is none": (
        "calls_used_up",
        set_to("status_reason", "overshoot: x"),
        "the last call",
    ),
    "exhausted by a window that is not full": (
        "calls_used_up",
        set_to("status_reason", "context: x"),
        "by context_over",
    ),
    "exhausted made looped": ("calls_used_up", set_to("status", "loop_detected"), "there are only"),
    "exhausted made timeout": ("calls_used_up", set_to("status", "timeout"), "limits.max_seconds is None"),
    "exhausted made running": ("calls_used_up", set_to("status", "running"), "status: running"),
    "exhausted made error": ("calls_used_up", set_to("status", "error"), "error is not set"),
    "overshoot made timeout": ("overshot", set_to("status", "timeout"), "an overshoot ends its run"),
    "error of another kind": ("server_failed", set_to("error.error_type", "server_busy"), "the last call shows server"),
    "answer changed": ("completed", set_to("answer", "43"), "gave no such answer"),
    "partial answer passed off": ("calls_used_up", set_to("answer_is_partial", False), "is not marked as partial"),
    "replans hidden": ("looped", set_to("replans", 0), "replans: 0"),
    "result removed": ("completed", lambda state: state.steps[0].results.pop(), "1 actions and 0 results"),
    "time below zero": ("completed", set_to("calls.1.timing.total", -1.0), "has a time that is no duration"),
    "no end of time": ("completed", set_to("seconds", float("inf")), "seconds: is no duration"),
    "tool result changed": ("completed", set_to("steps.0.results.0.data", "43"), "replayed: step 2: call 2"),
    "tool call denied": ("completed", _no_action, "replayed: step 1"),
    "tool call doubled": ("completed", _two_actions, "replayed: step 2: tool call differs"),
    "arguments changed": (
        "completed",
        set_to("steps.0.actions.0.arguments", {"expression": "6*8"}),
        "tool call differs",
    ),
    "both answers changed": (
        "completed",
        _both(set_to("answer", "43"), set_to("steps.3.answer", "43")),
        "replayed: step 4: answer differs",
    ),
    "scratchpad changed": ("calls_used_up", set_to("scratchpad", ["gold"]), "replayed: after the last step"),
    "guard unsaid": ("rejected_answer", set_to("steps.0.guards", []), "replayed: step 1: guards differs"),
    "cap lowered with its reservation": ("completed", _lower_cap, "its completion cap is 100"),
    "cap lowered for the batch": (
        "completed",
        _both(_lower_cap, set_to("ledger.1.shrunk_by", "batch")),
        "its completion cap is 100",
    ),
    "end cut off a loop": ("looped_late", _cut_off_end, "a further one was asked for"),
    "failed made pass": (
        "completed",
        set_to("verdict", Verdict(outcome="pass", asserts=[AssertResult(type="equals", passed=False)])),
        "an assert did not hold",
    ),
}
