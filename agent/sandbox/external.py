"""The last rung: a person says that this machine is disposable. Programs get limits, a clean environment and an end;
nothing keeps them from the files, the network and the processes of the user who runs the harness."""

from __future__ import annotations

from pathlib import Path

from agent.sandbox.base import Command, Finished, Level
from agent.sandbox.landlock import folders, launched
from agent.sandbox.users import harness_user


class External:
    """Runs commands in our own launcher without walls."""

    name: Level = "external"

    def can_read(self, path: Path) -> bool:  # noqa: ARG002 nothing is kept from it
        """See `Sandbox.can_read`."""
        return True

    def run(self, command: Command) -> Finished:
        """See `Sandbox.run`."""
        user = harness_user()
        with folders(command, user) as work:
            done = launched(command, {"landlocked": False, "user": None}, user, work)
        return work.lent.judged(done)
