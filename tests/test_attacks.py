"""Every case of `fixtures/attacks.jsonl`, or of the file named by ATTACK_CASES, comes out as its `must` says.

`refuse`: not done, with an error_type that names the policy. `error_type:X`: that one. `escape`, `contain`, `redact`:
it runs, and nothing acts, leaks, outlives it or is touched outside (`harm`, in support_attack_runs.py). `truncate`: a
bounded part, marked as one, or a program stopped for its length. `allow:VALUE`: it works; these are the harmless twins.
What has no component yet is skipped by name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support_attack_runs import Outcome, run_case, tool_class
from tests.support_attacks import CANARY, SECRET, Case
from tests.support_named import cases_named_by

FILE = Path(__file__).parent / "fixtures" / "attacks.jsonl"
CASES = [Case.of(value) for value in cases_named_by("ATTACK_CASES", FILE)]
OURS = [Case.of(json.loads(line)) for line in FILE.read_text(encoding="utf-8").splitlines()]
JOBS = 2
# Words for "it did not come to pass" and for a slip in an argument: they say of no policy that it refused.
NO_POLICY = {"bad_args", "not_found", "network", "timeout", "memory", "tool_crashed", "code_failed", "empty", "exists"}
NAMES_NOTHING = {"mcp": {"unknown_tool"}}  # a server's tool has no other name than its own, so ours is not there

Outcomes = dict[str, Future[Outcome]]


@pytest.fixture(scope="module")
def outcomes(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Outcomes]:
    """All cases that were asked for, under way beside each other."""
    home = tmp_path_factory.mktemp("home")
    (home / ".env").write_text(SECRET)
    asked = [case for item in request.session.items for case in _asked(item)]
    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(JOBS) as pool:
        patch.setenv("HOME", str(home))
        patch.setenv("SHOESTRING_CANARY", CANARY)
        for setting in re.findall(r"\benv (\w+=\S+)", " ".join(case.fixture for case in asked)):
            patch.setenv(*setting.split("=", 1))
        yield {case.id: pool.submit(run_case, case) for case in asked}
        pool.shutdown(cancel_futures=True)


def _asked(item: pytest.Item) -> list[Case]:
    """The case that a test of this session is about."""
    call = getattr(item, "callspec", None)
    return [value for value in call.params.values() if isinstance(value, Case)] if call else []


@pytest.mark.parametrize("case", [pytest.param(case, id=case.id) for case in CASES])
def test_a_case_comes_out_as_it_must(case: Case, outcomes: Outcomes) -> None:
    outcome = outcomes[case.id].result()
    shown = f"{case.must}: {outcome.error_type}: {outcome.text[:500]!r}"
    assert outcome.harm == [], shown
    must, _, value = case.must.partition(":")
    if must == "refuse":
        assert not outcome.success, shown
        assert outcome.error_type not in _no_policy(case), shown
    elif must == "error_type":
        assert (outcome.success, outcome.error_type) == (False, value), shown
    elif must == "truncate":
        assert outcome.truncated or outcome.error_type == "too_large", shown
    elif must == "allow":
        assert outcome.success, shown
        assert shows(outcome.text, value), shown
    elif case.tool not in ("execute_code", "search_codebase", "mcp"):  # whose attack may fail by itself, contained
        assert outcome.success, shown
    if outcome.unset:
        pytest.skip(f"{case.id}: it came out as it must, but nothing here can set up {outcome.unset!r}")


def _no_policy(case: Case) -> set[str]:
    """The error types that are no refusal of this case."""
    if "then" in case.fixture:  # a pinned connection goes to the address that was judged, where nobody may be
        return NO_POLICY - {"network", "timeout"}
    return NO_POLICY - NAMES_NOTHING.get(case.tool, set())


def shows(text: str, value: str) -> bool:
    """Whether a result shows the value of a control; `match` is at least one."""
    if value == "match":
        return re.match(r"[1-9]\d* match", text) is not None
    return value in text


def test_every_kind_of_must_is_known() -> None:
    kinds = {case.must.partition(":")[0] for case in CASES}
    assert kinds <= {"refuse", "error_type", "escape", "contain", "truncate", "redact", "allow"}


def test_every_class_of_attack_on_a_tool_has_a_harmless_twin() -> None:
    twins = {case.id for case in OURS if case.must.startswith("allow:")}
    attacks = [case for case in OURS if case.id not in twins and (tool_class(case.tool) or case.tool == "mcp")]
    assert attacks
    lacking = [case.id for case in attacks if not {f"{case.id}-ok", re.sub(r"-\d+$", "-ok", case.id)} & twins]
    assert lacking == []
