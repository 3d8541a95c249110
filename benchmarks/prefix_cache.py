"""Does the server's prefix cache keep what it was sent before? Measured on the embedded model, over a suite.

    python -m benchmarks.prefix_cache

Every run's conversation is played for real; then the same conversation is sent again, call by call, the way a harness
does that rebuilds its system message each turn: with what is left of the budget at its head. Exit code 1 where, from
the second call of a run on, less than 95% of the call before is found in the cache, or the prompts take more than half
the time of those with the rebuilt head.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from agent.config import Settings
from agent.llm.backends.base import ChatRequest
from agent.llm.backends.embedded import EmbeddedBackend
from agent.llm.backends.replay import prompts_of
from agent.llm.envelopes import decode
from agent.prompts.budget_line import parse_budget_line
from agent.reporter import SilentReporter
from agent.state import AgentState, Message
from evals.cases import load_suite
from evals.plan import Plan, plan_suite
from evals.runner import Runner
from evals.store import TraceStore

MIN_CACHED = 0.95
MAX_TIME = 0.5
SUITE = Path(__file__).resolve().parent.parent / "suites" / "core.yaml"
DEADLINE_SECONDS = 300.0


@dataclass(frozen=True)
class Turn:
    """One call of a run from its second on. Tokens and seconds as the server counted them."""

    previous_prompt: int
    cached: int
    prompt_seconds: float
    rebuilt_seconds: float

    @property
    def share(self) -> float:
        """Of the previous call's prompt, what was found in the cache."""
        return self.cached / self.previous_prompt


@dataclass(frozen=True)
class Case:
    """One run, measured both ways."""

    name: str
    calls: int
    turns: tuple[Turn, ...]

    @property
    def least_share(self) -> float:
        """The worst turn's."""
        return min(turn.share for turn in self.turns)

    @property
    def seconds(self) -> float:
        """Time that prompts took."""
        return sum(turn.prompt_seconds for turn in self.turns)

    @property
    def rebuilt_seconds(self) -> float:
        """Time that the prompts with a rebuilt head took."""
        return sum(turn.rebuilt_seconds for turn in self.turns)


def measure(suite: Path, folder: Path, settings: Settings) -> Iterator[Case]:
    """Every case of the suite, played and sent again."""
    backend = EmbeddedBackend(settings.embedded_model, settings.num_ctx, log_path=folder / "llama.log")
    try:
        with TraceStore(folder / "traces") as store:
            runner = Runner(store=store, backend_for=lambda _: backend, call_timeout_seconds=DEADLINE_SECONDS)
            for plan in plan_suite(settings, load_suite(suite)):
                state = runner.run(plan, SilentReporter()).state
                yield Case(plan.label, len(state.calls), tuple(_turns(plan, state, backend)))
    finally:
        backend.close()


def _turns(plan: Plan, state: AgentState, backend: EmbeddedBackend) -> Iterator[Turn]:
    prompts = prompts_of(state.calls)
    rebuilt = [_send_rebuilt(plan, prompt, backend) for prompt in prompts]
    for before, call, seconds in zip(state.calls, state.calls[1:], rebuilt[1:], strict=False):
        was, cached, took = before.usage.prompt_tokens, call.usage.cached_tokens, call.timing.prompt
        if was is None or cached is None or took is None:
            raise RuntimeError(f"{plan.label}: call {call.index} has no counts: {call.error}")
        yield Turn(was, cached, took, seconds)


def _send_rebuilt(plan: Plan, prompt: Sequence[Message], backend: EmbeddedBackend) -> float:
    """The seconds that the server needs for a prompt whose budget line stands at the head."""
    request = ChatRequest(
        messages=tuple(rebuilt_head(prompt)),
        max_completion_tokens=1,  # only the reading is measured
        temperature=plan.sampling.temperature,
        seed=plan.sampling.seed,
        num_ctx=plan.sampling.num_ctx,
        deadline_seconds=DEADLINE_SECONDS,
    )
    seconds = decode(backend.send(request)).prompt_seconds
    if seconds is None:
        raise RuntimeError("the server does not say how long it took to read a prompt")
    return seconds


def rebuilt_head(prompt: Sequence[Message]) -> list[Message]:
    """The same conversation with the newest budget line moved to the head of the system message."""
    system, *rest = prompt
    text, _, line = rest[-1].content.rpartition("\n")
    if parse_budget_line(line) is None:
        raise ValueError("the last message does not end with a budget line")
    head = system.model_copy(update={"content": f"{line}\n{system.content}"})
    return [head, *rest[:-1], rest[-1].model_copy(update={"content": text})]


# -- saying so --------------------------------------------------------------------------------------------------------


def case_line(case: Case) -> str:
    """One case's figures."""
    if not case.turns:
        return f"{case.name:24} {case.calls:3} calls: no second turn"
    cached, took = f"at least {case.least_share:6.1%} cached", f"prompts took {case.seconds:6.2f} s"
    return f"{case.name:24} {case.calls:3} calls: {cached}; {took}, with a rebuilt head {case.rebuilt_seconds:6.2f} s"


def verdict(cases: Sequence[Case]) -> tuple[str, bool]:
    """The totals, and whether both demands were met."""
    turns = [turn for case in cases for turn in case.turns]
    if not turns:
        return "FAIL: no run had a second turn", False
    least = min(turn.share for turn in turns)
    shared = sum(turn.cached for turn in turns) / sum(turn.previous_prompt for turn in turns)
    seconds, rebuilt = (sum(turn.prompt_seconds for turn in turns), sum(turn.rebuilt_seconds for turn in turns))
    demands = {
        f"at least {MIN_CACHED:.0%} of the previous prompt cached in every turn": least >= MIN_CACHED,
        f"prompt time at most {MAX_TIME:.0%} of the rebuilt head's": seconds <= MAX_TIME * rebuilt,
    }
    cached = f"{shared:.1%} cached overall, {least:.1%} in the worst"
    took = f"prompts took {seconds:.2f} s, {seconds / rebuilt:.1%} of the {rebuilt:.2f} s with a rebuilt head"
    lines = [
        f"{len(turns)} turns: {cached}; {took}",
        *(f"{'PASS' if met else 'FAIL'}: {demand}" for demand, met in demands.items()),
    ]
    return "\n".join(lines), all(demands.values())


def main(arguments: list[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description="Does the server's prefix cache keep what it was sent before?")
    parser.add_argument("suite", nargs="?", type=Path, default=SUITE)
    given = parser.parse_args(arguments)
    cases = []
    with tempfile.TemporaryDirectory(prefix="prefix-cache-") as folder:
        for case in measure(given.suite, Path(folder), Settings(_env_file=None)):
            cases.append(case)
            print(case_line(case), flush=True)
    text, met = verdict(cases)
    print(text)
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
