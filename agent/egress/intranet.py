"""The hosts that a person lets tools reach though they are not of the public internet."""

from __future__ import annotations

from dataclasses import dataclass

from agent.egress.faults import FetchError
from agent.egress.target import Target, read_authority
from agent.errors import UsageError


@dataclass(frozen=True)
class Intranet:
    """Hosts, each with a port or, with None, all of its ports. Of them neither address nor port is judged."""

    places: frozenset[tuple[str, int | None]] = frozenset()

    @classmethod
    def of(cls, text: str) -> Intranet:
        """Read `host` and `host:port`, with commas between them.

        Raises:
            UsageError: one of them is neither.
        """
        entries = [entry.strip() for entry in text.split(",") if entry.strip()]
        try:
            return cls(frozenset(read_authority(entry) for entry in entries))
        except FetchError:
            raise UsageError(
                f"INTRANET_HOSTS: cannot be read (got {text!r:.80}); write hosts like wiki.example:8080, with commas"
            ) from None

    def holds(self, target: Target) -> bool:
        """Whether the person named this very host."""
        return (target.host, target.port) in self.places or (target.host, None) in self.places

    def with_target(self, target: Target) -> Intranet:
        """These hosts, and one more that the person named elsewhere in the settings."""
        return Intranet(self.places | {(target.host, target.port)})
