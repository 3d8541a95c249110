"""A run whose retry could no longer be paid kept its caps, and the verifier sees that it did."""

from __future__ import annotations

from agent.budget import Limits
from agent.llm.backends.scripted import ScriptedReply
from agent.loop import run_task
from evals.verify import verify
from tests.support_runs import act, new_run

CRASH = ScriptedReply(status=500, body='{"error": "llama runner process has terminated"}')


def test_whatever_the_cap_a_crashed_call_and_its_refused_retry_verify() -> None:
    refused_retries = 0
    for cap in range(20_000, 140_000, 1_000):
        run = new_run([act("6 * 7"), CRASH, CRASH, CRASH, CRASH], limits=Limits(10, cap))
        state = run_task(run)
        assert verify(state) == []
        last_failed = bool(state.calls) and state.calls[-1].error is not None
        refused_retries += last_failed and state.status == "budget_exhausted"
    assert refused_retries > 0
