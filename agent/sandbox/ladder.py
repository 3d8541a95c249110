"""Which rung is used: the first that passes its self-test on this machine, or the one that was asked for.

The self-test is run when a program is to be run for the first time, and its outcome is kept for this process, unless
it failed only because the machine ran short meanwhile.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from agent.sandbox.base import Level, Sandbox, SandboxError
from agent.sandbox.bubblewrap import Bubblewrap
from agent.sandbox.external import External
from agent.sandbox.landlock import Landlock
from agent.sandbox.probes import Probe, self_test

Asked = Literal["auto", "bubblewrap", "landlock", "external"]
MENDS: dict[Level, str] = {
    "bubblewrap": "apt-get install bubblewrap; where it is installed, allow it to make namespaces (on Ubuntu, with an"
    " AppArmor profile for bwrap)",
    "landlock": "a Linux kernel of 5.13 or newer with landlock among its security modules (lsm=landlock,...)",
}
MEND = "install bubblewrap (apt-get install bubblewrap), or, on a machine that may be lost, pass --sandbox external"
EXTERNAL_WARNING = (
    "programs are NOT isolated: --sandbox external says that this machine may be lost; they can read and change what"
    " you can, and use the network"
)
_LANDLOCK_NOTICE = "programs are isolated by landlock: bubblewrap did not pass its self-test (main.py doctor says why)"

_RUNGS: dict[Asked, tuple[Callable[[], Sandbox], ...]] = {
    "auto": (Bubblewrap, Landlock),
    "bubblewrap": (Bubblewrap,),
    "landlock": (Landlock,),
}
_tested: dict[Callable[[], Sandbox], Tested] = {}
_testing = threading.Lock()


@dataclass(frozen=True)
class Tested:
    """One rung and what became of its self-test. `sandbox` is None where it cannot be used; `why` says so in words."""

    level: Level
    sandbox: Sandbox | None
    probes: tuple[Probe, ...] = ()
    why: str = ""


@dataclass
class Isolation:
    """What one run has to isolate its programs. `tell` hears, once, of what a person should know about it."""

    asked: Asked = "auto"
    tell: Callable[[str], None] = lambda _text: None
    _used: Level | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        if self.asked == "external":
            self._used = "external"
            self.tell(EXTERNAL_WARNING)

    @property
    def level(self) -> Level | None:
        """What the run's programs ran in; None where it has run none. `external` is said from the start."""
        return self._used

    def sandbox(self) -> Sandbox:
        """The sandbox for this run's programs. The first call of a process may take a second.

        Raises:
            SandboxError: no_sandbox, nothing on this machine passed its self-test.
        """
        if self.asked == "external":
            return External()
        found = tried(self.asked)
        usable = next((rung for rung in found if rung.sandbox is not None), None)
        if usable is None or usable.sandbox is None:
            reasons = "; ".join(f"{rung.level}: {rung.why}" for rung in found)
            raise SandboxError(
                "no_sandbox", f"No program can be run: no sandbox passed its self-test ({reasons}). {MEND}"
            )
        if self._used is None:
            self._used = usable.level
            if self.asked == "auto" and usable.level == "landlock":
                self.tell(_LANDLOCK_NOTICE)
        return usable.sandbox


def tried(asked: Asked) -> list[Tested]:
    """The rungs that would do, in their order, up to the first that passes. `external` has none."""
    found: list[Tested] = []
    for rung in _RUNGS.get(asked, ()):
        with _testing:  # others wait for the outcome rather than test too
            tested = _tested.get(rung) or _test(rung)
            if not any(probe.disturbed for probe in tested.probes):
                _tested[rung] = tested
        found.append(tested)
        if found[-1].sandbox is not None:
            break
    return found


def _test(rung: Callable[[], Sandbox]) -> Tested:
    level: Level = "bubblewrap" if rung is Bubblewrap else "landlock"
    try:
        sandbox = rung()
    except SandboxError as error:
        return Tested(level, None, why=str(error))
    probes = self_test(sandbox)
    failed = [probe for probe in probes if not probe.held]
    if failed:
        return Tested(level, None, probes, "; ".join(f"{probe.name}: {probe.detail}" for probe in failed))
    return Tested(level, sandbox, probes)
