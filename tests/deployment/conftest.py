"""Manifests of the chart, and what its containers find in their environment."""

from __future__ import annotations

import pytest

from deployment.chart import VARIANTS, Manifest, render


@pytest.fixture(autouse=True)
def _secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    """The variables that the chart gives the server from Secrets, which its arguments name."""
    for name in ("ADMIN", "RESTRICTION_0", "RESTRICTION_1"):
        monkeypatch.setenv(name, f"value of {name}")


@pytest.fixture(params=[*VARIANTS.values()], ids=[*VARIANTS])
def manifests(request: pytest.FixtureRequest) -> list[Manifest]:
    """The manifests of each variant."""
    return render(request.param)
