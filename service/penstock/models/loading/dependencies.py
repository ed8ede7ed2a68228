"""Dependency graph of ensembles and the models of their steps, from configurations (M-08, M-09)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field

from penstock.core.config import ModelConfig
from penstock.core.request import ANY_VERSION
from penstock.models.repository.repository import ModelFiles

Needs = Mapping[str, frozenset[int]]
"""Needed models by name, with the versions needed; `ANY_VERSION` accepts any."""


@dataclass(frozen=True, slots=True)
class Node:
    """A model in the dependency graph: requested, or needed by one that is.

    `explicit` models were requested by name, by a client or at server start.
    """

    files: ModelFiles
    explicit: bool
    needs: Needs


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a model was not loaded; `invalid` when it was refused before any attempt."""

    reason: str
    invalid: bool = False


@dataclass(slots=True)
class DependencyGraph:
    """The dependency graph of models and ensembles. Messages are Triton's."""

    _nodes: dict[str, Node] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Node:
        return self._nodes[name]

    def add(self, files: ModelFiles, *, explicit: bool) -> None:
        """Add or replace a model; one that was ever explicit stays explicit."""
        former = self._nodes.get(files.name)
        explicit = explicit or (former is not None and former.explicit)
        self._nodes[files.name] = Node(files, explicit, needs_of(files.config))

    def remove(self, names: Iterable[str]) -> None:
        """Remove models from the graph."""
        for name in names:
            self._nodes.pop(name, None)

    def dependents(self, names: Set[str]) -> set[str]:
        """Every ensemble that needs one of `names`, directly or through others."""
        found: set[str] = set()
        while new := {n for n in self._nodes if self._needs_any(n, found | names)} - found:
            found |= new
        return found - names

    def unneeded(self, name: str) -> set[str]:
        """`name` and the models that were loaded only because it needs them (X-24)."""
        gone = {name}
        while new := {n for n in self._needed_by(gone) if self._is_unneeded(n, gone)} - gone:
            gone |= new
        return gone

    def load_order(self, names: Set[str]) -> list[str]:
        """`names` in topological order: each after those that it needs."""
        done: dict[str, None] = {}
        for name in sorted(names):
            self._visit(name, names, done, set())
        return list(done)

    def defect(self, name: str) -> str:
        """Why an ensemble can never be loaded: a missing model or a cycle; empty if it can."""
        node = self._nodes[name]
        missing = next((need for need in node.needs if need not in self._nodes), None)
        if missing is not None:
            return f"ensemble {name} contains models that are not available or ambiguous: {missing}"
        last = self._last_of_cycle(name)
        if last is not None:
            return f"circular dependency between ensembles: {name} -> ... -> {last} -> {name}"
        return ""

    def unmet(
        self, name: str, ready: Mapping[str, Set[int]], failures: Mapping[str, Failure]
    ) -> str:
        """Why an ensemble cannot serve over the `ready` versions; empty if it can."""
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

    def _is_unneeded(self, name: str, gone: Set[str]) -> bool:
        """Whether a model is neither explicit nor needed once the models in `gone` are unloaded."""
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

    def _last_of_cycle(self, start: str) -> str | None:
        """The last ensemble of a dependency cycle through `start`; `None` without a cycle."""
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
    """The models of an ensemble's steps, in order; none for other models."""
    needs: dict[str, frozenset[int]] = {}
    for step in config.ensemble_scheduling.step if config.ensemble_scheduling else ():
        needs[step.model] = needs.get(step.model, frozenset()) | {step.model_version}
    return needs
