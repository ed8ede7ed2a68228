"""Two models, of which one is not for everybody, behind an access policy."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from access.policies import gate
from penstock.access.gate import AccessGate
from penstock.core.access import AuditSink
from penstock.server.seen_models import seen
from penstock.server.server import InferenceServer
from rpc.serving import open_models

OPEN, SECRET = "open", "secret"

_CONFIG = """
backend: "identity"
input [ { name: "IN" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "OUT" data_type: TYPE_FP32 dims: [ -1 ] } ]
"""

_ENSEMBLE = f"""
platform: "ensemble"
input [ {{ name: "IN" data_type: TYPE_FP32 dims: [ -1 ] }} ]
output [ {{ name: "OUT" data_type: TYPE_FP32 dims: [ -1 ] }} ]
ensemble_scheduling {{ step [ {{ model_name: "{SECRET}" model_version: -1
  input_map {{ key: "IN" value: "IN" }} output_map {{ key: "OUT" value: "OUT" }} }} ] }}
"""


def write_ensemble(root: Path, name: str) -> None:
    """An ensemble that calls the model that is not for everybody."""
    (root / name / "1").mkdir(parents=True)
    (root / name / "config.pbtxt").write_text(_ENSEMBLE)


def write_models(root: Path) -> Path:
    for name in (OPEN, SECRET):
        (root / name / "1").mkdir(parents=True)
        (root / name / "config.pbtxt").write_text(_CONFIG)
    return root


@asynccontextmanager
async def guarded(
    repository: Path,
    asked: AccessGate | None = None,
    audit: AuditSink | None = None,
    **options: Any,
) -> AsyncIterator[InferenceServer]:
    """The server as frontends see it behind a policy."""
    async with open_models(repository, **options) as server:
        server.access = asked or gate()
        server.audit = audit
        yield seen(server)
