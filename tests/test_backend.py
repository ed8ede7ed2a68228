"""The public interface for authors of backends."""

from __future__ import annotations

import subprocess
import sys

import penstock.backend
import penstock.model
import penstock.testing

FOREIGN = """
import sys
import penstock.backend, penstock.model, penstock.testing
roots = {name.partition(".")[0] for name in sys.modules}
print(sorted(roots & {"google", "grpc", "httptools", "starlette", "uvicorn", "uvloop"}))
"""


def test_what_is_public_imports_nothing_but_numpy() -> None:
    """Model processes import it, in interpreters that have none of the server's packages."""
    printed = subprocess.run([sys.executable, "-c", FOREIGN], capture_output=True, check=True)
    assert printed.stdout == b"[]\n"


def test_models_and_backends_share_their_words() -> None:
    """A name means the same in each public module that has it."""
    shared = set(penstock.backend.__all__) & set(penstock.model.__all__)
    assert {"Input", "ModelConfig", "Tensor"} <= shared
    assert [getattr(penstock.backend, name) for name in sorted(shared)] == [
        getattr(penstock.model, name) for name in sorted(shared)
    ]
    assert penstock.testing.as_tensor is penstock.model.as_tensor
