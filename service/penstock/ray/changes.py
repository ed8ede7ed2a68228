"""Loads, unloads and aliases of a fleet: what has been changed, and its replay on a new replica.

Nothing here knows Ray.
"""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.protocol import grpc_service_pb2 as pb
from penstock.protocol import releases_pb2 as releases

KINDS: Mapping[str, tuple[str, type[Any], str]] = {
    "load": ("model", pb.RepositoryModelLoadRequest, "model_name"),
    "unload": ("model", pb.RepositoryModelUnloadRequest, "model_name"),
    "alias": ("alias", releases.AliasSetRequest, "name"),
    "remove_alias": ("alias", releases.AliasRemoveRequest, "name"),
}
"""Kind of a change -> what it is of, its message, and the message's field with the name."""

_UNDOING = ("unload", "remove_alias")


class NotAppliedError(Exception):
    """A replica refused a change; `code` is the name of the gRPC status."""

    def __init__(self, reason: str, code: str = "UNKNOWN") -> None:
        super().__init__(reason)
        self.code = code

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (str(self), self.code))


@dataclass(frozen=True, slots=True)
class Change:
    """A call that changes every replica: its kind, and its message as bytes."""

    kind: str
    message: bytes

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"a change is one of {', '.join(KINDS)}, not {self.kind}")

    @property
    def request(self) -> Any:
        """The message."""
        return KINDS[self.kind][1].FromString(self.message)

    @property
    def subject(self) -> tuple[str, str]:
        """What it changes: `model` or `alias`, and its name."""
        of, _, field = KINDS[self.kind]
        return of, getattr(self.request, field)

    def __str__(self) -> str:
        return f"{self.kind} {self.subject[1]}"


class ChangeLog:
    """The last change of each model and alias, in the order in which they were made.

    What went before on the same name does not matter to a replica that starts now.
    """

    def __init__(self, changes: Iterable[Change] = ()) -> None:
        self._changes: dict[tuple[str, str], Change] = {}
        for change in changes:
            self.record(change)

    def record(self, change: Change) -> None:
        """Keep a change that was made."""
        self._changes.pop(change.subject, None)
        self._changes[change.subject] = change

    def net(self) -> list[Change]:
        """What is to be made on a replica that has just started."""
        return list(self._changes.values())

    def saved(self) -> list[list[str]]:
        """All of it, for JSON."""
        return [[c.kind, base64.b64encode(c.message).decode()] for c in self._changes.values()]

    @classmethod
    def restored(cls, saved: Iterable[Sequence[str]]) -> ChangeLog:
        """The log of what `saved` gave."""
        return cls(Change(kind, base64.b64decode(message)) for kind, message in saved)


class NumberedChanges:
    """The last change of each model and alias, for replicas that ask what is new.

    A change has the mark that it was broadcast with, by which a replica knows what it has made.
    """

    def __init__(self) -> None:
        self._log = ChangeLog()
        self._known: dict[tuple[str, str], tuple[int, str]] = {}
        self._number = 0

    def record(self, change: Change, mark: str) -> None:
        """Keep a change that one replica at least has made."""
        self._number += 1
        self._log.record(change)
        self._known[change.subject] = self._number, mark

    def since(self, number: int) -> tuple[int, list[tuple[str, Change]]]:
        """The number of now, and the changes after `number` with their marks."""
        known = [(*self._known[change.subject], change) for change in self._log.net()]
        return self._number, [(mark, change) for at, mark, change in known if at > number]


class MadeChanges:
    """Changes that one replica has made, out of `NumberedChanges`."""

    def __init__(self) -> None:
        self.number = 0
        self._marks: dict[tuple[str, str], str] = {}

    def add(self, change: Change, mark: str) -> None:
        """A broadcast change was made here."""
        self._marks[change.subject] = mark

    def lacking(self, changes: Iterable[tuple[str, Change]]) -> dict[Change, str]:
        """Those that are still to be made here, with their marks."""
        return {change: mark for mark, change in changes if self._marks.get(change.subject) != mark}


async def replay(
    changes: Sequence[Change], apply: Callable[[Change], Awaitable[None]]
) -> dict[str, str]:
    """Apply changes to a replica that has started; what it lacks in the end, and why.

    A change may have needed one that was made later since: an alias its model, which was loaded
    anew. So what is refused is tried again behind the others, as long as one more succeeds.
    """
    left = list(changes)
    while True:
        refused: dict[Change, str] = {}
        for change in left:
            try:
                await apply(change)
            except NotAppliedError as error:
                if not (error.code == "NOT_FOUND" and change.kind in _UNDOING):
                    refused[change] = str(error)
        if len(refused) in (0, len(left)):
            return {str(change): reason for change, reason in refused.items()}
        left = list(refused)
