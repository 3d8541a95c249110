"""Where reservations are written down before anything is sent: the Journal protocol, and one that forgets.

A durable journal is what lets a killed batch know what it spent: an entry that was reserved and never settled counts
as spent in full.
"""

from __future__ import annotations

from typing import Protocol

from agent.state import LedgerEntry


class Journal(Protocol):
    """Told of every ledger entry twice: once reserved (before the request is sent), once settled or given back.

    Raises:
        StoreError: it could not be written; nothing may be sent then.
    """

    def reserved(self, run_id: str, entry: LedgerEntry) -> None: ...

    def settled(self, run_id: str, entry: LedgerEntry) -> None: ...


class NoJournal:
    """Keeps nothing: for tests, and for a run whose trace alone is wanted."""

    def reserved(self, run_id: str, entry: LedgerEntry) -> None:
        """Forgotten."""

    def settled(self, run_id: str, entry: LedgerEntry) -> None:
        """Forgotten."""
