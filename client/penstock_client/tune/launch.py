"""Servers for variants: a new one for each; `Launch` is the seam to others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Protocol

from penstock_client.tune.composition import Composition
from penstock_client.tune.load.measured_server import MeasuredServer
from penstock_client.tune.options import Plan
from penstock_client.tune.served import serving
from penstock_client.tune.settings import CACHE

_CACHE_BYTES = 64 << 20


class Launch(Protocol):
    """A way to serve variants one after the other."""

    def loaded(self, changes: Mapping[str, Any]) -> AbstractContextManager[MeasuredServer]:
        """A server with a variant; raises `VariantError` or `ServerGoneError`."""


class LocalLaunch:
    """A new server for each variant, over a repository in `folder` that holds it."""

    def __init__(self, plan: Plan, composition: Composition, folder: Path) -> None:
        self._composition = composition
        self._repository = folder / "models"
        self._log = plan.output / "server.log"
        self._options = plan.serving
        self._flags = plan.serving.flags
        cached = any(composition.owner(name)[1] == CACHE for name in plan.values)
        if cached and not any(flag.startswith("--cache-config") for flag in self._flags):
            self._flags = (*self._flags, f"--cache-config=local,size={_CACHE_BYTES}")

    @contextmanager
    def loaded(self, changes: Mapping[str, Any]) -> Iterator[MeasuredServer]:
        """A server with a variant; raises `VariantError`."""
        self._composition.write_variant(changes, self._repository)
        options = self._options
        with serving(
            self._repository, self._log, self._flags, options.environment, options.load_seconds
        ) as server:
            for files in self._composition.models:
                server.load(files.name)
            yield server
