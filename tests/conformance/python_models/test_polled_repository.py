"""A repository that is polled while models in it are broken, mended and copied."""

from __future__ import annotations

from pathlib import Path

import pytest

from conformance.python_models.client import Client, RefusedError
from conformance.python_models.repository import PythonModel
from harness.serving import Served, wait_until

pytestmark = pytest.mark.contract("M-03")

ARGUMENTS = (
    "--model-control-mode=poll",
    "--repository-poll-secs=1",
    "--exit-on-error=false",
)
_ANSWER = """
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        y = pb_utils.Tensor("Y", np.array([{}], np.float32))
        return [pb_utils.InferenceResponse([y]) for _ in requests]
"""
_BROKEN = "def (:"

MODELS = {"whole": PythonModel(_ANSWER.format(1)), "broken": PythonModel(_BROKEN)}


def _answers(client: Client, model: str, number: float) -> bool:
    try:
        return bool(client.infer(model)["Y"][0] == number)
    except RefusedError:
        return False


def _write(repository: Path, path: str, text: str) -> None:
    """Write a file at once, as an editor does: what is polled is whole."""
    beside = repository / "written"
    beside.write_text(text)
    beside.rename(repository / path)


def test_model_is_mended_and_others_come_meanwhile(client: Client, repository: Path) -> None:
    PythonModel(_ANSWER.format(3)).write(_new(repository / "fresh"))
    wait_until(lambda: _answers(client, "fresh", 3))
    assert not client.ready("broken")
    _write(repository, "broken/1/model.py", _ANSWER.format(2))
    wait_until(lambda: _answers(client, "broken", 2))


def test_old_code_serves_while_the_new_is_broken(
    client: Client, server: Served, repository: Path
) -> None:
    _write(repository, "whole/1/model.py", _BROKEN)
    wait_until(lambda: "failed to load 'whole' version 1" in server.log.read_text())
    assert _answers(client, "whole", 1)
    _write(repository, "whole/1/model.py", _ANSWER.format(4))
    wait_until(lambda: _answers(client, "whole", 4))


def test_version_that_arrives_in_pieces_is_taken_up_when_it_is_whole(
    client: Client, server: Served, repository: Path
) -> None:
    """As rsync copies; Triton 2.51 never looks again at a version that was empty."""
    PythonModel(_ANSWER.format(1)).write(_new(repository / "copied"))
    wait_until(lambda: _answers(client, "copied", 1))
    folder = repository / "copied" / "2"
    folder.mkdir()
    wait_until(lambda: _failures(server) > 0)
    seen = _failures(server)
    (folder / ".model.py.Qx7").write_text(_ANSWER.format(5)[:40])
    wait_until(lambda: _failures(server) > seen)
    assert _answers(client, "copied", 1)
    (folder / ".model.py.Qx7").write_text(_ANSWER.format(5))
    (folder / ".model.py.Qx7").rename(folder / "model.py")
    wait_until(lambda: _answers(client, "copied", 5))


def _failures(server: Served) -> int:
    return server.log.read_text().count("failed to load 'copied' version 2")


def _new(directory: Path) -> Path:
    directory.mkdir()
    return directory
