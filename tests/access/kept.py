"""An audit log that keeps its events."""

from __future__ import annotations

from access.policies import ADMIN, ALICE, BOB
from penstock.core.access import AuditEvent

SECRETS = (ALICE, BOB, ADMIN, "wrong-key", "secret-value")


class Kept:
    """A log that keeps its events."""

    def __init__(self) -> None:
        self.events: list[AuditEvent] = []

    def add(self, event: AuditEvent) -> None:
        self.events.append(event)

    @property
    def told(self) -> list[tuple[str, str, str, str]]:
        """Who, what, which model, and the result, of all events; no secret is among them."""
        assert not any(secret in str(event) for event in self.events for secret in SECRETS)
        assert all(event.at > 0 for event in self.events)
        return [(one.caller, one.what, one.target, one.result) for one in self.events]

    @property
    def by_server(self) -> list[tuple[str, str, str, str, str]]:
        """For whom, what, which model, the result and the cause of what the server did itself."""
        told = zip(self.told, self.events, strict=True)
        return [(*line, event.cause) for line, event in told if event.cause and not event.peer]
