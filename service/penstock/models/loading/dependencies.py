"""Which ensembles need which models: decided from configurations alone (contract M-08, M-09)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field

from penstock.core.config import ModelConfig
from penstock.core.request import ANY_VERSION
from penstock.models.repository.repository import ModelFiles

Needs = Mapping[str, frozenset[int]]
"""Models by name, and which of their versions are wanted; `ANY_VERSION` is content with any."""


@dataclass(frozen=True, slots=True)
class Node:
    """A model that was asked for, or that is needed by one that was.

    `explicit` is one that a client, or the start, asked for by name.
    """

    files: ModelFiles
    explicit: bool
    needs: Needs


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a model was not loaded; `invalid` when that was clear before anything was tried."""

    reason: str
    invalid: bool = False


@dataclass(slots=True)
class Dependencies:
    """The graph of models and the ensembles above them. Texts are those of the real server."""

    _nodes: dict[str, Node] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Node:
        return self._nodes[name]

    def put(self, files: ModelFiles, *, explicit: bool) -> None:
        """Know a model from these files; what was once asked for by name stays so."""
        former = self._nodes.get(files.name)
        explicit = explicit or (former is not None and former.explicit)
        self._nodes[files.name] = Node(files, explicit, needs_of(files.config))

    def remove(self, names: Iterable[str]) -> None:
        """Forget models."""
        for name in names:
            self._nodes.pop(name, None)

    def dependents(self, names: Set[str]) -> set[str]:
        """Every ensemble that needs one of `names`, directly or through others."""
        found: set[str] = set()
        while new := {n for n in self._nodes if self._needs_any(n, found | names)} - found:
            found |= new
        return found - names

    def unneeded(self, name: str) -> set[str]:
        """`name` and what was loaded only for its sake (contract X-24)."""
        gone = {name}
        while new := {n for n in self._needed_by(gone) if self._idle(n, gone)} - gone:
            gone |= new
        return gone

    def ordered(self, names: Set[str]) -> list[str]:
        """`names`, each behind those that it needs."""
        done: dict[str, None] = {}
        for name in sorted(names):
            self._visit(name, names, done, set())
        return list(done)

    def defect(self, name: str) -> str:
        """Why an ensemble could not work whatever is loaded; empty when it could."""
        node = self._nodes[name]
        missing = next((need for need in node.needs if need not in self._nodes), None)
        if missing is not None:
            return f"ensemble {name} contains models that are not available or ambiguous: {missing}"
        last = self._last_of_circle(name)
        if last is not None:
            return f"circular dependency between ensembles: {name} -> ... -> {last} -> {name}"
        return ""

    def unmet(
        self, name: str, ready: Mapping[str, Set[int]], failures: Mapping[str, Failure]
    ) -> str:
        """What an ensemble lacks when `ready` versions serve and some models failed just now."""
        for need, versions in self._nodes[name].needs.items():
            depends = f"ensemble '{name}' depends on '{need}'"
            failure = failures.get(need)
            if failure is not None and failure.invalid:
                return (
                    f"{depends} which is not valid. Model '{need}' failed with error:"
                    f" {failure.reason}"
                )
            if not ready[need]:
                if failure is None:
                    return f"{depends} which has no loaded version."
                return (
                    f"{depends} which has no loaded version. Model '{need}' loading failed with"
                    f" error: {failure.reason}"
                )
            for version in sorted(versions - ready[need] - {ANY_VERSION}):
                return f"{depends} whose required version {version} is not loaded."
        return ""

    def _needs_any(self, name: str, names: Set[str]) -> bool:
        return not names.isdisjoint(self._nodes[name].needs)

    def _needed_by(self, names: Set[str]) -> Iterator[str]:
        for name in names & self._nodes.keys():
            yield from self._nodes[name].needs

    def _idle(self, name: str, gone: Set[str]) -> bool:
        """Whether nobody wants a model any more, once others are gone."""
        node = self._nodes.get(name)
        if node is None or node.explicit:
            return False
        return not any(self._needs_any(other, {name}) for other in self._nodes.keys() - gone)

    def _visit(self, name: str, names: Set[str], done: dict[str, None], above: set[str]) -> None:
        if name in done or name in above or name not in self._nodes:
            return
        for need in self._nodes[name].needs:
            self._visit(need, names, done, above | {name})
        if name in names:
            done[name] = None

    def _last_of_circle(self, start: str) -> str | None:
        """The ensemble that needs `start`, on the way from it through what it needs."""
        seen: set[str] = set()
        todo = [start]
        while todo:
            name = todo.pop()
            for need in self._nodes[name].needs if name in self._nodes else ():
                if need == start:
                    return name
                if need not in seen:
                    seen.add(need)
                    todo.append(need)
        return None


def needs_of(config: ModelConfig) -> Needs:
    """The models of an ensemble's steps, in their order; none for other models."""
    needs: dict[str, frozenset[int]] = {}
    for step in config.ensemble_scheduling.step if config.ensemble_scheduling else ():
        needs[step.model_name] = needs.get(step.model_name, frozenset()) | {step.model_version}
    return needs
