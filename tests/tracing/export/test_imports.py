"""The SDK of OpenTelemetry stays out of the server process."""

from __future__ import annotations

import subprocess
import sys

import pytest

_PROGRAM = """
import sys
import penstock.app, penstock.cli
import penstock.tracing.export, penstock.tracing.spans, penstock.tracing.exporter
print([name for name in sys.modules if name.startswith("opentelemetry")])
"""


@pytest.mark.slow
def test_server_does_not_import_opentelemetry() -> None:
    done = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stderr
