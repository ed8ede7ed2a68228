"""Command lines that would start the server, without starting it."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

from cli.reading import SERVED
from penstock.settings import Settings


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[Settings]:
    """The settings with which serving began, in place of serving."""
    seen: list[Settings] = []

    def run(settings: Settings, *, as_triton: bool) -> int:
        del as_triton
        seen.append(settings)
        return SERVED

    app = ModuleType("penstock.app")
    app.run = run  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "penstock.app", app)
    return seen
