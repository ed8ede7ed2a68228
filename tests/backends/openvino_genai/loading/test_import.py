"""The backend's module must be cheap to import: the server imports it, the engine it does not."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
import penstock_backends.openvino_genai
heavy = {"openvino", "openvino_genai", "openvino_tokenizers", "tokenizers"} & set(sys.modules)
sys.exit(", ".join(sorted(heavy)) or 0)
"""


def test_importing_the_backend_imports_no_engine() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
