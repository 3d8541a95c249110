"""The self-test of each rung on this machine, and that it can fail: its attacks succeed where there is no sandbox."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from agent.sandbox import bubblewrap, ladder
from agent.sandbox.base import Command, Sandbox, SandboxError
from agent.sandbox.external import External
from agent.sandbox.ladder import EXTERNAL_WARNING, Asked, Isolation, tried
from agent.sandbox.probes import self_test
from tests.support_figures import FIGURE
from tests.support_sandbox import RUNGS, sandbox

PROBES = frozenset(
    [
        *("reading", "writing", "tcp", "udp", "unix", "signals", "environment", "connections"),
        *("user", "processes", "daemon", "memory"),
    ]
)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="programs are isolated on Linux only")


@pytest.fixture
def nothing_tested(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process that has tested no rung yet."""
    monkeypatch.setattr(ladder, "_tested", {})


@pytest.fixture
def no_bubblewrap(nothing_tested: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As on a machine without bwrap."""
    monkeypatch.setattr(bubblewrap, "WHERE", str(tmp_path))


@pytest.mark.parametrize("level", RUNGS)
def test_every_attack_is_held_off(level: Asked) -> None:
    sandbox(level)
    probes = tried(level)[0].probes
    assert {probe.name for probe in probes} == PROBES
    assert [probe for probe in probes if not probe.held] == []


def test_the_attacks_succeed_where_nothing_is_in_their_way() -> None:
    reached = {probe.name for probe in self_test(External()) if not probe.held}
    assert reached >= {"reading", "writing", "tcp", "udp", "unix", "signals", "environment", "connections"}
    assert "memory" not in reached  # what is watched from outside holds on any rung
    assert "daemon" not in reached


def test_a_missing_wall_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    with_walls = sandbox("bubblewrap")
    walls = tuple(word for word in bubblewrap.WALLS if word != "--unshare-net")
    monkeypatch.setattr(bubblewrap, "WALLS", walls)
    assert {probe.name for probe in self_test(with_walls) if not probe.held} == {"tcp", "udp", "connections"}


def test_bubblewrap_comes_first_and_nothing_is_said_of_it() -> None:
    sandbox("bubblewrap")
    told: list[str] = []
    lent = Isolation("auto", told.append)
    before = lent.level
    assert lent.sandbox().name == "bubblewrap"
    assert (before, lent.level, told) == (None, "bubblewrap", [])


def test_landlock_is_taken_where_bubblewrap_is_missing_and_that_is_said_once(no_bubblewrap: None) -> None:
    if tried("landlock")[0].sandbox is None:
        pytest.skip("landlock does not work on this machine")
    told: list[str] = []
    lent = Isolation("auto", told.append)
    assert [lent.sandbox().name, lent.sandbox().name] == ["landlock", "landlock"]
    assert lent.level == "landlock"
    assert len(told) == 1
    assert "bubblewrap did not pass" in told[0]


def test_without_any_rung_it_is_said_what_failed_and_how_to_mend_it(
    no_bubblewrap: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    lent = Isolation()
    with pytest.raises(SandboxError) as refused:
        lent.sandbox()
    assert refused.value.error_type == "no_sandbox"
    for words in ("bubblewrap: ", "landlock: ", "apt-get install bubblewrap", "--sandbox external"):
        assert words in str(refused.value)
    assert lent.level is None


def test_a_missing_program_is_named(no_bubblewrap: None) -> None:
    assert tried("bubblewrap")[0].why == "bwrap is not installed"


def test_external_is_said_and_recorded_before_anything_is_run() -> None:
    told: list[str] = []
    lent = Isolation("external", told.append)
    assert (lent.level, told) == ("external", [EXTERNAL_WARNING])
    assert lent.sandbox().name == "external"


def test_what_isolation_costs(record_property: Callable[[str, object], None]) -> None:
    """Printed, and held to no figure: a busy machine would miss any. docs/benchmarks.md has them at rest."""
    argv = ("/usr/bin/python3", "-I", "-S", "-c", "pass")
    bare = _milliseconds(lambda: subprocess.run(argv, check=False).returncode)
    told = [f"{bare:.1f} ms bare"]
    for level in RUNGS:
        taken = _milliseconds(partial(_code, sandbox(level), Command(argv)))
        told.append(f"{level} {taken - bare:+.1f} ms")
    record_property(FIGURE, f"isolation of a Python that does nothing: {', '.join(told)}")


def _code(made: Sandbox, command: Command) -> int | None:
    return made.run(command).code


def _milliseconds(run: Callable[[], int | None]) -> float:
    taken = []
    for _ in range(7):
        began = time.perf_counter()
        assert run() == 0
        taken.append(time.perf_counter() - began)
    return statistics.median(taken) * 1000
